use crate::{Error, Fake, Input, Output, Result};

/// What a call asked of its host and what it got back, in order.
#[derive(Default)]
pub(crate) struct Journal {
    pub(crate) input: Vec<u8>,
    began: i64,
    output: Vec<u8>,
    failed: String,
    entries: Vec<Entry>,

    next: Option<usize>, // while it is replayed
    diverged: Option<String>,
}

struct Entry {
    asked: String,
    answer: (u8, Vec<u8>),
    now: i64, // when the answer came
}

impl Journal {
    pub(crate) fn new(input: Vec<u8>, began: i64) -> Journal {
        Journal { input, began, ..Journal::default() }
    }

    pub(crate) fn ended(&mut self, output: &[u8], failed: &str) {
        self.output = output.to_vec();
        self.failed = failed.to_string();
    }
}

impl Fake {
    /// Plays the last call again from its beginning, with its answers from a journal, as Skep does with a run that has waited or was
    /// interrupted. It fails when the code does not ask the same again in the same order, or does not come to the same end: such code
    /// depends on something else than its input and its host.
    pub fn replay<I: Input, O: Output>(&mut self, f: impl FnOnce(I) -> Result<O>) -> Result<()> {
        let (now, logs, output, failed) = (self.now, self.logs.len(), self.output.clone(), self.failed.clone());
        self.now = self.journal.began;
        self.journal.next = Some(0);
        self.journal.diverged = None;
        self.enter(f, self.journal.input.clone());
        let next = self.journal.next.take().unwrap_or(0);
        let mut diverged = self.journal.diverged.take();
        if diverged.is_none() {
            diverged = match self.journal.entries.get(next) {
                Some(e) => Some(format!("it ended after {} calls, where it made {}", next, e.asked)),
                None if self.output != self.journal.output || self.failed != self.journal.failed => {
                    let shown = String::from_utf8_lossy(&self.output);
                    let before = String::from_utf8_lossy(&self.journal.output);
                    Some(format!("it came to {:?} ({}), where it was {:?} ({})", shown, self.failed, before, self.journal.failed))
                }
                None => None,
            };
        }
        self.now = now;
        self.logs.truncate(logs);
        self.output = output;
        self.failed = failed;
        match diverged {
            Some(why) => Err(Error::of("conflict", format!("the run diverges: {}", why))),
            None => Ok(()),
        }
    }

    /// Answers a call by doing it, or from the journal.
    pub(crate) fn journaled(&mut self, name: &str, input: &[u8]) -> (u8, Vec<u8>) {
        let asked = format!("{} {}", name, String::from_utf8_lossy(input));
        let next = match self.journal.next {
            Some(next) => next,
            None => {
                let answer = self.answer(name, input);
                self.journal.entries.push(Entry { asked, answer: answer.clone(), now: self.now });
                return answer;
            }
        };
        if self.journal.diverged.is_none() {
            match self.journal.entries.get(next) {
                Some(e) if e.asked == asked => {
                    self.journal.next = Some(next + 1);
                    self.now = e.now;
                    return e.answer.clone();
                }
                Some(e) => self.journal.diverged = Some(format!("call {} is {}, where it was {}", next + 1, asked, e.asked)),
                None => self.journal.diverged = Some(format!("call {} is {}, where it had ended", next + 1, asked)),
            }
        }
        (1, b"{\"kind\":\"conflict\",\"message\":\"the run diverges\"}".to_vec())
    }
}
