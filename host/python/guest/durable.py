# What instances and runs ask of the host. Part of the program that starts with boot.py.


_YEAR = 31_536_000


class Self:
    """Who the code is that runs. key is empty outside of an instance, run outside of a run."""

    def __init__(self, agent="", key="", session="", run="", version=""):
        self.agent, self.key, self.session, self.run, self.version = agent, key, session, run, version

    def __repr__(self):
        return f"Self(agent={self.agent!r}, key={self.key!r}, run={self.run!r})"


def self():
    """Returns who the code is that runs."""
    return Self(**json.loads(_ask("self", b"")))


def _millis(d):
    """Seconds, or a timedelta, in milliseconds."""
    seconds = d.total_seconds() if hasattr(d, "total_seconds") else d
    if not isinstance(seconds, (int, float)) or isinstance(seconds, bool):
        raise TypeError(f"{d!r} is no duration: give seconds or a timedelta")
    return max(0, -int(-seconds * 1000 // 1))


def _unix(when):
    return -int(-when.timestamp() * 1000 // 1)


# -- SQL and the shared state ------------------------------------------------------------------------------------------


def _sql_value(v):
    if v is None:
        return {}
    if isinstance(v, int):
        return {"int": str(int(v))}
    if isinstance(v, float):
        return {"real": v}
    if isinstance(v, str):
        return {"text": v}
    if isinstance(v, (bytes, bytearray, memoryview)):
        return {"bytes": base64.b64encode(v).decode()}
    raise TypeError(f"a {type(v).__name__} is no value of SQL")


def _sql_read(v):
    if "int" in v:
        return int(v["int"])
    if "bytes" in v:
        return base64.b64decode(v["bytes"])
    return v.get("text", v.get("real"))


class Rows(list):
    """What a statement returned: a dict for each row. changes is how many rows it inserted, changed or deleted."""

    changes = 0


def sql(query, *params):
    """Runs a statement of SQLite over the instance's own data."""
    out = _state("storage.sql", {"query": query, "params": [_sql_value(p) for p in params]})
    columns = out.get("columns") or ()
    rows = Rows(dict(zip(columns, map(_sql_read, row))) for row in out.get("rows") or ())
    rows.changes = out.get("changes", 0)
    return rows


class _Shared:
    """The state that clients of the instance see."""

    def get(self, default=None):
        return json.loads(_ask("shared.get", b"")).get("state", default)

    def version(self):
        return json.loads(_ask("shared.get", b""))["version"]

    def set(self, value, if_version=None):
        edit = {"state": value}
        if if_version is not None:
            edit["if"] = if_version
        return _state("shared.set", edit)["version"]


# -- alarms ------------------------------------------------------------------------------------------------------------


class Alarm:
    """An alarm that is set, or that failed for the last time. at is seconds since 1970."""

    def __init__(self, wire):
        self.name, self.method, self.payload = wire["name"], wire.get("method", ""), wire.get("payload")
        self.at, self.every = wire["at"] / 1000, wire.get("every", 0) / 1000
        self.cron, self.zone, self.attempt = wire.get("cron", ""), wire.get("zone", ""), wire.get("attempt", 0)
        self.dead, self.error = wire.get("dead", False), wire.get("error", "")

    def __repr__(self):
        return f"Alarm({self.name!r}, {self.method!r}, {self.at})"


def schedule(
    when=None, method="", payload=None, *, name="", every=None, zone="", overlap="", missed="", attempts=0, delay=None, keep=False
):
    """Has a function called later: after seconds or a timedelta, at a datetime, by a cron line, or every so often."""
    wire = {"name": name, "method": method, "zone": zone, "overlap": overlap, "missed": missed, "keep": keep}
    if payload is not None:
        wire["payload"] = payload
    if (when is None) == (every is None):
        raise TypeError("schedule: give a time, a delay or a cron line, or else every=")
    if every is not None:
        wire["every"] = _millis(every)
    elif isinstance(when, str):
        wire["cron"] = when
    elif hasattr(when, "timestamp"):
        wire["at"] = max(1, _unix(when))
    else:
        wire["delay"] = max(1, _millis(when))
    if attempts or delay is not None:
        wire["retry"] = {"attempts": attempts, "delay": 0 if delay is None else _millis(delay)}
    return Alarm(_state("alarm.set", wire))


def alarms():
    """Lists the instance's alarms in the order of their names."""
    found, after = [], ""
    while True:
        page = _state("alarm.list", {"after": after, "limit": 1000})
        found += map(Alarm, page["alarms"])
        if not (after := page.get("after", "")):
            return found


def cancel_alarm(name):
    """Takes an alarm back, and returns whether it was there."""
    return _state("alarm.cancel", {"name": name})["cancelled"]


# -- waits, steps and runs ---------------------------------------------------------------------------------------------


def sleep(duration):
    """Waits for seconds or a timedelta. Only a run can."""
    if ms := _millis(duration):
        _state("run.sleep", {"for": ms})


def sleep_until(when):
    """Waits until a datetime, unless it has passed. Only a run can."""
    _state("run.sleep", {"until": max(1, _unix(when))})


def wait_for_event(type, timeout=None):
    """Waits until an event of that type is sent to the run, and returns what came with it. Raises a TimeoutError."""
    out = _state("run.wait", {"type": type, "timeout": 0 if timeout is None else max(1, _millis(timeout))})
    if out.get("timed_out"):
        raise TimeoutError(f"event {type!r} did not come in time")
    return out.get("data")


class PermanentError(Exception):
    """An error of a step that no further attempt would mend."""


_steps = set()
_rollbacks = []


def _attempts(name, rollback, fn, retries, delay, timeout):
    attempt = 0
    while True:
        attempt += 1
        mark = {"name": name, "attempt": attempt, "rollback": rollback}
        _state("step.begin", mark)
        try:
            began = time.time()
            value = fn()
            if hasattr(value, "__await__"):
                value = _drive(_run(value))
            if timeout is not None and (time.time() - began) * 1000 > _millis(timeout):
                raise TimeoutError(f"step {name!r} took longer than it may")
        except Exception as e:
            _state("step.end", {**mark, "error": _message(e)})
            final = isinstance(e, PermanentError) or isinstance(e, CallError) and e.kind == "cancelled"
            if final or attempt > retries or not self().run:
                raise
            sleep(min(_millis(delay) * 2 ** (attempt - 1) / 1000, _YEAR))
        else:
            _state("step.end", mark)
            return value


def step(name, fn, *, retries=0, delay=10, timeout=None, rollback=None):
    """Does a part of a run under a name, and returns what fn returns. rollback(value) takes it back when the run fails later."""
    own, n = name, 1
    while own in _steps:
        n += 1
        own = f"{name}#{n}"
    _steps.add(own)
    value = _attempts(own, False, fn, retries, delay, timeout)
    if rollback is not None:
        _rollbacks.append((own, lambda: rollback(value), retries, delay))
    return value


def _roll_back():
    """Takes back the steps that worked, the latest first."""
    while _rollbacks:
        name, fn, retries, delay = _rollbacks.pop()
        try:
            _attempts(name, True, fn, retries, delay, None)
        except Exception as e:
            skep.log.error(f"rollback of {name}: {_message(e)}")


class Run:
    """A run that was started by start_run."""

    def __init__(self, id, session):
        self.id, self.session = id, session

    def result(self):
        """Waits until the run has ended, and returns what it returned. Only a run can."""
        return _agent_result(_ask("run.result", json.dumps({"run": self.id}).encode()))

    def __repr__(self):
        return f"Run({self.id!r})"


def start_run(function, input=None, *, agent="", key=""):
    """Begins a run of a function, of the caller's own instance unless another is named."""
    out = _state("run.start", {"agent": agent, "key": key, "function": function, **_payload(input)})
    return Run(out["run"], out["session"])


# -- other instances ---------------------------------------------------------------------------------------------------


class _Agent:
    def __init__(self, name, **how):
        self._name, self._how = name, how

    def __getattr__(self, function):
        if function.startswith("__"):
            raise AttributeError(function)
        return lambda input=None: _agent_result(_ask("agent", Call(self._name, function, input, **self._how)._body))


def agent(name, key="", *, send=False):
    """Names an agent, or with a key its instance, whose functions are called like methods. send makes a call a message."""
    return _Agent(name, key=key, send=send)


def child(agent, key, *, send=False):
    """Names an instance that is the caller's own, and ends with it."""
    return _Agent(agent, key=key, child=True, send=send)


def delete_child(agent, key):
    """Ends an instance that is the caller's own."""
    _state("child.delete", {"agent": agent, "key": key})


def outside(fn):
    """Commits what the turn has changed, and lets other turns of the instance go first while fn runs."""
    _ask("turn.leave", b"")
    try:
        value = fn()
        return _drive(_run(value)) if hasattr(value, "__await__") else value
    finally:
        _ask("turn.enter", b"")


# -- connections of clients --------------------------------------------------------------------------------------------


def _frame(data):
    if isinstance(data, str):
        return {"text": data}
    if isinstance(data, (bytes, bytearray, memoryview)):
        return {"base64": base64.b64encode(data).decode()}
    return {"text": json.dumps(data, ensure_ascii=False, separators=(",", ":"), default=_plain, allow_nan=False)}


class Socket:
    """A connection of a client, also as Socket(event["socket"]) of what on_connect, on_socket_message and on_close get."""

    def __init__(self, wire):
        self.id, self.tags, self.attachment = wire["id"], wire.get("tags") or [], wire.get("attachment")
        self.url, self.header = wire.get("url", ""), wire.get("header") or []

    def send(self, data):
        _state("socket.send", {"to": [self.id], **_frame(data)})

    def close(self, code=1000, reason=""):
        _state("socket.close", {"id": self.id, "code": code, "reason": reason})

    def attach(self, value):
        _state("socket.attach", {"id": self.id, "attachment": value})
        self.attachment = value

    def tag(self, *tags):
        _state("socket.attach", {"id": self.id, "tags": list(tags)})
        self.tags = list(tags)


def sockets(tag=""):
    """Lists the connections that have a tag, or all."""
    return [Socket(s) for s in _state("socket.list", {"tag": tag})["sockets"]]


def broadcast(data, *, tag="", without=()):
    """Sends a frame to all connections, or to those that have a tag, but not to the ids of without."""
    _state("socket.send", {"tag": tag, "except": list(without), **_frame(data)})


for _f in (
    Self, self, Rows, sql, Alarm, schedule, alarms, cancel_alarm, sleep, sleep_until, wait_for_event, PermanentError, step, Run, start_run,
    agent, child, delete_child, outside, Socket, sockets, broadcast,
):  # fmt: skip
    _f.__module__ = "skep"
    setattr(skep, _f.__name__, _f)
skep.shared = _Shared()
