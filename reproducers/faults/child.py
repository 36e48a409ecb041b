"""What runs inside the faulty program, first half: waits for the moment.  Stdlib only.

A copy of this file, under the plant's own name, stands beside its settings (<name>.json), the harm (<name>_harm.py) and, where the
fault needs them, its libraries.  It must not import anything of this project: the program may live anywhere.
"""

from __future__ import annotations

import ctypes
import importlib
import importlib.machinery
import importlib.util
import itertools
import json
import os
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

_HERE = Path(__file__).resolve().parent
_NAME = Path(__file__).stem
_TICK_S = 0.1  # between two moments, where a time is the first one

Act = Callable[..., object]
_kept: list[object] = []


def start() -> None:
    """Arrange for the fault; called once, before the program's first import."""
    settings: dict[str, Any] = json.loads((_HERE / f"{_NAME}.json").read_text(encoding="utf-8", errors="strict"))
    if os.environ.get(settings["switch"]) == "off":
        return
    harm = importlib.import_module(f"{_NAME}_harm")
    imports = _AfterImport()
    sys.meta_path.insert(0, imports)
    plant = harm.Plant(_HERE, _NAME, settings, imports.add)
    act = harm.ARRANGE[settings["fault"]](plant)
    if act is not None:
        _Moment(plant, harm.before, imports).arrange(settings["when"], act, again=settings["again"])


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


# ------------------------------------------------------------------ when
class _Moment:
    def __init__(self, plant: Any, before: Callable[[Any, str, Act], None], imports: _AfterImport) -> None:
        self._plant, self._before, self._imports = plant, before, imports

    def arrange(self, when: str, act: Act, *, again: bool) -> None:
        kind, _, rest = when.partition(":")
        if kind == "seconds":
            _after_seconds(float(rest), act, again=again)
        elif kind == "print":
            self._call("builtins", "print", _from(int(rest), act, again=again))
        elif kind == "call":
            module, function, *count = rest.split(":")
            self._call(module, function, _from(int(*count or "1"), act, again=again))
        elif kind == "step":
            self._imports.add("torch", lambda _torch: _after_steps(_from(int(rest), act, again=again)))
        else:
            self._known(kind, _from(1, act, again=again))

    def _known(self, name: str, act: Act) -> None:
        if name == "mining":
            self._imports.add("faiss", lambda faiss: self._search(faiss, act))
        else:
            owner, function = {"backward": ("autograd", "backward"), "epoch-end": ("", "save")}[name]
            self._imports.add("torch", lambda torch: self._before(getattr(torch, owner, torch), function, act))

    def _search(self, faiss: Any, act: Act) -> None:
        """Every index class defines a search of its own, and faiss.knn searches without an index."""
        for value in list(vars(faiss).values()):
            if isinstance(value, type) and issubclass(value, (faiss.Index, faiss.IndexBinary)):
                for method in {"search", "range_search", "search_and_reconstruct"} & vars(value).keys():
                    self._before(value, method, act)
        for function in ("knn", "knn_hamming"):
            if hasattr(faiss, function):
                self._before(faiss, function, act)

    def _call(self, module: str, function: str, act: Act) -> None:
        """Before the calls of one function: in a module that is there already, or once it has been imported."""

        def wrap(found: Any) -> None:
            *owners, name = function.split(".")
            try:
                for owner in owners:
                    found = getattr(found, owner)
                self._before(found, name, act)
            except (AttributeError, TypeError) as reason:
                self._plant.give_up(f"the call {module}:{function} cannot be waited for ({reason})")

        if module in sys.modules:
            wrap(sys.modules[module])
        else:
            self._imports.add(module, wrap)


def _from(count: int, act: Act, *, again: bool) -> Act:
    """Act at the count-th call, and at all later ones if `again`.  What the act itself calls does not count."""
    calls, acting = itertools.count(1), threading.local()

    def called(*arguments: Any) -> None:
        if getattr(acting, "now", False):
            return
        number = next(calls)
        if number == count or (again and number > count):
            acting.now = True
            try:
                act(*arguments)
            finally:
                acting.now = False

    return called


def _after_seconds(seconds: float, act: Act, *, again: bool) -> None:
    """In the main thread, between two instructions of Python's; another thread only looks at the clock."""

    def harm(_: int | None) -> int:
        act()
        return 0

    pending = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p)(harm)

    def watch() -> None:
        time.sleep(seconds)
        ctypes.pythonapi.Py_AddPendingCall(pending, None)
        while again:
            time.sleep(_TICK_S)
            ctypes.pythonapi.Py_AddPendingCall(pending, None)

    _kept.append(pending)  # the interpreter may come to it after the thread has ended
    threading.Thread(target=watch, name=f"{_NAME} clock", daemon=True).start()


def _after_steps(act: Act) -> None:
    importlib.import_module("torch.optim.optimizer").register_optimizer_step_post_hook(lambda optimizer, *_: act(optimizer))


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
