//! A counter that keeps the sum of each day. Each key of the agent is a counter of its own. See the README for how to push and call it.

use std::time::UNIX_EPOCH;

use skep::{alarm, object, socket, storage, Result, Value};

skep::export! { add total days on_start on_alarm on_connect on_socket_message on_close }

/// Runs when a counter is made: an alarm closes each of its days, at midnight or by the cron line of the setting `closes`.
fn on_start(_: ()) -> Result<()> {
    let closes = skep::config("closes").unwrap_or("@daily".to_string());
    alarm::cron(&closes, "UTC").name("midnight").set()?;
    Ok(())
}

/// Adds a number, and returns the sum of today so far. Nobody else reads or writes the counter meanwhile.
fn add(n: i64) -> Result<i64> {
    let sum = now()?.checked_add(n).ok_or("the counter cannot count that far")?;
    storage::set("sum", sum)?;
    socket::broadcast(sum.to_string(), "", &[])?; // to all who watch, once it is stored
    Ok(sum)
}

/// Tells whoever connects the sum of today so far.
fn on_connect(e: socket::Event) -> Result<()> {
    e.socket.send(now()?.to_string())
}

/// Adds the number that a client sends.
fn on_socket_message(e: socket::Event) -> Result<()> {
    add(e.text().unwrap_or("").trim().parse()?)?;
    Ok(())
}

/// Writes down that a client has gone.
fn on_close(e: socket::Event) -> Result<()> {
    skep::emit("left", object! { "code": e.code, "watch": socket::list("")?.len() as i64 })
}

/// Returns the sum of today so far.
fn total(_: ()) -> Result<i64> {
    now()
}

/// Returns the sums of the days before, as a list of the day's number since 1970 and its sum.
fn days(_: ()) -> Result<Value> {
    let mut all = Vec::new();
    for e in storage::list("day/", "", 1000)? {
        let day: i64 = e.key["day/".len()..].parse()?;
        all.push(Value::from(vec![day, e.value()?]));
    }
    Ok(all.into())
}

/// Writes down the sum of the day that has ended, and begins a new one. When it fails it is undone, and comes again.
fn on_alarm(_: ()) -> Result<()> {
    let hours = skep::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs() / 3600;
    let ended = (hours + 12) / 24 - 1; // an alarm may be some hours late
    let sum = now()?;
    storage::set(&format!("day/{:06}", ended), sum)?;
    storage::set("sum", 0)?;
    skep::emit("closed", object! { "sum": sum })
}

fn now() -> Result<i64> {
    Ok(storage::get("sum")?.unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use skep::Fake;
    use std::time::Duration;

    const DAY: Duration = Duration::from_secs(24 * 3600);

    fn counter() -> Fake {
        let mut host = Fake::new();
        host.call::<_, _, _, ()>(on_start, ()).unwrap();
        host
    }

    #[test]
    fn counts() {
        let mut host = counter();
        assert_eq!(host.call::<_, _, _, i64>(add, 2i64), Ok(2));
        assert_eq!(host.call::<_, _, _, i64>(add, 3i64), Ok(5));
        assert!(host.call::<_, _, _, i64>(add, i64::MAX).is_err());
        assert_eq!(host.call::<_, _, _, i64>(total, ()), Ok(5));
    }

    #[test]
    fn tells_who_watches() {
        let mut host = counter();
        host.connect("c1", &[]);
        host.call::<_, _, _, i64>(add, 2i64).unwrap();
        assert_eq!(host.frames.len(), 1);
    }

    #[test]
    fn closes_days() {
        let mut host = counter();
        assert_eq!((host.alarms().len(), host.alarms()[0].cron.as_str()), (1, "@daily"));
        let first = host.now();
        host.call::<_, _, _, i64>(add, 2i64).unwrap();
        host.set_now(first + DAY);
        host.fire("midnight", on_alarm).unwrap();
        host.call::<_, _, _, i64>(add, 3i64).unwrap();
        host.set_now(first + DAY * 2 + Duration::from_secs(7));
        host.fire("midnight", on_alarm).unwrap();
        assert_eq!(host.call::<_, _, _, i64>(total, ()), Ok(0));
        let days: Value = host.call(days, ()).unwrap();
        assert_eq!(days.to_string(), "[[21915,2],[21916,3]]");
    }
}
