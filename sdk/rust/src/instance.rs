use crate::calls::{ask, call, call_of, decode};
use crate::{object, Input, Output, Result, Value};

/// Who the code is that runs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Identity {
    pub agent: String,
    /// Of the instance; empty in a call that belongs to none.
    pub key: String,
    pub session: String,
    /// Empty when the call is no run.
    pub run: String,
    /// Digest of the code.
    pub version: String,
}

/// Tells who the code is that runs.
pub fn identity() -> Result<Identity> {
    let v = ask("self", &Value::Null)?;
    let text = |name: &str| v[name].as_str().unwrap_or("").to_string();
    Ok(Identity { agent: text("agent"), key: text("key"), session: text("session"), run: text("run"), version: text("version") })
}

/// Commits what the turn has changed and lets other turns of the instance go first while `f` runs, which is for what is slow. `f` cannot
/// reach what belongs to the instance, and what was read before may have changed after. In runs, alarms and messages it only calls
/// `f`.
pub fn outside<T>(f: impl FnOnce() -> Result<T>) -> Result<T> {
    ask("turn.leave", &Value::Null)?;
    let done = f();
    ask("turn.enter", &Value::Null)?;
    done
}

/// One instance of an agent of the same app, which must have been granted unless it is the caller itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Instance {
    agent: String,
    key: String,
    child: bool,
}

/// Names an instance, which is made by the first call that it gets.
pub fn instance(agent: &str, key: &str) -> Instance {
    Instance { agent: agent.to_string(), key: key.to_string(), child: false }
}

/// Names an instance that is the caller's own: it is made by the first call that it gets from here, and ends with the caller's instance.
pub fn child(agent: &str, key: &str) -> Instance {
    Instance { child: true, ..instance(agent, key) }
}

impl Instance {
    /// Calls a method and waits for what it returns. An instance that waits for this call itself is refused as a conflict: send it a
    /// message.
    pub fn call<I: Output, O: Input>(&self, method: &str, input: I) -> Result<O> {
        decode(&self.ask(method, input, false)?)
    }

    /// Has a method called later, after this turn has been committed, and once whatever happens. Messages from one instance to another
    /// arrive in their order. A turn that fails sends nothing.
    pub fn send<I: Output>(&self, method: &str, input: I) -> Result<()> {
        self.ask(method, input, true).map(drop)
    }

    /// Ends a child and all that it keeps.
    pub fn delete(&self) -> Result<()> {
        ask("child.delete", &object! { "agent": self.agent.as_str(), "key": self.key.as_str() }).map(drop)
    }

    fn ask<I: Output>(&self, method: &str, input: I, send: bool) -> Result<Vec<u8>> {
        let mut body = call_of(&self.agent, method, input);
        body.set("key", self.key.as_str());
        if self.child {
            body.set("child", true);
        }
        if send {
            body.set("send", true);
        }
        call("agent", body.to_string().as_bytes())
    }
}
