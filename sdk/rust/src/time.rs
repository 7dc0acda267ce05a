use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::host;

/// The time as the call's host gives it; `SystemTime::now` does not work in WebAssembly. In a run it is the same again when the run is
/// replayed. In a test it is the time of the [`Fake`](crate::Fake).
pub fn now() -> SystemTime {
    UNIX_EPOCH + Duration::from_nanos(host::now())
}

/// Fills `to` with random bytes from the host, which are the same again when a run is replayed.
pub fn random(to: &mut [u8]) {
    host::random(to)
}

/// Milliseconds, rounded up, so that nothing is early.
pub(crate) fn millis(d: Duration) -> i64 {
    ((d.as_nanos() + 999_999) / 1_000_000) as i64
}

pub(crate) fn unix_millis(t: SystemTime) -> i64 {
    t.duration_since(UNIX_EPOCH).map_or(0, millis)
}

pub(crate) fn time_of(millis: i64) -> SystemTime {
    UNIX_EPOCH + Duration::from_millis(millis.max(0) as u64)
}
