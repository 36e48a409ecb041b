"""Memory of failing against surviving runs, in seconds and in steps, with the limit; and by process in the run that died."""

from __future__ import annotations

from collections.abc import Sequence

from reports.chart import Axis, Chart, Curve, Hue, Mark, Marks, Rule
from reports.curves import Chosen, Drawn
from reports.text import duration, one_line, plural, size

FAR, MOST_STEPS = 2.5, 6
PARTS: list[Hue] = ["third", "fourth", "other", "survived"]  # roles of processes


def over_time(chosen: Chosen) -> Chart | None:
    runs = _back_to_front(chosen)
    if not runs:
        return None
    end, counted = _last_time(chosen), _all_counted(runs)
    curves = [part for run, strong in runs for part in _timed(run, strong, end, counted)]
    top = _steps_on_top(runs[-1][0], end)
    label = f"step of {runs[-1][0].seen.attempt.split('-')[0]}, which {runs[-1][0].end.kind}" if top else ""
    x = Axis(label="time since the start of the run", kind="seconds", high=end * 1.04)
    return _chart("memory", "Memory over time", x, curves, _ends(runs, lambda run: run.curve.times[-1], end, counted), runs, top, label)


def over_steps(chosen: Chosen) -> Chart | None:
    """The same against steps; None when no run that died shows steps."""
    runs = [(run, strong) for run, strong in _back_to_front(chosen) if len(run.curve.steps) > 1]
    if not any(run.end.kind == "died" for run, _ in runs) or len(runs) < 1:
        return None
    counted = _all_counted(runs)
    curves = [
        Curve(
            name=_label(run),
            xs=[step for step, _ in run.curve.by_step(counted)],
            ys=[level for _, level in run.curve.by_step(counted)],
            hue=_hue(run),
            strong=strong,
            listed=strong,
        )
        for run, strong in runs
    ]
    end = max(curve.xs[-1] for curve in curves)
    x = Axis(label="step", kind="steps", high=end * 1.04)
    return _chart(
        "memory-steps", "Memory over steps", x, curves, _ends(runs, lambda run: run.curve.steps[-1][1], end, counted), runs, [], ""
    )


def by_process(chosen: Chosen) -> Chart | None:
    """Stacked, so that the upper edge is the sum; None when the run that died was one process."""
    run = chosen.died[0] if chosen.died else None
    if run is None or sum(run.curve.processes.values()) < 2:
        return None
    names = sorted(run.curve.by_role, key=lambda role: (role != "main", role))
    below = [0.0] * len(run.curve.times)
    layers: list[Curve] = []
    for position, name in enumerate(names):
        own = run.curve.by_role[name]
        below = [low + amount for low, amount in zip(below, own, strict=True)]
        label = f"{one_line(name, 30)} ({plural(run.curve.processes.get(name, 1), 'process')})"
        layers.append(Curve(name=label, xs=run.curve.times, ys=below, hue=PARTS[position % len(PARTS)], filled=True, shown=list(own)))
    title = f"Memory by process in the run that died ({run.seen.attempt})"
    x = Axis(label="time since the start of the run", kind="seconds", high=_end(run) * 1.04)
    y = Axis(label="memory by process, RSS, stacked", kind="bytes", high=1.12 * max(below))
    return Chart(name="processes", title=title, alt=f"{title}: {'; '.join(layer.name for layer in layers)}.", x=x, y=y, curves=layers[::-1])


def _all_counted(runs: Sequence[tuple[Drawn, bool]]) -> bool:
    """Return True if every run's group was sampled: then what the limit counts is drawn, in which shared pages count once."""
    return all(run.curve.counted for run, _ in runs)


def _back_to_front(chosen: Chosen) -> list[tuple[Drawn, bool]]:
    """(run, whether it is one of the two to look at); the failing one last, so on top."""
    pale = [(run, False) for run in [*chosen.survived[1:], *chosen.died[1:]]]
    return [*pale, *((run, True) for run in [*chosen.survived[:1], *chosen.died[:1]])]


def _hue(run: Drawn) -> Hue:
    return "died" if run.end.kind == "died" else "survived"


def _end(run: Drawn) -> float:
    return max(run.curve.times[-1], min(run.seen.wall_s, run.curve.times[-1] * 1.5), 0.1)


def _last_time(chosen: Chosen) -> float:
    """A survivor that goes on for long is cut, or the death could not be seen."""
    died, survived = [_end(run) for run in chosen.died], [_end(run) for run in chosen.survived]
    return min(max([*died, *survived]), 3 * max(died)) if died else max(survived)


def _timed(run: Drawn, strong: bool, end: float, counted: bool) -> list[Curve]:
    curve, hue = run.curve, _hue(run)
    cut = f", goes on to {duration(_end(run))}" if _end(run) > end else ""
    total = Curve(name=_label(run) + cut, xs=curve.times, ys=curve.level(counted), hue=hue, strong=strong, listed=strong)
    if counted or not strong or max(all_ - own for all_, own in zip(curve.rss, curve.private, strict=True)) <= 0.15 * max(curve.rss):
        return [total]
    label = f"{run.seen.attempt.split('-')[0]} without shared and file-backed pages"
    return [Curve(name=label, xs=curve.times, ys=curve.private, hue=hue, dashed=True), total]


def _ends(runs: Sequence[tuple[Drawn, bool]], place: object, end: float, counted: bool) -> list[Marks]:
    """A cross where a run died and a dot where it survived; those beyond the axis are left out."""
    groups: list[Marks] = []
    for kind, shape in (("survived", "dot"), ("died", "cross")):
        marks = [
            Mark(x=place(run), y=run.curve.level(counted)[-1], text=_label(run))  # type: ignore[operator]
            for run, _ in runs
            if run.end.kind == kind and place(run) <= end  # type: ignore[operator]
        ]
        if marks:
            groups.append(Marks(name=f"end of a run that {kind}", hue=kind, shape=shape, marks=marks, listed=False))  # type: ignore[arg-type]
    return groups


def _label(run: Drawn) -> str:
    at = f" at step {run.end.step:,}" if run.end.step is not None else ""
    where = run.row.label if run.row.label != "as it is" else "known bad"
    how = f"died: {run.end.how}{at}" if run.end.kind == "died" else f"survived{at.replace(' at', ' to')}"
    return one_line(f"{how} ({run.seen.attempt.split('-')[0]}, {where})", 64)


def _steps_on_top(run: Drawn, end: float) -> list[tuple[float, str]]:
    steps = [(time, step) for time, step in run.curve.steps if time <= end]
    if not steps:
        return []
    marks = [steps[-1]]  # from the last one back, so that the step of a death is always there
    for time, step in reversed(steps):
        if marks[-1][0] - time > max(end / 10, (steps[-1][0] - steps[0][0]) / MOST_STEPS):
            marks.append((time, step))
    return [(time, f"{step:,}") for time, step in marks]


def _chart(
    name: str, title: str, x: Axis, curves: list[Curve], ends: list[Marks], runs: Sequence[tuple[Drawn, bool]],
    top: list[tuple[float, str]], top_label: str,
) -> Chart:  # fmt: skip
    counted = _all_counted(runs)
    peak = max(max(run.curve.level(counted)) for run, _ in runs)
    limit = next((run.seen.memory.limit_bytes for run, _ in reversed(runs) if run.seen.memory.limit_bytes), None)
    near = limit if limit and limit <= FAR * peak else None
    pale = sum(not strong for _, strong in runs)
    notes = (
        []
        if near
        else [f"memory limit {size(limit)}: {limit / peak:.0f} times the peak, above this plot" if limit else "no memory limit was set"]
    )
    notes += [f"thin lines: {plural(pale, 'other run')}"] if pale else []
    label = "memory that the limit counts" if counted else "memory, sum of RSS"
    levels = [(_label(run), run.curve.level(counted)) for run, strong in reversed(runs) if strong]
    seen = [f"{name}: peak {size(max(level))}, last sample {size(level[-1])}" for name, level in levels]
    return Chart(
        name=name,
        title=title,
        alt=f"{title}. {'. '.join(seen)}. {f'The memory limit is {size(limit)}' if limit else 'No memory limit was set'}.",
        x=x,
        y=Axis(label=label, kind="bytes", high=1.12 * max(peak, near or 1.1 * peak)),
        curves=curves,
        marks=ends,
        rules=[Rule(y=float(near), text=f"memory limit {size(near)}")] if near else [],
        notes=notes,
        top=top,
        top_label=top_label,
        height=4.6,
    )
