"""What Kubernetes kept of a pod: `kubectl get pod -o json` or `-o yaml`, or the text of `kubectl describe pod`.

OOMKilled comes from the container runtime, which reads the cumulative counter of OOM kills of the container's cgroup
(kubernetes/kubernetes issue 140716 and pull request 140718): a kill of any process in it, at any time of its life, marks its end
so, also when it then ended by SIGTERM.  The other way round a container that the kernel killed because the node ran out may
show Error with 137 (kubernetes/kubernetes issue 53669).
"""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Iterator
from typing import Any

from matrix.explain.part import SCHEDULER, Ending, Part, Piece
from matrix.explain.sources import Source, Unreadable
from matrix.explain.statuses import NoStatus, of_number
from matrix.records import Finding

OOM = "OOMKilled"
DESCRIBED = re.compile(
    r"^\s*(?:Last State|State):\s+Terminated\s*$(?P<body>(?:\n\s+(?:Reason|Message|Exit Code|Signal|Started|Finished):.*)+)", re.M
)
FIELD = re.compile(r"^\s+(?P<name>Reason|Message|Exit Code|Signal|Started|Finished):\s*(?P<value>.*?)\s*$", re.M)
CONTAINER = re.compile(r"^  (?P<name>[a-z0-9][a-z0-9.-]*):[ \t]*$", re.M)
CONTAINER_ID = re.compile(r"Container ID:\s+\w+://(?P<id>[0-9a-f]{12,64})")
EVENT_WORDS = (
    "Evicted",
    "Preempting",
    "Preempted",
    "Killing",
    "Unhealthy",
    "SystemOOM",
    "NodeNotReady",
    "TaintManagerEviction",
    "DeadlineExceeded",
)
EVENT = re.compile(rf"^\s*(?:Normal|Warning)\s+(?P<reason>{'|'.join(EVENT_WORDS)})\s+(?P<rest>.*)$", re.M)
MOST_EVENTS = 6
MEMORY_LIMIT = re.compile(r"^\s+Limits:\s*$(?:\n\s+(?!Requests)\S+:.*)*?\n\s+memory:\s*(?P<limit>\S+)", re.M)
POD_REASONS: dict[str, tuple[str, str, str | None, float]] = {
    "Evicted": (
        "the kubelet ended the pod: its node was short of something",
        "that this pod used most of it",
        "external_signal",
        4.5,
    ),
    "DeadlineExceeded": ("activeDeadlineSeconds was over", "that it would have gone on", "watchdog_or_time_limit", 4.5),
    "Preempting": ("the scheduler made room for another pod", "anything about the program", "external_signal", 4.5),
    "NodeLost": ("the node went away", "why it did", "external_signal", 3.0),
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Terminated:
    """One end of a container."""

    where: str
    container: str
    reason: str
    code: int | None
    id: str = ""  # of the container
    last: bool = False  # of the run before this one
    times: str = ""


def read(source: Source) -> Part | None:
    """None when it is about no pod.  Raises Unreadable for a pod in another form than Kubernetes writes."""
    pod = _document(source)
    if pod is not None:
        try:
            return _of_pod(source, pod)
        except (AttributeError, TypeError) as problem:
            why = "was it edited, or cut off? give the whole output of kubectl get pod -o json, or of kubectl describe pod"
            raise Unreadable(f"{source.name}: names a pod, but its fields are not those that Kubernetes writes; {why}") from problem
    if DESCRIBED.search(source.tail) or ("Containers:" in source.tail and "Node:" in source.tail and "Namespace:" in source.tail):
        return _of_text(source)
    return None


def _document(source: Source) -> dict[str, Any] | None:
    """The pod, or the first one of a list."""
    text = source.tail if source.whole else ""
    if "containerStatuses" not in text and not re.search(r'kind"?:\s*"?Pod\b', text):
        return None
    try:
        found = json.loads(text) if text.lstrip().startswith("{") else _yaml(text)
    except (ValueError, RecursionError):
        return None
    if isinstance(found, dict) and isinstance(found.get("items"), list):
        found = next((one for one in found["items"] if isinstance(one, dict) and one.get("status")), None)
    return found if isinstance(found, dict) and isinstance(found.get("status"), dict) else None


def _yaml(text: str) -> Any:
    """Raises ValueError."""
    from ruamel.yaml import YAML
    from ruamel.yaml.error import YAMLError

    try:
        return YAML(typ="safe", pure=True).load(text)
    except YAMLError as problem:
        raise ValueError(str(problem)) from problem


# ------------------------------------------------------------------ json and yaml
def _of_pod(source: Source, pod: dict[str, Any]) -> Part:
    status, meta = pod["status"], pod.get("metadata") or {}
    ends = list(_ends(source, status))
    uid = str(meta.get("uid") or "")
    limits = {one.get("name"): _limit(one) for one in (pod.get("spec") or {}).get("containers") or [] if isinstance(one, dict)}
    part = _joined(source, ends, limits)
    groups = {**part.groups, **({uid: source.name, uid.replace("-", "_"): source.name} if uid else {})}
    reason = str(status.get("reason") or "")
    if reason in POD_REASONS:
        part = _with_reason(part, source.place(reason), reason, str(status.get("message") or ""))
    return dataclasses.replace(part, groups=groups)


def _ends(source: Source, status: dict[str, Any]) -> Iterator[Terminated]:
    for one in [*(status.get("initContainerStatuses") or []), *(status.get("containerStatuses") or [])]:
        for name in ("state", "lastState"):
            ended = (one.get(name) or {}).get("terminated") if isinstance(one, dict) else None
            if isinstance(ended, dict):
                code = ended.get("exitCode")
                yield Terminated(
                    where=source.place(str(ended.get("reason") or "terminated")),
                    container=str(one.get("name") or "?"),
                    reason=str(ended.get("reason") or ""),
                    code=code if isinstance(code, int) else None,
                    id=str(ended.get("containerID") or one.get("containerID") or "").rpartition("//")[2],
                    last=name == "lastState",
                    times=f"{ended.get('startedAt') or '?'} to {ended.get('finishedAt') or '?'}",
                )


def _limit(container: dict[str, Any]) -> str:
    return str(((container.get("resources") or {}).get("limits") or {}).get("memory") or "")


# ------------------------------------------------------------------ describe
def _of_text(source: Source) -> Part:
    ends = []
    heads = list(CONTAINER.finditer(source.tail))
    for match in DESCRIBED.finditer(source.tail):
        fields = {field["name"]: field["value"] for field in FIELD.finditer(match["body"])}
        before = source.tail[: match.start()]
        ids = CONTAINER_ID.findall(before)
        code = fields.get("Exit Code", "")
        where = f"{source.name}:{source.tail_line + before.count(chr(10))}"
        ends.append(
            Terminated(
                where=where,
                container=next((head["name"] for head in reversed(heads) if head.start() < match.start()), ""),
                reason=fields.get("Reason", ""),
                code=int(code) if code.isascii() and code.isdecimal() and len(code) < 10 else None,
                id=ids[-1] if ids else "",
                last="Last State" in match[0],
                times=f"{fields.get('Started', '?')} to {fields.get('Finished', '?')}",
            )
        )
    part = _joined(source, ends, dict(_described_limits(source.tail, heads)))
    for event in list(EVENT.finditer(source.tail))[:MOST_EVENTS]:
        part = _with_event(part, source.place(event[0].strip()), event["reason"], event["rest"].strip())
    if (reason := re.search(r"^Reason:\s+(\w+)", source.tail, re.M)) and reason[1] in POD_REASONS:
        message = re.search(r"^Message:\s+(.*)$", source.tail, re.M)
        part = _with_reason(part, source.place(reason[0]), reason[1], message[1] if message else "")
    return part


def _described_limits(text: str, heads: list[re.Match[str]]) -> Iterator[tuple[str, str]]:
    """By container, each of which has its own; those of a text without names by the empty one."""
    starts = [(head["name"], head.end()) for head in heads] or [("", 0)]
    for (name, start), (_, end) in zip(starts, [*starts[1:], ("", len(text))], strict=True):
        if limit := MEMORY_LIMIT.search(text, start, end):
            yield name, limit["limit"]


# ------------------------------------------------------------------ what it means
def _joined(source: Source, ends: list[Terminated], limits: dict[Any, str]) -> Part:
    """The end that is looked for is the last bad one; with a restart the one before is the death."""
    bad = [one for one in ends if one.code or one.reason == OOM]
    chosen = next((one for one in bad if not one.last), bad[0] if bad else None)
    pieces = [_piece(one, limits.get(one.container, "")) for one in bad] or [_nothing(source)]
    endings = []
    if chosen and chosen.code is not None:
        try:
            endings = [Ending(exit=of_number(chosen.code)[0], where=chosen.where, by=SCHEDULER)]
        except NoStatus:
            endings = []
    killed = chosen is not None and chosen.reason == OOM
    groups = {one.id: one.where for one in bad if one.id}
    return Part(kinds=frozenset(("kubernetes",)), pieces=pieces, endings=endings, groups=groups, group_kills=1 if killed else None)


def _piece(one: Terminated, limit: str) -> Piece:
    run = " (the run before the restart)" if one.last else ""
    read = (
        f"container{f' {one.container}' if one.container else ''}{run}: {one.reason or 'no reason'}, exit code {one.code}, {one.times}"
        + (f", memory limit {limit}" if limit else "")
    )
    if one.reason == OOM and one.code == 137:
        proves = "the container ended by SIGKILL, and its cgroup's counter had an OOM kill: together, the kernel killed for memory"
        not_proves = (
            "that the main process was the largest: with cgroup v2 the kubelet has all processes of a container killed together; the "
            "counter is of its whole life (kubernetes pull request 140718), so an earlier kill of a worker and a later SIGKILL look alike"
        )
        grade = "kernel, by its counter"
    elif one.reason == OOM:
        proves = "some process in the container was killed for memory at some time of its life"
        not_proves = f"that this ended it: the main process ended with {one.code}, not by SIGKILL; a worker's death may have led to it"
        grade = "suspected"
    elif one.code == 137:
        proves = "the container's main process ended by SIGKILL, and the runtime saw no OOM kill in its cgroup"
        not_proves = "that it was not memory: the kernel kills for the whole node too (look for SystemOOM in `kubectl get events`), and a "
        not_proves += "failed liveness probe, an eviction or a node that went away end so as well"
        grade = "unknown"
    else:
        proves, not_proves, grade = f"the container's main process ended with {one.code}", "why", "suspected"
    return Piece(where=one.where, read=read, proves=proves, not_proves=not_proves, grade=grade)


def _nothing(source: Source) -> Piece:
    return Piece(
        where=source.name,
        read="no container of this pod has ended badly",
        proves="Kubernetes knows of no bad end of its current or last run",
        not_proves="that there was none: only one run before the current one is kept",
        grade="suspected",
    )


def _with_reason(part: Part, where: str, reason: str, message: str) -> Part:
    proves, not_proves, cause, weight = POD_REASONS[reason]
    piece = Piece(where=where, read=f"{reason}: {message}"[:200], proves=proves, not_proves=not_proves, grade="another process")
    fact = f"Kubernetes says {reason}: {message or proves}"[:200]
    found = [Finding(cause=cause, rule="scheduler", weight=weight, fact=fact, attempt="remains", file=where)] if cause else []
    return dataclasses.replace(part, pieces=[*part.pieces, piece], findings=[*part.findings, *found])


def _with_event(part: Part, where: str, reason: str, rest: str) -> Part:
    if reason in POD_REASONS:
        return _with_reason(part, where, reason, rest)
    proves = {
        "Unhealthy": "a probe of the container failed",
        "Killing": "the kubelet decided to end the container",
        "SystemOOM": "the whole node ran out of memory, and the kernel killed a process on it",
    }.get(reason, "the scheduler or the node ended the pod")
    piece = Piece(
        where=where, read=f"event {reason}: {rest}"[:200], proves=proves, not_proves="that this was the end you look for: compare times",
        grade="suspected",
    )  # fmt: skip
    return dataclasses.replace(part, pieces=[*part.pieces, piece])
