//! What the author of a Skep agent in Rust imports. It speaks the Extism ABI and Skep's own calls, and depends on nothing but
//! the standard library.
//!
//! An agent is a library of the crate type `cdylib`, with a function for each thing it can do:
//!
//! ```
//! use skep::{object, Result, Value};
//!
//! skep::export! { greet }
//!
//! fn greet(person: Value) -> Result<Value> {
//!     let name = person["name"].as_str().ok_or("whom shall I greet? give a name")?;
//!     skep::info!("greeting {}", name);
//!     Ok(object! { "text": format!("Hello, {}!", name) })
//! }
//! ```
//!
//! Every call runs in a fresh copy of the program as it was when it had been loaded, so nothing that one call leaves in memory
//! is seen by the next. A panic ends the call; its message becomes the call's error.
//!
//! Off WebAssembly the same code runs against a [`Fake`], so that an agent's functions can be tested with `cargo test`.

mod base64;
mod calls;
mod error;
mod export;
#[cfg(not(target_arch = "wasm32"))]
mod fake;
mod frames;
#[cfg_attr(not(target_arch = "wasm32"), path = "host_fake.rs")]
mod host;
mod http;
mod json;
pub mod kv;
mod log;

pub use calls::{batch, call_agent, config, emit, Call};
pub use error::{Error, Result};
pub use export::{run, Input, Output};
#[cfg(not(target_arch = "wasm32"))]
pub use fake::Fake;
pub use http::{fetch, secret, Request, Response};
pub use json::{ParseError, Value};
pub use log::{write, Level};

/// Returns the bytes that the call was given.
pub fn input() -> Vec<u8> {
    host::input()
}

/// Sets the call's output, in place of any set before.
pub fn output(bytes: &[u8]) {
    host::output(bytes)
}
