"""All checks in the order in which they are shown, and the one loop that runs them."""

from __future__ import annotations

import dataclasses
import difflib
import subprocess

from matrix.doctor import imports, limits, memory, openmp, processor, storage, threads, tools, versions
from matrix.doctor.finding import SEVERITIES, Check, Finding, NotSeen, Seen, Severity
from matrix.doctor.place import Place

__all__ = ["CHECKS", "Report", "UnknownCheck", "find", "run"]

CHECKS: tuple[Check, ...] = (
    openmp.duplicate, openmp.mixed, openmp.fork, openmp.copies, openmp.blas_copies, openmp.openblas_deadlock, openmp.allocators,
    imports.import_changes,
    threads.count, threads.quota, threads.pinning, threads.duplicate_ok, threads.preload, threads.library_path,
    threads.allocator_variables, threads.output_lost,
    processor.instruction_set, processor.forced, processor.platform,
    limits.stack, limits.open_files, limits.threads_left, limits.address_space, limits.cpu_time, limits.file_size, limits.locked_memory,
    memory.memory_limit, memory.killed_before, memory.crashed_before, memory.memory_free, memory.swap, memory.overcommit, memory.daemon,
    memory.score, memory.panic, memory.huge_pages,
    storage.shm, storage.litter, storage.temp, storage.disk,
    tools.core_limit, tools.core_pattern, tools.ptrace, tools.readers, tools.kernel_log, tools.cgroups,
    *versions.KNOWN_BAD, versions.static_tls, versions.end_of_life, versions.lost_wakeup,
)  # fmt: skip


class UnknownCheck(Exception):
    """No check has this ID."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Report:
    findings: list[Finding]  # the gravest first
    fine: list[Check]
    not_seen: list[tuple[Check, str]]  # and why

    def count(self, severity: Severity) -> int:
        return sum(finding.severity == severity for finding in self.findings)


def find(id: str) -> Check:
    """Raises UnknownCheck."""
    for each in CHECKS:
        if each.id == id:
            return each
    near = difflib.get_close_matches(id, [each.id for each in CHECKS], n=1)
    hint = f"did you mean {near[0]}?" if near else "`doctor` prints the IDs of what it finds; `doctor --json` lists all of them"
    raise UnknownCheck(f"there is no check {id!r}; {hint}")


def run(place: Place, checks: tuple[Check, ...] = CHECKS) -> Report:
    """What cannot be looked at stops nothing, and takes back nothing that was seen before."""
    findings: list[Finding] = []
    fine, not_seen = [], []
    for each in checks:
        found, why = _looked(each, place)
        findings += found
        if why:
            not_seen.append((each, why))
        elif not found:
            fine.append(each)
    findings.sort(key=lambda finding: SEVERITIES.index(finding.severity))
    return Report(findings=findings, fine=fine, not_seen=not_seen)


def _looked(of: Check, place: Place) -> tuple[list[Finding], str]:
    """What was found, and why the rest could not be looked at ("": all was)."""
    found: list[Finding] = []
    try:
        for seen in of.look(place):
            found.append(_finding(of, seen))
    except NotSeen as why:
        return found, str(why)
    except OSError as problem:
        return found, f"{problem.filename or 'the system'}: {problem.strerror}"
    except subprocess.TimeoutExpired as problem:
        return found, f"no answer within {problem.timeout:g} s"
    except (ValueError, LookupError) as problem:  # a file of the system in a form that is not known: sandboxes write their own
        return found, f"what the system says was not understood ({type(problem).__name__}: {problem})"
    return found, ""


def _finding(of: Check, seen: Seen) -> Finding:
    return Finding(
        id=of.id,
        group=of.group,
        severity=seen.severity,
        summary=seen.summary,
        evidence=seen.evidence,
        causes=of.causes,
        unproven=of.unproven,
        remedy=seen.remedy or of.remedy,
    )
