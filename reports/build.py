"""The order of the sections: what the reader needs first comes first."""

from __future__ import annotations

from reports import advice, causes, cells, deaths, head, surroundings
from reports.drawings import Drawings
from reports.folder import RunFolder
from reports.launch import Launch
from reports.model import ReportModel, Section


def build(folder: RunFolder, found: Launch | str | None, drawings: Drawings) -> ReportModel:
    verdict = folder.verdict
    judged = [causes.ranking(folder, verdict), causes.evidence(folder, verdict), causes.failures(folder, verdict)] if verdict else []
    sections: list[Section | None] = [
        advice.do_this_now(folder, found),
        *judged,
        deaths.deaths(folder),
        causes.ruled_out(folder, verdict) if verdict else None,
        cells.matrix(folder, [drawings.endings] if drawings.endings else []),
        drawings.memory,
        surroundings.untested(folder),
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
        status=head.status_line(folder),
        key_figures=head.key_figures(folder),
        notices=head.notices(folder),
        sections=[section for section in sections if section],
    )


def _name(folder: RunFolder) -> str:
    record = folder.verdict or folder.plan
    return record.name if record else folder.path.resolve().name
