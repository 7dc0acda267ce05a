use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};

use crate::http::{pairs_of, pairs_to};
use crate::{base64, export, object, Error, Input, Level, Output, Request, Response, Result, Value};

type Answer = Box<dyn FnMut(&str, &str, Vec<u8>) -> Result<Vec<u8>>>;
type Fetch = Box<dyn FnMut(Request) -> Result<Response>>;

/// Stands in for the host when an agent's functions are tested off WebAssembly. It records what they did.
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

    pub(crate) input: Vec<u8>,
    answer: Option<Answer>,
    fetch: Option<Fetch>,
    state: BTreeMap<String, Value>, // entries, which last over the calls of one fake
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

    /// Calls a function of the agent as the host would.
    pub fn call<I: Input, O: Output, A: Output, R: Input>(&mut self, f: impl FnOnce(I) -> Result<O>, input: A) -> Result<R> {
        self.input = input.encode();
        self.output.clear();
        self.failed.clear();
        CURRENT.with(|c| *c.borrow_mut() = Some(std::mem::take(self)));
        let code = export::run(f);
        *self = CURRENT.with(|c| c.borrow_mut().take()).expect("the fake is still there");
        if code != 0 {
            return Err(Error::new(&self.failed));
        }
        R::decode(self.output.clone())
    }

    pub(crate) fn answer(&mut self, name: &str, input: &[u8]) -> (u8, Vec<u8>) {
        match self.result(name, input) {
            Ok(body) => (0, body),
            Err(e) => (1, object! { "kind": e.kind, "message": e.message, "limit": e.limit }.to_string().into_bytes()),
        }
    }

    fn result(&mut self, name: &str, input: &[u8]) -> Result<Vec<u8>> {
        let v = Value::parse(input)?;
        let text = |name: &str| v[name].as_str().unwrap_or("").to_string();
        match name {
            "emit" => {
                self.events.push((text("name"), v["data"].clone()));
                Ok(Vec::new())
            }
            "agent" => {
                let refused = Error::of("denied", format!("no grant to call agent {:?}", text("agent")));
                let answer = self.answer.as_mut().ok_or(refused)?;
                let out = answer(&text("agent"), &text("function"), base64::decode(&text("input")).unwrap_or_default())?;
                Ok(object! { "type": text("type"), "output": base64::encode(&out) }.to_string().into_bytes())
            }
            "state.get" => {
                let keys = v["keys"].as_array().unwrap_or(&[]).iter().filter_map(Value::as_str);
                Ok(entries(keys.filter_map(|k| self.state.get(k)).cloned().collect()))
            }
            "state.list" => {
                let (prefix, after, limit) = (text("prefix"), text("after"), v["limit"].as_i64().unwrap_or(100));
                let found = self.state.iter().filter(|(k, _)| k.starts_with(&prefix) && **k > after);
                Ok(entries(found.take(limit as usize).map(|(_, e)| e.clone()).collect()))
            }
            "state.set" | "state.delete" => {
                let now = self.state.get(&text("key")).map_or(0, |e| e["version"].as_i64().unwrap_or(0));
                if v["if"].as_i64().map_or(false, |wanted| wanted != now) {
                    return Err(Error::of("conflict", format!("state key {:?} has version {}", text("key"), now)));
                }
                self.version += 1;
                if name == "state.delete" {
                    self.state.remove(&text("key"));
                } else {
                    let entry = object! { "key": text("key"), "version": self.version, "type": text("type"), "base64": text("base64") };
                    self.state.insert(text("key"), entry);
                }
                Ok(object! { "version": self.version }.to_string().into_bytes())
            }
            "http" => {
                let refused = Error::of("denied", format!("no host is granted, so it may not reach {}", text("url")));
                let fetch = self.fetch.as_mut().ok_or(refused)?;
                let body = base64::decode(&text("body")).unwrap_or_default();
                let r = fetch(Request { method: text("method"), url: text("url"), headers: pairs_of(&v["header"]), body })?;
                let out = object! { "status": i64::from(r.status), "header": pairs_to(&r.headers), "body": base64::encode(&r.body) };
                Ok(out.to_string().into_bytes())
            }
            _ => Err(Error::of("invalid", format!("the fake host has no call {}", name))),
        }
    }
}

fn entries(found: Vec<Value>) -> Vec<u8> {
    object! { "entries": found }.to_string().into_bytes()
}
