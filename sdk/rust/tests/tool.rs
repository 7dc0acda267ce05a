use skep::{file, object, tool, Error, Fake, Result, Value};

fn host() -> Fake {
    Fake::new()
        .tool("fs.read", |args| match args["path"].as_str() {
            Some("a") => Ok(object! { "content": "text" }),
            _ => Err(Error::new("no such file")),
        })
        .tool("mail.send", |_| Err(Error { kind: "denied".into(), hint: "ask Ada".into(), ..Error::new("policy says no") }))
}

fn read(path: String) -> Result<Value> {
    tool::call("fs.read", object! { "path": path })
}

#[test]
fn tools_are_called() {
    let mut host = host();
    let got: Value = host.call(read, "a").unwrap();
    assert_eq!(got["content"].as_str(), Some("text"));
    assert_eq!(host.tool_calls[0].0, "fs.read");
    assert_eq!(host.tool_calls[0].1["path"].as_str(), Some("a"));
    host.replay(read).unwrap();
}

#[test]
fn their_errors_have_kinds() {
    let kinds = |_: ()| -> Result<Vec<String>> {
        let mut all = Vec::new();
        for name in ["fs.read", "mail.send", "a.b"] {
            let e = tool::call(name, object! {}).unwrap_err();
            all.push(format!("{} {}", e.kind, e.hint));
        }
        all.push(tool::call("fs.read", 1).unwrap_err().kind);
        Ok(all)
    };
    let all: Value = host().call(move |v: ()| kinds(v).map(Value::from), ()).unwrap();
    let all: Vec<&str> = all.as_array().unwrap().iter().filter_map(Value::as_str).collect();
    assert_eq!(all, ["failed ", "denied ask Ada", "denied ", "invalid"]);
}

#[test]
fn many_at_once_and_together() {
    let mut host = host();
    let both: Value = host
        .call(
            |_: ()| {
                let calls = [("fs.read", object! { "path": "a" }), ("fs.read", object! { "path": "b" })];
                tool::change("Two files", &calls)?;
                let got = tool::batch(&calls)?;
                let found = tool::search("READ it", 5)?.len() as i64;
                Ok(object! { "a": got[0].clone()?["content"].clone(), "b": got[1].clone().unwrap_err().message, "found": found, "all": tool::list()?.len() as i64 })
            },
            (),
        )
        .unwrap();
    assert_eq!(both.to_string(), r#"{"a":"text","b":"no such file","found":1,"all":2}"#);
    assert_eq!(host.changes[0]["title"].as_str(), Some("Two files"));
}

#[test]
fn files() {
    let mut host = host();
    host.files.insert("artifacts/1/a.png".into(), ("image/png".into(), vec![1, 2, 3]));
    let n: i64 = host
        .call(
            |_: ()| {
                let bytes = file::read("artifacts/1/a.png")?;
                file::write("b.bin", "x/y", &bytes)?;
                assert_eq!(file::read("none").unwrap_err().kind, "not_found");
                Ok(file::list("")?.iter().map(|f| f.size).sum::<i64>())
            },
            (),
        )
        .unwrap();
    assert_eq!(n, 6);
    assert_eq!(host.files["b.bin"], ("x/y".to_string(), vec![1, 2, 3]));
}
