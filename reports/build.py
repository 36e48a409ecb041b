"""The order of the sections: what the reader needs first comes first."""

from __future__ import annotations

from collections.abc import Sequence

from reports import advice, causes, cells, contrast, deaths, decision, head, interventions, surroundings
from reports.cells import CellRow
from reports.drawings import Drawings
from reports.folder import RunFolder
from reports.launch import Launch
from reports.model import ReportModel, Section


def build(folder: RunFolder, rows: Sequence[CellRow], found: Launch | str | None, drawings: Drawings) -> ReportModel:
    verdict = folder.verdict
    judged = [causes.ranking(folder, verdict), causes.evidence(folder, verdict), causes.failures(folder, verdict)] if verdict else []
    sections: list[Section | None] = [
        advice.do_this_now(folder, found),
        *judged,
        deaths.deaths(folder),
        contrast.contrast(folder),
        causes.ruled_out(folder, verdict) if verdict else None,
        cells.matrix(folder, list(rows), drawings.picture, drawings.endings),
        interventions.interventions(folder, rows),
        drawings.when,
        drawings.memory,
        decision.decision(folder, rows),
        drawings.attempts,
        surroundings.untested(folder),
        interventions.watching(folder),
        causes.not_collected(folder, verdict),
        causes.grades() if verdict else None,
        surroundings.how_made(folder),
        surroundings.reproduce(folder),
        surroundings.unread(folder),
    ]
    label, tone = head.label(verdict)
    return ReportModel(
        name=_name(folder),
        label=label,
        tone=tone,
        headline=head.headline(folder),
        verdict=head.verdict_lines(folder),
        status=head.status_line(folder),
        notices=head.notices(folder),
        sections=[section for section in sections if section],
    )


def _name(folder: RunFolder) -> str:
    record = folder.verdict or folder.plan
    return record.name if record else folder.path.resolve().name
