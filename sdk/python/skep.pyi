"""What an agent in Python asks of its host. The server has this module built in; this file is for editors."""

from collections.abc import Awaitable, Callable, Coroutine, Generator, Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Final, TypeVar

config: Final[Mapping[str, str]]
"""Plain settings of the agent, set when it was created. They are never secrets, and empty while the module loads."""

files: Final[Mapping[str, bytes]]
"""The files of the agent's directory that are not Python, by their path."""

class CallError(Exception):
    """What a call to the host failed with."""

    kind: str
    """What can be done about it: "denied", "not_found", "exhausted", "failed", ..."""
    message: str
    limit: str
    """Which limit was hit, when the kind is "exhausted"."""
    hint: str
    """What to do about it, in a sentence; may be empty."""

class Call:
    """A call of another agent, or with a key of its instance, that has not been made yet: await it, or give it to batch or gather.
    See agent and child for send and child."""

    def __init__(
        self, agent: str, function: str, input: Any = None, *, key: str = "", child: bool = False, send: bool = False
    ) -> None: ...
    def __await__(self) -> Generator[Any, Any, Any]: ...

def call(agent: str, function: str, input: Any = None) -> Any:
    """Calls a function of another agent, which must have been granted, and returns what it returns."""

class ToolError(CallError):
    """What a call of a tool failed with: kind "denied" when policy or a person refused it, "failed" for an error of the tool's own."""

    tool: str
    """Its name; empty when several calls were refused together."""

    def __init__(self, tool: str, kind: str, message: str, limit: str = "", hint: str = "") -> None: ...

class ToolCall(Call):
    """A call of a tool that has not been made yet: await it, or give it to batch, gather or change_tools. undo takes it back when a later
    call of the same change fails: another ToolCall, which is approved with it, or a function of what it returned."""

    tool: str
    args: Mapping[str, Any]

    def __init__(self, tool: str, args: dict[str, Any] | None = None, *, undo: ToolCall | Callable[[Any], Any] | None = None) -> None: ...

class _Server:
    def __getattr__(self, method: str) -> Callable[..., Any]: ...
    def __getitem__(self, method: str) -> Callable[..., Any]: ...

class _Tools:
    def __getattr__(self, server: str) -> _Server: ...
    def __getitem__(self, server: str) -> _Server: ...

tools: Final[_Tools]
"""The tools that were granted: tools.SERVER.METHOD(name=value), or with names that are no identifiers
tools["my-server"]["read-file"]({"some-name": value}). What a tool returns is a JSON value, or a handle {"artifact", "type", "size"} for
read_file where that is large, or an image. A call that a person has to approve waits for that, in a run as long as it takes; elsewhere
it is refused. Raises a ToolError."""

def call_tool(name: str, /, **args: Any) -> Any:
    """Calls a tool by its name SERVER.METHOD. See tools."""

def change_tools(title: str, *calls: ToolCall) -> list[Any]:
    """Makes calls in their order, after they were approved as a whole under a title that whoever approves them reads, and returns what
    each returned. When one fails, those before it are taken back, the latest first, by their undo; the ToolError says which were."""

def list_tools(*, server: str = "", effect: str = "", limit: int = 0) -> list[dict[str, Any]]:
    """Lists the tools that were granted, as dicts with name, path, effect and description. effect is the most that they may do: "read",
    "modify", "modify_execute" or "execute"."""

def search_tools(words: str, *, server: str = "", effect: str = "", limit: int = 10) -> list[dict[str, Any]]:
    """Finds tools by words, the best first."""

def describe_tools(*names: str, level: str = "compact") -> str:
    """Declares tools in TypeScript: names, or SERVER.*. level is "names", "signatures", "compact" or "full"."""

class Answer:
    """What a model has said. It can stand among the messages of the next question as it is."""

    value: dict[str, Any]
    id: str
    model: str
    stop: str
    """Why the model stopped: "end", "length", "tool", "filter", "pause" or "unknown"."""
    content: list[dict[str, Any]]
    usage: dict[str, int]
    """Tokens: input and output, and cache_read, cache_write and reasoning where they are known."""

    def __init__(self, value: dict[str, Any]) -> None: ...
    @property
    def text(self) -> str:
        """All of its text, one part after the other."""
    @property
    def calls(self) -> list[dict[str, Any]]:
        """The calls of tools that it asks for: dicts with id, name and args."""
    @property
    def message(self) -> dict[str, Any]:
        """The message that it is in what follows."""

class Stream:
    """An answer that comes in pieces: iterate over it, and what was said is in answer then. A piece is a dict with index, which counts the parts of the
    answer, type ("text", "reasoning", "tool-call" or "refusal") and text; the first one of a call has id and name, too, and its text is of the arguments, as
    JSON. To leave a with statement gives the rest up."""

    answer: Answer | None

    def __iter__(self) -> Stream: ...
    def __next__(self) -> dict[str, Any]: ...
    def __enter__(self) -> Stream: ...
    def __exit__(self, *_: object) -> None: ...
    def close(self) -> None: ...

def generate(ask: str | Sequence[Answer | Mapping[str, Any]] | Mapping[str, Any], /, **more: Any) -> Answer:
    """Asks a model, as the app's operators have set them up, and returns its answer when it is whole. Which models an agent may ask is a grant. ask is a
    text, a list of messages, or a dict with messages. Further arguments: model (a route such as "@main", which it is unless given, or "PROVIDER/MODEL"),
    system, tools, choice, max_tokens, temperature, top_p, stop, reasoning, format, user, cache and show. Raises a CallError."""

def stream(ask: str | Sequence[Answer | Mapping[str, Any]] | Mapping[str, Any], /, **more: Any) -> Stream:
    """Asks a model whose answer is read while it comes. See generate."""

def list_models() -> list[dict[str, Any]]:
    """Lists the routes and models that the agent may ask, as dicts with name and description."""

def tool_result(call: Mapping[str, Any], value: Any, *, failed: bool = False) -> dict[str, Any]:
    """The part of a user's message that answers a call of a model. What is no str is written as JSON."""

def read_file(file: str | Mapping[str, Any]) -> bytes:
    """Reads a file of the session whole. file is its path, or a handle as tools return it."""

def write_file(file: str | Mapping[str, Any], data: Any, type: str | None = None) -> dict[str, Any]:
    """Writes a file of the session whole: str, bytes, or anything with a JSON form. type is its media type."""

def list_files(prefix: str = "") -> list[dict[str, Any]]:
    """Lists the files of the session whose paths begin so, as dicts with path, type and size."""

def read_instructions(path: str = "") -> dict[str, Any]:
    """What AGENTS.md of the agent's package and of the session's files say of a path, as a dict with text, for a model, and files, the nearest last."""

def list_skills() -> list[dict[str, Any]]:
    """Lists the skills that were granted, as dicts with name and description."""

def load_skill(name: str, path: str = "") -> str:
    """Returns the text of a file of a skill, SKILL.md unless another is named."""

def batch(*calls: Call) -> list[Any]:
    """Makes calls at once and returns their results in order, when all have ended. Raises the first error."""

def gather(*waits: Call | Coroutine[Any, Any, Any]) -> Awaitable[list[Any]]:
    """Waits for calls and coroutines at once: await gather(a, b) is [result of a, result of b]."""

def emit(name: str, data: Any = None) -> None:
    """Writes an event of the agent's own to the session's log, from where it reaches every listener."""

class Response:
    """What answered a request. Redirects have been followed, and the body is decoded."""

    status: int
    headers: dict[str, str]
    """By name in lower case; values of one name are joined by commas."""
    body: bytes

    def __init__(self, status: int, headers: dict[str, str], body: bytes) -> None: ...
    @property
    def ok(self) -> bool:
        """Whether the status is between 200 and 299."""

    def text(self) -> str: ...
    def json(self) -> Any: ...

def fetch(
    url: str,
    *,
    method: str | None = None,
    headers: Mapping[str, str] | Iterable[tuple[str, str]] = (),
    body: Any = None,
) -> Response:
    """Makes a request, which must have been granted, and returns the whole response, whatever its status. The method is GET, or POST
    when there is a body: str, bytes, or anything with a JSON form. Raises a CallError when it is refused or fails."""

def secret(name: str) -> str:
    """Returns the placeholder of a secret: {{secret:NAME}}. Write it where the secret belongs in a request: as a header's value or
    in it, as a query parameter, as a form field or as a string in a JSON body. The host puts the value in on the way out, where
    the secret is bound to and was granted, and nowhere else; the agent never sees it. Raises a ValueError for a name that no
    secret can have."""

class Entry:
    """A key of a state with its value and its version."""

    key: str
    value: Any
    version: int

    def __init__(self, key: str, value: Any, version: int) -> None: ...

class _KV:
    def get(self, key: str, default: Any = None) -> Any:
        """Returns the value of a key, or default when it is not there."""

    def entry(self, key: str) -> Entry | None:
        """Returns a key with its version."""

    def set(self, key: str, value: Any, if_version: int | None = None) -> int:
        """Sets a key and returns its new version. Raises a CallError of kind "conflict" when the key has another version than
        if_version, where 0 means that it must not be there."""

    def delete(self, key: str, if_version: int | None = None) -> None:
        """Deletes a key. One that is not there is no error, unless if_version says that it should be."""

    def batch(self, *edits: tuple[Any, ...]) -> int:
        """Makes up to 128 edits in one commit, or none of them: ("set", key, value), ("delete", key), ("check", key, version). The
        first two take a version at their end, too. Returns the version of the keys that were set."""

    def entries(
        self, prefix: str = "", start: str = "", end: str = "", reverse: bool = False, limit: int | None = None
    ) -> Iterator[Entry]:
        """Goes through entries in the order of keys, from start up to but not including end."""

kv: Final[_KV]
"""Key-value state of the agent's own, which must have been granted: JSON values, str, and bytes. What was set is durable."""

storage: Final[_KV]
"""The instance's own keys and values. What is set is part of the turn: it is stored when the turn ends, and not when it raises."""

class Self:
    """Who the code is that runs."""

    agent: str
    key: str
    """Of the instance; empty in a call that belongs to none."""
    session: str
    run: str
    """Empty when the call is no run."""
    version: str
    """Digest of the code."""

    def __init__(self, agent: str = "", key: str = "", session: str = "", run: str = "", version: str = "") -> None: ...

def self() -> Self:
    """Returns who the code is that runs."""

class Rows(list[dict[str, Any]]):
    """What a statement returned: a dict for each row, by column."""

    changes: int
    """Rows that it inserted, changed or deleted."""

def sql(query: str, *params: None | int | float | str | bytes) -> Rows:
    """Runs a statement of SQLite over the instance's own data, as part of the turn. Parameters stand for the ? in it. Several
    statements without parameters may be separated by semicolons."""

class _Shared:
    def get(self, default: Any = None) -> Any:
        """Returns the state, or default when it was never set."""

    def version(self) -> int:
        """Returns its version: 0 when it was never set."""

    def set(self, value: Any, if_version: int | None = None) -> int:
        """Sets the state, up to 1 MiB of JSON, and returns its new version. Raises a CallError of kind "conflict" when it has another
        version than if_version."""

shared: Final[_Shared]
"""The state that clients of the instance see, when the turn is stored."""

class Alarm:
    """An alarm that is set, or that failed for the last time (dead). Times are seconds, at since 1970."""

    name: str
    method: str
    payload: Any
    at: float
    every: float
    cron: str
    zone: str
    attempt: int
    """Attempts that failed."""
    dead: bool
    error: str

    def __init__(self, wire: Mapping[str, Any]) -> None: ...

_Duration = int | float | timedelta  # seconds, or a timedelta

def schedule(
    when: _Duration | datetime | str | None = None,
    method: str = "",
    payload: Any = None,
    *,
    name: str = "",
    every: _Duration | None = None,
    zone: str = "",
    overlap: str = "",
    missed: str = "",
    attempts: int = 0,
    delay: _Duration | None = None,
    keep: bool = False,
) -> Alarm:
    """Has a function of the main file called later with payload; on_alarm when method names none. when is a delay, a datetime or a cron
    line in zone, an IANA name, or else every says how often. An alarm of the same name is replaced, unless keep is set; without a name,
    the same method, time and payload are set once. A call that fails is made again, up to attempts in all (6 unless given), after delay
    (2 s) and twice as long each time. For cron and every: overlap is "skip" or "queue", missed "once", "skip" or "all"."""

def alarms() -> list[Alarm]:
    """Lists the instance's alarms in the order of their names."""

def cancel_alarm(name: str) -> bool:
    """Takes an alarm back, and returns whether it was there."""

def sleep(duration: _Duration) -> None:
    """Waits, for a second or a year. Only a run can."""

def sleep_until(when: datetime) -> None:
    """Waits until a time, unless it has passed. Only a run can."""

def wait_for_event(type: str, timeout: _Duration | None = None) -> Any:
    """Waits until an event of that type is sent to the run, and returns what came with it. Raises a TimeoutError after timeout. Only a
    run can."""

class PermanentError(Exception):
    """Raise it in a step that no further attempt would mend."""

_T = TypeVar("_T")

def step(
    name: str,
    fn: Callable[[], _T],
    *,
    retries: int = 0,
    delay: _Duration = 10,
    timeout: _Duration | None = None,
    rollback: Callable[[_T], Any] | None = None,
) -> _T:
    """Does a part of a run under a name, which shows in its events, and returns what fn returns; an async fn is run to its end. What
    raises is tried again, retries times, after delay and twice as long each time, unless it raises a PermanentError. An attempt that took
    longer than timeout has failed when it returns. When the run fails or is terminated later, rollback gets what fn returned, the latest
    step first. The second step of one name is "name#2"."""

class Run:
    """A run that was started by start_run."""

    id: str
    session: str

    def __init__(self, id: str, session: str) -> None: ...
    def result(self) -> Any:
        """Waits until the run has ended, and returns what it returned. Raises a CallError when it failed. Only a run can."""

def start_run(function: str, input: Any = None, *, agent: str = "", key: str = "") -> Run:
    """Begins a run of a function, in the caller's own instance unless another is named. It is begun once, also on replay."""

class _Agent:
    def __getattr__(self, function: str) -> Callable[..., Any]: ...

def agent(name: str, key: str = "", *, send: bool = False) -> _Agent:
    """Names another agent, or with a key its instance: agent("room", "lobby").say("hello") calls it and returns what it returns. With
    send the call is a message: it leaves with the turn, takes effect once, and returns None."""

def child(agent: str, key: str, *, send: bool = False) -> _Agent:
    """Names an instance that is the caller's own: made by its first call, and ended with the caller's instance."""

def delete_child(agent: str, key: str) -> None:
    """Ends an instance that is the caller's own."""

def outside(fn: Callable[[], _T]) -> _T:
    """Commits what the turn has changed, and lets other turns of the instance go first while fn runs, which is for what is slow. fn cannot
    reach what belongs to the instance. In runs, alarms and messages it only calls fn."""

class Socket:
    """A connection of a client, as sockets() lists them, or as Socket(event["socket"]) of what the handlers on_connect,
    on_socket_message (text or base64) and on_close (code, reason) get. What is sent leaves when the turn is stored."""

    id: str
    tags: list[str]
    attachment: Any
    url: str
    """That it was opened with, in on_connect; header has its headers, but for credentials."""
    header: list[list[str]]

    def __init__(self, wire: Mapping[str, Any]) -> None: ...
    def send(self, data: Any) -> None:
        """Sends str as text, bytes as they are, anything else as JSON."""

    def close(self, code: int = 1000, reason: str = "") -> None: ...
    def attach(self, value: Any) -> None:
        """Keeps up to 16 KiB of JSON with the connection."""

    def tag(self, *tags: str) -> None:
        """Gives the connection up to 10 tags, in place of those before."""

def sockets(tag: str = "") -> list[Socket]:
    """Lists the connections that have a tag, or all."""

def broadcast(data: Any, *, tag: str = "", without: Iterable[str] = ()) -> None:
    """Sends a frame to all connections, or to those that have a tag, but not to the ids of without."""

class _Log:
    def debug(self, *values: object) -> None: ...
    def info(self, *values: object) -> None: ...
    def warn(self, *values: object) -> None: ...
    def error(self, *values: object) -> None: ...

log: Final[_Log]
"""Writes lines of console output at a level; print writes at level info."""
