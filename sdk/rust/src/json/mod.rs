//! A JSON value: enough for agents that want no crates.

mod parse;
mod print;
mod value;

pub(crate) use parse::parse;
pub use parse::ParseError;
pub use value::Value;

/// Makes a JSON object: `object! { "name": "Ada", "age": 36, "tags": vec!["a", "b"] }`.
#[macro_export]
macro_rules! object {
    () => { $crate::Value::Object(Vec::new()) };
    ($($key:literal : $value:expr),+ $(,)?) => {
        $crate::Value::Object(vec![$(($key.to_string(), $crate::Value::from($value))),+])
    };
}
