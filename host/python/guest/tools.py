# Tools, files of the session and skills. Part of the program that starts with boot.py.


class ToolError(CallError):
    """What a call of a tool failed with: kind "denied" when policy or a person refused it, "failed" for an error of the tool's own."""

    def __init__(self, tool, kind, message, limit="", hint=""):
        super().__init__(kind, message, limit, hint)
        self.tool = tool


def _no_json(value, path):
    """Where in a value something stands that has no JSON form, and what it is."""
    if isinstance(value, dict):
        for k, v in value.items():
            if not isinstance(k, (str, int, float, bool, type(None))):
                return f"{path} has a key of type {type(k).__name__}"
            if found := _no_json(v, f"{path}[{k!r}]"):
                return found
    elif isinstance(value, (list, tuple)):
        for i, v in enumerate(value):
            if found := _no_json(v, f"{path}[{i}]"):
                return found
    else:
        try:
            json.dumps(value, default=_plain, allow_nan=False)
        except (TypeError, ValueError):
            return f"{path} is {value!r:.60}, a {type(value).__name__}"
    return ""


def _tool_body(tool, args):
    if not isinstance(tool, str) or tool.find(".") < 1:
        raise TypeError(f"{tool!r} is not the name of a tool: it is SERVER.METHOD")
    if not isinstance(args, dict):
        raise TypeError(f"{tool}: the arguments are a dict, not {type(args).__name__}")
    try:
        return json.dumps({"tool": tool, "args": args}, default=_plain, allow_nan=False).encode()
    except (TypeError, ValueError, RecursionError):
        where = ""
        try:
            where = _no_json(args, "args")
        except RecursionError:
            pass
        raise TypeError(f"{tool}: {where or 'args'}, which has no JSON form") from None


class ToolCall(Call):
    """A call of a tool that has not been made yet: await it, or give it to batch, gather or change_tools. undo takes it back when a later
    call of the same change fails: another ToolCall, which is approved with it, or a function of what it returned."""

    _name = b"tool.call"

    def __init__(self, tool, args=None, *, undo=None):
        self.tool, self.args, self.undo = tool, {} if args is None else args, undo
        self._body = _tool_body(tool, self.args)

    def _value(self, body):
        return json.loads(body).get("value")

    def _error(self, e):
        return ToolError(self.tool, e.kind, e.message, e.limit, e.hint)

    def _undo_body(self):
        return self._body[:-1] + b',"undo":true}'

    def _make(self):
        try:
            return self._value(_ask("tool.call", self._body))
        except CallError as e:
            raise self._error(e) from None


def call_tool(name, /, **args):
    """Calls a tool that was granted, by its name SERVER.METHOD, and returns what it returned."""
    return ToolCall(name, args)._make()


def change_tools(title, *calls):
    """Makes calls in their order, after they were approved as a whole, and returns what each returned. When one fails, those before it
    are taken back, the latest first, by their undo; the ToolError says which were."""
    asked = []
    for c in calls:
        asked.append(json.loads(c._body))
        if isinstance(c.undo, ToolCall):
            asked.append(json.loads(c.undo._undo_body()))
    body = json.dumps({"title": title, "calls": asked}).encode()
    try:
        _ask("tool.change", body)
    except CallError as e:
        raise ToolError(calls[0].tool if len(calls) == 1 else "", e.kind, e.message, e.limit, e.hint) from None
    results = []
    for n, c in enumerate(calls):
        try:
            results.append(c._make())
        except ToolError as e:
            text = f"call {n + 1} of {len(calls)}, {c.tool}, failed: {e.message}"
            raise ToolError(c.tool, e.kind, text + _taken_back(calls, results), e.limit, e.hint) from e
    return results


def _taken_back(calls, results):
    text = ""
    for i in range(len(results) - 1, -1, -1):
        c, why = calls[i], "it has no undo"
        if c.undo is not None:
            try:
                if isinstance(c.undo, ToolCall):
                    _ask("tool.call", c.undo._undo_body())
                else:
                    value = c.undo(results[i])
                    if hasattr(value, "__await__"):
                        _drive(_run(value))
                text += f"; call {i + 1}, {c.tool}, was undone"
                continue
            except Exception as e:
                why = f"its undo failed: {_message(e)}"
        text += f"; call {i + 1}, {c.tool}, was not undone: {why}"
    return text


class _Server:
    def __init__(self, name):
        self._name = name

    def __getitem__(self, method):
        tool = f"{self._name}.{method}"

        def call(args=None, /, **more):
            return ToolCall(tool, more if args is None else {**args, **more})._make()

        return call

    def __getattr__(self, method):
        if method.startswith("__"):
            raise AttributeError(method)
        return self[method]


class _Tools:
    """tools.SERVER.METHOD(name=value) calls a tool; tools["my-server"]["read-file"] is for names that are no identifiers."""

    def __getitem__(self, server):
        return _Server(server)

    def __getattr__(self, server):
        if server.startswith("__"):
            raise AttributeError(server)
        return _Server(server)


def _filter(server, effect, limit):
    q = {"server": server, "effect": effect, "limit": limit}
    return {k: v for k, v in q.items() if v}


def list_tools(*, server="", effect="", limit=0):
    """Lists the tools that were granted, as dicts with name, path, effect and description."""
    return _state("tool.list", _filter(server, effect, limit)).get("tools") or []


def search_tools(words, *, server="", effect="", limit=10):
    """Finds tools by words, the best first."""
    return _state("tool.search", {"query": words, **_filter(server, effect, limit)}).get("tools") or []


def describe_tools(*names, level="compact"):
    """Declares tools in TypeScript: names, or SERVER.*."""
    return _state("tool.describe", {"names": list(names), "level": level}).get("text", "")


def _path(file):
    path = file.get("artifact") or file.get("path") if isinstance(file, dict) else file
    if not isinstance(path, str) or not path:
        raise TypeError(f"{file!r} is no path of a file, nor a handle such as {{'artifact': PATH}}")
    return path


def read_file(file):
    """Reads a file of the session whole. file is its path, or a handle as tools return it."""
    path, parts, n = _path(file), [], 0
    while True:
        part = _state("file.read", {"path": path, "offset": n})
        body = base64.b64decode(part.get("body") or "")
        parts.append(body)
        n += len(body)
        if not body or n >= part["size"]:
            return b"".join(parts)


def write_file(file, data, type=None):
    """Writes a file of the session whole: str, bytes, or anything with a JSON form."""
    typ, body = _encode(data)
    return _state("file.put", {"path": _path(file), "type": type or typ, "body": base64.b64encode(body).decode()})


def list_files(prefix=""):
    """Lists the files of the session whose paths begin so, as dicts with path, type and size."""
    found, after = [], ""
    while True:
        page = _state("file.list", {"prefix": prefix, "after": after, "limit": 1000})
        found += page.get("files") or []
        if not (after := page.get("after", "")):
            return found


def read_instructions(path=""):
    """Returns what AGENTS.md of the agent's package and of the session's files say of a path, as a dict with text and files, the nearest last."""
    return _state("file.instructions", {"path": path})


def list_skills():
    """Lists the skills that were granted, as dicts with name and description."""
    return json.loads(_ask("skill.list", b"")).get("skills") or []


def load_skill(name, path=""):
    """Returns the text of a file of a skill, SKILL.md unless another is named."""
    return _state("skill.load", {"name": name, "path": path})["text"]


for _f in (
    ToolError, ToolCall, call_tool, change_tools, list_tools, search_tools, describe_tools, read_file, write_file, list_files, read_instructions, list_skills,
    load_skill,
):  # fmt: skip
    _f.__module__ = "skep"
    setattr(skep, _f.__name__, _f)
skep.tools = _Tools()
