//! Off WebAssembly the host is the [`Fake`] of the test.

use crate::fake::with;
use crate::Level;

pub(crate) fn now() -> u64 {
    with(|f| f.now as u64 * 1_000_000)
}

/// Fills `to` with numbers that are the same in a replay (Knuth's linear congruential generator, with the multiplier of MMIX).
pub(crate) fn random(to: &mut [u8]) {
    with(|f| {
        for b in to {
            f.seed = f.seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            *b = (f.seed >> 56) as u8;
        }
    })
}

pub(crate) fn input() -> Vec<u8> {
    with(|f| f.input.clone())
}

pub(crate) fn output(b: &[u8]) {
    with(|f| f.output = b.to_vec())
}

pub(crate) fn fail(message: &str) {
    with(|f| f.failed = message.to_string())
}

pub(crate) fn config(key: &str) -> Option<String> {
    with(|f| f.config.get(key).cloned())
}

pub(crate) fn log(level: Level, line: &str) {
    with(|f| f.logs.push((level, line.to_string())))
}

pub(crate) fn call(name: &str, input: &[u8]) -> Vec<u8> {
    let (status, body) = with(|f| f.journaled(name, input));
    let mut reply = vec![status];
    reply.extend_from_slice(&body);
    reply
}

pub(crate) fn batch(frames: &[u8]) -> Vec<u8> {
    let mut rest = frames;
    let mut replies = Vec::new();
    while !rest.is_empty() {
        let n = usize::from(u16::from_le_bytes([rest[0], rest[1]]));
        let name = String::from_utf8_lossy(&rest[2..2 + n]).into_owned();
        let size = &rest[2 + n..];
        let size = u32::from_le_bytes([size[0], size[1], size[2], size[3]]) as usize;
        let start = 6 + n;
        let (status, body) = with(|f| f.journaled(&name, &rest[start..start + size]));
        replies.push(status);
        replies.extend_from_slice(&(body.len() as u32).to_le_bytes());
        replies.extend_from_slice(&body);
        rest = &rest[start + size..];
    }
    replies
}

pub(crate) fn on_panic() {}
