use std::ops::Index;

use super::{parse, print, ParseError};

/// A JSON value. `v["name"]` and `v[3]` are null where there is nothing, so that `v["a"]["b"].as_str()` needs no checks on
/// the way. `to_string` gives its text.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Value {
    #[default]
    Null,
    Bool(bool),
    /// A number that is written without fraction and exponent and has at most 64 bits.
    Int(i64),
    Float(f64),
    Text(String),
    Array(Vec<Value>),
    /// Members in their order.
    Object(Vec<(String, Value)>),
}

static NULL: Value = Value::Null;

impl Value {
    /// Reads JSON text (RFC 8259).
    pub fn parse(text: &[u8]) -> Result<Value, ParseError> {
        parse(text)
    }

    /// Names the kind of value, for messages.
    pub fn kind(&self) -> &'static str {
        match self {
            Value::Null => "null",
            Value::Bool(_) => "true or false",
            Value::Int(_) | Value::Float(_) => "a number",
            Value::Text(_) => "a string",
            Value::Array(_) => "an array",
            Value::Object(_) => "an object",
        }
    }

    pub fn is_null(&self) -> bool {
        *self == Value::Null
    }

    pub fn as_bool(&self) -> Option<bool> {
        match self {
            Value::Bool(b) => Some(*b),
            _ => None,
        }
    }

    /// A whole number, also when it is written like 3.0.
    pub fn as_i64(&self) -> Option<i64> {
        match self {
            Value::Int(n) => Some(*n),
            Value::Float(f) if f.fract() == 0.0 && f.abs() < 9007199254740992.0 => Some(*f as i64),
            _ => None,
        }
    }

    pub fn as_f64(&self) -> Option<f64> {
        match self {
            Value::Int(n) => Some(*n as f64),
            Value::Float(f) => Some(*f),
            _ => None,
        }
    }

    pub fn as_str(&self) -> Option<&str> {
        match self {
            Value::Text(s) => Some(s),
            _ => None,
        }
    }

    pub fn as_array(&self) -> Option<&[Value]> {
        match self {
            Value::Array(a) => Some(a),
            _ => None,
        }
    }

    /// The members of an object, in their order.
    pub fn as_object(&self) -> Option<&[(String, Value)]> {
        match self {
            Value::Object(o) => Some(o),
            _ => None,
        }
    }

    /// The member of that name; the last, when there are several.
    pub fn get(&self, name: &str) -> Option<&Value> {
        self.as_object()?.iter().rev().find(|(n, _)| n == name).map(|(_, v)| v)
    }

    /// Sets a member of an object. Any other value becomes an object first.
    pub fn set(&mut self, name: &str, value: impl Into<Value>) {
        if self.as_object().is_none() {
            *self = Value::Object(Vec::new());
        }
        if let Value::Object(o) = self {
            match o.iter_mut().rev().find(|(n, _)| n == name) {
                Some((_, v)) => *v = value.into(),
                None => o.push((name.to_string(), value.into())),
            }
        }
    }
}

impl std::fmt::Display for Value {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        let mut out = String::new();
        print::print(&mut out, self);
        f.write_str(&out)
    }
}

impl Index<&str> for Value {
    type Output = Value;
    fn index(&self, name: &str) -> &Value {
        self.get(name).unwrap_or(&NULL)
    }
}

impl Index<usize> for Value {
    type Output = Value;
    fn index(&self, i: usize) -> &Value {
        self.as_array().and_then(|a| a.get(i)).unwrap_or(&NULL)
    }
}

impl From<&str> for Value {
    fn from(s: &str) -> Value {
        Value::Text(s.to_string())
    }
}

impl From<String> for Value {
    fn from(s: String) -> Value {
        Value::Text(s)
    }
}

impl From<bool> for Value {
    fn from(b: bool) -> Value {
        Value::Bool(b)
    }
}

macro_rules! from_int {
    ($($t:ty)*) => { $(impl From<$t> for Value { fn from(n: $t) -> Value { Value::Int(i64::from(n)) } })* };
}

from_int!(i8 i16 i32 i64 u8 u16 u32);

impl From<usize> for Value {
    fn from(n: usize) -> Value {
        i64::try_from(n).map_or(Value::Float(n as f64), Value::Int)
    }
}

impl From<f64> for Value {
    /// JSON has neither infinities nor NaN: they become null.
    fn from(f: f64) -> Value {
        if f.is_finite() {
            Value::Float(f)
        } else {
            Value::Null
        }
    }
}

impl<T: Into<Value>> From<Vec<T>> for Value {
    fn from(a: Vec<T>) -> Value {
        Value::Array(a.into_iter().map(Into::into).collect())
    }
}

impl<T: Into<Value>> From<Option<T>> for Value {
    fn from(o: Option<T>) -> Value {
        o.map_or(Value::Null, Into::into)
    }
}
