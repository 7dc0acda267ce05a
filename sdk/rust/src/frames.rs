use crate::{Error, Result, Value};

/// Appends one call of a batch to `to`: the name's length as u16, the name, the input's length as u32, the input; numbers are
/// little-endian.
pub(crate) fn append_request(to: &mut Vec<u8>, name: &str, input: &[u8]) {
    to.extend_from_slice(&(name.len() as u16).to_le_bytes());
    to.extend_from_slice(name.as_bytes());
    to.extend_from_slice(&(input.len() as u32).to_le_bytes());
    to.extend_from_slice(input);
}

/// Takes one reply off a batch's answer: a status byte, the length as u32, the output.
pub(crate) fn take_reply<'a>(from: &mut &'a [u8]) -> Option<(u8, &'a [u8])> {
    let status = *from.first()?;
    let size = from.get(1..5)?;
    let size = u32::from_le_bytes([size[0], size[1], size[2], size[3]]) as usize;
    let body = from.get(5..)?.get(..size)?;
    *from = &from[5 + size..];
    Some((status, body))
}

/// Tells what became of one call: the output, or the error that its body describes.
pub(crate) fn result(status: u8, body: &[u8]) -> Result<&[u8]> {
    if status == 0 {
        return Ok(body);
    }
    let e = Value::parse(body).map_err(|e| Error::of("internal", format!("the host's error cannot be read: {}", e)))?;
    let text = |name: &str| e[name].as_str().unwrap_or("").to_string();
    Err(Error { kind: text("kind"), message: text("message"), limit: text("limit"), hint: text("hint") })
}
