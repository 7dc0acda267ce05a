# Models. Part of the program that starts with boot.py.


def _ask_of(ask, more):
    """What a model is asked: a text, a list of messages, or a dict; more is what else is said of it."""
    if isinstance(ask, str):
        body = {"messages": [{"role": "user", "content": ask}]}
    elif isinstance(ask, dict):
        body = dict(ask)
    elif isinstance(ask, (list, tuple)):
        body = {"messages": list(ask)}
    else:
        raise TypeError(f"a model is asked by a text, a list of messages or a dict, not {type(ask).__name__}")
    body.update((k, v) for k, v in more.items() if v is not None)
    if isinstance(stop := body.get("stop"), str):
        body["stop"] = [stop]
    body["messages"] = [_asked_message(m, i) for i, m in enumerate(body.get("messages") or [])]
    return body


def _asked_message(m, i):
    if isinstance(m, Answer):
        return m.message
    if not isinstance(m, dict) or m.get("role") not in ("user", "assistant"):
        raise TypeError(f'messages[{i}] is an Answer, or a dict such as {{"role": "user", "content": "text"}}')
    content = m.get("content")
    if isinstance(content, (list, tuple)):
        m = {**m, "content": [{"type": "text", "text": p} if isinstance(p, str) else _part(p) for p in content]}
    return m


def _part(p):
    if isinstance(p, dict) and isinstance(p.get("data"), (bytes, bytearray)):
        return {**p, "data": base64.b64encode(p["data"]).decode()}
    return p


class Answer:
    """What a model has said. It can stand among the messages of the next question as it is."""

    def __init__(self, value):
        self.value = value
        self.id, self.model, self.stop = value.get("id", ""), value.get("model", ""), value.get("stop", "unknown")
        self.content, self.usage = value.get("content") or [], value.get("usage") or {}

    @property
    def text(self):
        """All of its text, one part after the other."""
        return "".join(p.get("text", "") for p in self.content if p["type"] == "text")

    @property
    def calls(self):
        """The calls of tools that it asks for: dicts with id, name and args."""
        return [p for p in self.content if p["type"] == "tool-call"]

    @property
    def message(self):
        """The message that it is in what follows."""
        return {"role": "assistant", "content": self.content}

    def __repr__(self):
        return f"Answer({self.text!r})"


class Stream:
    """An answer that comes in pieces: iterate over it, and what was said is in answer then. To leave a with statement gives the rest up."""

    def __init__(self, body):
        self._open = _state("model.open", body)
        self._pieces = []
        self.answer = None

    def __iter__(self):
        return self

    def __next__(self):
        while not self._pieces:
            if self._open is None:
                raise StopIteration
            try:
                got = _state("model.read", self._open)
            except CallError:
                self._open = None
                raise
            self._pieces = (got.get("pieces") or [])[::-1]
            if got.get("answer") is not None:
                self._open, self.answer = None, Answer(got["answer"])
        p = self._pieces.pop()
        return {"index": p.get("index", 0), "type": p["type"], "text": p.get("text", ""), **{k: p[k] for k in ("id", "name") if p.get(k)}}

    def close(self):
        """Gives up what has not come yet."""
        opened, self._open, self._pieces = self._open, None, []
        if opened is not None:
            _state("model.close", opened)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


def generate(ask, /, **more):
    """Asks a model, and returns its Answer when it is whole."""
    return Answer(_state("model.generate", _ask_of(ask, more)))


def stream(ask, /, **more):
    """Asks a model whose answer is read while it comes."""
    return Stream(_ask_of(ask, more))


def list_models():
    """Lists the routes and models that the agent may ask, as dicts with name and description."""
    return _state("model.list", {}).get("models") or []


def tool_result(call, value, *, failed=False):
    """The part of a user's message that answers a call of a model. What is no str is written as JSON."""
    text = value if isinstance(value, str) else json.dumps(value, default=_plain, allow_nan=False)
    part = {"type": "tool-result", "id": call["id"], "name": call["name"], "result": text}
    return {**part, "failed": True} if failed else part


for _f in (Answer, Stream, generate, stream, list_models, tool_result):
    _f.__module__ = "skep"
    setattr(skep, _f.__name__, _f)
