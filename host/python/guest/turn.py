# What a copy does when the host calls it: load the agent's code, or call a function of it. The last part of the program that starts
# with boot.py.


# -- the agent's code --------------------------------------------------------------------------------------------------

_files = {}
_main = None


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds modules among the agent's files."""

    def find_spec(self, name, path=None, target=None):
        base = name.replace(".", "/")
        for file, package in ((base + "/__init__.py", True), (base + ".py", False)):
            if file in _files:
                spec = importlib.util.spec_from_loader(name, self, origin=file, is_package=package)
                spec.has_location = True
                return spec
        if any(file.startswith(base + "/") for file in _files):  # a package without __init__.py
            return importlib.machinery.ModuleSpec(name, None, is_package=True)
        return None

    def create_module(self, spec):
        return None

    def exec_module(self, module):
        file = module.__spec__.origin
        exec(compile(_files[file], file, "exec", dont_inherit=True), module.__dict__)


sys.meta_path.insert(0, _Finder())


def _functions():
    names = getattr(_main, "__all__", None)
    if names is None:
        names = [
            n
            for n, f in vars(_main).items()
            if not n.startswith("_") and isinstance(f, types.FunctionType) and f.__module__ == _main.__name__
        ]
    if "on_message" in names and "onMessage" not in names:
        names, _main.onMessage = [*names, "onMessage"], _main.on_message
    return sorted(names)


def _load(head, body):
    global _main
    at = 0
    for name, n in head["files"]:
        _files[name], at = body[at : at + n], at + n
    skep.files = types.MappingProxyType({n: b for n, b in _files.items() if not n.endswith(".py")})
    main = head["main"]
    _main = types.ModuleType(main.removesuffix(".py").replace("/", "."))
    _main.__file__ = main
    sys.modules[_main.__name__] = _main
    exec(compile(_files[main], main, "exec", dont_inherit=True), _main.__dict__)
    _send(b"M", json.dumps(_functions()).encode())


def _call(head, body):
    _config.clear()
    _config.update(head["config"])
    if "random" in sys.modules:  # it was seeded when the image was made
        sys.modules["random"].seed()
    f = getattr(_main, head["function"])
    args = ()
    if body or head["type"]:
        code = getattr(f, "__code__", None)
        if code is None or code.co_argcount or code.co_flags & 4:
            args = (_decode(head["type"], body),)
    value = f(*args)
    if hasattr(value, "__await__"):
        value = _drive(_run(value))
    typ, out = _encode(value)
    sys.stdout.flush()
    _send(b"O", typ.encode() + b"\0" + out)


# -- errors ------------------------------------------------------------------------------------------------------------


def _frames(e):
    """The frames of the agent's own code, innermost first, as (file, line, column, function)."""
    out, tb = [], e.__traceback__
    while tb is not None:
        code = tb.tb_frame.f_code
        if code.co_filename in _files:
            column = 0
            for i, p in enumerate(code.co_positions()):
                if 2 * i == tb.tb_lasti:
                    column = p[2] + 1 if p[0] == tb.tb_lineno and p[2] is not None else 0
                    break
            out.append((code.co_filename, tb.tb_lineno, column, code.co_qualname))
        tb = tb.tb_next
    return out[::-1]


def _message(e):
    text = e.msg if isinstance(e, SyntaxError) else str(e)
    return f"{type(e).__name__}: {text}" if text else type(e).__name__


def _at(frame):
    file, line, column, name = frame
    return f"at {name} ({file}:{line}:{column})" if column else f"at {name} ({file}:{line})"


def _trace(e):
    lines, frames = [], _frames(e)
    lines += [_at(f) for f in (frames if len(frames) < 40 else frames[:20] + frames[-20:])]
    cause = e.__cause__ or (None if e.__suppress_context__ else e.__context__)
    if cause is not None and len(lines) < 100:
        lines += ["caused by " + _message(cause), *_trace(cause)]
    return lines


def _fail(e):
    report = {"type": type(e).__name__, "message": _message(e), "stack": "\n".join(_trace(e))}
    if isinstance(e, SyntaxError) and e.filename in _files:
        report |= {"file": e.filename, "line": e.lineno or 0, "column": e.offset or 0}
    elif frames := _frames(e):
        report |= {"file": frames[0][0], "line": frames[0][1], "column": frames[0][2]}
    _send(b"E", json.dumps(report).encode())


def _skep_turn():
    _send(b"?")
    head, body = json.loads(_receive()), _receive()
    try:
        (_load if head["op"] == "load" else _call)(head, body)
    except BaseException as e:
        _roll_back()
        _fail(e)
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except Exception:
        pass


# The text of what the host has run in each copy. It is told where it lies, and then takes the image.
_skep_command = b"_skep_turn()"
os.write(_DEVICE, _skep_command)
os._exit(0)
