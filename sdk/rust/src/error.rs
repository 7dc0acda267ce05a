use std::fmt;

pub(crate) const PERMANENT: &str = "permanent";

/// What a function of an agent returns.
pub type Result<T> = std::result::Result<T, Error>;

/// Why a call failed: one to the host, or the agent's own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    /// `"failed"` for the agent's own errors; for those of the host `"denied"`, `"not_found"`, `"exhausted"`, ...; `"timed_out"`
    /// for a step that took too long
    pub kind: String,
    pub message: String,
    /// Which limit was hit, when the kind is `"exhausted"`.
    pub limit: String,
    /// What to do about it, in a sentence; may be empty.
    pub hint: String,
}

impl Error {
    /// Makes an error of the agent's own from anything that can be shown: `.map_err(Error::new)?`.
    pub fn new(message: impl fmt::Display) -> Error {
        Error::of("failed", message)
    }

    /// Says that no further attempt of a [`step`](crate::step()) would mend it: `Error::new("no such card").permanent()`.
    pub fn permanent(self) -> Error {
        Error { kind: PERMANENT.to_string(), ..self }
    }

    pub(crate) fn of(kind: &str, message: impl fmt::Display) -> Error {
        Error { kind: kind.to_string(), message: message.to_string(), limit: String::new(), hint: String::new() }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Error {}

macro_rules! from {
    ($($t:ty),*) => { $(impl From<$t> for Error { fn from(e: $t) -> Error { Error::new(e) } })* };
}

from!(&str, String, fmt::Error, std::num::ParseIntError, std::num::ParseFloatError, std::num::TryFromIntError);
from!(std::str::Utf8Error, std::string::FromUtf8Error, std::io::Error, crate::ParseError);
