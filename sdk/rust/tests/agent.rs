use skep::{object, Call, Error, Fake, Level, Result, Value};

#[test]
fn values_travel() {
    let mut host = Fake::new();
    let sum: i64 = host.call(|v: Value| Ok(v["a"].as_i64().unwrap_or(0) + 1), object! { "a": 2 }).unwrap();
    assert_eq!(sum, 3);
    let text: String = host.call(|s: String| Ok(s.to_uppercase()), "abc").unwrap();
    assert_eq!(text, "ABC");
    let bytes: Vec<u8> = host.call(|mut b: Vec<u8>| { b.reverse(); Ok(b) }, vec![0u8, 255]).unwrap();
    assert_eq!(bytes, [255, 0]);
    host.call::<_, _, _, ()>(|_: ()| Ok(()), ()).unwrap();
    assert!(host.output.is_empty());
    let none: bool = host.call(|o: Option<i64>| Ok(o.is_none()), ()).unwrap();
    assert!(none);
}

#[test]
fn errors_say_what_is_wrong() {
    let mut host = Fake::new();
    let fail = |host: &mut Fake, f: fn(i64) -> Result<i64>, input: Value| host.call::<_, _, _, i64>(f, input).unwrap_err().message;
    assert_eq!(fail(&mut host, |_| Err("no luck")?, 1.into()), "no luck");
    assert_eq!(fail(&mut host, |n| Ok(n), "x".into()), "input: a whole number is needed, not a string");
    assert_eq!(fail(&mut host, |_| Ok("x".parse::<i64>()?), 1.into()), "invalid digit found in string");
    let bad: Result<Value> = host.call(|v: Value| Ok(v), "{");
    assert_eq!(bad.unwrap_err().message, "input: a member's name is missing at byte 1 of the JSON text");
}

fn ask(word: String) -> Result<String> {
    skep::emit("asked", object! { "word": word.as_str() })?;
    skep::warn!("asking for {}", word);
    let prefix = skep::config("prefix").unwrap_or_default();
    let one: String = skep::call_agent("words", "up", word.as_str())?;
    Ok(prefix + &one)
}

fn upper(agent: &str, function: &str, input: Vec<u8>) -> Result<Vec<u8>> {
    match (agent, function) {
        ("words", "up") => Ok(input.to_ascii_uppercase()),
        _ => Err(Error::new("out of order")),
    }
}

#[test]
fn the_host_is_asked() {
    let mut host = Fake::new().answering(upper);
    host.config.insert("prefix".to_string(), "> ".to_string());
    let got: String = host.call(ask, "abc").unwrap();
    assert_eq!(got, "> ABC");
    assert_eq!(host.events, [("asked".to_string(), object! { "word": "abc" })]);
    assert_eq!(host.logs, [(Level::Warn, "asking for abc".to_string())]);

    let refused: Result<String> = Fake::new().call(ask, "abc");
    assert_eq!(refused.unwrap_err().message, "no grant to call agent \"words\"");
}

#[test]
fn a_batch_tells_of_each_call() {
    let all = |words: Value| -> Result<Value> {
        let words: Vec<&str> = words.as_array().unwrap().iter().filter_map(Value::as_str).collect();
        let mut calls: Vec<Call> = words.iter().map(|w| Call::new("words", "up", *w)).collect();
        calls.push(Call::new("broken", "up", ()));
        let mut out = Vec::new();
        for r in skep::batch::<String>(&calls)? {
            out.push(r.unwrap_or_else(|e| e.kind + ": " + &e.message));
        }
        Ok(out.into())
    };
    let got: Value = Fake::new().answering(upper).call(all, Value::from(vec!["a", "b"])).unwrap();
    assert_eq!(got.to_string(), r#"["A","B","failed: out of order"]"#);
}

fn remember(_: ()) -> Result<Value> {
    use skep::kv;
    let first: Option<i64> = kv::get("n")?;
    let version = kv::set("n", 1)?;
    kv::set("word", "é")?;
    kv::set("raw", &[0u8, 255][..])?;
    let late = kv::set_if("n", version + 1, 2).unwrap_err();
    kv::set_if("n", version, object! { "a": Value::Null })?;
    kv::delete("none")?;
    let n: Value = kv::get("n")?.ok_or("n is gone")?;
    let word: String = kv::get("word")?.ok_or("word is gone")?;
    let raw: Vec<u8> = kv::get("raw")?.ok_or("raw is gone")?;
    let keys: Vec<Value> = kv::list("", "n", 1)?.into_iter().map(|e| Value::from(e.key)).collect();
    Ok(object! { "first": first.is_none(), "late": late.kind, "n": n, "word": word, "raw": raw == [0, 255], "keys": keys })
}

#[test]
fn state_is_kept() {
    let got: Value = Fake::new().call(remember, ()).unwrap();
    let want = r#"{"first":true,"late":"conflict","n":{"a":null},"word":"é","raw":true,"keys":["raw"]}"#;
    assert_eq!(got.to_string(), want);
}

fn user(url: String) -> Result<String> {
    let r = skep::fetch(skep::Request::new("POST", &url).header("authorization", &format!("Bearer {}", skep::secret("api"))).body("x"))?;
    Ok(format!("{} {} {}", r.status, r.get("x-a").unwrap_or("-"), r.json()?["name"].as_str().unwrap_or("-")))
}

#[test]
fn requests_are_answered() {
    let mut host = Fake::new().fetching(|r| {
        if r.url.ends_with("/down") {
            return Err(Error::new("the host is down"));
        }
        assert_eq!((r.method.as_str(), r.body.as_slice()), ("POST", &b"x"[..]));
        assert_eq!(r.headers, [("authorization".to_string(), "Bearer {{secret:api}}".to_string())]);
        Ok(skep::Response { status: 201, headers: vec![("X-A".to_string(), "1".to_string())], body: b"{\"name\":\"Ada\"}".to_vec() })
    });
    let got: String = host.call(user, "https://up.test/").unwrap();
    assert_eq!(got, "201 1 Ada");
    let down: Result<String> = host.call(user, "https://up.test/down");
    assert_eq!(down.unwrap_err().message, "the host is down");
    let refused: Result<String> = Fake::new().call(user, "https://up.test/");
    assert_eq!(refused.unwrap_err().message, "no host is granted, so it may not reach https://up.test/");
}

#[test]
fn names_of_secrets() {
    assert_eq!(skep::secret("git.hub_1-x"), "{{secret:git.hub_1-x}}");
    for name in ["", "A", "-a", "a.", "a}}", "é"] {
        assert!(std::panic::catch_unwind(|| skep::secret(name)).is_err(), "{:?}", name);
    }
}
