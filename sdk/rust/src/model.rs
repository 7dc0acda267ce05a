//! Models, as the app's operators have set them up: a route such as `@main`, or `PROVIDER/MODEL`. Which an agent may ask is a grant.
//!
//! ```
//! # use skep::{model, object, Fake, Result, Value};
//! fn weather(city: String) -> Result<String> {
//!     let mut messages = vec![model::user(format!("How is the weather in {}?", city))];
//!     let tools = vec![object! { "name": "look", "description": "Looks out of the window.", "schema": object! { "type": "object" } }];
//!     loop {
//!         let answer = model::generate(object! { "model": "@cheap", "messages": messages.clone(), "tools": tools.clone() })?;
//!         if answer.calls().is_empty() {
//!             return Ok(answer.text());
//!         }
//!         messages.push(answer.message());
//!         let results = answer.calls().iter().map(|call| model::result(call, "it rains")).collect::<Vec<Value>>();
//!         messages.push(object! { "role": "user", "content": results });
//!     }
//! }
//! # let mut host = Fake::new().model(|ask| Ok(match ask["messages"].as_array().unwrap().len() {
//! #     1 => object! { "content": vec![object! { "type": "tool-call", "id": "c1", "name": "look", "args": object! {} }] },
//! #     _ => "It rains.".into(),
//! # }));
//! # let text: String = host.call(weather, "Oslo").unwrap();
//! # assert_eq!(text, "It rains.");
//! ```

use std::collections::VecDeque;

use crate::calls::ask;
use crate::{object, Result, Value};

/// What a model has said.
#[derive(Clone, Debug, PartialEq)]
pub struct Answer {
    /// The whole of it: `id`, `model`, `content`, `stop` and `usage`.
    pub value: Value,
}

impl Answer {
    /// All of its text, one part after the other.
    pub fn text(&self) -> String {
        self.parts("text").iter().map(|p| p["text"].as_str().unwrap_or("")).collect()
    }

    /// The calls of tools that it asks for: objects with `id`, `name` and `args`.
    pub fn calls(&self) -> Vec<Value> {
        self.parts("tool-call")
    }

    /// Why the model stopped: `end`, `length`, `tool`, `filter`, `pause` or `unknown`.
    pub fn stop(&self) -> &str {
        self.value["stop"].as_str().unwrap_or("unknown")
    }

    /// The message that it is in what follows.
    pub fn message(&self) -> Value {
        object! { "role": "assistant", "content": self.value["content"].clone() }
    }

    fn parts(&self, kind: &str) -> Vec<Value> {
        let all = self.value["content"].as_array().unwrap_or(&[]);
        all.iter().filter(|p| p["type"].as_str() == Some(kind)).cloned().collect()
    }
}

/// A message of the person that the model answers: a text, or an array of parts.
pub fn user(content: impl Into<Value>) -> Value {
    object! { "role": "user", "content": content.into() }
}

/// The part of a user's message that answers a call. Set `failed` on it when the text tells an error.
pub fn result(call: &Value, text: &str) -> Value {
    object! { "type": "tool-result", "id": call["id"].clone(), "name": call["name"].clone(), "result": text }
}

/// Asks a model and returns its answer when it is whole. `question` is a text, or an object with `messages` and, as wanted, `model` (the route
/// `@main` unless given), `system`, `tools`, `choice`, `max_tokens`, `temperature`, `top_p`, `stop`, `reasoning`, `format`, `user`, `cache` and `show`.
pub fn generate(question: impl Into<Value>) -> Result<Answer> {
    Ok(Answer { value: ask("model.generate", &wire(question.into()))? })
}

/// Asks a model whose answer is read while it comes: the result is an iterator, which ends when the answer does. To drop it gives the rest up.
pub fn stream(question: impl Into<Value>) -> Result<Stream> {
    let open = ask("model.open", &wire(question.into()))?;
    Ok(Stream { open: Some(open), pieces: VecDeque::new(), answer: None })
}

/// Lists the routes and models that the agent may ask: objects with `name` and `description`.
pub fn list() -> Result<Vec<Value>> {
    Ok(ask("model.list", &object! {})?["models"].as_array().unwrap_or(&[]).to_vec())
}

fn wire(question: Value) -> Value {
    match question {
        Value::Text(text) => object! { "messages": vec![user(text)] },
        other => other,
    }
}

/// A piece of an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Piece {
    /// Counts the parts of the answer.
    pub index: i64,
    /// `text`, `reasoning`, `tool-call` or `refusal`.
    pub kind: String,
    /// What comes next. Of a call it is of its arguments, as JSON.
    pub text: String,
    /// The call's id, and the tool's name, with the first piece of a call.
    pub id: String,
    pub name: String,
}

/// An answer that comes in pieces.
#[derive(Debug)]
pub struct Stream {
    open: Option<Value>, // nothing once it has ended
    pieces: VecDeque<Piece>,
    answer: Option<Answer>,
}

impl Stream {
    /// The whole answer, once the pieces have come to their end.
    pub fn answer(&self) -> Option<&Answer> {
        self.answer.as_ref()
    }
}

impl Iterator for Stream {
    type Item = Result<Piece>;

    fn next(&mut self) -> Option<Result<Piece>> {
        loop {
            if let Some(piece) = self.pieces.pop_front() {
                return Some(Ok(piece));
            }
            let got = match ask("model.read", self.open.as_ref()?) {
                Ok(got) => got,
                Err(e) => {
                    self.open = None;
                    return Some(Err(e));
                }
            };
            for p in got["pieces"].as_array().unwrap_or(&[]) {
                let text = |name: &str| p[name].as_str().unwrap_or("").to_string();
                let index = p["index"].as_i64().unwrap_or(0);
                self.pieces.push_back(Piece { index, kind: text("type"), text: text("text"), id: text("id"), name: text("name") });
            }
            if !got["answer"].is_null() {
                self.open = None;
                self.answer = Some(Answer { value: got["answer"].clone() });
            }
        }
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        if let Some(open) = self.open.take() {
            let _ = ask("model.close", &open); // nobody wants what it says
        }
    }
}
