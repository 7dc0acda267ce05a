use skep::{model, object, Error, Fake, Result, Value};

fn host() -> Fake {
    let mut fake = Fake::new().model(|ask| {
        let messages = ask["messages"].as_array().unwrap();
        let last = &messages[messages.len() - 1]["content"];
        if last.as_str() == Some("broken") {
            return Err(Error::new("no such luck"));
        }
        if let Some(result) = last[0]["result"].as_str() {
            return Ok(format!("it is {}", result).into());
        }
        let call = object! { "type": "tool-call", "id": "c1", "name": "look", "args": object! { "city": "Oslo" } };
        Ok(object! { "content": vec![object! { "type": "text", "text": "let me see that" }, call] })
    });
    fake.models = vec!["@main".into(), "a/b".into()];
    fake
}

#[test]
fn models_answer() {
    let mut host = host();
    let got: Value = host
        .call(
            |_: ()| -> Result<Value> {
                let mut messages = vec![model::user("weather?")];
                let a = model::generate(object! { "model": "@cheap", "messages": messages.clone() })?;
                assert_eq!((a.stop(), a.text().as_str()), ("tool", "let me see that"));
                messages.push(a.message());
                messages.push(model::user(a.calls().iter().map(|c| model::result(c, "rain")).collect::<Vec<Value>>()));
                let b = model::generate(object! { "messages": messages })?;
                let e = model::generate("broken").unwrap_err();
                Ok(object! { "text": b.text(), "stop": b.stop(), "error": e.message, "models": model::list()?.len() as i64 })
            },
            (),
        )
        .unwrap();
    assert_eq!(got.to_string(), r#"{"text":"it is rain","stop":"end","error":"no such luck","models":2}"#);
    assert_eq!(host.model_asks[0]["model"].as_str(), Some("@cheap"));
    assert_eq!(host.model_asks[1]["model"].as_str(), Some("@main"));
    assert_eq!(host.model_asks[1]["messages"][2]["content"][0]["id"].as_str(), Some("c1"));
    assert_eq!(host.model_asks[1]["messages"][1]["content"][1]["args"]["city"].as_str(), Some("Oslo"));
}

fn told(_: ()) -> Result<String> {
    let mut stream = model::stream("weather?")?;
    let (mut text, mut n) = (String::new(), 0);
    for piece in stream.by_ref() {
        let piece = piece?;
        text += &format!("{}{}", piece.name, piece.text);
        n += 1;
    }
    let answer = stream.answer().expect("it has ended");
    assert_eq!(answer.text(), "let me see that");
    Ok(format!("{} {}", n, text))
}

#[test]
fn streams() {
    let mut host = host();
    let got: String = host.call(told, ()).unwrap();
    assert_eq!(got, r#"5 let me see thatlook{"city":"Oslo"}"#);
    host.replay(told).unwrap();
}

#[test]
fn streams_that_are_left_are_given_up() {
    let mut host = host();
    let first: String = host
        .call(
            |_: ()| -> Result<String> {
                let mut stream = model::stream("weather?")?;
                let first = stream.next().unwrap()?;
                assert!(stream.answer().is_none());
                Ok(first.text)
            },
            (),
        )
        .unwrap();
    assert_eq!(first, "let me s");
    assert_eq!(host.open_streams(), 0);
}

#[test]
fn without_a_model_it_is_refused() {
    let kind: String = Fake::new().call(|_: ()| -> Result<String> { Ok(model::stream("x").unwrap_err().kind) }, ()).unwrap();
    assert_eq!(kind, "denied");
}
