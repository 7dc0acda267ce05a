//! Alarms of the instance: calls that it gets at a time, after a delay, or again and again. An alarm is set when the turn is
//! committed, fires at least once, and is tried again when the call fails.
//!
//! ```no_run
//! # use skep::{alarm, object, Result};
//! # use std::time::Duration;
//! # fn f() -> Result<()> {
//! alarm::after(Duration::from_secs(300)).name("tea").method("brew").payload(object! { "cups": 2 }).set()?;
//! alarm::cron("0 9 * * 1-5", "Europe/Rome").name("morning").set()?; // calls on_alarm
//! # Ok(()) }
//! ```

use std::time::{Duration, SystemTime};

use crate::calls::ask;
use crate::time::{millis, time_of, unix_millis};
use crate::{object, Result, Value};

/// An alarm that is set, or that failed for the last time.
#[derive(Clone, Debug, PartialEq)]
pub struct Alarm {
    pub name: String,
    pub method: String,
    pub payload: Value,
    /// When it is due next.
    pub at: SystemTime,
    pub every: Option<Duration>,
    pub cron: String,
    pub zone: String,
    /// Attempts that failed.
    pub attempt: i64,
    /// The last one failed, too.
    pub dead: bool,
    /// Of the latest attempt.
    pub error: String,
}

/// An alarm that is not set yet.
#[must_use = "an alarm is set by set()"]
pub struct Setting(Value);

/// An alarm at a time.
pub fn at(t: SystemTime) -> Setting {
    Setting(object! { "at": unix_millis(t) })
}

/// An alarm after a delay.
pub fn after(d: Duration) -> Setting {
    Setting(object! { "delay": millis(d).max(1) })
}

/// An alarm at intervals of a second or more.
pub fn every(d: Duration) -> Setting {
    Setting(object! { "every": millis(d) })
}

/// An alarm by a cron line of five or six fields, or a word such as `@daily`, in a zone of the IANA database; UTC when that is empty.
pub fn cron(line: &str, zone: &str) -> Setting {
    Setting(object! { "cron": line, "zone": zone })
}

impl Setting {
    /// Names the alarm among those of the instance. Setting one of the same name again replaces it. Without a name it gets one made of
    /// method, time and payload, so that what is set twice happens once.
    pub fn name(self, name: &str) -> Setting {
        self.with("name", name)
    }

    /// Sets which method is called; the handler `on_alarm` unless given.
    pub fn method(self, name: &str) -> Setting {
        self.with("method", name)
    }

    /// Sets the method's input, which travels as JSON.
    pub fn payload(self, v: impl Into<Value>) -> Setting {
        self.with("payload", v)
    }

    /// Has further calls wait until one that still runs has ended. Else they are left out.
    pub fn queue(self) -> Setting {
        self.with("overlap", "queue")
    }

    /// Says what becomes of times that passed meanwhile: `"once"` (the default), `"skip"` or `"all"`.
    pub fn missed(self, how: &str) -> Setting {
        self.with("missed", how)
    }

    /// Says how many attempts are made in all, 6 unless given, and how long after each other: `delay`, 2 s unless given, is doubled up to
    /// `longest`, 5 minutes unless given.
    pub fn retry(self, attempts: u32, delay: Duration, longest: Duration) -> Setting {
        self.with("retry", object! { "attempts": attempts, "delay": millis(delay), "max_delay": millis(longest) })
    }

    /// Lets an alarm of the same name that is there stay as it is.
    pub fn keep(self) -> Setting {
        self.with("keep", true)
    }

    /// Sets the alarm.
    pub fn set(self) -> Result<Alarm> {
        Ok(read(&ask("alarm.set", &self.0)?))
    }

    fn with(mut self, name: &str, v: impl Into<Value>) -> Setting {
        self.0.set(name, v);
        self
    }
}

/// Lists the alarms of the instance in the order of their names.
pub fn list() -> Result<Vec<Alarm>> {
    let mut all = Vec::new();
    let mut after = String::new();
    loop {
        let page = ask("alarm.list", &object! { "after": after.as_str(), "limit": 1000 })?;
        all.extend(page["alarms"].as_array().unwrap_or(&[]).iter().map(read));
        match page["after"].as_str() {
            Some(next) if !next.is_empty() => after = next.to_string(),
            _ => return Ok(all),
        }
    }
}

/// Takes an alarm back, and tells whether it was there.
pub fn cancel(name: &str) -> Result<bool> {
    Ok(ask("alarm.cancel", &object! { "name": name })?["cancelled"].as_bool().unwrap_or(false))
}

pub(crate) fn read(v: &Value) -> Alarm {
    let text = |name: &str| v[name].as_str().unwrap_or("").to_string();
    let number = |name: &str| v[name].as_i64().unwrap_or(0);
    Alarm {
        name: text("name"),
        method: text("method"),
        payload: v["payload"].clone(),
        at: time_of(number("at")),
        every: Some(number("every")).filter(|n| *n > 0).map(|n| Duration::from_millis(n as u64)),
        cron: text("cron"),
        zone: text("zone"),
        attempt: number("attempt"),
        dead: v["dead"].as_bool().unwrap_or(false),
        error: text("error"),
    }
}
