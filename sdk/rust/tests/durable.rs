use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use skep::{alarm, child, instance, object, shared, socket, step, storage, Error, Fake, Result, SqlValue, StepMark, Value};

const MINUTE: Duration = Duration::from_secs(60);

/// Makes a call of `f`, which takes and returns nothing.
fn call(host: &mut Fake, f: impl FnOnce() -> Result<()>) -> Result<()> {
    host.call(|_: ()| f(), ())
}

#[test]
fn storage_is_the_turns() {
    let mut host = Fake::new();
    call(&mut host, || storage::set("n", 1).and(skep::kv::set("other", 2)).map(drop)).unwrap();
    let failed = call(&mut host, || {
        storage::set("n", 2)?;
        instance("mail", "ada").send("note", "hi")?;
        alarm::after(MINUTE).set()?;
        shared::set(1)?;
        Err("no".into())
    });
    assert_eq!(failed.unwrap_err().message, "no");
    assert!(host.messages.is_empty() && host.alarms().is_empty());
    call(&mut host, || {
        assert_eq!(storage::get::<i64>("n")?, Some(1));
        assert_eq!(storage::list("", "", 10)?.len(), 1);
        assert_eq!(shared::get()?, (Value::Null, 0));
        Ok(())
    })
    .unwrap();
    host.identity.run = "r".to_string();
    call(&mut host, || storage::set("n", 3).and(Err("a run's slices stay".into()))).unwrap_err();
    call(&mut host, || Ok(assert_eq!(storage::get::<i64>("n")?, Some(3)))).unwrap();
}

#[test]
fn steps_are_tried_again() {
    let mut host = Fake::new().in_run();
    let began = host.now();
    let mut tries = 0;
    call(&mut host, || {
        let n = step("flaky").attempts(5).delay(Duration::from_secs(1)).max_delay(Duration::from_secs(3)).run(|| {
            tries += 1;
            if tries < 5 {
                return Err(Error::new("not yet"));
            }
            Ok(tries)
        })?;
        assert_eq!(n, 5);
        Ok(())
    })
    .unwrap();
    assert_eq!(host.now().duration_since(began).unwrap(), Duration::from_secs(1 + 2 + 3 + 3));
    let mark = |attempt: i64, error: &str| StepMark { name: "flaky".into(), attempt, error: error.into(), rollback: false };
    assert_eq!(host.steps, [mark(1, "not yet"), mark(2, "not yet"), mark(3, "not yet"), mark(4, "not yet"), mark(5, "")]);
}

#[test]
fn steps_give_up() {
    for (run, attempts, error, tries) in [
        (true, 2, Error::new("broken"), 2),
        (true, 1, Error::new("broken"), 1),
        (true, 3, Error::new("broken").permanent(), 1),
        (false, 3, Error::new("broken"), 1),
    ] {
        let mut host = if run { Fake::new().in_run() } else { Fake::new() };
        let failed = call(&mut host, || step::<()>("s").attempts(attempts).run(|| Err(error.clone())));
        assert_eq!(failed.unwrap_err().message, "step \"s\": broken");
        assert_eq!(host.steps.len(), tries);
    }
}

#[test]
fn steps_take_too_long() {
    let mut host = Fake::new().in_run();
    call(&mut host, || {
        let late = step::<()>("slow").timeout(MINUTE).run(|| skep::sleep(MINUTE * 2)).unwrap_err();
        assert_eq!((late.kind.as_str(), late.message.as_str()), ("timed_out", "step \"slow\": it took 120s, more than its 60s"));
        step("slow").timeout(MINUTE).run(|| skep::sleep(MINUTE))
    })
    .unwrap();
    assert_eq!(host.steps[1].name, "slow#2");
}

#[test]
fn rollbacks_run_in_reverse() {
    let undone = Rc::new(RefCell::new(Vec::new()));
    let mut host = Fake::new().in_run();
    let run = |end: Result<()>, undone: Rc<RefCell<Vec<String>>>| {
        for name in ["a", "b", "c"] {
            let undone = undone.clone();
            let undo = move |v: &String| {
                undone.borrow_mut().push(v.clone());
                if v == "b" {
                    return Err(Error::new("stuck"));
                }
                Ok(())
            };
            step(name).attempts(2).rollback(undo).run(|| Ok(name.to_string()))?;
        }
        let never = |_: &()| -> Result<()> { panic!("it had failed") };
        step("d").rollback(never).run(|| Err(Error::new("d"))).unwrap_err();
        end
    };
    call(&mut host, || run(Ok(()), undone.clone())).unwrap();
    assert!(undone.borrow().is_empty());
    let failed = call(&mut host, || run(Err("no stock".into()), undone.clone())).unwrap_err();
    assert_eq!(failed.message, "no stock; rollback: step \"b\": stuck");
    assert_eq!(*undone.borrow(), ["c", "b", "b", "a"]);
    let last = host.steps.last().unwrap();
    assert!(last.rollback && last.name == "a" && last.error.is_empty());
    // Nothing of it is left for the next call.
    assert_eq!(call(&mut host, || Err("again".into())).unwrap_err().message, "again");
}

#[test]
fn runs_wait() {
    let mut host = Fake::new().in_run();
    host.deliver("approval", object! { "by": "Ada" });
    call(&mut host, || {
        let v = skep::wait_for_event("approval", MINUTE)?.ok_or("it is there")?;
        assert_eq!(v["by"].as_str(), Some("Ada"));
        let began = skep::now();
        assert_eq!(skep::wait_for_event("approval", MINUTE)?, None);
        skep::sleep_until(began + MINUTE * 3)?;
        skep::sleep_until(began)?;
        assert_eq!(skep::now().duration_since(began).unwrap(), MINUTE * 3);
        let never = skep::wait_for_event("approval", None).unwrap_err();
        assert!(never.message.contains("for ever"), "{}", never);
        Ok(())
    })
    .unwrap();
    let turn = call(&mut Fake::new(), || skep::sleep(MINUTE)).unwrap_err();
    assert!(turn.message.contains("only a run"), "{}", turn);
}

#[test]
fn others_are_called() {
    let mut host = Fake::new().in_run().answering_instances(|agent, key, method, input| {
        if method == "fails" {
            return Err(Error::new("no luck"));
        }
        Ok(format!("{}/{}.{}({})", agent, key, method, String::from_utf8_lossy(&input)).into_bytes())
    });
    call(&mut host, || {
        let me = skep::identity()?;
        assert_eq!((me.agent.as_str(), me.key.as_str(), me.run.as_str()), ("test", "test", "run"));
        let got: String = skep::outside(|| instance("chat", "room").call("post", "hi"))?;
        assert_eq!(got, "chat/room.post(hi)");
        let own = skep::start_run("report", "in")?;
        let other = skep::start_run_in("printer", "p1", "fails", ())?;
        assert_eq!(own.result::<String>()?, "test/test.report(in)");
        assert_eq!(other.result::<String>().unwrap_err().message, "no luck");
        let c = child("test", "c");
        c.send("start", object! { "n": 1 })?;
        c.delete()
    })
    .unwrap();
    let sent = &host.messages[0];
    assert!(sent["send"].as_bool() == Some(true) && sent["child"].as_bool() == Some(true) && sent["key"].as_str() == Some("c"), "{}", sent);
}

#[test]
fn alarms_go_off() {
    let mut host = Fake::new();
    call(&mut host, || {
        let a = alarm::after(MINUTE).name("tea").method("brew").payload(object! { "cups": 2 }).retry(2, Duration::from_secs(1), MINUTE).set()?;
        assert_eq!((a.name.as_str(), a.at), ("tea", skep::now() + MINUTE));
        assert_eq!(alarm::after(MINUTE * 9).name("tea").keep().set()?.method, "brew");
        let hour = MINUTE * 60;
        assert_eq!(alarm::every(hour).set()?, alarm::every(hour).set()?);
        alarm::cron("@daily", "Europe/Rome").name("nightly").queue().missed("all").set()?;
        alarm::at(skep::now() + Duration::from_micros(1)).name("at").set()?;
        let all = alarm::list()?;
        assert_eq!((all.len(), all[0].at, all[1].zone.as_str()), (4, skep::now() + Duration::from_millis(1), "Europe/Rome"));
        assert_eq!(all[3].payload["cups"].as_i64(), Some(2));
        assert!(alarm::cancel("at")? && !alarm::cancel("at")?);
        Ok(())
    })
    .unwrap();
    let due = host.now() + MINUTE;
    let fail = |v: Value| -> Result<()> { Err(Error::new(format!("no water for {}", v["cups"]))) };
    assert_eq!(host.fire("tea", fail).unwrap_err().message, "no water for 2");
    assert_eq!(host.now(), due);
    let tea = |host: &Fake| host.alarms().into_iter().find(|a| a.name == "tea").unwrap();
    assert_eq!((tea(&host).attempt, tea(&host).dead, tea(&host).at), (1, false, due + Duration::from_secs(1)));
    host.fire("tea", fail).unwrap_err();
    assert!(tea(&host).dead);
    host.fire("tea", |_: Value| Ok(())).unwrap();
    assert_eq!(host.alarms().len(), 2);
    let hourly = host.alarms().remove(1);
    host.fire(&hourly.name, |_: ()| Ok(())).unwrap();
    assert_eq!(host.alarms()[1].at, hourly.at + hourly.every.unwrap());
    // One that is set again by its own call stays.
    host.fire("nightly", |_: ()| alarm::after(MINUTE).name("nightly").set().map(drop)).unwrap();
    assert_eq!(host.alarms().len(), 2);
    assert!(host.fire("tea", |_: ()| Ok(())).is_err());
}

#[test]
fn rows_are_read() {
    let mut host = Fake::new().querying(|query, params| {
        if query != "select" {
            return Err(Error::new("syntax error"));
        }
        let want = [1i64.into(), 2.5.into(), "p".into(), true.into(), vec![1u8].into(), SqlValue::Null];
        assert_eq!(params, want);
        let row = vec![i64::MAX.into(), SqlValue::Null, 1.5.into(), vec![0u8, 255].into(), "Ada".into()];
        Ok((["id", "none", "score", "raw", "name"].iter().map(|c| c.to_string()).collect(), vec![row]))
    });
    call(&mut host, || {
        let rows = skep::sql("select", &[1i64.into(), 2.5.into(), "p".into(), true.into(), vec![1u8].into(), None::<i64>.into()])?;
        let row = &rows.rows[0];
        assert_eq!((rows.columns.len(), row.get::<i64>("ID")?, row.get::<String>("name")?), (5, i64::MAX, "Ada".to_string()));
        assert_eq!((row.get::<Option<i64>>("none")?, row.get::<f64>("score")?, row.get::<Vec<u8>>("raw")?), (None, 1.5, vec![0, 255]));
        assert_eq!(row.get::<i32>("id").unwrap_err().message, "sql: column \"id\": an integer does not fit into a i32");
        assert_eq!(row.get::<i64>("x").unwrap_err().message, "sql: there is no column \"x\"");
        assert_eq!(skep::sql("selekt", &[]).unwrap_err().message, "syntax error");
        Ok(())
    })
    .unwrap();
}

#[test]
fn shared_state_has_versions() {
    call(&mut Fake::new(), || {
        let v = shared::set(object! { "moves": 1 })?;
        assert_eq!(shared::set_if(v - 1, 0).unwrap_err().kind, "conflict");
        assert_eq!(shared::set_if(v, 7)?, v + 1);
        assert_eq!(shared::get()?, (Value::Int(7), 2));
        Ok(())
    })
    .unwrap();
}

#[test]
fn clients_are_told() {
    let mut host = Fake::new();
    host.connect("1", &["red"]);
    host.connect("2", &[]);
    let message = |e: socket::Event| -> Result<()> {
        assert_eq!(e.json()?["b"].as_i64(), Some(2));
        socket::broadcast(e.json()?, "", &[&e.socket.id])?;
        e.socket.attach(object! { "seen": 1 })?;
        e.socket.tag(&["blue"])?;
        e.socket.send(vec![1u8])
    };
    host.call::<_, _, _, ()>(message, object! { "socket": object! { "id": "2" }, "text": "{\"b\":2}" }).unwrap();
    assert_eq!(host.frames[0].to_string(), r#"{"tag":"","except":["2"],"text":"{\"b\":2}"}"#);
    assert_eq!(host.frames[1].to_string(), r#"{"to":["2"],"base64":"AQ=="}"#);
    call(&mut host, || {
        let blue = socket::list("blue")?;
        assert_eq!((blue.len(), blue[0].id.as_str(), blue[0].attachment["seen"].as_i64()), (1, "2", Some(1)));
        blue[0].close(1000, "bye")?;
        assert_eq!(socket::list("")?.len(), 1);
        Ok(())
    })
    .unwrap();
    assert_eq!(host.closed[0]["code"].as_i64(), Some(1000));
    let closed = |e: socket::Event| -> Result<()> {
        assert_eq!((e.code, e.reason.as_str(), e.data.is_none(), e.json().is_err()), (1001, "away", true, true));
        Ok(())
    };
    host.call::<_, _, _, ()>(closed, object! { "socket": object! { "id": "1" }, "code": 1001, "reason": "away" }).unwrap();
}

#[test]
fn replays_agree() {
    let mut host = Fake::new().in_run();
    let f = |change: &'static str| {
        move |_: ()| -> Result<String> {
            let mut seed = [0u8; 4];
            skep::random(&mut seed);
            storage::set("k", &seed[..])?;
            if change == "ends" {
                return Ok(String::new());
            }
            skep::sleep(if change == "asks" { MINUTE * 2 } else { MINUTE })?;
            skep::info!("slept");
            if change == "goes on" {
                skep::emit("more", 1)?;
            }
            Ok(format!("{:?}{}", skep::now(), if change == "answers" { "!" } else { "" }))
        }
    };
    let _: String = host.call(f(""), ()).unwrap();
    host.replay(f("")).unwrap();
    for (change, want) in [
        ("ends", "the run diverges: it ended after 1 calls, where it made run.sleep"),
        ("asks", "the run diverges: call 2 is run.sleep {\"for\":120000}, where it was run.sleep {\"for\":60000}"),
        ("goes on", "the run diverges: call 3 is emit"),
        ("answers", "the run diverges: it came to"),
    ] {
        let got = host.replay(f(change)).unwrap_err().message;
        assert!(got.starts_with(want), "{}: {}", change, got);
    }
    host.replay(f("")).unwrap();
    assert!(host.logs.len() == 1 && host.failed.is_empty() && host.events.is_empty());
}
