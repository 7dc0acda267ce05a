use crate::host;

/// How much a line of console output matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    Debug,
    Info,
    Warn,
    Error,
}

/// Writes a line of console output: it shows in the agent's log and in the session's events. The macros [`debug!`](crate::debug),
/// [`info!`](crate::info), [`warn!`](crate::warn) and [`error!`](crate::error) format one.
pub fn write(level: Level, line: &str) {
    host::log(level, line)
}

/// Writes a line of console output for whoever looks for a fault.
#[macro_export]
macro_rules! debug { ($($arg:tt)*) => { $crate::write($crate::Level::Debug, &format!($($arg)*)) }; }

/// Writes a line of console output.
#[macro_export]
macro_rules! info { ($($arg:tt)*) => { $crate::write($crate::Level::Info, &format!($($arg)*)) }; }

/// Writes a line of console output that someone should look at.
#[macro_export]
macro_rules! warn { ($($arg:tt)*) => { $crate::write($crate::Level::Warn, &format!($($arg)*)) }; }

/// Writes a line of console output about something that failed.
#[macro_export]
macro_rules! error { ($($arg:tt)*) => { $crate::write($crate::Level::Error, &format!($($arg)*)) }; }
