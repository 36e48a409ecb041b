"""What a run is going to do, before anything runs."""

from __future__ import annotations

import statistics

from matrix import records
from matrix.assembly import CAN_BIND, command, usable_cpus, working_folder
from matrix.evidence import machine, own_limits
from matrix.executors.local import automatic_jobs
from matrix.folder import NoSuchRun, latest
from matrix.records import AxisPlan, Observation, Plan, describe_cell
from matrix.runner import cgroup
from matrix.search import Search
from matrix.spec import Spec
from matrix.spec.axes import Axis

MIB = 1 << 20


def jobs_of(spec: Spec, asked: int | None) -> int:
    if asked:
        return asked
    if spec.executor.jobs != "auto":
        return int(spec.executor.jobs)
    return automatic_jobs(spec.limits.cpus, spec.limits.memory_bytes)


def plan_of(spec: Spec, jobs: int) -> Plan:
    return Plan(
        name=spec.name,
        command=command(spec.run.command),
        axes=[_axis(spec, axis) for axis in spec.axes],
        known_bad=spec.known_bad,
        strategy=spec.search.strategy,
        jobs=jobs,
        machine=machine.here(),
        notices=notices(spec, jobs),
    )


def notices(spec: Spec, jobs: int) -> list[str]:
    """What the tool does to the program, and what it cannot do here."""
    found = list(Search(spec, seed=spec.search.seed).notices)
    if spec.run.unbuffered and "PYTHONUNBUFFERED" not in spec.run.env:
        found.append("PYTHONUNBUFFERED is set, so that the last lines before a death are seen")
    if jobs > 1 and not any("{attempt_dir}" in word for word in [*spec.run.command, *spec.run.env.values()]):
        found.append(f"{jobs} attempts run side by side and nothing in the command holds {{attempt_dir}}: they may write to the same files")
    if spec.limits.pids and not cgroup.can_limit_pids():
        found.append("limits.pids is not enforced: no pids cgroup can be made here")
    usable = len(usable_cpus())
    if spec.limits.cpus and not CAN_BIND:
        found.append("limits.cpus is not enforced: this system cannot bind a process to processors")
    elif spec.limits.cpus and spec.limits.cpus > usable:
        found.append(f"limits.cpus asks for {spec.limits.cpus}, and this tool may use {usable}: each attempt has those")
    found += own_limits.describe_inherited()
    if why := cgroup.why_not():
        found.append(f"no memory cgroup can be made here ({why}): a watchdog ends what passes its memory limit")
    return found


def preview(spec: Spec, asked_jobs: int | None) -> str:
    """The text of `plan`."""
    plan = plan_of(spec, jobs_of(spec, asked_jobs))
    lines = [f"{plan.name}: {' '.join(plan.command)}", f"in {working_folder(spec)}", ""]
    for axis in plan.axes:
        values = ", ".join(_value(axis, value) for value in axis.values)
        lines.append(f"  {axis.name:12} {values}")
    expected = Search(spec, seed=spec.search.seed).expected_runs()
    lines += [
        "",
        f"known bad: {describe_cell(plan.known_bad)}",
        f"{spec.size} cells; strategy {plan.strategy}; about {expected} runs, at most {spec.search.max_runs}",
    ]
    lines.append(f"{plan.jobs} at a time; {_cost(spec, expected, plan.jobs)}")
    lines += _time_limits(spec)
    return "\n".join([*lines, *(f"note: {notice}" for notice in plan.notices)])


def _time_limits(spec: Spec) -> list[str]:
    """The longest that the matrix and each run may take, in one line; [] without limits."""
    matrix, attempt = spec.search.max_wall_s, spec.limits.wall_s
    parts = [f"{matrix:.0f} s in all (--max-wall)" if matrix else "", f"{attempt:.0f} s a run (limits.wall)" if attempt else ""]
    found = ", ".join(part for part in parts if part)
    return [f"at most {found}"] if found else []


def _cost(spec: Spec, expected: int, jobs: int) -> str:
    """From the newest run of the same name; honest about knowing nothing before the first."""
    try:
        paths = (latest(spec.name) / "attempts").glob("*/observation.json")
        seen = [records.read(Observation, path) for path in paths]
    except (NoSuchRun, OSError, ValueError):
        seen = []
    if not seen:
        limit = f"each may use {spec.limits.memory_bytes / MIB:.0f} MiB" if spec.limits.memory_bytes else "no memory limit is set"
        return f"time unknown before the first run; {limit}"
    each = statistics.median(o.wall_s for o in seen)
    peak = max((o.memory.peak_tree_rss_bytes or 0) for o in seen)
    return f"about {expected * each / jobs:.0f} s ({each:.1f} s a run in the last matrix) and {jobs * peak / MIB:.0f} MiB at once"


def _axis(spec: Spec, axis: Axis) -> AxisPlan:
    absent = {str(value): why for value in axis.values if (why := spec.unavailable(axis.name, value))}
    return AxisPlan(name=axis.name, values=list(axis.values), ordered=axis.ordered, hides=list(axis.hides), unavailable=absent)


def _value(axis: AxisPlan, value: records.Value) -> str:
    if str(value) in axis.unavailable:
        return f"{value} (not here: {axis.unavailable[str(value)]})"
    return f"{value} (hides)" if value in axis.hides else str(value)
