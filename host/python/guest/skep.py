# The module skep, which agents import: values, calls of the host, and what async functions run on. Part of the program that starts
# with boot.py.


# -- the module skep ---------------------------------------------------------------------------------------------------

skep = types.ModuleType("skep", "What an agent in Python asks of its host.")


class CallError(Exception):
    """What a call to the host failed with."""

    def __init__(self, kind, message, limit="", hint=""):
        super().__init__(message)
        self.kind, self.message, self.limit, self.hint = kind, message, limit, hint


class Call:
    """A call of another agent, or of an instance, that has not been made yet: await it, or give it to batch or gather."""

    _name = b"agent"

    def __init__(self, agent, function, input=None, *, key="", child=False, send=False):
        wire = {"agent": agent, "function": function, **_payload(input)}
        if key:
            wire |= {"key": key, "child": child, "send": send}
        self._body = json.dumps(wire).encode()

    def __await__(self):
        return (yield self)

    def _value(self, body):
        return _agent_result(body)

    def _error(self, e):
        return e


class _Gather:
    def __init__(self, waits):
        self.waits = waits

    def __await__(self):
        return (yield self)


def call(agent, function, input=None):
    """Calls a function of another agent and returns what it returns."""
    return _agent_result(_ask("agent", Call(agent, function, input)._body))


def batch(*calls):
    """Makes calls at once and returns their results in order, when all have ended. Raises the first error."""
    results = _batch(calls)
    for _, error in results:
        if error is not None:
            raise error
    return [value for value, _ in results]


def gather(*waits):
    """Waits for calls and coroutines at once: await gather(a, b) is [result of a, result of b]."""
    return _Gather(waits)


def emit(name, data=None):
    """Writes an event of the agent's own to the session's log."""
    _ask("emit", json.dumps({"name": name, "data": data}, default=_plain, allow_nan=False).encode())


class Response:
    """What answered a request. Redirects have been followed, and the body is decoded."""

    def __init__(self, status, headers, body):
        self.status, self.headers, self.body = status, headers, body

    @property
    def ok(self):
        return 200 <= self.status <= 299

    def text(self):
        return self.body.decode("utf-8", "replace")

    def json(self):
        return json.loads(self.body)

    def __repr__(self):
        return f"<Response {self.status}>"


def _requested(url, method, headers, body):
    pairs = [[str(k), str(v)] for k, v in (headers.items() if hasattr(headers, "items") else headers)]
    if body is None:
        body, typ = b"", ""
    else:
        typ, body = _encode(body)
    if typ and typ != "application/octet-stream" and not any(k.lower() == "content-type" for k, _ in pairs):
        pairs.append(["content-type", typ])
    return json.dumps(
        {
            "method": method or ("POST" if body else "GET"),
            "url": url,
            "header": pairs,
            "body": base64.b64encode(body).decode(),
        }
    ).encode()


def _response(body):
    r = json.loads(body)
    headers = {}
    for k, v in r.get("header") or ():
        k = k.lower()
        headers[k] = f"{headers[k]}, {v}" if k in headers else v
    return Response(r["status"], headers, base64.b64decode(r.get("body") or ""))


def fetch(url, *, method=None, headers=(), body=None):
    """Makes a request, which must have been granted, and returns the whole response, whatever its status."""
    return _response(_ask("http", _requested(url, method, headers, body)))


def secret(name):
    """Returns the placeholder of a secret, which the host replaces in requests on their way out."""
    ends = "abcdefghijklmnopqrstuvwxyz0123456789"
    if not (
        isinstance(name, str)
        and 1 <= len(name) <= 63
        and name[0] in ends
        and name[-1] in ends
        and all(c in ends + "._-" for c in name)
    ):
        raise ValueError(
            f"{name!r} is not the name of a secret: it has 1 to 63 of a-z, 0-9, '.', '_' and '-', "
            "and begins and ends with a letter or digit"
        )
    return "{{secret:" + name + "}}"


class Entry:
    """A key of the agent's state with its value and its version."""

    def __init__(self, key, value, version):
        self.key, self.value, self.version = key, value, version

    def __repr__(self):
        return f"Entry({self.key!r}, {self.value!r}, {self.version})"


def _entry(e):
    if "json" in e:
        value = e["json"]
    elif "text" in e:
        value = e["text"]
    else:
        value = base64.b64decode(e.get("base64", ""))
        if e["type"].startswith("text/"):
            value = value.decode("utf-8", "replace")
    return Entry(e["key"], value, e["version"])


def _edit(key, if_version, **fields):
    edit = {"key": key, **fields}
    if if_version is not None:
        edit["if"] = if_version
    return edit


def _stored(value):
    typ, body = _encode(value)
    if typ == "application/octet-stream":
        return {"base64": base64.b64encode(body).decode()}
    return {"text": value} if isinstance(value, str) else {"json": value}


def _state(name, body):
    out = _ask(name, json.dumps(body, default=_plain, allow_nan=False).encode())
    return json.loads(out) if out else None


class _KV:
    """Ordered keys and values: the agent's own, or an instance's."""

    def __init__(self, calls):
        self._calls = calls

    def entry(self, key):
        found = _state(self._calls + ".get", {"keys": [key]})["entries"]
        return _entry(found[0]) if found else None

    def get(self, key, default=None):
        e = self.entry(key)
        return default if e is None else e.value

    def set(self, key, value, if_version=None):
        return _state(self._calls + ".set", _edit(key, if_version, **_stored(value)))["version"]

    def delete(self, key, if_version=None):
        _state(self._calls + ".delete", _edit(key, if_version))

    def batch(self, *edits):
        wire = []
        for do, key, *rest in edits:
            version = rest.pop() if len(rest) > (do == "set") else None
            wire.append({"do": do, **_edit(key, version, **(_stored(rest[0]) if do == "set" else {}))})
        return _state(self._calls + ".batch", {"edits": wire})["version"]

    def entries(self, prefix="", start="", end="", reverse=False, limit=None):
        after = ""
        while limit is None or limit > 0:
            q = {"prefix": prefix, "start": start, "end": end, "reverse": reverse, "after": after}
            if limit is not None:
                q["limit"] = min(limit, 1000)
            page = _state(self._calls + ".list", q)
            yield from map(_entry, page["entries"])
            if limit is not None:
                limit -= len(page["entries"])
            if not (after := page.get("after", "")):
                return


class _Log:
    """Writes lines of console output at a level of their own; print writes at level info."""

    def _line(self, level, values):
        sys.stdout.flush()
        _send(b"L", level + " ".join(map(str, values)).encode())

    def debug(self, *values):
        self._line(b"1", values)

    def info(self, *values):
        self._line(b"2", values)

    def warn(self, *values):
        self._line(b"3", values)

    def error(self, *values):
        self._line(b"4", values)


_config = {}
for _f in (CallError, Call, Entry, call, batch, gather, emit, Response, fetch, secret):
    _f.__module__ = "skep"
    setattr(skep, _f.__name__, _f)
skep.log = _Log()
skep.kv, skep.storage = _KV("state"), _KV("storage")
skep.config = types.MappingProxyType(_config)
skep.files = types.MappingProxyType({})
sys.modules["skep"] = skep


# -- values ------------------------------------------------------------------------------------------------------------


def _plain(value):
    """The JSON form of a dataclass."""
    fields = getattr(type(value), "__dataclass_fields__", None)
    if fields is None:
        raise TypeError(f"a {type(value).__name__} has no JSON form")
    return {name: getattr(value, name) for name in fields}


def _encode(value):
    if isinstance(value, str):
        return "text/plain; charset=utf-8", value.encode()
    if isinstance(value, (bytes, bytearray, memoryview)):
        return "application/octet-stream", bytes(value)
    return "application/json", json.dumps(
        value, ensure_ascii=False, separators=(",", ":"), default=_plain, allow_nan=False
    ).encode()


def _payload(value):
    """A value as the input of a call travels."""
    typ, body = _encode(value)
    return {"type": typ, "input": base64.b64encode(body).decode()}


def _decode(typ, body):
    main = typ.partition(";")[0].strip().lower()
    if main == "application/json" or main.endswith("+json"):
        return json.loads(body) if body else None
    if main.startswith("text/"):
        return body.decode("utf-8", "replace")
    return body


# -- calls -------------------------------------------------------------------------------------------------------------


def _result(status, body):
    if status == 0:
        return body
    try:
        e = json.loads(body)
        raise CallError(e["kind"], e["message"], e.get("limit", ""), e.get("hint", ""))
    except (ValueError, KeyError):
        raise CallError("internal", "the host's error cannot be read") from None


def _ask(name, body):
    sys.stdout.flush()
    _send(b"C", name.encode() + b"\0" + body)
    reply = _receive()
    return _result(reply[0], reply[1:])


def _agent_result(body):
    r = json.loads(body)
    if not r.get("type"):  # of a message
        return None
    return _decode(r["type"], base64.b64decode(r.get("output") or ""))


def _batch(calls):
    """Makes calls at once and returns a list of (value, error)."""
    if len(calls) > 1024:  # as many as the host takes
        return _batch(calls[:1024]) + _batch(calls[1024:])
    sys.stdout.flush()
    frames = bytearray()
    for c in calls:
        frames += len(c._name).to_bytes(2, "little") + c._name + len(c._body).to_bytes(4, "little") + c._body
    _send(b"B", bytes(frames))
    reply, at, results = _receive(), 0, []
    for c in calls:
        n = int.from_bytes(reply[at + 1 : at + 5], "little")
        try:
            results.append((c._value(_result(reply[at], reply[at + 5 : at + 5 + n])), None))
        except CallError as e:
            results.append((None, c._error(e)))
        at += 5 + n
    return results


async def _run(awaitable):
    return await awaitable


class _Task:
    def __init__(self, steps, group, place):
        self.steps, self.group, self.place = steps, group, place


class _Group:
    def __init__(self, owner, n):
        self.owner, self.left, self.values, self.error = owner, n, [None] * n, None


def _drive(main):
    """Runs a coroutine to its end. Calls that wait at the same time are made as one batch."""
    root = _Group(None, 1)
    ready, waiting = [(_Task(main, root, 0), None, None)], []

    def end(task, value, error):
        g = task.group
        g.values[task.place], g.left = value, g.left - 1
        if error is not None and g.error is None:
            g.error = error
        if g.left == 0 and g.owner is not None:
            ready.append((g.owner, g.values, g.error))

    while root.left:
        if not ready:
            if not waiting:
                raise RuntimeError("the function never returns: it waits for nothing")
            tasks, waiting = waiting, []
            for (task, _), (value, error) in zip(tasks, _batch([c for _, c in tasks])):
                ready.append((task, value, error))
            continue
        task, value, error = ready.pop(0)
        try:
            wait = task.steps.send(value) if error is None else task.steps.throw(error)
        except StopIteration as stop:
            end(task, stop.value, None)
        except Exception as e:
            end(task, None, e)
        else:
            if isinstance(wait, Call):
                waiting.append((task, wait))
            elif isinstance(wait, _Gather) and not wait.waits:
                ready.append((task, [], None))
            elif isinstance(wait, _Gather):
                g = _Group(task, len(wait.waits))
                ready.extend((_Task(_run(w), g, i), None, None) for i, w in enumerate(wait.waits))
            else:
                ready.append((task, None, RuntimeError("only calls, gather and coroutines can be awaited here; asyncio has no loop")))
    if root.error is not None:
        raise root.error
    return root.values[0]
