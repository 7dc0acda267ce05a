use crate::export::JSON;
use crate::frames::{append_request, result, take_reply};
use crate::{base64, host, object, Error, Input, Output, Result, Value};

/// Writes an event of the agent's own to the session's log, from where it reaches every listener.
pub fn emit(name: &str, data: impl Into<Value>) -> Result<()> {
    call("emit", &object! { "name": name, "data": data.into() }.to_string().into_bytes()).map(drop)
}

/// Returns a plain setting of the agent.
pub fn config(key: &str) -> Option<String> {
    host::config(key)
}

/// Calls a function of another agent of the same app, which must have been granted. Input and result follow the rules of
/// [`Input`] and [`Output`].
pub fn call_agent<I: Output, O: Input>(agent: &str, function: &str, input: I) -> Result<O> {
    decode(&call("agent", &Call::new(agent, function, input).body)?)
}

/// One call of another agent, for [`batch`].
pub struct Call {
    body: Vec<u8>,
}

impl Call {
    pub fn new<I: Output>(agent: &str, function: &str, input: I) -> Call {
        Call { body: call_of(agent, function, input).to_string().into_bytes() }
    }
}

pub(crate) fn call_of<I: Output>(agent: &str, function: &str, input: I) -> Value {
    object! { "agent": agent, "function": function, "type": I::TYPE, "input": base64::encode(&input.encode()) }
}

/// Makes calls at once and returns what became of each, in order, when all have ended. A journal has a batch as one entry.
pub fn batch<O: Input>(calls: &[Call]) -> Result<Vec<Result<O>>> {
    let mut frames = Vec::new();
    for c in calls {
        append_request(&mut frames, "agent", &c.body);
    }
    let answer = host::batch(&frames);
    let mut rest = answer.as_slice();
    let mut results = Vec::new();
    for _ in calls {
        let (status, body) = take_reply(&mut rest).ok_or_else(|| Error::of("internal", "the host's answer to a batch is too short"))?;
        results.push(result(status, body).and_then(decode));
    }
    Ok(results)
}

pub(crate) fn call(name: &str, input: &[u8]) -> Result<Vec<u8>> {
    let reply = host::call(name, input);
    let (status, body) = reply.split_first().ok_or_else(|| Error::of("internal", "the host gave no answer"))?;
    result(*status, body).map(<[u8]>::to_vec)
}

/// Makes a call whose input and answer are JSON. `null` is no input at all, and no answer is `null`.
pub(crate) fn ask(name: &str, input: &Value) -> Result<Value> {
    let text = if input.is_null() { String::new() } else { input.to_string() };
    let body = call(name, text.as_bytes())?;
    if body.is_empty() {
        return Ok(Value::Null);
    }
    Value::parse(&body).map_err(|e| Error::of("internal", format!("the host's answer cannot be read: {}", e)))
}

/// Reads another agent's answer, whose output is base64 in JSON.
pub(crate) fn decode<O: Input>(body: &[u8]) -> Result<O> {
    let answer = Value::parse(body).map_err(|e| Error::of("internal", format!("the agent's answer cannot be read: {}", e)))?;
    let output = base64::decode(answer["output"].as_str().unwrap_or(""))
        .ok_or_else(|| Error::of("internal", "the agent's answer is not base64"))?;
    if output.is_empty() && answer["type"].as_str() == Some(JSON) {
        return O::decode(b"null".to_vec());
    }
    O::decode(output).map_err(|e| Error::new(format!("the agent's answer: {}", e)))
}
