use crate::{host, json, step, Error, Result, Value};

/// What a function may take: [`Value`] and numbers are read as JSON, a `String` is text, a `Vec<u8>` the bytes as they are,
/// and `()` ignores them. An `Option` is `None` when there is no input.
pub trait Input: Sized {
    fn decode(bytes: Vec<u8>) -> Result<Self>;
}

/// What a function may return, by the same rules.
pub trait Output {
    /// The media type, as another agent is told it.
    const TYPE: &'static str;
    fn encode(self) -> Vec<u8>;
}

pub(crate) const JSON: &str = "application/json";
const TEXT: &str = "text/plain; charset=utf-8";
const BYTES: &str = "application/octet-stream";

impl Input for Vec<u8> {
    fn decode(bytes: Vec<u8>) -> Result<Self> {
        Ok(bytes)
    }
}

impl Input for String {
    fn decode(bytes: Vec<u8>) -> Result<Self> {
        String::from_utf8(bytes).map_err(|_| Error::new("the text is not UTF-8"))
    }
}

impl Input for () {
    fn decode(_: Vec<u8>) -> Result<Self> {
        Ok(())
    }
}

impl Input for Value {
    /// No bytes at all are null.
    fn decode(bytes: Vec<u8>) -> Result<Self> {
        if bytes.is_empty() {
            return Ok(Value::Null);
        }
        Ok(json::parse(&bytes)?)
    }
}

impl<T: Input> Input for Option<T> {
    fn decode(bytes: Vec<u8>) -> Result<Self> {
        if bytes.is_empty() {
            return Ok(None);
        }
        T::decode(bytes).map(Some)
    }
}

macro_rules! scalar {
    ($($t:ty, $get:ident, $what:literal;)*) => { $(
        impl Input for $t {
            fn decode(bytes: Vec<u8>) -> Result<Self> {
                let v = Value::decode(bytes)?;
                v.$get().ok_or_else(|| Error::new(format!("{} is needed, not {}", $what, v.kind())))
            }
        }
        impl Output for $t {
            const TYPE: &'static str = JSON;
            fn encode(self) -> Vec<u8> {
                Value::from(self).to_string().into_bytes()
            }
        }
    )* };
}

scalar! {
    i64, as_i64, "a whole number";
    f64, as_f64, "a number";
    bool, as_bool, "true or false";
}

impl Output for Vec<u8> {
    const TYPE: &'static str = BYTES;
    fn encode(self) -> Vec<u8> {
        self
    }
}

impl Output for &[u8] {
    const TYPE: &'static str = BYTES;
    fn encode(self) -> Vec<u8> {
        self.to_vec()
    }
}

impl Output for String {
    const TYPE: &'static str = TEXT;
    fn encode(self) -> Vec<u8> {
        self.into_bytes()
    }
}

impl Output for &str {
    const TYPE: &'static str = TEXT;
    fn encode(self) -> Vec<u8> {
        self.as_bytes().to_vec()
    }
}

impl Output for () {
    const TYPE: &'static str = JSON;
    fn encode(self) -> Vec<u8> {
        Vec::new()
    }
}

impl Output for Value {
    const TYPE: &'static str = JSON;
    fn encode(self) -> Vec<u8> {
        self.to_string().into_bytes()
    }
}

/// Reads the call's input, calls `f` and sets what it returns as the call's output or error. Its result is what an exported
/// function returns: 0 when `f` worked, else 1. [`export!`](crate::export) uses it.
///
/// When `f` fails, the rollbacks of the steps that worked run before the call ends, the latest first.
pub fn run<I: Input, O: Output>(f: impl FnOnce(I) -> Result<O>) -> i32 {
    host::on_panic();
    step::begin();
    let done = I::decode(host::input()).map_err(|e| Error { message: format!("input: {}", e), ..e }).and_then(f);
    match done {
        Ok(value) => {
            host::output(&value.encode());
            0
        }
        Err(e) => {
            host::fail(&step::roll_back(e).message);
            1
        }
    }
}

/// Makes functions of the agent, each with one parameter, callable from outside under their names.
#[macro_export]
macro_rules! export {
    ($($name:ident)*) => { $(
        const _: () = {
            #[cfg(target_arch = "wasm32")]
            #[export_name = stringify!($name)]
            extern "C" fn exported() -> i32 {
                $crate::run($name)
            }
            #[cfg(not(target_arch = "wasm32"))]
            #[allow(dead_code)]
            fn exported() -> i32 {
                $crate::run($name)
            }
        };
    )* };
}
