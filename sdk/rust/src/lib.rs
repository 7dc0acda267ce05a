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
//! # Instances
//!
//! A call of an instance, which is an agent under a key, has what the instance keeps: [`storage`], [`sql()`], [`shared`] state, alarms
//! ([`alarm`]) and connections ([`socket`]). A call is a turn: it has the instance alone, all that it changes is committed at its end,
//! and when it fails nothing has happened. What leaves (answers, messages, frames, requests that change the world) leaves after the
//! commit of all before it.
//!
//! The host calls these handlers by itself, when they are exported; nobody else can: `on_connect`, `on_socket_message` and `on_close`
//! with a [`socket::Event`], `on_alarm` with the payload of an alarm without a method, `on_start` when the instance's life begins, and
//! `on_upgrade` before its first turn with other code, with the digest of the code before as a JSON string.
//!
//! # Runs
//!
//! A run may wait for years: [`sleep`], [`sleep_until`], [`wait_for_event`], [`Run::result`], and a [`step()`] between its attempts.
//! While it waits the instance is free for others, and what the run did before is committed. The code waits inside a call, so its memory
//! cannot be put aside: a run that waits long, or was interrupted, is played again from its beginning, and each call to the host is
//! answered from the journal until the place is reached where it was. Nothing is done twice. But the code must ask the same in the same
//! order, else the run stops with both sides named. So let it depend on its input and its host alone:
//!
//! - [`now`] and [`random`] are the host's: they repeat. Time stands still between calls of the host.
//! - Statics are as they were when the program was loaded in each life. What has to last is in [`storage`].
//! - A `HashMap` of this target has the same order each time, with the same build; a `BTreeMap` has one in any.
//!
//! [`Fake::replay`] tests it.
//!
//! Off WebAssembly the same code runs against a [`Fake`], so that an agent's functions can be tested with `cargo test`.

pub mod alarm;
mod base64;
mod calls;
mod error;
mod export;
#[cfg(not(target_arch = "wasm32"))]
mod fake;
#[cfg(not(target_arch = "wasm32"))]
mod fake_durable;
#[cfg(not(target_arch = "wasm32"))]
mod fake_model;
#[cfg(not(target_arch = "wasm32"))]
mod fake_replay;
#[cfg(not(target_arch = "wasm32"))]
mod fake_tool;
pub mod file;
mod frames;
#[cfg_attr(not(target_arch = "wasm32"), path = "host_fake.rs")]
mod host;
mod http;
mod instance;
mod json;
mod keys;
pub mod kv;
mod log;
pub mod model;
pub mod shared;
pub mod socket;
mod sql;
mod step;
pub mod storage;
mod time;
pub mod tool;
mod wait;

pub use calls::{batch, call_agent, config, emit, Call};
pub use error::{Error, Result};
pub use export::{run, Input, Output};
#[cfg(not(target_arch = "wasm32"))]
pub use fake::Fake;
#[cfg(not(target_arch = "wasm32"))]
pub use fake_durable::Step as StepMark;
pub use http::{fetch, secret, Request, Response};
pub use instance::{child, identity, instance, outside, Identity, Instance};
pub use json::{ParseError, Value};
pub use log::{write, Level};
pub use sql::{sql, FromSql, Row, Rows, SqlValue};
pub use step::{step, Step};
pub use time::{now, random};
pub use wait::{sleep, sleep_until, start_run, start_run_in, wait_for_event, Run};

/// Returns the bytes that the call was given.
pub fn input() -> Vec<u8> {
    host::input()
}

/// Sets the call's output, in place of any set before.
pub fn output(bytes: &[u8]) {
    host::output(bytes)
}
