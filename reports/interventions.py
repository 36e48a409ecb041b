"""The tool's own interventions (probes), with whether each took hold, and whether watching changed the result."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from matrix.records import Observation, describe_cell
from reports.causes import attempt_links
from reports.cells import CellRow, outcome, tone
from reports.ending import ending
from reports.folder import RunFolder
from reports.model import Block, Line, Para, Row, Section, Table, line, strong
from reports.text import one_line, plural, sentence


def interventions(folder: RunFolder, found: Sequence[CellRow]) -> Section | None:
    """None when no run had a probe."""
    probed = [row for row in found if row.probes]
    if not probed:
        return None
    plain = {describe_cell(row.cell): row for row in found if not row.probes}
    rows = [_row(folder, row, plain.get(describe_cell(row.cell))) for row in probed]
    columns = ["Probe", "Took hold", "Outcome with it", "Without it", "Configuration", "Attempts"]
    text = (
        "A probe changes one thing from outside that the program has no switch for. One that did not take hold says nothing; "
        "a new way to die under a probe is no cure."
    )
    table = Table("What was changed from outside, and what came of it", columns, rows, prose=frozenset({1, 2, 3}))
    return Section("probes", "Interventions", [Para(line(text)), table])


def _row(folder: RunFolder, row: CellRow, plain: CellRow | None) -> Row:
    name = line(strong(one_line(" ".join(f"{probe}={setting}" for probe, setting in row.probes.items()), 120)))
    where = row.role or describe_cell({axis: row.cell[axis] for axis in row.cell if axis in row.changed}) or "known bad"
    attempts = attempt_links(folder, [seen.attempt for seen, _ in row.runs], 6)
    without = outcome(plain) if plain else "not run"
    return Row(
        [name, line(_held([seen for seen, _ in row.runs])), line(outcome(row)), line(without), line(one_line(where, 120)), attempts],
        tone(row),
    )


def _held(runs: Sequence[Observation]) -> str:
    """What the manipulation checks said; runs of older versions recorded none."""
    words = {True: "yes", False: "no", None: "not known"}
    results = [result for seen in runs for result in seen.probes]
    told = Counter(words[result.held] + (f": {one_line(result.how, 160)}" if result.how else "") for result in results)
    return "; ".join(f"{text} ({plural(count, 'run')})" if len(told) > 1 else text for text, count in told.items()) or "not recorded"


# ------------------------------------------------------------------ watching
def watching(folder: RunFolder) -> Section | None:
    """Whether instruments change the result: what the verdict says, and the runs made without them.  None before the first run."""
    if not folder.observed:
        return None
    observer = folder.verdict.observer if folder.verdict else None
    blocks: list[Block] = [Para(line(sentence(observer.text)))] if observer and observer.text else []
    return Section("watching", "Does watching change the result", [*blocks, *_control(folder)])


def _control(folder: RunFolder) -> list[Block]:
    bare = [seen for _, seen in folder.observed if _bare(seen)]
    if not bare:
        return [Para(line("No run was made without instruments, so it is not known whether watching changes the result."))]
    cells = {describe_cell(seen.trial.cell) for seen in bare}
    watched = [
        seen for _, seen in folder.observed
        if not _bare(seen) and not seen.trial.probes and describe_cell(seen.trial.cell) in cells
    ]  # fmt: skip
    if not watched:  # it was asked for to bear the crash set out, and ended as the search expected
        return [Para(line("The run without instruments: ", *attempt_links(folder, [seen.attempt for seen in bare], 6)))]
    rows = [Row([line("without instruments"), *_counts(folder, bare)]), Row([line("with instruments"), *_counts(folder, watched)])]
    columns = ["Runs of the same configurations", "Died", "Survived", "Cut off", "Attempts"]
    return [Table("The same configurations with and without instruments", columns, rows, frozenset({1, 2, 3}))]


def _bare(seen: Observation) -> bool:
    return seen.trial.purpose == "control" or not seen.trial.watched


def _counts(folder: RunFolder, runs: Sequence[Observation]) -> list[Line]:
    kinds = Counter(ending(seen, folder.verdict).kind for seen in runs)
    counts = [line(str(kinds[kind])) for kind in ("died", "survived", "censored")]
    return [*counts, attempt_links(folder, [seen.attempt for seen in runs], 6)]
