"""What only the inside of a Python process can say: loaded through PYTHONPATH in every Python process of an attempt.

It appends whole JSON lines to hook.jsonl in the folder that MATRIX_HOOK_DIR names, sends faulthandler's stacks to
stacks.<pid>.txt there, and copies the memory map to maps.<pid>.txt when the interpreter ends.  Nothing here may raise
into the program, import anything that costs time, or change what the program does.

Files are seen by sys.addaudithook, which changes no function and no traceback of the program.  A hook costs 0.2 us an event;
`import torch, faiss` makes 18,000 events.
"""

# os instead of pathlib: importing pathlib would cost more than everything here.
from __future__ import annotations

import atexit
import faulthandler
import os
import sys
import time

TYPE_CHECKING = False  # as in typing, which takes long to import
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType
    from typing import Any

HERE = os.path.dirname(__file__)
FOLDER = os.environ.get("MATRIX_HOOK_DIR")
PROBED = "MATRIX_PROBED" in os.environ  # then processes say at their end what they have of what probes change
START_METHOD = os.environ.get("MATRIX_START_METHOD")  # a probe: what multiprocessing uses instead of fork
SIGPIPE_DEFAULT = os.environ.get("MATRIX_SIGPIPE") == "default"  # a probe
APPENDING = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOFOLLOW  # a FIFO there must not hold us
MAX_RECORDS = 5000  # of one process: a server that sets a variable for each request must not fill the disk
MAX_FILES = 2000  # of one process: a data set of a million pictures must not fill the disk either
STACKS_FD = 200  # high, so that the program's own descriptors keep their numbers and nobody inherits ours by reuse
VALUES = (
    "OMP_", "KMP_", "GOMP_", "MKL_", "OPENBLAS_", "VECLIB_", "NUMEXPR_", "MALLOC_", "LD_", "DYLD_", "PYTHON",
    "CUDA_", "NCCL_", "TORCH_", "PYTORCH_", "ATEN_", "GLIBC_", "TBB_", "NPY_", "MATRIX_",
)  # fmt: skip
SECRETS = ("TOKEN", "SECRET", "KEY", "PASS", "AUTH", "CRED")
FORKERS = {"multiprocessing.popen_fork": "fork", "multiprocessing.forkserver": "forkserver"}
HELPERS = (
    ("multiprocessing.spawn import spawn_main", "spawn"),
    ("multiprocessing.forkserver import main", "forkserver"),
    ("multiprocessing.resource_tracker import main", "resource_tracker"),
)
THROUGH = ("os", "_collections_abc", "collections.abc", "multiprocessing", "concurrent.futures.process")

records_left = MAX_RECORDS
main_pid: int | None = None  # of the first process; None in all others
files_left = MAX_FILES
files_seen: set[tuple[str, str]] = set()  # (path, use)
foreign: tuple[str, ...] = ()  # see folders_of_others
stacks: tuple[int, int, int] | None = None  # (device, inode, descriptor) of this process's stacks file
dump_signal: int | None = None


# ------------------------------------------------------------------ writing
def quote(value: object, longest: int = 500) -> str:
    """JSON text of a string, number, None, list or bool; `json` would import re."""
    if value is None or value is True or value is False:
        return "null" if value is None else "true" if value else "false"
    if isinstance(value, (int, float)):
        return repr(value)
    if isinstance(value, (list, tuple)):
        return "[" + ",".join([quote(item) for item in value]) + "]"
    text = str(value)[:longest]
    if text.isascii() and text.isprintable():
        return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
    units = text.encode("utf-16-be", "surrogatepass").hex()
    return '"' + "".join(["\\u" + units[at : at + 4] for at in range(0, len(units), 4)]) + '"'


def record(kind: str, **fields: object) -> None:
    """Append one line.  The file is opened each time: a program that closes or counts descriptors finds none of ours."""
    global records_left
    if records_left <= 0:
        return
    records_left -= 1
    append(kind, [f'"{name}":{quote(value)}' for name, value in fields.items()])


def append(kind: str, fields: list[str]) -> None:
    """Append one line of a kind; the fields are JSON text."""
    parts = [f'"t":{time.time():.6f},"pid":{os.getpid()},"kind":"{kind}"']
    line = ("{" + ",".join(parts + fields) + "}\n").encode()
    descriptor = os.open(f"{FOLDER}/hook.jsonl", APPENDING, 0o600)
    try:
        os.write(descriptor, line)
    finally:
        os.close(descriptor)


def safely(function: Callable[..., Any]) -> Callable[..., Any]:
    """`function` that never raises: losing a record is better than changing the program."""

    def guarded(*args: Any) -> Any:
        try:
            return function(*args)
        except Exception:
            return None

    return guarded


def stand_in(name: str, function: Callable[..., Any]) -> None:
    """Put `function` in place of what is in a module under its name: `Process(target=os._exit)` must still pickle."""
    module, _, attribute = name.partition(".")
    original = getattr(sys.modules[module], attribute)
    function.__module__, function.__name__, function.__qualname__ = module, attribute, attribute
    function.__doc__ = original.__doc__
    setattr(sys.modules[module], attribute, function)


def caller(frame: FrameType | None, skip: tuple[str, ...] = ()) -> FrameType | None:
    """The first frame outside this file and outside `skip` (modules and the packages below them)."""
    while frame is not None:
        name = frame.f_globals.get("__name__") or ""
        if frame.f_globals is not ours and not any(name == module or name.startswith(module + ".") for module in skip):
            return frame
        frame = frame.f_back
    return None


def module_of(frame: FrameType | None) -> str:
    return str(frame.f_globals.get("__name__") or "") if frame is not None else ""


# ------------------------------------------------------------------ the environment
def keeps_value(name: str) -> bool:
    name = name.upper()
    if any(word in name for word in SECRETS):
        return False
    return name.startswith(VALUES) or name.endswith(("_NUM_THREADS", "_THREADS"))


@safely
def env_changed(name: Any, value: Any, before: str | None) -> None:
    """Runs after the change, with the value from before it."""
    name = os.fsdecode(name)
    value = None if value is None else os.fsdecode(value)
    if value != before:
        shown = value if value is not None and keeps_value(name) else None
        record("env", name=name, value=shown, removed=value is None, module=module_of(caller(sys._getframe(1), THROUGH)))


@safely
def value_now(name: Any) -> str | None:
    return os.environ.get(os.fsdecode(name))


def watch_environment() -> None:
    real_putenv, real_unsetenv = os.putenv, os.unsetenv

    def putenv(name: Any, value: Any, /) -> None:
        before = value_now(name)
        real_putenv(name, value)
        env_changed(name, value, before)

    def unsetenv(name: Any, /) -> None:
        before = value_now(name)
        real_unsetenv(name)
        env_changed(name, None, before)

    stand_in("os.putenv", putenv)
    stand_in("os.unsetenv", unsetenv)
    if hasattr(os.environ, "putenv"):  # Python 3.8 keeps them in the mapping
        os.environ.putenv = putenv
        os.environ.unsetenv = unsetenv  # type: ignore[attr-defined]


# ------------------------------------------------------------------ forks
def kernel_threads() -> int:
    try:
        return len(os.listdir("/proc/self/task"))
    except OSError:
        return len(sys._current_frames())


@safely
def before_fork() -> None:
    frame: FrameType | None = sys._getframe(1)
    method = None
    while frame is not None and method is None:
        method = FORKERS.get(frame.f_globals.get("__name__", ""))
        frame = frame.f_back
    threading = sys.modules.get("threading")
    active = list(getattr(threading, "_active", {}).values())  # threading.enumerate() takes a lock that may be held
    names = [thread.name for thread in active][:32]
    module = module_of(caller(sys._getframe(1), THROUGH))
    record("fork", threads=kernel_threads(), names=names, start_method=method, module=module)


@safely
def after_fork_in_child() -> None:
    global records_left, main_pid
    records_left, main_pid = MAX_RECORDS, None
    own_stacks_in_child()
    hello("fork", None, task_of_multiprocessing(sys._getframe(1)))


# ------------------------------------------------------------------ stacks
def open_stacks() -> int:
    """Descriptor of stacks.<pid>.txt.  O_APPEND: a crash of two processes must not write over each other."""
    path = f"{FOLDER}/stacks.{os.getpid()}.txt"
    return os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)


def is_free(descriptor: int) -> bool:
    try:
        os.fstat(descriptor)
    except OSError:
        return True
    return False


@safely
def start_stacks() -> None:
    """faulthandler to a file, unless the user switched it on: then its output stays where it was sent."""
    global stacks, dump_signal
    low = open_stacks()
    high = next(number for number in range(STACKS_FD, STACKS_FD + 50) if is_free(number))
    try:
        os.dup2(low, high, False)
        os.close(low)
    except OSError:  # the limit of open files is lower than that
        high = low
    status = os.fstat(high)
    stacks = (status.st_dev, status.st_ino, high)
    if not faulthandler.is_enabled():
        faulthandler.enable(file=high, all_threads=True)
    dump_signal = register_dump(high)


def register_dump(descriptor: int) -> int | None:
    """Dump all stacks on a real-time signal that nobody uses; its number, or None.  Others take theirs from the ends."""
    import _signal  # type: ignore[import-not-found]  # `signal` would import enum

    first = getattr(_signal, "SIGRTMIN", None)
    if first is None or not hasattr(faulthandler, "register"):
        return None
    for number in range(first + 7, _signal.SIGRTMAX - 7):
        if _signal.getsignal(number) == 0:  # SIG_DFL
            faulthandler.register(number, file=descriptor, all_threads=True, chain=False)
            return number
    return None


def stacks_size() -> int | None:
    """Bytes in this process's stacks file; None when there is none, or when its descriptor is no longer ours."""
    if stacks is None:
        return None
    try:
        status = os.fstat(stacks[2])
    except OSError:
        return None
    return status.st_size if (status.st_dev, status.st_ino) == stacks[:2] else None


def own_stacks_in_child() -> None:
    """A file of the child's own under the same descriptor, so that faulthandler needs no call after fork."""
    global stacks, dump_signal
    if stacks is None:
        return
    if stacks_size() is None:  # the program closed it; the number may be a file of the user's by now
        faulthandler.disable()
        if dump_signal is not None:
            faulthandler.unregister(dump_signal)
        stacks, dump_signal = None, None
        return
    mine = open_stacks()
    os.dup2(mine, stacks[2], False)
    os.close(mine)
    status = os.fstat(stacks[2])
    stacks = (status.st_dev, status.st_ino, stacks[2])


# ------------------------------------------------------------------ limits
@safely
def limit_set(which: Any, limits: Any) -> None:
    import resource

    names = [name for name in dir(resource) if name.startswith("RLIMIT_") and getattr(resource, name) == which]
    record("rlimit", name=names[0][7:].lower() if names else str(which), soft=int(limits[0]), hard=int(limits[1]))


def watch_limits() -> None:
    """A limit that the program sets for itself a moment before it dies of it is seen by nobody outside."""
    import resource  # 0.3 ms

    real = resource.setrlimit

    def setrlimit(which: Any, limits: Any, /) -> None:
        real(which, limits)
        limit_set(which, limits)

    stand_in("resource.setrlimit", setrlimit)


# ------------------------------------------------------------------ files
def folders_of_others() -> tuple[str, ...]:
    """Prefixes of files that are no part of the program: of the system, of Python and of this attempt."""
    found = ["/proc/", "/sys/", "/dev/", "/etc/", "/lib/", "/lib64/", "/usr/lib/", "/usr/share/"]
    found += [f"{FOLDER}/", HERE + "/", os.path.dirname(os.__file__) + "/"]
    for prefix in {sys.prefix, sys.base_prefix}:
        found += [f"{prefix}/{name}" for name in ("lib/", "lib64/", "bin/", "share/", "include/", "pyvenv.cfg")]
    temp = os.environ.get("TMPDIR", "")
    return (*found, f"{temp}/") if os.path.basename(os.path.dirname(temp)).startswith("mx-") else tuple(found)


def source_of(path: str) -> str:
    """The source of a compiled module; any other path as it is."""
    folder, cache, name = path.rpartition("/__pycache__/")
    if not cache:
        return path
    prefix = sys.pycache_prefix or ""
    folder = folder[len(prefix) :] if prefix and folder.startswith(prefix) else folder
    return f"{folder}/{name.partition('.')[0]}.py"


def text_of_path(path: Any) -> str | None:
    """The absolute path; None for a descriptor, and for an object whose own code would have to be called."""
    if isinstance(path, bytes):
        path = os.fsdecode(path)
    elif type(path).__module__.partition(".")[0] == "pathlib":
        path = os.fspath(path)
    if not isinstance(path, str) or not path or "\0" in path:
        return None
    return path if path[0] == "/" else f"{os.getcwd()}/{path}"


def note_file(path: Any, use: str) -> None:
    """Record a file once for each use of it; of an installed package record its name alone."""
    global files_left
    absolute = text_of_path(path)
    if absolute is None or (absolute, use) in files_seen:
        return
    files_seen.add((absolute, use))
    found = source_of(absolute)
    if found != absolute and (found, use) in files_seen:
        return
    files_seen.add((found, use))
    installed = found.partition("/site-packages/")[2] or found.partition("/dist-packages/")[2]
    if installed:
        note_package(installed.partition("/")[0].partition(".")[0], use)
    elif not found.startswith(foreign) and (use != "write" or found == absolute):
        files_left -= 1
        if files_left >= 0:
            append("file", [f'"path":{quote(found, 4096)}', f'"use":"{use}"'])
        elif files_left == -1:
            append("file", ['"path":""', '"use":"more"'])


def note_package(name: str, use: str) -> None:
    if name.isidentifier() and not name.startswith("__") and use != "write" and (name, "package") not in files_seen:
        files_seen.add((name, "package"))
        append("package", [f'"name":{quote(name)}'])


@safely
def file_opened(args: tuple[Any, ...]) -> None:
    path, _, flags = args
    note_file(path, "write" if flags & (os.O_WRONLY | os.O_RDWR) else "read")


@safely
def module_imported(args: tuple[Any, ...]) -> None:
    """Of a native module the event names its file; a module of Python is opened."""
    if args[1]:
        note_file(args[1], "native")


@safely
def library_loaded(args: tuple[Any, ...]) -> None:
    if "/" in os.fsdecode(args[0]):
        note_file(args[0], "native")


@safely
def script_started(args: tuple[Any, ...]) -> None:
    note_file(args[0], "read")


@safely
def file_renamed(args: tuple[Any, ...]) -> None:
    """The usual way to write a file whole."""
    note_file(args[1], "write")


@safely
def program_started(args: tuple[Any, ...]) -> None:
    """Record the program, and words that name files: scripts for a shell, say."""
    words = [args[0], *([args[1]] if isinstance(args[1], (str, bytes)) else args[1])][:64]
    for word in words:
        path = text_of_path(word)
        if path is not None and len(path) < 4096 and os.path.isfile(path):
            note_file(path, "read")


handlers: dict[str, Callable[[tuple[Any, ...]], Any]] = {
    "open": file_opened,
    "import": module_imported,
    "ctypes.dlopen": library_loaded,
    "cpython.run_file": script_started,
    "os.rename": file_renamed,
    "subprocess.Popen": program_started,
    "os.posix_spawn": program_started,
    "os.exec": program_started,
}


def audit(event: str, args: tuple[Any, ...], handler_of: Callable[[str], Any] = handlers.get) -> None:
    """Called for every event of the interpreter.  Emptied `handlers` make this do nothing: at the very end no name is left."""
    handler = handler_of(event)
    if handler is not None:
        handler(args)


# ------------------------------------------------------------------ the end
@safely
def exit_called(call: str, status: object) -> None:
    frame = caller(sys._getframe(1))
    where, installed = "", None
    if frame is not None:
        code = frame.f_code
        where, installed = f"{code.co_filename}:{frame.f_lineno} in {code.co_name}", is_installed(code.co_filename)
    record("exit", call=call, status=str(status)[:200], where=where, installed=installed)


def is_installed(path: str) -> bool:
    """Whether a file belongs to an installed package, and not to the program; Python itself only hands on what it is asked for."""
    return not {"site-packages", "dist-packages"}.isdisjoint(path.split(os.sep))


def watch_exits() -> None:
    real_os_exit, real_sys_exit = os._exit, sys.exit

    def _exit(status: int) -> None:
        exit_called("os._exit", status)
        leave()
        real_os_exit(status)

    def exit(status: Any = None, /) -> None:
        exit_called("sys.exit", status)
        real_sys_exit(status)

    stand_in("os._exit", _exit)
    stand_in("sys.exit", exit)


@safely
def leave() -> None:
    """os._exit runs no teardown that could still crash, so an empty stacks file can go; the map is the main process's."""
    if main_pid == os.getpid():
        copy_maps()
    if PROBED:
        record_state()
    if stacks_size() == 0:
        os.unlink(f"{FOLDER}/stacks.{os.getpid()}.txt")


@safely
def copy_maps() -> None:
    with open("/proc/self/maps", "rb") as source:
        text = source.read()
    with open(f"{FOLDER}/maps.{os.getpid()}.txt", "wb") as sink:
        sink.write(text)


def native_modules() -> list[str]:
    """Modules from shared objects in the order of their import, but for those of the interpreter itself."""
    own = os.path.dirname(os.__file__)
    found = []
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__file__", None)
        if isinstance(file, str) and file.endswith((".so", ".pyd")) and not file.startswith(own + "/lib-dynload"):
            found.append(name)
    return found[:200]


@safely
def at_exit() -> None:
    """Registered first, so it runs last.  The stacks file stays: a crash in the teardown that follows goes there."""
    handlers.clear()
    record("end")
    if main_pid is not None and (native := native_modules()):
        record("modules", native=native)
    if PROBED:
        record_state()
    copy_maps()


# ------------------------------------------------------------------ probes
@safely
def record_state() -> None:
    """What may have been changed since the start, and shows nowhere after the end."""
    import resource

    time.sleep(0.002)  # a thread that was joined a moment ago is still counted
    names = [name for name in ("NOFILE", "STACK", "NPROC", "AS", "CPU") if hasattr(resource, "RLIMIT_" + name)]
    soft = [f"RLIMIT_{name}={resource.getrlimit(getattr(resource, 'RLIMIT_' + name))[0]}" for name in names]
    cpus = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else None
    native = kernel_threads() - len(sys._current_frames())
    record("state", cpus=cpus, native_threads=native, limits=soft, sigpipe_default=sigpipe_is_default() if SIGPIPE_DEFAULT else None)


def sigpipe_is_default() -> bool:
    import _signal

    return bool(_signal.getsignal(_signal.SIGPIPE) == _signal.SIG_DFL)


@safely
def end_at_sigpipe() -> None:
    import _signal

    _signal.signal(_signal.SIGPIPE, _signal.SIG_DFL)
    record("sigpipe", default=sigpipe_is_default())


# ------------------------------------------------------------------ starting
def hello(start: str, helper: str | None, task: str | None = None) -> None:
    argv = getattr(sys, "argv", None) or [""]
    first = main_pid is not None
    record("hello", ppid=os.getppid(), argv0=argv[0], main=first, start=start, helper=helper, task=task, dump_signal=dump_signal)


@safely
def task_of_multiprocessing(frame: FrameType | None) -> str | None:
    """What a forked process was started to do, `package.module.function name-of-the-process`; None: not by multiprocessing."""
    while frame is not None:
        if frame.f_globals.get("__name__") == "multiprocessing.popen_fork" and frame.f_code.co_name == "_launch":
            process = frame.f_locals["process_obj"]
            target = process._target
            return f"{getattr(target, '__module__', '')}.{getattr(target, '__qualname__', type(process).__name__)} {process._name}"
        frame = frame.f_back
    return None


@safely
def helper_of_multiprocessing() -> str | None:
    """Which of multiprocessing's own processes this one is; None: none of them."""
    if hasattr(sys, "orig_argv"):
        words = " ".join(sys.orig_argv[:8])
    else:  # Python 3.8 and 3.9
        with open("/proc/self/cmdline", "rb") as source:
            words = source.read(2000).replace(b"\0", b" ").decode("utf-8", "replace")
    return next((name for text, name in HELPERS if text in words), None)


@safely
def set_start_method() -> None:
    """In place of fork, also where the program asks for it: only an answer without fork tells anything.

    A program that cannot do without it (what it hands over does not pickle) dies in another way, which is no cure.  A choice of
    spawn or forkserver stays, and os.fork() itself cannot be replaced: the fork records tell of it."""
    from multiprocessing import context

    chosen = context._concrete_contexts[START_METHOD]  # type: ignore[attr-defined]
    context._concrete_contexts["fork"] = chosen  # type: ignore[attr-defined]
    if context._default_context._default_context.get_start_method() == "fork":  # type: ignore[attr-defined]
        context._default_context._default_context = chosen  # type: ignore[attr-defined]


def is_first() -> bool:
    """Whether no other process was here before: an exec (of a wrapper) keeps the pid and stays the first."""
    try:
        with open(f"{FOLDER}/hook.jsonl", "rb") as records:
            line = records.readline()
    except OSError:
        return True
    return not line or b'"pid":%d,' % os.getpid() in line


@safely
def start() -> None:
    global main_pid, foreign
    main_pid = os.getpid() if is_first() else None
    foreign = folders_of_others()
    atexit.register(at_exit)
    start_stacks()
    watch_environment()
    watch_exits()
    watch_limits()
    os.register_at_fork(before=before_fork, after_in_child=after_fork_in_child)
    hello("exec", helper_of_multiprocessing())
    sys.addaudithook(audit)
    if START_METHOD:
        set_start_method()
    if SIGPIPE_DEFAULT:
        end_at_sigpipe()


def chain() -> None:
    """The user's own sitecustomize, as if this one were not there: its errors are site's to report, as always."""
    mine = sys.modules.pop("sitecustomize")
    try:
        import sitecustomize  # type: ignore[import-not-found]  # noqa: F401
    except ImportError as problem:
        if problem.name != "sitecustomize":
            raise
    finally:
        sys.modules.setdefault("sitecustomize", mine)  # the import system looks for it once more


ours = globals()
sys.path[:] = [entry for entry in sys.path if entry != HERE]
if FOLDER:
    start()
chain()
