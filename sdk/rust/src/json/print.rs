use std::fmt::Write;

use super::Value;

/// Appends the text of `v`.
pub(super) fn print(out: &mut String, v: &Value) {
    match v {
        Value::Null => out.push_str("null"),
        Value::Bool(b) => out.push_str(if *b { "true" } else { "false" }),
        Value::Int(n) => drop(write!(out, "{}", n)), // writing to a String cannot fail
        Value::Float(f) if f.is_finite() => drop(write!(out, "{:?}", f)),
        Value::Float(_) => out.push_str("null"),
        Value::Text(s) => text(out, s),
        Value::Array(a) => {
            let mut open = '[';
            for v in a {
                out.push(open);
                print(out, v);
                open = ',';
            }
            out.push_str(if a.is_empty() { "[]" } else { "]" });
        }
        Value::Object(o) => {
            let mut open = '{';
            for (name, v) in o {
                out.push(open);
                text(out, name);
                out.push(':');
                print(out, v);
                open = ',';
            }
            out.push_str(if o.is_empty() { "{}" } else { "}" });
        }
    }
}

fn text(out: &mut String, s: &str) {
    out.push('"');
    for c in s.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            c if c < ' ' => drop(write!(out, "\\u{:04x}", c as u32)),
            c => out.push(c),
        }
    }
    out.push('"');
}
