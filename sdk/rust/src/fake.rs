use std::cell::RefCell;
use std::collections::HashMap;

use crate::{base64, export, object, Error, Input, Level, Output, Result, Value};

type Answer = Box<dyn FnMut(&str, &str, Vec<u8>) -> Result<Vec<u8>>>;

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
            _ => Err(Error::of("invalid", format!("the fake host has no call {}", name))),
        }
    }
}
