//! Files of the session, artifacts of tools among them.

use crate::calls::ask;
use crate::{base64, object, Error, Result, Value};

/// What is known of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Info {
    pub path: String,
    /// Its media type.
    pub kind: String,
    pub size: i64,
}

fn info(v: &Value) -> Info {
    let text = |name: &str| v[name].as_str().unwrap_or("").to_string();
    Info { path: text("path"), kind: text("type"), size: v["size"].as_i64().unwrap_or(0) }
}

/// Reads a file whole.
pub fn read(path: &str) -> Result<Vec<u8>> {
    let mut all = Vec::new();
    loop {
        let part = ask("file.read", &object! { "path": path, "offset": all.len() as i64 })?;
        let bytes = base64::decode(part["body"].as_str().unwrap_or("")).ok_or_else(|| Error::of("internal", "the host's file is not base64"))?;
        all.extend_from_slice(&bytes);
        if bytes.is_empty() || all.len() as i64 >= info(&part).size {
            return Ok(all);
        }
    }
}

/// Writes a file whole. `kind` is its media type.
pub fn write(path: &str, kind: &str, bytes: &[u8]) -> Result<()> {
    ask("file.put", &object! { "path": path, "type": kind, "body": base64::encode(bytes) }).map(drop)
}

/// Lists the files whose paths begin with `prefix`, in the order of their paths.
pub fn list(prefix: &str) -> Result<Vec<Info>> {
    let mut all = Vec::new();
    let mut after = String::new();
    loop {
        let page = ask("file.list", &object! { "prefix": prefix, "after": after.as_str(), "limit": 1000 })?;
        all.extend(page["files"].as_array().unwrap_or(&[]).iter().map(info));
        after = page["after"].as_str().unwrap_or("").to_string();
        if after.is_empty() {
            return Ok(all);
        }
    }
}
