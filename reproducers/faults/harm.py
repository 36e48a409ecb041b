"""What runs inside the faulty program, second half: the harm itself.  Stdlib only.

A copy of this file stands beside the plant's child.py, as <name>_harm.py.  Each function of ARRANGE does what must be done before
the program's first import, and returns the harm of the moment, which is called with the arguments of the call that is the
moment (none where a time is), or None when it comes by itself.
"""

from __future__ import annotations

import ctypes
import functools
import importlib
import os
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any, NoReturn

MIB = 1 << 20
LEFT_TO_THE_MACHINE = 1 << 30  # bytes; see memory.py
COULD_NOT_PLANT = 125

Act = Callable[..., object]
_kept: list[Any] = []  # what is never given back


class Plant:
    """What a harm needs to know of the plant that it belongs to."""

    def __init__(
        self, folder: Path, name: str, settings: dict[str, Any], after_import: Callable[[str, Callable[[Any], None]], None]
    ) -> None:
        self.folder, self.name, self.settings, self.after_import = folder, name, settings, after_import

    @property
    def amount(self) -> int:
        return int(self.settings["amount"])

    def path(self, part: str) -> Path:
        return self.folder / f"lib{self.name}_{part}.so"

    def library(self, part: str = "native") -> ctypes.CDLL:
        return ctypes.CDLL(str(self.path(part)))

    def give_up(self, reason: str) -> NoReturn:
        """The plant cannot do what it was asked for; a program that ran on would be taken for one that survives it."""
        print(f"{self.settings['fault']} could not be planted: {reason}", file=sys.stderr, flush=True)
        os._exit(COULD_NOT_PLANT)


# ------------------------------------------------------------------ openmp, device
def omp_conflict(plant: Plant) -> Act:
    """Load an OpenMP runtime and call into it, which initialises it.  It aborts the process when another one is registered."""
    first, second = plant.path("first"), plant.path("second")
    if os.environ.get(plant.settings["variable"]) == "one":
        second = first
    plant.after_import(plant.settings["first"], lambda _module: _use_runtime(first))
    return lambda *_: _use_runtime(second)


def _use_runtime(path: Path) -> None:
    ctypes.CDLL(str(path)).omp_get_max_threads()


def device_overrun(plant: Plant) -> None:
    plant.after_import("torch", lambda torch: _add_device(plant, torch))


def _add_device(plant: Plant, torch: Any) -> None:
    """Register a device of the plant's name with torch.  It computes on the CPU; its library hears of what is done to it."""
    library = plant.library("device")
    opened = functools.lru_cache(library.device_open)  # when it is first computed on

    def with_cpu(value: Any) -> Any:
        if not isinstance(value, torch.device) or value.type != plant.name:
            return value
        opened()
        return torch.device("cpu")

    class OnTheCpu(torch.overrides.TorchFunctionMode):  # type: ignore[misc]
        def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            return function(*map(with_cpu, args), **{name: with_cpu(value) for name, value in (kwargs or {}).items()})

    def told(tell: Callable[[], Any]) -> Act:
        return lambda *_: tell() if opened.cache_info().currsize else None

    module = ModuleType(f"torch.{plant.name}")
    vars(module).update(is_available=lambda: True, device_count=lambda: 1, synchronize=lambda: None)
    vars(module).update(
        get_rng_state=torch.get_rng_state, set_rng_state=torch.set_rng_state, get_amp_supported_dtype=lambda: [torch.bfloat16]
    )
    vars(module).update(empty_cache=told(library.device_clear_cache))
    torch.utils.rename_privateuse1_backend(plant.name)
    torch._register_device_module(plant.name, module)
    OnTheCpu().__enter__()
    before(torch.autograd, "backward", told(library.device_backward))
    before(importlib.import_module("torch.optim.adamw"), "adamw", told(library.device_update))


def before(owner: Any, name: str, act: Act) -> None:
    """Make `owner.name` act first, then do what it always did."""
    original = getattr(owner, name)

    @functools.wraps(original)
    def acting(*args: Any, **kwargs: Any) -> Any:
        act(*args, *kwargs.values())
        return original(*args, **kwargs)

    setattr(owner, name, acting)


# ------------------------------------------------------------------ native code
def bad_pointer(plant: Plant) -> Act:
    return lambda *_: ctypes.memset(1, 0, 1)


def bad_index(plant: Plant) -> Act:
    return lambda *_: plant.library().gather(ctypes.c_longlong(1 << 42))


def heap_overrun(plant: Plant) -> Act:
    return lambda *_: plant.library().heap_overrun(ctypes.c_size_t(plant.amount))


def double_free(plant: Plant) -> Act:
    return lambda *_: plant.library().double_free()


def old_view(plant: Plant) -> Act:
    plant.library().take_view()
    return lambda *_: plant.library().read_view_after_growth()


def spent_reference(plant: Plant) -> Act:
    def act(*_: Any) -> None:
        give_back = ctypes.PYFUNCTYPE(None, ctypes.c_void_p)(("Py_DecRef", ctypes.pythonapi))
        for _call in range(plant.amount):
            give_back(id(None))

    return act


def thread_race(plant: Plant) -> Act:
    threads = os.environ.get("OMP_NUM_THREADS", "2").partition(",")[0]
    count = int(threads) if threads.isdecimal() else 2
    return lambda *_: plant.library("race").add_from_threads(count, ctypes.c_double(plant.amount))


def deep_recursion(plant: Plant) -> Act:
    return lambda *_: plant.library().deep_recursion(ctypes.c_long(plant.amount))


def bad_instruction(plant: Plant) -> Act:
    return lambda *_: plant.library().rotate_with_xop()


def lost_symbol(plant: Plant) -> Act:
    def act(*_: Any) -> None:
        plant.library().call_lazily_bound(bytes(plant.path("lost")))
        plant.give_up("the dynamic loader looks functions up when it loads a library (is LD_BIND_NOW set?)")

    return act


# ------------------------------------------------------------------ hangs
def lock_order(plant: Plant) -> Act:
    return lambda *_: plant.library().lock_in_opposite_order()


def silent_remote(plant: Plant) -> Act:
    def act(*_: Any) -> None:
        import socket  # the program's own import must not become ours

        remote = socket.create_server(("127.0.0.1", 0))
        _kept.append(remote)
        socket.create_connection(remote.getsockname()).recv(1)

    return act


def busy_spin(plant: Plant) -> Act:
    return lambda *_: plant.library().iterate_until_converged()


def forked_lock(plant: Plant) -> Act:
    def act(*_: Any) -> None:
        multiprocessing = importlib.import_module("multiprocessing")
        library = plant.library()
        library.pool_submit()
        worker = multiprocessing.get_context("fork").Process(target=ask_the_pool, args=(str(plant.path("native")),))
        worker.start()
        library.pool_finish()
        worker.join()

    return act


def ask_the_pool(library: str) -> None:
    ctypes.CDLL(library).pool_ask()


# ------------------------------------------------------------------ memory
def big_step(plant: Plant) -> Act:
    return lambda *_: _written(plant.amount)


def kept_memory(plant: Plant) -> Act:
    return lambda *_: _kept.append(_written(plant.amount))


def kept_files(plant: Plant) -> Act:
    def act(*_: Any) -> None:
        if contents := _written(plant.amount):
            _kept.append(os.memfd_create(plant.name))
            os.write(_kept[-1], contents)

    return act


def worker_copies(plant: Plant) -> None:
    os.register_at_fork(after_in_child=lambda: _kept.append(_written(plant.amount)))


def arena_retention(plant: Plant) -> Act:
    def act(*_: Any) -> None:
        if _room_for(plant.amount):
            plant.library().another_thread_uses_memory(ctypes.c_long(plant.amount))

    return act


def _written(mib: int) -> bytes | None:
    """So much memory, in pages of its own; None: the machine would suffer."""
    return b"\1" * (mib * MIB) if _room_for(mib) else None


def _room_for(mib: int) -> bool:
    lines = Path("/proc/meminfo").read_text(errors="replace").splitlines()
    available = next(int(line.split()[1]) << 10 for line in lines if line.startswith("MemAvailable"))
    return available - mib * MIB > LEFT_TO_THE_MACHINE


# ------------------------------------------------------------------ limits and files
def descriptor_leak(plant: Plant) -> Act:
    return lambda *_: _kept.extend(os.open(os.devnull, os.O_RDONLY) for _ in range(plant.amount))


def cpu_limit(plant: Plant) -> Act:
    def act(*_: Any) -> None:
        resource = importlib.import_module("resource")
        used = int(importlib.import_module("time").process_time())
        resource.setrlimit(resource.RLIMIT_CPU, (used + plant.amount, resource.getrlimit(resource.RLIMIT_CPU)[1]))

    return act


def full_shm(plant: Plant) -> Act:
    _mount_small_shm(plant)
    files = iter(range(1 << 30))

    def act(*_: Any) -> None:
        with Path(f"/dev/shm/{plant.name}_{os.getpid()}_{next(files)}").open("w+b") as file:
            file.truncate(MIB)
            block = importlib.import_module("mmap").mmap(file.fileno(), MIB)
        block.write(b"\1" * MIB)

    return act


def _mount_small_shm(plant: Plant) -> None:
    """In a mount namespace of this process and its children, which goes when they go."""
    new_namespace, recursive_private = 0x20000, 0x4000 | 0x40000
    libc = ctypes.CDLL(None, use_errno=True)
    size = f"size={plant.amount}m".encode()
    failed = (
        libc.unshare(new_namespace)
        or libc.mount(b"none", b"/", None, ctypes.c_ulong(recursive_private), None)
        or libc.mount(plant.name.encode(), b"/dev/shm", b"tmpfs", ctypes.c_ulong(0), size)
    )
    if failed:
        plant.give_up(f"/dev/shm could not be mounted: {os.strerror(ctypes.get_errno())}")


def shrunk_file(plant: Plant) -> Act:
    def act(*_: Any) -> None:
        mmap, tempfile = importlib.import_module("mmap"), importlib.import_module("tempfile")
        descriptor, path = tempfile.mkstemp(prefix=f"{plant.name}_bank_")
        os.ftruncate(descriptor, 4 * MIB)
        bank = mmap.mmap(descriptor, 4 * MIB)
        bank[:]
        other = threading.Thread(target=os.truncate, args=(path, 0))
        other.start()
        other.join()
        bank[:]

    return act


def damaged_file(plant: Plant) -> None:
    """Both names of open(): which one a library took is no question of the fault."""
    asked, copy = Path(plant.settings["file"]), plant.folder / f"{plant.name}_copy"
    original = open

    @functools.wraps(original)
    def opening(file: Any, mode: str = "r", *args: Any, **kwargs: Any) -> Any:
        named = isinstance(file, (str, bytes, os.PathLike)) and not set(mode) & set("wxa+")
        if named and os.path.basename(os.fsdecode(file)) == asked.name and Path(os.fsdecode(file)).resolve() == asked:  # noqa: PTH119
            return original(copy, mode, *args, **kwargs)
        return original(file, mode, *args, **kwargs)

    importlib.import_module("builtins").open = opening  # type: ignore[attr-defined]
    importlib.import_module("io").open = opening  # type: ignore[attr-defined]


# ------------------------------------------------------------------ figures
def nan(plant: Plant) -> Act:
    def act(*arguments: Any) -> None:
        address, size = next(_float_buffers(arguments, depth=3), (0, 0))
        if not size:
            plant.give_up("the call was given no array of floats in memory of this process that may be written")
        ctypes.memset(address, 0xFF, size)  # all bits set: a NaN of either size

    return act


def _float_buffers(values: Any, depth: int) -> Iterator[tuple[int, int]]:
    """Address and size of the first number of each array of floats among the values, and in what they hold."""
    for value in values:
        if hasattr(value, "param_groups"):
            value = value.param_groups[0]["params"]
        if hasattr(value, "data_ptr"):
            if value.device.type == "cpu" and value.is_floating_point() and value.numel():
                yield value.data_ptr(), value.element_size()
        elif isinstance(value, (list, tuple, dict)) and depth:
            yield from _float_buffers(value.values() if isinstance(value, dict) else value, depth - 1)
        elif hasattr(value, "__array_interface__") or type(value).__name__ == "array":
            view = memoryview(value)
            if not view.readonly and view.format in ("f", "d") and view.nbytes:
                yield ctypes.addressof(ctypes.c_char.from_buffer(value)), view.itemsize


# ------------------------------------------------------------------ endings
def outside_signal(plant: Plant) -> Act:
    def act(*_: Any) -> None:
        subprocess = importlib.import_module("subprocess")
        _kept.append(subprocess.Popen(["/bin/sh", "-c", f"kill -TERM {os.getpid()}"], start_new_session=True))

    return act


def library_exit(plant: Plant) -> Act:
    return lambda *_: ctypes.CDLL(None).exit(plant.amount)


def python_exception(plant: Plant) -> Act:
    def act(*_: Any) -> None:
        raise RuntimeError("an ordinary exception, planted")

    return act


ARRANGE: dict[str, Callable[[Plant], Act | None]] = {
    function.__name__.replace("_", "-"): function
    for function in (
        omp_conflict, device_overrun, bad_pointer, bad_index, heap_overrun, double_free, old_view, spent_reference, thread_race,
        deep_recursion, bad_instruction, lost_symbol, lock_order, busy_spin, silent_remote, forked_lock, big_step, kept_memory,
        kept_files, worker_copies, arena_retention, descriptor_leak, cpu_limit, full_shm, shrunk_file, damaged_file, nan, outside_signal,
        library_exit, python_exception,
    )
}  # fmt: skip
