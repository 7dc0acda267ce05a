use std::cell::RefCell;
use std::collections::HashSet;
use std::time::Duration;

use crate::calls::ask;
use crate::error::PERMANENT;
use crate::{identity, now, object, sleep, Error, Result};

type Undo = Box<dyn Fn() -> Result<()>>;

/// A step that has not begun. See [`step`].
#[must_use = "a step is done by run()"]
pub struct Step<T> {
    name: String,
    retry: Retry,
    timeout: Option<Duration>,
    undo: Option<Box<dyn FnOnce(&T) -> Undo>>,
}

#[derive(Clone, Copy)]
struct Retry {
    attempts: u32,
    delay: Duration,
    longest: Duration,
}

/// Names a step of a run, which shows in the run's events and its tree. A name that is used again gets a number: the second step "mail"
/// is "mail#2".
///
/// ```no_run
/// # use skep::{step, Result};
/// # use std::time::Duration;
/// # fn charge(cents: i64) -> Result<String> { Ok(String::new()) }
/// # fn refund(id: &str) -> Result<()> { Ok(()) }
/// # fn f() -> Result<()> {
/// let id = step("charge").attempts(4).delay(Duration::from_secs(60)).rollback(|id: &String| refund(id)).run(|| charge(250))?;
/// # Ok(()) }
/// ```
///
/// A step is no memory: when the run is replayed its function is called again, and the calls to the host that it makes are answered
/// from the journal.
pub fn step<T>(name: &str) -> Step<T> {
    let retry = Retry { attempts: 1, delay: Duration::from_secs(10), longest: Duration::from_secs(365 * 24 * 3600) };
    Step { name: name.to_string(), retry, timeout: None, undo: None }
}

impl<T> Step<T> {
    /// Sets how many attempts are made in all; one unless given. Outside of a run nothing can wait, and there is one.
    pub fn attempts(mut self, n: u32) -> Step<T> {
        self.retry.attempts = n;
        self
    }

    /// Sets the delay before the second attempt, 10 s unless given. It is doubled with each.
    pub fn delay(mut self, d: Duration) -> Step<T> {
        self.retry.delay = d;
        self
    }

    /// Sets the longest delay, a year unless given.
    pub fn max_delay(mut self, d: Duration) -> Step<T> {
        self.retry.longest = d;
        self
    }

    /// Sets how long an attempt may take. Nothing can interrupt the code of a module while it runs: an attempt that took longer has
    /// failed, with an error of kind `"timed_out"`, once it returns, and its value is thrown away. By a run's clock only calls of the
    /// host take time; computing is bounded by the agent's limits.
    pub fn timeout(mut self, d: Duration) -> Step<T> {
        self.timeout = Some(d);
        self
    }

    /// Sets what takes back what the step did, with what it returned. Rollbacks of the steps that worked run in reverse when the
    /// exported function returns an error; a panic ends the program, and runs none. They get as many attempts as the step, and one that
    /// fails for good does not keep those before it from running.
    pub fn rollback(mut self, f: impl Fn(&T) -> Result<()> + 'static) -> Step<T>
    where
        T: Clone + 'static,
    {
        self.undo = Some(Box::new(move |v: &T| {
            let v = v.clone();
            Box::new(move || f(&v))
        }));
        self
    }

    /// Does the step.
    pub fn run(self, f: impl FnMut() -> Result<T>) -> Result<T> {
        let name = STEPS.with(|s| s.borrow_mut().unique(&self.name));
        let v = attempts(&name, false, self.retry, self.timeout, f)?;
        if let Some(undo) = self.undo {
            let (undo, retry) = (undo(&v), self.retry);
            let undo = move || attempts(&name, true, retry, None, &undo);
            STEPS.with(|s| s.borrow_mut().undo.push(Box::new(undo)));
        }
        Ok(v)
    }
}

/// The steps of the call. A cell serves one call, and a fake one at a time.
#[derive(Default)]
struct Steps {
    names: HashSet<String>,
    undo: Vec<Undo>, // of those that worked
}

thread_local! {
    static STEPS: RefCell<Steps> = RefCell::default();
}

impl Steps {
    fn unique(&mut self, name: &str) -> String {
        let mut own = name.to_string();
        let mut n = 2;
        while !self.names.insert(own.clone()) {
            own = format!("{}#{}", name, n);
            n += 1;
        }
        own
    }
}

pub(crate) fn begin() {
    STEPS.with(|s| *s.borrow_mut() = Steps::default())
}

/// Runs the rollbacks and adds what failed to `e`.
pub(crate) fn roll_back(mut e: Error) -> Error {
    while let Some(undo) = STEPS.with(|s| s.borrow_mut().undo.pop()) {
        if let Err(failed) = undo() {
            e.message = format!("{}; rollback: {}", e.message, failed);
        }
    }
    e
}

fn attempts<T>(name: &str, rollback: bool, retry: Retry, timeout: Option<Duration>, mut f: impl FnMut() -> Result<T>) -> Result<T> {
    let mut delay = retry.delay.min(retry.longest);
    for n in 1.. {
        let e = match attempt(name, n, rollback, timeout, &mut f) {
            Ok(v) => return Ok(v),
            Err(e) => Error { message: format!("step {:?}: {}", name, e), ..e },
        };
        if n >= retry.attempts || e.kind == PERMANENT || e.kind == "cancelled" {
            return Err(e);
        }
        match identity() {
            Ok(me) if !me.key.is_empty() && !me.run.is_empty() => {}
            _ => return Err(e),
        }
        if let Err(failed) = sleep(delay) {
            return Err(Error { message: format!("{}; waiting for the next attempt: {}", e, failed), ..e });
        }
        delay = (delay * 2).min(retry.longest);
    }
    unreachable!()
}

fn attempt<T>(name: &str, n: u32, rollback: bool, timeout: Option<Duration>, f: &mut impl FnMut() -> Result<T>) -> Result<T> {
    let mut mark = object! { "name": name, "attempt": n };
    if rollback {
        mark.set("rollback", true);
    }
    ask("step.begin", &mark)?;
    let began = now();
    let mut done = f();
    let took = now().duration_since(began).unwrap_or_default();
    if let (Ok(_), Some(most)) = (&done, timeout.filter(|most| took > *most)) {
        done = Err(Error::of("timed_out", format!("it took {:?}, more than its {:?}", took, most)));
    }
    if let Err(e) = &done {
        mark.set("error", e.message.as_str());
    }
    ask("step.end", &mark)?;
    done
}
