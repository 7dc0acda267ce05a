//! The state of the instance that its clients see: one JSON value, of which each connected client is told each change once it is
//! durable.

use crate::calls::ask;
use crate::{object, Result, Value};

/// Returns the state and its version. Version 0 means that it was never set; the state is then null.
pub fn get() -> Result<(Value, i64)> {
    let got = ask("shared.get", &Value::Null)?;
    Ok((got["state"].clone(), got["version"].as_i64().unwrap_or(0)))
}

/// Sets the state and returns its new version.
pub fn set(state: impl Into<Value>) -> Result<i64> {
    change(object! { "state": state.into() })
}

/// Sets the state if it has that version, and returns its new one. Else it fails with an error of kind `"conflict"`.
pub fn set_if(version: i64, state: impl Into<Value>) -> Result<i64> {
    change(object! { "state": state.into(), "if": version })
}

fn change(body: Value) -> Result<i64> {
    Ok(ask("shared.set", &body)?["version"].as_i64().unwrap_or(0))
}
