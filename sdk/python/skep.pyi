"""What an agent in Python asks of its host. The server has this module built in; this file is for editors."""

from collections.abc import Awaitable, Coroutine, Generator, Iterable, Iterator, Mapping
from typing import Any, Final

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
    """A call of another agent that has not been made yet: await it, or give it to batch or gather."""

    def __init__(self, agent: str, function: str, input: Any = None) -> None: ...
    def __await__(self) -> Generator[Any, Any, Any]: ...

def call(agent: str, function: str, input: Any = None) -> Any:
    """Calls a function of another agent, which must have been granted, and returns what it returns."""

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
    """A key of the agent's state with its value and its version."""

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

class _Log:
    def debug(self, *values: object) -> None: ...
    def info(self, *values: object) -> None: ...
    def warn(self, *values: object) -> None: ...
    def error(self, *values: object) -> None: ...

log: Final[_Log]
"""Writes lines of console output at a level; print writes at level info."""
