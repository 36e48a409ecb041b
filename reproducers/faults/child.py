"""What runs inside the faulty program: waits for the moment, then does the harm.  Stdlib only.

A copy of this file, under the plant's own name, stands beside its settings (<name>.json) and, where the fault needs them,
its libraries.  It must not import anything of this project: the program may live anywhere.
"""

from __future__ import annotations

import ctypes
import functools
import importlib
import importlib.machinery
import importlib.util
import json
import os
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

_HERE = Path(__file__).resolve().parent
_NAME = Path(__file__).stem

Action = Callable[[], None]


def start() -> None:
    """Arrange for the fault; called once, before the program's first import."""
    settings: dict[str, str] = json.loads((_HERE / f"{_NAME}.json").read_text(encoding="utf-8"))
    imports = _AfterImport()
    sys.meta_path.insert(0, imports)
    if settings["fault"] == "device-overrun":
        imports.add("torch", _add_device)
        return
    if settings["fault"] == "omp-conflict":
        first, second = _HERE / f"lib{_NAME}_first.so", _HERE / f"lib{_NAME}_second.so"
        if os.environ.get(settings["variable"]) == "one":
            second = first
        imports.add(settings["first"], lambda _module: _use_runtime(first))
        act: Action = functools.partial(_use_runtime, second)
    else:
        act = _write_through_bad_pointer
    _at(settings["when"], _once(act), imports)


def run_next_sitecustomize(this_file: str) -> None:
    """Run the sitecustomize that Python would have found without this one, if there is any.

    Only further along the path: one in front has run already.  Our folder leaves the path, so that the next one does not find
    us when it chains in turn.
    """
    here = Path(this_file).resolve().parent
    places = [Path(entry).resolve() for entry in sys.path]
    if here not in places:
        return
    at = places.index(here)
    del sys.path[at]
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", sys.path[at:])
    if spec is not None and spec.loader is not None:
        module = importlib.util.module_from_spec(spec)
        sys.modules["sitecustomize"] = module
        spec.loader.exec_module(module)


# ------------------------------------------------------------------ what is done
def _use_runtime(path: Path) -> None:
    """Load an OpenMP runtime and call into it, which initialises it.  It aborts the process when another one is registered."""
    ctypes.CDLL(str(path)).omp_get_max_threads()


def _write_through_bad_pointer() -> None:
    ctypes.memset(1, 0, 1)


def _add_device(torch: Any) -> None:
    """Register a device of the plant's name with torch.  It computes on the CPU; its library hears of what is done to it."""
    library = ctypes.CDLL(str(_HERE / f"lib{_NAME}_device.so"))
    opened = functools.lru_cache(library.device_open)  # when it is first computed on

    def with_cpu(value: Any) -> Any:
        if not isinstance(value, torch.device) or value.type != _NAME:
            return value
        opened()
        return torch.device("cpu")

    class OnTheCpu(torch.overrides.TorchFunctionMode):  # type: ignore[misc]
        def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            return function(*map(with_cpu, args), **{name: with_cpu(value) for name, value in (kwargs or {}).items()})

    def told(tell: Callable[[], Any]) -> Action:
        return lambda: tell() if opened.cache_info().currsize else None

    module = ModuleType(f"torch.{_NAME}")
    vars(module).update(is_available=lambda: True, device_count=lambda: 1, synchronize=lambda: None)
    vars(module).update(
        get_rng_state=torch.get_rng_state, set_rng_state=torch.set_rng_state, get_amp_supported_dtype=lambda: [torch.bfloat16]
    )
    vars(module).update(empty_cache=told(library.device_clear_cache))
    torch.utils.rename_privateuse1_backend(_NAME)
    torch._register_device_module(_NAME, module)
    OnTheCpu().__enter__()
    _before(torch.autograd, "backward", told(library.device_backward))
    _before(importlib.import_module("torch.optim.adamw"), "adamw", told(library.device_update))


def _once(act: Action) -> Action:
    first = threading.Lock()  # taken by the first caller, never given back

    def first_time_only() -> None:
        if first.acquire(blocking=False):
            act()

    return first_time_only


# ------------------------------------------------------------------ when
def _at(when: str, act: Action, imports: _AfterImport) -> None:
    if when == "mining":
        imports.add("faiss", lambda faiss: _before_search(faiss, act))
    elif when == "backward":
        imports.add("torch", lambda torch: _before(torch.autograd, "backward", act))
    elif when == "epoch-end":
        imports.add("torch", lambda torch: _before(torch, "save", act))
    else:
        imports.add("torch", lambda _torch: _after_steps(int(when.removeprefix("step:")), act))


def _before(owner: Any, name: str, act: Action) -> None:
    """Make `owner.name` act first, then do what it always did."""
    original = getattr(owner, name)

    @functools.wraps(original)
    def acting(*args: Any, **kwargs: Any) -> Any:
        act()
        return original(*args, **kwargs)

    setattr(owner, name, acting)


def _before_search(faiss: Any, act: Action) -> None:
    """Every index class defines a search of its own, and faiss.knn searches without an index."""
    for value in list(vars(faiss).values()):
        if isinstance(value, type) and issubclass(value, (faiss.Index, faiss.IndexBinary)):
            for method in {"search", "range_search", "search_and_reconstruct"} & vars(value).keys():
                _before(value, method, act)
    for function in ("knn", "knn_hamming"):
        if hasattr(faiss, function):
            _before(faiss, function, act)


def _after_steps(count: int, act: Action) -> None:
    left = iter(range(count - 1, -1, -1))

    def step_done(*_: Any) -> None:
        if next(left, None) == 0:
            act()

    importlib.import_module("torch.optim.optimizer").register_optimizer_step_post_hook(step_done)


class _AfterImport:
    """A finder that lets the real finders find a module, and calls back once the module has been executed."""

    def __init__(self) -> None:
        self._waiting: dict[str, list[Callable[[Any], None]]] = {}
        self._asking: set[tuple[int, str]] = set()

    def add(self, name: str, callback: Callable[[Any], None]) -> None:
        self._waiting.setdefault(name, []).append(callback)

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        question = (threading.get_ident(), name)
        if name not in self._waiting or question in self._asking:
            return None
        self._asking.add(question)  # the search below comes through here again
        try:
            spec = importlib.util.find_spec(name)
        finally:
            self._asking.discard(question)
        if spec is not None and spec.loader is not None:
            self._follow(spec.loader, name)
        return spec

    def _follow(self, loader: Any, name: str) -> None:
        execute = loader.exec_module

        def exec_module(module: ModuleType) -> None:
            execute(module)
            for callback in self._waiting.pop(name, []):
                callback(module)

        loader.exec_module = exec_module
