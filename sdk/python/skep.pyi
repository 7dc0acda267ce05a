"""What an agent in Python asks of its host. The server has this module built in; this file is for editors."""

from collections.abc import Awaitable, Coroutine, Generator, Mapping
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

class _Log:
    def debug(self, *values: object) -> None: ...
    def info(self, *values: object) -> None: ...
    def warn(self, *values: object) -> None: ...
    def error(self, *values: object) -> None: ...

log: Final[_Log]
"""Writes lines of console output at a level; print writes at level info."""
