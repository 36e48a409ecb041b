"""The benchmark's page: the table in markdown and the reliability plot."""

from __future__ import annotations

from pathlib import Path
from typing import Any

COLUMNS = {
    "row": "programs",
    "method": "method",
    "kind": "kind",
    "worlds": "n",
    "median_runs": "runs",
    "median_runs_wanted": "wanted",
    "bound_runs": "bound",
    "entropy_runs": "entropy alone",
    "median_verify_runs": "verification",
    "exact": "exact",
    "exact_wanted": "wanted",
    "exact_at_the_posterior": "exact before it",
    "not_reproduced": "not reproduced",
    "confirmed": "confirmed",
    "confirmed_and_wrong": "confirmed, wrong",
    "decision_cpu_ms": "ms a decision",
}
INTRODUCTION = """# Search: simulated programs

Made by `python -m benchmarks.search`; what the columns mean is in `benchmarks/README.md`.
"""


def text(figures: dict[str, Any]) -> str:
    lines = [INTRODUCTION, "| " + " | ".join(COLUMNS.values()) + " |", "|" + "---|" * len(COLUMNS)]
    lines += ["| " + " | ".join(_cell(name, row.get(name)) for name in COLUMNS) + " |" for row in figures["rows"]]
    lines += ["", "![What was said and what was true](search-reliability.svg)", ""]
    for name, found in figures["calibration"].items():
        lines.append(f"- Calibration, {name}: error {found['error']:.1%} over {found['looks']:,} looks.")
    for name, found in figures["decision_cpu_ms"].items():
        lines.append(f"- A decision at {name}: {found['median']:g} ms, at most {found['max']:g} ms, the first {found['first']:g} ms.")
    for name, mib in figures["peak_memory_mib"].items():
        lines.append(f"- Peak memory of a process that searches {name}: {mib} MiB.")
    return "\n".join(lines) + "\n"


def _cell(name: str, value: Any) -> str:
    if value is None:
        return ""
    if name.startswith("exact") or name == "confirmed":
        return f"{value:.1%}"
    return f"{value:g}" if isinstance(value, float) else str(value)


def plot(calibration: dict[str, Any], path: Path) -> None:
    """Said against true; the area of a point goes by its looks."""
    import matplotlib

    matplotlib.use("svg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(4.5, 4.5))
    axes.plot([0, 1], [0, 1], color="0.7", linewidth=1)
    for name, found in calibration.items():
        bins, most = found["bins"], max(each["looks"] for each in found["bins"])
        sizes = [10 + 90 * each["looks"] / most for each in bins]
        label = f"{name}: error {found['error']:.1%}, {found['looks']:,} looks"
        axes.scatter([each["said"] for each in bins], [each["true"] for each in bins], sizes, label=label, alpha=0.7)
    axes.set(xlabel="probability that was said", ylabel="share that was right", xlim=(0, 1), ylim=(0, 1))
    axes.legend(loc="upper left", fontsize=7, frameon=False)
    matplotlib.rcParams.update({"svg.hashsalt": "search", "svg.fonttype": "none"})
    figure.savefig(path, metadata={"Date": None}, bbox_inches="tight")
    pyplot.close(figure)
