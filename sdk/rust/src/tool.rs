//! Tools that were granted, by their names `SERVER.METHOD`.
//!
//! A call that a person has to approve waits for that: in a run as long as it takes, elsewhere it is refused. An error has the kind
//! `"denied"` when policy or a person refused the call, `"failed"` when it is the tool's own.

use crate::calls::ask;
use crate::frames::{append_request, result, take_reply};
use crate::{host, object, Error, Result, Value};

/// Calls a tool with an object of arguments, and returns what it returned. What is large, or no JSON, is `{"artifact", "type", "size"}`
/// in its place, for [`file::read`](crate::file::read).
pub fn call(name: &str, args: impl Into<Value>) -> Result<Value> {
    Ok(ask("tool.call", &wire(name, args.into())?)?["value"].clone())
}

fn wire(name: &str, args: Value) -> Result<Value> {
    if !matches!(args, Value::Object(_)) {
        return Err(Error::of("invalid", format!("{}: the arguments are an object, not {}", name, args)));
    }
    Ok(object! { "tool": name, "args": args })
}

/// Calls tools at once and returns what became of each, in order, when all have answered. Questions that people are asked about them are
/// asked together. A journal has a batch as one entry.
pub fn batch(calls: &[(&str, Value)]) -> Result<Vec<Result<Value>>> {
    let mut frames = Vec::new();
    for (name, args) in calls {
        append_request(&mut frames, "tool.call", wire(name, args.clone())?.to_string().as_bytes());
    }
    let answer = host::batch(&frames);
    let mut rest = answer.as_slice();
    let mut results = Vec::new();
    for _ in calls {
        let (status, body) = take_reply(&mut rest).ok_or_else(|| Error::of("internal", "the host's answer to a batch is too short"))?;
        results.push(result(status, body).and_then(|b| Ok(Value::parse(b)?["value"].clone())));
    }
    Ok(results)
}

/// Asks for calls to be approved as a whole, under a title that whoever approves them reads. Make each of them then by [`call`], with the
/// same arguments, once.
pub fn change(title: &str, calls: &[(&str, Value)]) -> Result<()> {
    let mut list = Vec::new();
    for (name, args) in calls {
        list.push(wire(name, args.clone())?);
    }
    ask("tool.change", &object! { "title": title, "calls": list }).map(drop)
}

/// Lists the tools that were granted: objects with `name`, `path`, `effect` and `description`.
pub fn list() -> Result<Vec<Value>> {
    tools(ask("tool.list", &object! {})?)
}

/// Finds up to `limit` tools by words, the best first.
pub fn search(words: &str, limit: i64) -> Result<Vec<Value>> {
    tools(ask("tool.search", &object! { "query": words, "limit": limit })?)
}

fn tools(found: Value) -> Result<Vec<Value>> {
    Ok(found["tools"].as_array().unwrap_or(&[]).to_vec())
}
