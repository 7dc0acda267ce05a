use crate::calls::call;
use crate::{base64, object, Error, Result, Value};

/// An outbound request, for [`fetch`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    pub method: String,
    pub url: String,
    /// Names and values.
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
}

impl Request {
    /// Makes a request with a method, such as `"GET"`.
    pub fn new(method: &str, url: &str) -> Request {
        Request { method: method.to_string(), url: url.to_string(), headers: Vec::new(), body: Vec::new() }
    }

    /// Adds a header.
    pub fn header(mut self, name: &str, value: &str) -> Request {
        self.headers.push((name.to_string(), value.to_string()));
        self
    }

    /// Sets the body.
    pub fn body(mut self, bytes: impl Into<Vec<u8>>) -> Request {
        self.body = bytes.into();
        self
    }
}

/// What answers a [`Request`]. Redirects have been followed, and the body is decoded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Response {
    pub status: u16,
    /// Names and values.
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
}

impl Response {
    /// Returns the first value of a header. The name's case does not matter.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(n, _)| n.eq_ignore_ascii_case(name)).map(|(_, v)| v.as_str())
    }

    /// Returns the body as text. What is not UTF-8 in it is replaced.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// Parses the body as JSON.
    pub fn json(&self) -> Result<Value> {
        Value::parse(&self.body).map_err(|e| Error::new(format!("the response's body: {}", e)))
    }
}

/// Makes a request, which must have been granted, and returns the whole response, whatever its status.
pub fn fetch(request: Request) -> Result<Response> {
    let body = object! {
        "method": request.method, "url": request.url, "header": pairs_to(&request.headers), "body": base64::encode(&request.body)
    };
    let answer = call("http", &body.to_string().into_bytes())?;
    let broken = || Error::of("internal", "the host's response cannot be read");
    let answer = Value::parse(&answer).map_err(|_| broken())?;
    Ok(Response {
        status: answer["status"].as_i64().unwrap_or(0) as u16,
        headers: pairs_of(&answer["header"]),
        body: base64::decode(answer["body"].as_str().unwrap_or("")).ok_or_else(broken)?,
    })
}

pub(crate) fn pairs_to(pairs: &[(String, String)]) -> Value {
    pairs.iter().map(|(n, v)| Value::from(vec![n.as_str(), v.as_str()])).collect::<Vec<Value>>().into()
}

pub(crate) fn pairs_of(v: &Value) -> Vec<(String, String)> {
    let text = |v: &Value| v.as_str().unwrap_or("").to_string();
    v.as_array().map(|list| list.iter().map(|p| (text(&p[0]), text(&p[1]))).collect()).unwrap_or_default()
}

/// Returns the placeholder of a secret: `{{secret:NAME}}`. Write it where the secret belongs in a request: as a header's value or
/// in it, as a query parameter, as a form field or as a string in a JSON body. The host puts the value in on the way out,
/// where the secret is bound to and was granted, and nowhere else; the agent never sees it.
///
/// # Panics
///
/// On a name that no secret can have: it has 1 to 63 of a-z, 0-9, '.', '_' and '-', and begins and ends with a letter or digit.
pub fn secret(name: &str) -> String {
    let end = |c: Option<u8>| matches!(c, Some(b'a'..=b'z') | Some(b'0'..=b'9'));
    let b = name.as_bytes();
    let inner = b.iter().all(|c| end(Some(*c)) || b"._-".contains(c));
    if b.len() > 63 || !inner || !end(b.first().copied()) || !end(b.last().copied()) {
        panic!("{:?} is not the name of a secret: it has 1 to 63 of a-z, 0-9, '.', '_' and '-', and begins and ends with a letter or digit", name);
    }
    format!("{{{{secret:{}}}}}", name)
}
