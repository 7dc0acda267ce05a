use skep::{object, Value};

#[test]
fn reads_and_writes() {
    for (text, want) in [
        ("null", "null"),
        (" [ ] ", "[]"),
        ("{}", "{}"),
        ("-0", "0"),
        ("1.50", "1.5"),
        ("1e3", "1000.0"),
        ("9223372036854775807", "9223372036854775807"),
        ("9223372036854775808", "9.223372036854776e18"),
        (r#"{"a":[1,true,false,null,"x"],"b":{"c":"d"}}"#, r#"{"a":[1,true,false,null,"x"],"b":{"c":"d"}}"#),
        (r#""\"\\\/\b\f\n\r\t\u00e9""#, "\"\\\"\\\\/\\u0008\\u000c\\n\\r\\t\u{e9}\""),
        (r#""\ud83d\ude00 \ud83d x""#, "\"\u{1f600} \u{fffd} x\""),
        (r#""\ud83d\u0041""#, "\"\u{fffd}A\""),
    ] {
        let got = Value::parse(text.as_bytes()).map(|v| v.to_string());
        assert_eq!(got.as_deref(), Ok(want), "{}", text);
    }
}

#[test]
fn refuses_with_the_place() {
    for (text, at) in [
        ("", 0),
        ("nul", 0),
        ("[1,]", 3),
        ("[1 2]", 3),
        ("{1:2}", 1),
        ("{\"a\" 1}", 5),
        ("01", 1),
        ("1.", 2),
        ("-", 1),
        ("1e999", 5),
        ("\"a", 2),
        ("\"\\x\"", 2),
        ("\"\\u12g4\"", 5),
        ("\"\n\"", 1),
        ("true false", 5),
    ] {
        assert_eq!(Value::parse(text.as_bytes()).map_err(|e| e.at), Err(at), "{}", text);
    }
    assert!(Value::parse(b"\"\xff\"").is_err());
    assert!(Value::parse("[".repeat(100_000).as_bytes()).is_err());
    assert!(Value::parse(("[".repeat(128) + &"]".repeat(128)).as_bytes()).is_ok());
}

/// Every text that is cut off or damaged is refused or read, and what is read is written as it will be read again.
#[test]
fn damaged_text_never_panics() {
    let text = br#"{"name":"Ada \u00e9\ud83d\ude00","n":[1,-2.5e3,true,null,{"x":{}}],"s":"\\\n"}"#;
    let mut seed = 1u32;
    for round in 0..20_000 {
        let mut damaged = text[..text.len() - round % 7].to_vec();
        for _ in 0..round % 4 {
            seed = seed.wrapping_mul(1664525).wrapping_add(1013904223);
            let at = (seed >> 8) as usize % damaged.len();
            damaged[at] = (seed >> 3) as u8;
        }
        if let Ok(v) = Value::parse(&damaged) {
            assert_eq!(Value::parse(v.to_string().as_bytes()), Ok(v));
        }
    }
}

#[test]
fn values_are_easy_to_reach() {
    let mut v = object! { "a": vec![1, 2], "b": object! { "c": "d" }, "none": None::<i32>, "big": 3.0 };
    assert_eq!(v["a"][1].as_i64(), Some(2));
    assert_eq!(v["b"]["c"].as_str(), Some("d"));
    assert_eq!(v["big"].as_i64(), Some(3));
    assert!(v["none"].is_null() && v["x"]["y"][4].is_null());
    v.set("a", "new");
    v.set("z", true);
    assert_eq!(v.to_string(), r#"{"a":"new","b":{"c":"d"},"none":null,"big":3.0,"z":true}"#);
    assert_eq!(Value::from(f64::NAN).to_string(), "null");
}
