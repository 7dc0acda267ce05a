use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};

use crate::http::{pairs_of, pairs_to};
use crate::fake_durable::{Inside, Step};
use crate::fake_model::{Model, Streams};
use crate::fake_replay::Journal;
use crate::fake_tool::Tool;
use crate::{base64, export, object, Error, Identity, Input, Level, Output, Request, Response, Result, SqlValue, Value};

pub(crate) type Answer = Box<dyn FnMut(&str, &str, Vec<u8>) -> Result<Vec<u8>>>;
pub(crate) type InstanceAnswer = Box<dyn FnMut(&str, &str, &str, Vec<u8>) -> Result<Vec<u8>>>;
pub(crate) type Query = Box<dyn FnMut(&str, Vec<SqlValue>) -> Result<(Vec<String>, Vec<Vec<SqlValue>>)>>;
type Fetch = Box<dyn FnMut(Request) -> Result<Response>>;

/// Stands in for the host when an agent's functions are tested off WebAssembly. It records what they did. Its functions run in an
/// instance, whose state lasts over the calls of one fake.
///
/// ```
/// # use skep::{Fake, Result};
/// # fn greet(name: String) -> Result<String> { skep::info!("greeting {}", name); Ok(format!("Hello, {}!", name)) }
/// let mut host = Fake::new();
/// let text: String = host.call(greet, "Ada").unwrap();
/// assert_eq!(text, "Hello, Ada!");
/// assert_eq!(host.logs[0].1, "greeting Ada");
/// ```
#[derive(Default)]
pub struct Fake {
    /// The agent's settings.
    pub config: HashMap<String, String>,
    /// Console output.
    pub logs: Vec<(Level, String)>,
    /// Events that were emitted: name and data.
    pub events: Vec<(String, Value)>,
    /// What the last call put out, and the error it set.
    pub output: Vec<u8>,
    pub failed: String,

    /// Who the code is; agent and key are "test" unless given. A call with a `run` is a run: it can wait, and time passes at once. Any
    /// other is a turn: when it fails, what it did to the instance is undone.
    pub identity: Identity,
    /// Attempts of steps that have ended.
    pub steps: Vec<Step>,
    /// Messages that were sent to instances, runs that were started, and frames that were sent to connections, as they travel.
    pub messages: Vec<Value>,
    pub runs: Vec<Value>,
    pub frames: Vec<Value>,
    /// Connections that the code closed.
    pub closed: Vec<Value>,
    /// Calls of tools that were made, and changes that were asked for, as they travel.
    pub tool_calls: Vec<(String, Value)>,
    pub changes: Vec<Value>,
    /// What models were asked, as it travels, and the names that are listed of them.
    pub model_asks: Vec<Value>,
    pub models: Vec<String>,
    /// Files of the session, by path: media type and bytes.
    pub files: BTreeMap<String, (String, Vec<u8>)>,

    pub(crate) input: Vec<u8>,
    pub(crate) now: i64, // milliseconds since 1970
    pub(crate) seed: u64,
    pub(crate) answer: Option<Answer>,
    pub(crate) answer_instance: Option<InstanceAnswer>,
    pub(crate) query: Option<Query>,
    pub(crate) tools: BTreeMap<String, Tool>,
    pub(crate) model: Option<Model>,
    pub(crate) streams: Streams,
    fetch: Option<Fetch>,
    state: Keys,
    pub(crate) inside: Inside,
    pub(crate) delivered: HashMap<String, Vec<Value>>, // that were delivered and are not read
    pub(crate) journal: Journal,
}

/// Keys and values with versions.
#[derive(Clone, Default)]
pub(crate) struct Keys {
    entries: BTreeMap<String, Value>,
    version: i64,
}

thread_local! {
    static CURRENT: RefCell<Option<Fake>> = RefCell::new(None);
}

/// Gives `f` the fake under which a function runs.
pub(crate) fn with<T>(f: impl FnOnce(&mut Fake) -> T) -> T {
    CURRENT.with(|c| f(c.borrow_mut().as_mut().expect("skep: called outside a cell; in a test, use Fake::call")))
}

impl Fake {
    pub fn new() -> Fake {
        Fake::default()
    }

    /// Sets what answers calls of other agents: it gets agent, function and input. Without it they are refused.
    pub fn answering(mut self, f: impl FnMut(&str, &str, Vec<u8>) -> Result<Vec<u8>> + 'static) -> Fake {
        self.answer = Some(Box::new(f));
        self
    }

    /// Sets what answers requests. Without it they are refused. Placeholders of secrets stand in them as the agent wrote them.
    pub fn fetching(mut self, f: impl FnMut(Request) -> Result<Response> + 'static) -> Fake {
        self.fetch = Some(Box::new(f));
        self
    }

    /// Sets what answers calls of instances, and what was asked of a run that was started in one: it gets agent, key, method and
    /// input. Without it they are refused.
    pub fn answering_instances(mut self, f: impl FnMut(&str, &str, &str, Vec<u8>) -> Result<Vec<u8>> + 'static) -> Fake {
        self.answer_instance = Some(Box::new(f));
        self
    }

    /// Sets what answers statements of SQL: with columns and rows. Without it they are refused.
    pub fn querying(mut self, f: impl FnMut(&str, Vec<SqlValue>) -> Result<(Vec<String>, Vec<Vec<SqlValue>>)> + 'static) -> Fake {
        self.query = Some(Box::new(f));
        self
    }

    /// Makes the calls of this fake a run's, which can wait.
    pub fn in_run(mut self) -> Fake {
        self.identity.run = "run".to_string();
        self
    }

    /// Calls a function of the agent as the host would.
    pub fn call<I: Input, O: Output, A: Output, R: Input>(&mut self, f: impl FnOnce(I) -> Result<O>, input: A) -> Result<R> {
        self.journal = Journal::new(input.encode(), self.time());
        let before = (self.inside.clone(), self.messages.len(), self.runs.len(), self.frames.len(), self.closed.len());
        let code = self.enter(f, self.journal.input.clone());
        self.journal.ended(&self.output, &self.failed);
        if code != 0 {
            if self.identity.run.is_empty() {
                self.inside = before.0;
                self.messages.truncate(before.1);
                self.runs.truncate(before.2);
                self.frames.truncate(before.3);
                self.closed.truncate(before.4);
            }
            return Err(Error::new(&self.failed));
        }
        R::decode(self.output.clone())
    }

    pub(crate) fn enter<I: Input, O: Output>(&mut self, f: impl FnOnce(I) -> Result<O>, input: Vec<u8>) -> i32 {
        self.input = input;
        self.output.clear();
        self.failed.clear();
        self.seed = 1;
        for name in [&mut self.identity.agent, &mut self.identity.key] {
            if name.is_empty() {
                *name = "test".to_string();
            }
        }
        CURRENT.with(|c| *c.borrow_mut() = Some(std::mem::take(self)));
        let code = export::run(f);
        *self = CURRENT.with(|c| c.borrow_mut().take()).expect("the fake is still there");
        code
    }

    /// The host's time in milliseconds since 1970, which begins with the year 2030.
    pub(crate) fn time(&mut self) -> i64 {
        if self.now == 0 {
            self.now = 1_893_456_000_000;
        }
        self.now
    }

    pub(crate) fn answer(&mut self, name: &str, input: &[u8]) -> (u8, Vec<u8>) {
        match self.result(name, input) {
            Ok(body) => (0, body),
            Err(e) => (1, object! { "kind": e.kind, "message": e.message, "limit": e.limit, "hint": e.hint }.to_string().into_bytes()),
        }
    }

    fn result(&mut self, name: &str, input: &[u8]) -> Result<Vec<u8>> {
        let v = if input.is_empty() { Value::Null } else { Value::parse(input)? };
        let text = |name: &str| v[name].as_str().unwrap_or("").to_string();
        match name {
            "emit" => {
                self.events.push((text("name"), v["data"].clone()));
                Ok(Vec::new())
            }
            "agent" if v["send"].as_bool() == Some(true) => {
                self.messages.push(v);
                Ok(b"{\"type\":\"\"}".to_vec())
            }
            "agent" => self.called(&v),
            "state.get" | "state.list" | "state.set" | "state.delete" => self.state.answer(&name["state.".len()..], &v),
            "http" => {
                let refused = Error::of("denied", format!("no host is granted, so it may not reach {}", text("url")));
                let fetch = self.fetch.as_mut().ok_or(refused)?;
                let body = base64::decode(&text("body")).unwrap_or_default();
                let r = fetch(Request { method: text("method"), url: text("url"), headers: pairs_of(&v["header"]), body })?;
                let out = object! { "status": i64::from(r.status), "header": pairs_to(&r.headers), "body": base64::encode(&r.body) };
                Ok(out.to_string().into_bytes())
            }
            _ if name.starts_with("model.") => self.models_answer(name, &v),
            _ if name.starts_with("tool.") || name.starts_with("file.") => self.outside(name, &v),
            _ => self.durable(name, &v),
        }
    }

    /// Answers a call of an agent or an instance.
    pub(crate) fn called(&mut self, v: &Value) -> Result<Vec<u8>> {
        let text = |name: &str| v[name].as_str().unwrap_or("").to_string();
        let (agent, key, function) = (text("agent"), text("key"), text("function"));
        let input = base64::decode(&text("input")).unwrap_or_default();
        let refused = Error::of("denied", format!("no grant to call agent {:?}", agent));
        let out = match (&mut self.answer, &mut self.answer_instance) {
            (Some(answer), _) if key.is_empty() => answer(&agent, &function, input)?,
            (_, Some(answer)) if !key.is_empty() => answer(&agent, &key, &function, input)?,
            _ => return Err(refused),
        };
        Ok(object! { "type": text("type"), "output": base64::encode(&out) }.to_string().into_bytes())
    }
}

impl Keys {
    /// Answers a call of `kv` or `storage`, by the last part of its name.
    pub(crate) fn answer(&mut self, name: &str, v: &Value) -> Result<Vec<u8>> {
        let text = |name: &str| v[name].as_str().unwrap_or("").to_string();
        if name == "get" {
            let keys = v["keys"].as_array().unwrap_or(&[]).iter().filter_map(Value::as_str);
            return Ok(entries(keys.filter_map(|k| self.entries.get(k)).cloned().collect()));
        }
        if name == "list" {
            let (prefix, after, limit) = (text("prefix"), text("after"), v["limit"].as_i64().unwrap_or(100));
            let found = self.entries.iter().filter(|(k, _)| k.starts_with(&prefix) && **k > after);
            return Ok(entries(found.take(limit as usize).map(|(_, e)| e.clone()).collect()));
        }
        let now = self.entries.get(&text("key")).map_or(0, |e| e["version"].as_i64().unwrap_or(0));
        if v["if"].as_i64().map_or(false, |wanted| wanted != now) {
            return Err(Error::of("conflict", format!("state key {:?} has version {}", text("key"), now)));
        }
        self.version += 1;
        if name == "delete" {
            self.entries.remove(&text("key"));
        } else {
            let entry = object! { "key": text("key"), "version": self.version, "type": text("type"), "base64": text("base64") };
            self.entries.insert(text("key"), entry);
        }
        Ok(object! { "version": self.version }.to_string().into_bytes())
    }
}

fn entries(found: Vec<Value>) -> Vec<u8> {
    object! { "entries": found }.to_string().into_bytes()
}
