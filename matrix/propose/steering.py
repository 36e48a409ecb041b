"""What the words of a log speak for: which axes come first, and which are proposed only then."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from matrix.propose.facts import Facts
from matrix.propose.proposals import DUPLICATE_OK, Proposal
from matrix.propose.roles import Role
from matrix.records import MessageKind

FIRST = 200  # above every weight that a proposal has by itself
ARENAS = "MALLOC_ARENA_MAX"
# For each kind of words the roles, or names of axes, that speak to such a death, the most telling first.
SPEAK_TO: dict[MessageKind, tuple[Role | str, ...]] = {
    "openmp conflict": ("omp", "threads"),
    "no more processes": ("threads", "workers", "ranks", "arenas"),
    "no space": ("folder", "workers"),
    "file too large": ("folder",),
    "bus error": ("workers", "batch"),
    "too many files": ("workers", "batch"),
    "out of memory": ("batch", "workers", "accum", "ranks", "amount"),
    "cuda out of memory": ("batch", "accum", "precision", "half"),
    "worker died": ("workers", "start", "batch"),
    "corrupt input": ("shuffle", "seed"),
    "stack overflow": ("threads",),
    "cpu time": ("threads", "workers"),
    "no more ports": ("ranks",),
    "cuda assert": ("device", "no_device"),
    "cuda error": ("device", "no_device"),
}


def steered(found: Sequence[Proposal], facts: Facts | None) -> list[Proposal]:
    """Return the proposals, those first that speak to the words of the log, with what the words add to the reason."""
    kinds = kinds_of_words(facts)
    wanted: dict[str, MessageKind] = {}
    for kind in kinds:
        for name in SPEAK_TO.get(kind, ()):
            wanted.setdefault(name, kind)
    order = list(wanted)
    moved = [_moved_forward(proposal, order, wanted) for proposal in found]
    return sorted(moved, key=lambda proposal: -proposal.weight)


def _moved_forward(proposal: Proposal, order: Sequence[str], wanted: dict[str, MessageKind]) -> Proposal:
    name = next((name for name in (proposal.axis, proposal.role) if name in wanted), None)
    if name is None or len(proposal.levels) < 2 or (proposal.weight <= 0 and proposal.role != "seed"):
        return proposal
    why = f"{proposal.why}; the log speaks of it ({wanted[name]})"
    return dataclasses.replace(proposal, weight=FIRST - order.index(name), why=why)


def kinds_of_words(facts: Facts | None) -> list[MessageKind]:
    """Return the kinds of the words that a death left, in their order."""
    return list(dict.fromkeys(kind for kind, _ in facts.messages)) if facts and facts.died else []


# ------------------------------------------------------------------ axes that only the log asks for
def axes_for_words(facts: Facts | None) -> list[Proposal]:
    """Return axes of the environment that every program has and that are worth runs only where the log speaks of them."""
    kinds = kinds_of_words(facts)
    found = [openmp_axis("two OpenMP runtimes met in one process: ")] if "openmp conflict" in kinds else []
    return [*found, _arenas()] if "no more processes" in kinds else found


def openmp_axis(why: str, *, hidden: bool = False) -> Proposal:
    """One runtime instead of two where MKL lets one choose, and the switch that only hides the conflict.

    `hidden`: the shell sets the switch already, so that the program without it is what has to be seen.
    """
    plain = {"env": {DUPLICATE_OK: "FALSE"}} if hidden else {}
    choices = {
        "plain": plain,
        "mkl_with_gnu": {"env": {"MKL_THREADING_LAYER": "GNU"}},
        "duplicate_ok": {"env": {DUPLICATE_OK: "TRUE"}, "hides": True},
    }
    return Proposal(
        axis="omp",
        entry={"choices": choices},
        bad="duplicate_ok" if hidden else "plain",
        why=f"{why}{DUPLICATE_OK} only hides what it allows",
        weight=78,
    )


def _arenas() -> Proposal:
    return Proposal(
        axis="arenas",
        entry={"choices": {"as_it_is": {}, "two": {"env": {ARENAS: "2"}}}},
        bad="as_it_is",
        why="address space that the allocator reserves for each thread",
        weight=30,
    )
