//! The Extism ABI. A block is memory owned by the host; 0 is no block.

use crate::Level;

#[link(wasm_import_module = "extism:host/env")]
extern "C" {
    fn alloc(length: u64) -> u64;
    fn length(block: u64) -> u64;
    fn load_u8(at: u64) -> u32;
    fn load_u64(at: u64) -> u64;
    fn store_u8(at: u64, v: u32);
    fn store_u64(at: u64, v: u64);
    fn input_length() -> u64;
    fn input_load_u8(at: u64) -> u32;
    fn input_load_u64(at: u64) -> u64;
    fn output_set(block: u64, length: u64);
    fn error_set(block: u64);
    fn config_get(key: u64) -> u64;
    fn log_debug(block: u64);
    fn log_info(block: u64);
    fn log_warn(block: u64);
    fn log_error(block: u64);
}

#[link(wasm_import_module = "extism:host/user")]
extern "C" {
    fn skep_call(name: u64, input: u64) -> u64;
    fn skep_batch(calls: u64) -> u64;
}

#[link(wasm_import_module = "wasi_snapshot_preview1")]
extern "C" {
    fn clock_time_get(clock: u32, precision: u64, nanoseconds: *mut u64) -> u32;
    fn random_get(to: *mut u8, length: usize) -> u32;
}

/// The time in nanoseconds since 1970.
pub(crate) fn now() -> u64 {
    let mut at = 0;
    unsafe { clock_time_get(0, 1, &mut at) };
    at
}

pub(crate) fn random(to: &mut [u8]) {
    unsafe { random_get(to.as_mut_ptr(), to.len()) };
}

pub(crate) fn input() -> Vec<u8> {
    unsafe { read(input_length(), |at| input_load_u64(at), |at| input_load_u8(at)) }
}

pub(crate) fn output(b: &[u8]) {
    unsafe { output_set(store(b), b.len() as u64) }
}

pub(crate) fn fail(message: &str) {
    unsafe { error_set(store(message.as_bytes())) }
}

pub(crate) fn config(key: &str) -> Option<String> {
    let at = unsafe { config_get(store(key.as_bytes())) };
    if at == 0 {
        return None;
    }
    Some(String::from_utf8_lossy(&load(at)).into_owned())
}

pub(crate) fn log(level: Level, line: &str) {
    let at = store(line.as_bytes());
    unsafe {
        match level {
            Level::Debug => log_debug(at),
            Level::Info => log_info(at),
            Level::Warn => log_warn(at),
            Level::Error => log_error(at),
        }
    }
}

pub(crate) fn call(name: &str, input: &[u8]) -> Vec<u8> {
    load(unsafe { skep_call(store(name.as_bytes()), store(input)) })
}

pub(crate) fn batch(frames: &[u8]) -> Vec<u8> {
    load(unsafe { skep_batch(store(frames)) })
}

/// Lets a panic be the call's error: the program ends right after.
pub(crate) fn on_panic() {
    std::panic::set_hook(Box::new(|info| fail(&info.to_string())));
}

fn store(b: &[u8]) -> u64 {
    unsafe {
        let at = alloc(b.len() as u64);
        let words = b.len() & !7;
        for i in (0..words).step_by(8) {
            let mut word = [0; 8];
            word.copy_from_slice(&b[i..i + 8]);
            store_u64(at + i as u64, u64::from_le_bytes(word));
        }
        for i in words..b.len() {
            store_u8(at + i as u64, u32::from(b[i]));
        }
        at
    }
}

fn load(block: u64) -> Vec<u8> {
    if block == 0 {
        return Vec::new();
    }
    unsafe { read(length(block), |at| load_u64(block + at), |at| load_u8(block + at)) }
}

fn read(n: u64, word: impl Fn(u64) -> u64, byte: impl Fn(u64) -> u32) -> Vec<u8> {
    let mut b = Vec::with_capacity(n as usize);
    let words = n & !7;
    for at in (0..words).step_by(8) {
        b.extend_from_slice(&word(at).to_le_bytes());
    }
    for at in words..n {
        b.push(byte(at) as u8);
    }
    b
}
