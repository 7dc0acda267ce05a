use std::fmt;

use super::Value;

/// How deep arrays and objects may nest.
const MAX_DEPTH: usize = 128;

/// What is wrong with JSON text, and at which byte.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParseError {
    pub at: usize,
    pub message: &'static str,
}

impl fmt::Display for ParseError {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "{} at byte {} of the JSON text", self.message, self.at)
    }
}

impl std::error::Error for ParseError {}

pub(crate) fn parse(text: &[u8]) -> Result<Value, ParseError> {
    let mut p = Parser { text, at: 0, depth: 0 };
    let v = p.value()?;
    p.space();
    if p.at < text.len() {
        return p.fail("something follows the value");
    }
    Ok(v)
}

struct Parser<'a> {
    text: &'a [u8],
    at: usize,
    depth: usize,
}

type Parsed<T> = Result<T, ParseError>;

impl Parser<'_> {
    fn fail<T>(&self, message: &'static str) -> Parsed<T> {
        Err(ParseError { at: self.at, message })
    }

    fn peek(&self) -> Option<u8> {
        self.text.get(self.at).copied()
    }

    fn eat(&mut self, c: u8) -> bool {
        let found = self.peek() == Some(c);
        self.at += usize::from(found);
        found
    }

    fn space(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t' | b'\n' | b'\r')) {
            self.at += 1;
        }
    }

    fn value(&mut self) -> Parsed<Value> {
        self.space();
        match self.peek() {
            Some(b'{') => self.nested(Parser::object),
            Some(b'[') => self.nested(Parser::array),
            Some(b'"') => Ok(Value::Text(self.string()?)),
            Some(b'-' | b'0'..=b'9') => self.number(),
            Some(b't') => self.word("true", Value::Bool(true)),
            Some(b'f') => self.word("false", Value::Bool(false)),
            Some(b'n') => self.word("null", Value::Null),
            Some(_) => self.fail("no value begins"),
            None => self.fail("the text ends where a value should be,"),
        }
    }

    fn nested(&mut self, read: fn(&mut Self) -> Parsed<Value>) -> Parsed<Value> {
        if self.depth == MAX_DEPTH {
            return self.fail("values nest too deeply");
        }
        self.depth += 1;
        self.at += 1;
        let v = read(self);
        self.depth -= 1;
        v
    }

    fn word(&mut self, word: &str, v: Value) -> Parsed<Value> {
        if !self.text[self.at..].starts_with(word.as_bytes()) {
            return self.fail("no value begins");
        }
        self.at += word.len();
        Ok(v)
    }

    fn array(&mut self) -> Parsed<Value> {
        let mut items = Vec::new();
        self.space();
        if self.eat(b']') {
            return Ok(Value::Array(items));
        }
        loop {
            items.push(self.value()?);
            self.space();
            if self.eat(b']') {
                return Ok(Value::Array(items));
            }
            if !self.eat(b',') {
                return self.fail("a comma or ] is missing");
            }
        }
    }

    fn object(&mut self) -> Parsed<Value> {
        let mut members = Vec::new();
        self.space();
        if self.eat(b'}') {
            return Ok(Value::Object(members));
        }
        loop {
            self.space();
            if self.peek() != Some(b'"') {
                return self.fail("a member's name is missing");
            }
            let name = self.string()?;
            self.space();
            if !self.eat(b':') {
                return self.fail("a colon is missing");
            }
            members.push((name, self.value()?));
            self.space();
            if self.eat(b'}') {
                return Ok(Value::Object(members));
            }
            if !self.eat(b',') {
                return self.fail("a comma or } is missing");
            }
        }
    }

    fn digits(&mut self) -> Parsed<()> {
        let start = self.at;
        while matches!(self.peek(), Some(b'0'..=b'9')) {
            self.at += 1;
        }
        if self.at == start {
            return self.fail("a digit is missing");
        }
        Ok(())
    }

    fn number(&mut self) -> Parsed<Value> {
        let start = self.at;
        self.eat(b'-');
        if !self.eat(b'0') {
            self.digits()?;
        }
        let mut whole = true;
        if self.eat(b'.') {
            whole = false;
            self.digits()?;
        }
        if self.eat(b'e') || self.eat(b'E') {
            whole = false;
            let _ = self.eat(b'+') || self.eat(b'-');
            self.digits()?;
        }
        let text = std::str::from_utf8(&self.text[start..self.at]).unwrap_or("");
        if let (true, Ok(n)) = (whole, text.parse()) {
            return Ok(Value::Int(n));
        }
        match text.parse::<f64>() {
            Ok(f) if f.is_finite() => Ok(Value::Float(f)),
            _ => self.fail("the number is too large"),
        }
    }

    fn string(&mut self) -> Parsed<String> {
        self.at += 1;
        let mut out = Vec::new();
        loop {
            match self.peek() {
                None => return self.fail("the text ends within a string,"),
                Some(b'"') => break,
                Some(b'\\') => {
                    self.at += 1;
                    self.escape(&mut out)?;
                }
                Some(c) if c < b' ' => return self.fail("a control character stands in a string"),
                Some(c) => {
                    out.push(c);
                    self.at += 1;
                }
            }
        }
        let text = String::from_utf8(out).or_else(|_| self.fail("a string that is not UTF-8 ends"))?;
        self.at += 1;
        Ok(text)
    }

    fn escape(&mut self, out: &mut Vec<u8>) -> Parsed<()> {
        let c = match self.peek() {
            Some(b'"') => '"',
            Some(b'\\') => '\\',
            Some(b'/') => '/',
            Some(b'b') => '\u{8}',
            Some(b'f') => '\u{c}',
            Some(b'n') => '\n',
            Some(b'r') => '\r',
            Some(b't') => '\t',
            Some(b'u') => {
                self.at += 1;
                let c = self.unicode()?;
                out.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes());
                return Ok(());
            }
            _ => return self.fail("no escape is called that"),
        };
        self.at += 1;
        out.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes());
        Ok(())
    }

    /// Reads what follows \u. Half of a surrogate pair becomes U+FFFD.
    fn unicode(&mut self) -> Parsed<char> {
        const LOST: char = '\u{fffd}';
        let first = self.hex()?;
        if !(0xd800..0xdc00).contains(&first) || !self.text[self.at..].starts_with(b"\\u") {
            return Ok(char::from_u32(first).unwrap_or(LOST));
        }
        let back = self.at;
        self.at += 2;
        let second = self.hex()?;
        if !(0xdc00..0xe000).contains(&second) {
            self.at = back;
            return Ok(LOST);
        }
        Ok(char::from_u32(0x10000 + ((first - 0xd800) << 10) + (second - 0xdc00)).unwrap_or(LOST))
    }

    fn hex(&mut self) -> Parsed<u32> {
        let mut n = 0;
        for _ in 0..4 {
            match self.peek().and_then(|c| char::from(c).to_digit(16)) {
                Some(d) => n = n << 4 | d,
                None => return self.fail("four hexadecimal digits are needed"),
            }
            self.at += 1;
        }
        Ok(n)
    }
}
