"""All probes by name: for each a function from how an attempt would be started to what is changed, or `Unavailable` with the reason."""

from __future__ import annotations

from collections.abc import Callable

from matrix.runner.probes import programs as p
from matrix.runner.probes import resources as r
from matrix.runner.probes.change import Change, Context, Prepared, Unavailable

# In this order they are applied: one_thread before one_core, which keeps thread counts as they are.
PROBES: dict[str, Callable[[Context, str], Change]] = {
    probe.__name__: probe
    for probe in (
        r.one_thread, r.one_core, r.slower_clock, r.larger_stacks, r.memory_x2, r.memory_half, r.raised_nofile, r.raised_pids,
        r.raised_address_space, r.raised_cpu_time, r.bigger_shm, r.bigger_temp,
        p.poisoned_heap, p.checked_heap, p.one_arena, p.no_huge_pages, p.plain_instructions, p.start_spawn, p.start_forkserver,
        p.runtime_override, p.clean_preload, p.own_session, p.ignore_sighup, p.ignore_sigpipe, p.default_sigpipe,
        p.cuda_launch_blocking, p.no_cuda_caching, p.nccl_debug, p.valgrind, p.who_ended_it,
    )
}  # fmt: skip
NAMES = tuple(PROBES)


def unavailable(name: str, setting: str, context: Context) -> str | None:
    """Why that probe cannot be had for an attempt that would be started like this; None: it can."""
    if name not in PROBES:
        return f"there is no probe {name}; there are {', '.join(NAMES)}"
    try:
        PROBES[name](context, setting)
    except Unavailable as reason:
        return str(reason)
    return None


def prepare(context: Context, settings: dict[str, str]) -> Prepared:
    """What all probes of an attempt change together; those that cannot be had are left out, with the reason."""
    each: dict[str, Change] = {}
    refused = {name: f"there is no probe {name}" for name in settings if name not in PROBES}
    total = Change()
    for name in (name for name in NAMES if name in settings):
        try:
            each[name] = PROBES[name](context, settings[name])
        except Unavailable as reason:
            refused[name] = str(reason)
            continue
        context = context.changed(each[name])
        total = total.plus(each[name])
    return Prepared(settings=dict(settings), each=each, refused=refused, total=total)


def estimate_s(name: str, setting: str, *, wall_s: float, cpu_s: float) -> tuple[float, float]:
    """How long an attempt under that probe may take, at least and at most, when it took so long without.

    valgrind runs one thread at a time, 10 to 50 times slower (its manual), and starts slowly: 6 s instead of 0.06 for `python -c pass`,
    12 s instead of 0.3 with numpy were measured."""
    if name == "valgrind":
        return wall_s + 10 * cpu_s + 5, wall_s + 50 * cpu_s + 10
    if name == "slower_clock":
        slowed = cpu_s / (float(setting) if setting else r.HALF)
        return max(wall_s, slowed), wall_s + slowed
    if name in ("one_core", "one_thread"):
        return wall_s, wall_s + cpu_s
    return wall_s, 2 * wall_s
