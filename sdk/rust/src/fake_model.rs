use std::collections::{BTreeMap, VecDeque};

use crate::{object, Error, Fake, Result, Value};

pub(crate) type Model = Box<dyn FnMut(&Value) -> Result<Value>>;

/// Answers that are read in pieces, by their ids.
#[derive(Default)]
pub(crate) struct Streams {
    last: i64,
    open: BTreeMap<i64, (VecDeque<Value>, Value)>,
}

impl Fake {
    /// Sets what answers models: it gets what they are asked, and returns a text, or an answer with its `content`. Without it they are refused.
    pub fn model(mut self, f: impl FnMut(&Value) -> Result<Value> + 'static) -> Fake {
        self.model = Some(Box::new(f));
        self
    }

    /// How many answers are open that were not read to their end.
    pub fn open_streams(&self) -> usize {
        self.streams.open.len()
    }

    /// Answers the calls of models.
    pub(crate) fn models_answer(&mut self, name: &str, v: &Value) -> Result<Vec<u8>> {
        let id = v["id"].as_i64().unwrap_or(0);
        let answer = match name {
            "model.generate" => self.generated(v)?,
            "model.open" => {
                let answer = self.generated(v)?;
                self.streams.last += 1;
                self.streams.open.insert(self.streams.last, (pieces(&answer), answer));
                object! { "id": self.streams.last }
            }
            "model.read" => {
                let none = Error::of("unavailable", "the stream of a model is not open");
                let (left, answer) = self.streams.open.get_mut(&id).ok_or(none)?;
                match left.pop_front() {
                    Some(piece) => object! { "pieces": vec![piece] },
                    None => {
                        let answer = answer.clone();
                        self.streams.open.remove(&id);
                        object! { "pieces": Vec::<Value>::new(), "answer": answer }
                    }
                }
            }
            "model.close" => {
                self.streams.open.remove(&id);
                return Ok(Vec::new());
            }
            "model.list" => object! { "models": self.models.iter().map(|n| object! { "name": n.as_str() }).collect::<Vec<Value>>() },
            _ => return Err(Error::of("invalid", format!("the fake host has no call {}", name))),
        };
        Ok(answer.to_string().into_bytes())
    }

    fn generated(&mut self, v: &Value) -> Result<Value> {
        let mut asked = v.clone();
        if asked["model"].is_null() {
            asked.set("model", "@main");
        }
        let name = asked["model"].as_str().unwrap_or("").to_string();
        let refused = Error::of("denied", format!("model {} was not granted: give Fake::model what answers", name));
        let model = self.model.as_mut().ok_or(refused)?;
        let said = model(&asked)?;
        self.model_asks.push(asked);
        let mut answer = match said.as_str() {
            Some(text) => object! { "content": vec![object! { "type": "text", "text": text }] },
            None => said,
        };
        let calls = answer["content"].as_array().unwrap_or(&[]).iter().any(|p| p["type"].as_str() == Some("tool-call"));
        let usage = object! { "input": 1, "output": 1 };
        for (field, value) in [("id", "answer".into()), ("model", name.into()), ("stop", if calls { "tool" } else { "end" }.into()), ("usage", usage)] {
            if answer[field].is_null() {
                answer.set(field, value);
            }
        }
        Ok(answer)
    }
}

/// Cuts an answer into pieces of up to eight characters.
fn pieces(answer: &Value) -> VecDeque<Value> {
    let mut all = VecDeque::new();
    for (i, p) in answer["content"].as_array().unwrap_or(&[]).iter().enumerate() {
        let kind = p["type"].as_str().unwrap_or("");
        let mut text = p["text"].as_str().unwrap_or("").to_string();
        if kind == "tool-call" {
            all.push_back(object! { "index": i as i64, "type": kind, "id": p["id"].clone(), "name": p["name"].clone() });
            text = p["args"].to_string();
        }
        for chunk in text.chars().collect::<Vec<char>>().chunks(8) {
            all.push_back(object! { "index": i as i64, "type": kind, "text": chunk.iter().collect::<String>() });
        }
    }
    all
}
