use std::time::{Duration, SystemTime};

use crate::calls::{ask, call, decode};
use crate::time::{millis, unix_millis};
use crate::{base64, object, Input, Output, Result, Value};

/// Waits, for a second or a year. Only a run can.
pub fn sleep(d: Duration) -> Result<()> {
    match millis(d) {
        0 => Ok(()),
        ms => ask("run.sleep", &object! { "for": ms }).map(drop),
    }
}

/// Waits until a time, unless it has passed. Only a run can.
pub fn sleep_until(t: SystemTime) -> Result<()> {
    ask("run.sleep", &object! { "until": unix_millis(t).max(1) }).map(drop)
}

/// Waits until an event of that type is sent to the run, and returns what came with it, or `None` when the time is up. Without a timeout
/// it waits until the event comes. Only a run can wait.
pub fn wait_for_event(kind: &str, timeout: impl Into<Option<Duration>>) -> Result<Option<Value>> {
    let mut body = object! { "type": kind };
    if let Some(d) = timeout.into() {
        body.set("timeout", millis(d).max(1)); // 0 would be none
    }
    let got = ask("run.wait", &body)?;
    Ok(if got["timed_out"].as_bool() == Some(true) { None } else { Some(got["data"].clone()) })
}

/// A run that was started by [`start_run`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Run {
    pub id: String,
    pub session: String,
}

/// Begins a run of a function of the caller's own instance. It is begun once, also when the caller is replayed.
pub fn start_run<I: Output>(function: &str, input: I) -> Result<Run> {
    start_run_in("", "", function, input)
}

/// Begins a run in an instance of an agent, which is the caller's own when it is empty.
pub fn start_run_in<I: Output>(agent: &str, key: &str, function: &str, input: I) -> Result<Run> {
    let body = object! { "agent": agent, "key": key, "function": function, "type": I::TYPE, "input": base64::encode(&input.encode()) };
    let got = ask("run.start", &body)?;
    let text = |name: &str| got[name].as_str().unwrap_or("").to_string();
    Ok(Run { id: text("run"), session: text("session") })
}

impl Run {
    /// Waits until the run has ended and returns what it returned, by the rules of [`Input`]. How it failed is the error. Only a run can
    /// wait.
    pub fn result<O: Input>(&self) -> Result<O> {
        decode(&call("run.result", object! { "run": self.id.as_str() }.to_string().as_bytes())?)
    }
}
