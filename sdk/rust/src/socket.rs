//! Connections of clients with the instance. They stay open while it sleeps.
//!
//! ```
//! use skep::{socket, Result};
//!
//! skep::export! { on_connect on_socket_message }
//!
//! fn on_connect(e: socket::Event) -> Result<()> {
//!     e.socket.send("welcome")
//! }
//!
//! fn on_socket_message(e: socket::Event) -> Result<()> {
//!     socket::broadcast(e.text().unwrap_or(""), "", &[&e.socket.id])
//! }
//! # let _ = (on_connect, on_socket_message);
//! ```

use crate::calls::ask;
use crate::http::pairs_of;
use crate::{base64, object, Error, Input, Result, Value};

/// A connection.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Socket {
    pub id: String,
    pub tags: Vec<String>,
    /// What is kept with the connection; null when there is nothing.
    pub attachment: Value,
    /// That it was opened with; when it connects.
    pub url: String,
    /// When it connects; credentials are not in it.
    pub headers: Vec<(String, String)>,
}

/// What a client sends: text, or bytes. A [`Value`] is sent as text of its JSON.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Frame {
    Text(String),
    Bytes(Vec<u8>),
}

/// The input of the handlers `on_connect`, `on_socket_message` and `on_close`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Event {
    pub socket: Socket,
    /// Of a message.
    pub data: Option<Frame>,
    /// Of a close (RFC 6455, section 7.4).
    pub code: i64,
    pub reason: String,
}

impl Event {
    /// The text of a message.
    pub fn text(&self) -> Option<&str> {
        match &self.data {
            Some(Frame::Text(s)) => Some(s),
            _ => None,
        }
    }

    /// Parses the data of a message as JSON.
    pub fn json(&self) -> Result<Value> {
        let bytes = match &self.data {
            Some(Frame::Text(s)) => s.as_bytes(),
            Some(Frame::Bytes(b)) => b,
            None => return Err("the event has no data".into()),
        };
        Ok(Value::parse(bytes)?)
    }
}

impl Input for Event {
    fn decode(bytes: Vec<u8>) -> Result<Event> {
        let v = Value::decode(bytes)?;
        let data = match (v["text"].as_str(), v["base64"].as_str()) {
            (Some(s), _) => Some(Frame::Text(s.to_string())),
            (_, Some(b)) => Some(Frame::Bytes(base64::decode(b).ok_or_else(|| Error::new("the frame is not base64"))?)),
            _ => None,
        };
        let reason = v["reason"].as_str().unwrap_or("").to_string();
        Ok(Event { socket: read(&v["socket"]), data, code: v["code"].as_i64().unwrap_or(0), reason })
    }
}

fn read(v: &Value) -> Socket {
    Socket {
        id: v["id"].as_str().unwrap_or("").to_string(),
        tags: v["tags"].as_array().unwrap_or(&[]).iter().filter_map(Value::as_str).map(str::to_string).collect(),
        attachment: v["attachment"].clone(),
        url: v["url"].as_str().unwrap_or("").to_string(),
        headers: pairs_of(&v["header"]),
    }
}

/// Lists the connections that have the tag, or all when it is empty.
pub fn list(tag: &str) -> Result<Vec<Socket>> {
    Ok(ask("socket.list", &object! { "tag": tag })?["sockets"].as_array().unwrap_or(&[]).iter().map(read).collect())
}

/// Sends a frame to all connections, or to those that have the tag, unless it is empty, but not to those whose ids are in `except`.
/// Frames leave when the turn has been committed.
pub fn broadcast(data: impl Into<Frame>, tag: &str, except: &[&str]) -> Result<()> {
    send(object! { "tag": tag, "except": except.to_vec() }, data.into())
}

fn send(mut body: Value, data: Frame) -> Result<()> {
    match data {
        Frame::Text(s) => body.set("text", s),
        Frame::Bytes(b) => body.set("base64", base64::encode(&b)),
    }
    ask("socket.send", &body).map(drop)
}

impl Socket {
    /// Sends a frame, as [`broadcast`] does, to this connection. One that is gone is no error.
    pub fn send(&self, data: impl Into<Frame>) -> Result<()> {
        send(object! { "to": vec![self.id.as_str()] }, data.into())
    }

    /// Closes the connection with a code, such as 1000, and a reason (RFC 6455, section 7.4).
    pub fn close(&self, code: i64, reason: &str) -> Result<()> {
        ask("socket.close", &object! { "id": self.id.as_str(), "code": code, "reason": reason }).map(drop)
    }

    /// Keeps a value of up to 16 KiB of JSON with the connection, in place of the one before.
    pub fn attach(&self, v: impl Into<Value>) -> Result<()> {
        ask("socket.attach", &object! { "id": self.id.as_str(), "attachment": v.into() }).map(drop)
    }

    /// Gives the connection up to 10 tags, in place of those before.
    pub fn tag(&self, tags: &[&str]) -> Result<()> {
        ask("socket.attach", &object! { "id": self.id.as_str(), "tags": tags.to_vec() }).map(drop)
    }
}

impl From<&str> for Frame {
    fn from(s: &str) -> Frame {
        Frame::Text(s.to_string())
    }
}

impl From<String> for Frame {
    fn from(s: String) -> Frame {
        Frame::Text(s)
    }
}

impl From<&[u8]> for Frame {
    fn from(b: &[u8]) -> Frame {
        Frame::Bytes(b.to_vec())
    }
}

impl From<Vec<u8>> for Frame {
    fn from(b: Vec<u8>) -> Frame {
        Frame::Bytes(b)
    }
}

impl From<Value> for Frame {
    fn from(v: Value) -> Frame {
        Frame::Text(v.to_string())
    }
}
