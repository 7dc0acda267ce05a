//! A small agent in Rust. See the README for how to push and call it.

use skep::{object, Result, Value};

skep::export! { greet countdown }

fn greet(person: Value) -> Result<Value> {
    let name = person["name"].as_str().map(str::trim).filter(|n| !n.is_empty()).ok_or("whom shall I greet? give a name")?;
    let word = skep::config("word").unwrap_or_else(|| "Hello".to_string());
    skep::info!("greeting {}", name);
    Ok(object! { "text": format!("{}, {}!", word, name) })
}

/// Emits an event for each number on its way to zero.
fn countdown(from: i64) -> Result<&'static str> {
    for n in (1..=from).rev() {
        skep::emit("tick", n)?;
    }
    Ok("liftoff")
}

#[cfg(test)]
mod tests {
    use super::*;
    use skep::Fake;

    #[test]
    fn greets_by_name() {
        let mut host = Fake::new();
        host.config.insert("word".to_string(), "Salve".to_string());
        let got: Value = host.call(greet, object! { "name": " Ada " }).unwrap();
        assert_eq!(got["text"].as_str(), Some("Salve, Ada!"));
        assert_eq!(host.logs[0].1, "greeting Ada");
        assert!(host.call::<_, _, _, Value>(greet, object! {}).is_err());
    }

    #[test]
    fn counts_down() {
        let mut host = Fake::new();
        let got: String = host.call(countdown, 3i64).unwrap();
        assert_eq!(got, "liftoff");
        assert_eq!(host.events.len(), 3);
        assert_eq!(host.events[0].1.as_i64(), Some(3));
    }
}
