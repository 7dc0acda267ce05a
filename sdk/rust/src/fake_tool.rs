use crate::{base64, object, Error, Fake, Result, Value};

pub(crate) type Tool = Box<dyn FnMut(&Value) -> Result<Value>>;

impl Fake {
    /// Sets what answers calls of a tool: it gets the arguments. Tools without are refused.
    pub fn tool(mut self, name: &str, f: impl FnMut(&Value) -> Result<Value> + 'static) -> Fake {
        self.tools.insert(name.to_string(), Box::new(f));
        self
    }

    /// Answers the calls of tools and of files.
    pub(crate) fn outside(&mut self, name: &str, v: &Value) -> Result<Vec<u8>> {
        let text = |name: &str| v[name].as_str().unwrap_or("").to_string();
        let answer = match name {
            "tool.call" => {
                let name = text("tool");
                let refused = Error::of("denied", format!("tool {} was not granted: give it to Fake::tool", name));
                let tool = self.tools.get_mut(&name).ok_or(refused)?;
                self.tool_calls.push((name, v["args"].clone()));
                object! { "value": tool(&v["args"])? }
            }
            "tool.change" => {
                self.changes.push(v.clone());
                return Ok(Vec::new());
            }
            "tool.list" | "tool.search" => {
                let words = text("query").to_lowercase();
                let found = self.tools.keys().filter(|n| words.is_empty() || words.split_whitespace().any(|w| n.to_lowercase().contains(w)));
                object! { "tools": found.map(|n| object! { "name": n.as_str(), "effect": "unclassified" }).collect::<Vec<Value>>() }
            }
            "file.read" => {
                let (kind, bytes) = self.files.get(&text("path")).ok_or_else(|| Error::of("not_found", format!("there is no file {}", text("path"))))?;
                let from = (v["offset"].as_i64().unwrap_or(0).max(0) as usize).min(bytes.len());
                object! { "path": text("path"), "type": kind.as_str(), "size": bytes.len() as i64, "body": base64::encode(&bytes[from..]) }
            }
            "file.put" => {
                self.files.insert(text("path"), (text("type"), base64::decode(&text("body")).unwrap_or_default()));
                object! { "path": text("path"), "type": text("type") }
            }
            "file.list" => {
                let found = self.files.iter().filter(|(p, _)| p.starts_with(&text("prefix")) && **p > text("after"));
                let infos = found.map(|(p, (kind, b))| object! { "path": p.as_str(), "type": kind.as_str(), "size": b.len() as i64 });
                object! { "files": infos.collect::<Vec<Value>>() }
            }
            _ => return Err(Error::of("invalid", format!("the fake host has no call {}", name))),
        };
        Ok(answer.to_string().into_bytes())
    }
}
