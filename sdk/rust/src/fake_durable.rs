use std::collections::BTreeMap;
use std::time::SystemTime;

use crate::alarm::{self, Alarm};
use crate::fake::Keys;
use crate::time::{time_of, unix_millis};
use crate::{object, Error, Fake, Input, Output, Result, SqlValue, Value};

/// An attempt of a step that has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    pub name: String,
    pub attempt: i64,
    /// Empty when it worked.
    pub error: String,
    pub rollback: bool,
}

/// What an instance keeps.
#[derive(Clone, Default)]
pub(crate) struct Inside {
    storage: Keys,
    shared: (Value, i64),
    alarms: BTreeMap<String, (Value, i64)>, // with how often it was set
    sockets: BTreeMap<String, Value>,
}

impl Fake {
    /// The host's time: the beginning of the year 2030 at first. Waiting moves it.
    pub fn now(&mut self) -> SystemTime {
        time_of(self.time())
    }

    /// Sets the host's time.
    pub fn set_now(&mut self, t: SystemTime) {
        self.now = unix_millis(t);
    }

    /// Sends an event to the run: it is there for the next wait for that type.
    pub fn deliver(&mut self, kind: &str, data: impl Into<Value>) {
        self.delivered.entry(kind.to_string()).or_default().push(data.into());
    }

    /// Opens a connection, or changes one of the same id. It calls no handler.
    pub fn connect(&mut self, id: &str, tags: &[&str]) {
        self.inside.sockets.insert(id.to_string(), object! { "id": id, "tags": tags.to_vec() });
    }

    /// Lists the alarms of the instance in the order of their names.
    pub fn alarms(&self) -> Vec<Alarm> {
        self.inside.alarms.values().map(|(a, _)| alarm::read(a)).collect()
    }

    /// Moves time to when an alarm is due, if that is later, and calls `f` as its method. An alarm that worked is gone, or due again when
    /// it has an interval; one that failed is due again later, until its attempts are used up and it is dead.
    pub fn fire<I: Input, O: Output>(&mut self, name: &str, f: impl FnOnce(I) -> Result<O>) -> Result<()> {
        let gone = || Error::of("not_found", format!("there is no alarm {:?}", name));
        let (mut a, set) = self.inside.alarms.get(name).cloned().ok_or_else(gone)?;
        let at = a["at"].as_i64().unwrap_or(0);
        self.now = self.time().max(at);
        let payload = if a["payload"].is_null() { Vec::new() } else { a["payload"].to_string().into_bytes() };
        let done = self.call::<I, O, Vec<u8>, ()>(f, payload);
        if self.inside.alarms.get(name).map(|(_, n)| *n) != Some(set) {
            return done; // the call has cancelled it or set it again
        }
        let number = |name: &str, otherwise: i64| a["retry"][name].as_i64().unwrap_or(otherwise);
        let (attempts, delay, longest) = (number("attempts", 6), number("delay", 2000), number("max_delay", 300_000));
        match (&done, a["every"].as_i64(), a["cron"].as_str()) {
            (Err(e), _, _) => {
                let attempt = a["attempt"].as_i64().unwrap_or(0) + 1;
                a.set("attempt", attempt);
                a.set("error", e.message.as_str());
                a.set("dead", attempt >= attempts);
                a.set("at", self.now + (delay << (attempt - 1).min(20)).min(longest));
            }
            (_, Some(every), _) => {
                a.set("at", at + every);
                a.set("attempt", 0);
                a.set("error", "");
            }
            (_, _, Some(_)) => return done,
            _ => {
                self.inside.alarms.remove(name);
                return done;
            }
        }
        self.inside.alarms.insert(name.to_string(), (a, set));
        done
    }

    /// Answers the calls of durable code.
    pub(crate) fn durable(&mut self, name: &str, v: &Value) -> Result<Vec<u8>> {
        let text = |name: &str| v[name].as_str().unwrap_or("").to_string();
        let answer = match name {
            "storage.get" | "storage.list" | "storage.set" | "storage.delete" => {
                return self.inside.storage.answer(&name["storage.".len()..], v);
            }
            "run.result" => return self.result_of(&text("run")),
            "self" => {
                let me = &self.identity;
                object! {
                    "agent": me.agent.as_str(), "key": me.key.as_str(), "session": me.session.as_str(), "run": me.run.as_str(),
                    "version": me.version.as_str()
                }
            }
            "storage.sql" => self.sql(v)?,
            "shared.get" => object! { "state": self.inside.shared.0.clone(), "version": self.inside.shared.1 },
            "shared.set" => {
                let now = self.inside.shared.1;
                if v["if"].as_i64().map_or(false, |wanted| wanted != now) {
                    return Err(Error::of("conflict", format!("the shared state has version {}", now)));
                }
                self.inside.shared = (v["state"].clone(), now + 1);
                object! { "version": now + 1 }
            }
            "alarm.set" => self.set_alarm(v)?,
            "alarm.list" => {
                let after = text("after");
                let found: Vec<Value> = self.inside.alarms.iter().filter(|(k, _)| **k > after).map(|(_, (a, _))| a.clone()).collect();
                object! { "alarms": found }
            }
            "alarm.cancel" => object! { "cancelled": self.inside.alarms.remove(&text("name")).is_some() },
            "run.sleep" => {
                self.must_wait()?;
                let until = v["until"].as_i64().unwrap_or(self.now + v["for"].as_i64().unwrap_or(0));
                self.now = self.now.max(until);
                Value::Null
            }
            "run.wait" => self.wait(&text("type"), v["timeout"].as_i64())?,
            "run.start" => {
                self.runs.push(v.clone());
                let id = format!("run-{}", self.runs.len());
                object! { "session": format!("session-of-{}", id), "run": id }
            }
            "step.begin" | "child.delete" | "turn.leave" | "turn.enter" => Value::Null,
            "step.end" => {
                let (attempt, rollback) = (v["attempt"].as_i64().unwrap_or(0), v["rollback"].as_bool().unwrap_or(false));
                self.steps.push(Step { name: text("name"), attempt, error: text("error"), rollback });
                Value::Null
            }
            "socket.send" => {
                self.frames.push(v.clone());
                Value::Null
            }
            "socket.close" => {
                self.inside.sockets.remove(&text("id"));
                self.closed.push(v.clone());
                Value::Null
            }
            "socket.attach" => {
                let gone = Error::of("not_found", format!("there is no connection {}", text("id")));
                let s = self.inside.sockets.get_mut(&text("id")).ok_or(gone)?;
                for field in ["attachment", "tags"] {
                    if let Some(new) = v.get(field) {
                        s.set(field, new.clone());
                    }
                }
                Value::Null
            }
            "socket.list" => {
                let tag = text("tag");
                let has = |s: &&Value| tag.is_empty() || s["tags"].as_array().unwrap_or(&[]).contains(&tag.as_str().into());
                object! { "sockets": self.inside.sockets.values().filter(has).cloned().collect::<Vec<Value>>() }
            }
            _ => return Err(Error::of("invalid", format!("the fake host has no call {}", name))),
        };
        Ok(if answer.is_null() { Vec::new() } else { answer.to_string().into_bytes() })
    }

    fn must_wait(&self) -> Result<()> {
        match self.identity.run.as_str() {
            "" => Err(Error::of("invalid", "only a run can wait; in a test, make it one by Fake::in_run")),
            _ => Ok(()),
        }
    }

    fn wait(&mut self, kind: &str, timeout: Option<i64>) -> Result<Value> {
        self.must_wait()?;
        if let Some(there) = self.delivered.get_mut(kind).filter(|list| !list.is_empty()) {
            return Ok(object! { "data": there.remove(0) });
        }
        self.now += timeout.ok_or_else(|| Error::of("invalid", format!("the run waits for ever: the test delivers no event {:?}", kind)))?;
        Ok(object! { "timed_out": true })
    }

    fn set_alarm(&mut self, v: &Value) -> Result<Value> {
        let number = |name: &str| v[name].as_i64();
        let mut a = object! { "method": v["method"].as_str().unwrap_or("onAlarm") };
        for field in ["payload", "every", "cron", "zone", "retry"] {
            if let Some(given) = v.get(field) {
                a.set(field, given.clone());
            }
        }
        // The fake keeps no calendar: an alarm of a cron line is due when it is fired.
        let at = number("at").or_else(|| Some(self.now + number("delay").or_else(|| number("every"))?)).unwrap_or(0);
        a.set("at", at);
        let name = v["name"].as_str().map_or_else(|| format!("{} {}", a["method"].as_str().unwrap_or(""), v), str::to_string);
        a.set("name", name.as_str());
        let old = self.inside.alarms.get(&name);
        match (old, v["keep"].as_bool()) {
            (Some((old, _)), Some(true)) => return Ok(old.clone()),
            (old, _) => {
                let n = old.map_or(0, |(_, n)| *n) + 1;
                self.inside.alarms.insert(name, (a.clone(), n));
            }
        }
        Ok(a)
    }

    fn result_of(&mut self, run: &str) -> Result<Vec<u8>> {
        self.must_wait()?;
        let n = run.strip_prefix("run-").and_then(|n| n.parse::<usize>().ok()).unwrap_or(0);
        let gone = Error::of("not_found", format!("there is no run {}", run));
        let mut v = n.checked_sub(1).and_then(|i| self.runs.get(i)).cloned().ok_or(gone)?;
        if v["agent"].as_str() == Some("") {
            v.set("agent", self.identity.agent.as_str());
            v.set("key", self.identity.key.as_str());
        }
        self.called(&v)
    }

    fn sql(&mut self, v: &Value) -> Result<Value> {
        let none = Error::of("invalid", "the fake host has no database; in a test, set Fake::querying");
        let query = self.query.as_mut().ok_or(none)?;
        let params: Result<Vec<SqlValue>> = v["params"].as_array().unwrap_or(&[]).iter().map(SqlValue::read).collect();
        let (columns, rows) = query(v["query"].as_str().unwrap_or(""), params?)?;
        let rows: Vec<Vec<Value>> = rows.iter().map(|r| r.iter().map(SqlValue::write).collect()).collect();
        Ok(object! { "columns": columns, "rows": rows, "changes": 0 })
    }
}
