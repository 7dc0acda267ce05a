//! Ordered keys and values: what the modules `kv` and `storage` have in common.

use crate::export::JSON;
use crate::{base64, Error, Input, Result, Value};

/// A key that is there.
pub struct Entry {
    pub key: String,
    pub version: i64,
    body: Vec<u8>,
}

impl Entry {
    /// Reads the value by the rules of [`Input`].
    pub fn value<T: Input>(self) -> Result<T> {
        let key = self.key;
        T::decode(self.body).map_err(|e| Error::new(format!("state key {:?}: {}", key, e)))
    }

    pub(crate) fn read(v: &Value) -> Result<Entry> {
        let body = match (&v["json"], v["text"].as_str(), v["base64"].as_str()) {
            (_, Some(text), _) => text.as_bytes().to_vec(),
            (_, _, Some(b)) => base64::decode(b).ok_or_else(|| Error::of("internal", "a value of the state is not base64"))?,
            (Value::Null, _, _) if v["type"].as_str() != Some(JSON) => Vec::new(),
            (json, _, _) => json.to_string().into_bytes(),
        };
        let key = v["key"].as_str().unwrap_or("").to_string();
        Ok(Entry { key, version: v["version"].as_i64().unwrap_or(0), body })
    }
}

pub(crate) fn version(answer: Result<Value>) -> Result<i64> {
    Ok(answer?["version"].as_i64().unwrap_or(0))
}

macro_rules! functions {
    ($space:literal) => {
        pub use crate::keys::Entry;
        use crate::{base64, object, Input, Output, Result, Value};

        /// Returns the value of a key, read by the rules of [`Input`].
        pub fn get<T: Input>(key: &str) -> Result<Option<T>> {
            entry(key)?.map(Entry::value).transpose()
        }

        /// Returns a key with its version.
        pub fn entry(key: &str) -> Result<Option<Entry>> {
            let got = $crate::calls::ask(concat!($space, ".get"), &object! { "keys": vec![Value::from(key)] })?;
            match &got["entries"] {
                Value::Array(found) if !found.is_empty() => Entry::read(&found[0]).map(Some),
                _ => Ok(None),
            }
        }

        /// Sets a key by the rules of [`Output`], and returns its new version.
        pub fn set<T: Output>(key: &str, value: T) -> Result<i64> {
            let body = object! { "key": key, "type": T::TYPE, "base64": base64::encode(&value.encode()) };
            $crate::keys::version($crate::calls::ask(concat!($space, ".set"), &body))
        }

        /// Sets a key that has that version, and returns its new one.
        pub fn set_if<T: Output>(key: &str, at: i64, value: T) -> Result<i64> {
            let body = object! { "key": key, "if": at, "type": T::TYPE, "base64": base64::encode(&value.encode()) };
            $crate::keys::version($crate::calls::ask(concat!($space, ".set"), &body))
        }

        /// Deletes a key. One that is not there is no error.
        pub fn delete(key: &str) -> Result<()> {
            $crate::calls::ask(concat!($space, ".delete"), &object! { "key": key }).map(drop)
        }

        /// Returns the keys that begin with `prefix` and come after `after`, in their order: at most `limit`, which is at most 1000, or
        /// fewer when they are large. When there are none, there are no more.
        pub fn list(prefix: &str, after: &str, limit: i64) -> Result<Vec<Entry>> {
            let got = $crate::calls::ask(concat!($space, ".list"), &object! { "prefix": prefix, "after": after, "limit": limit })?;
            match &got["entries"] {
                Value::Array(found) => found.iter().map(Entry::read).collect(),
                _ => Ok(Vec::new()),
            }
        }
    };
}

pub(crate) use functions;
