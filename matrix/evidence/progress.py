"""Steps from what a program prints: its own pattern, tqdm bars, or "step N" in its common spellings.

The counter only grows.  Steps that start over (every epoch) are added to what came before: a start-over is a smaller
number under a larger epoch on the same line, or a number back at the first one seen after a fall of at least three
(ranks that print out of turn fall by less).  Without a pattern the best source wins: "step N", then "batch N" and
"iter N", then a bar, then a form that is learnt from the output, then "epoch N" alone; when a better one shows up, the timeline
begins anew with it.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator

from matrix.evidence.learnt_steps import Seen, StepLearner
from matrix.records import Progress
from matrix.user_pattern import UserPattern

LOOK_BYTES = 16 << 10  # of one huge chunk: the steps in front of it are history
KEEP_BYTES = 4096  # of a line that is not complete yet
LINE_CHARS = 1000  # of a line are searched: binary output has long ones
TIMELINE = 2000
FALL = 3

ANSI = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_])")
CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")
# "max step 500" and "validation step 3" do not count training steps.
OTHERS = "".join(rf"(?<!\b{word} )" for word in ("max", "total", "per", "every", "warmup", "val", "valid", "validation", "eval", "test"))
AFTER = r"""["']?\s*[:=#]?\s*\[?\s*"""
NUMBER = r"(?P<step>\d+)(?!\d|\.\d|e[-+]\d|%)(?:\s*(?:/|of)\s*(?P<total>\d+))?"
EPOCH = re.compile(r"\bepoch\b" + AFTER + r"(\d+)(?!\d|\.\d)", re.I)
RANK = re.compile(r"(?:^|[\[(])\s*(?:local_|global_)?rank[\s:=_#]*(\d+)|^\[[a-z_]+(\d+)\]:", re.I)  # "[rank1]:", "rank 1: ", "[default1]:"
FORMS = (  # best first
    re.compile(r"(?<![\w/-])" + OTHERS + r"(?:(?:global|train|training)[_ /])?step" + AFTER + NUMBER, re.I),
    re.compile(r"(?<![\w/-])" + OTHERS + r"(?:batch|iter|iteration)" + AFTER + NUMBER, re.I),
    re.compile(r"\bepoch:?\s*\[?\d+\]?\s*\[\s*" + NUMBER, re.I),
)
WORDS = ("step", "batch", "iter", "epoch")  # none of the forms can match without one
SCALED = r"\d{1,15}(?:\.\d{1,15})?[kMG]?"
BAR = re.compile(rf"\d{{1,3}}%\|[^|]*\|\s*(?P<step>{SCALED})/(?P<total>{SCALED})\s*\[")
OPEN_BAR = re.compile(r"\b(?P<step>\d{1,15})it \[\d")
SIDE_WORDS = "load|read|fetch|map|token|cach|index|mine|mining|encod|embed|e?val|test|build|extract|check|clean|sav|writ"
SIDE_BAR = re.compile(rf"\b(?:{SIDE_WORDS})", re.I)
BAR_SOURCE, LEARNT_SOURCE, EPOCH_SOURCE = len(FORMS), len(FORMS) + 1, len(FORMS) + 2
MOST_DIGITS = 15  # of a count that a program prints: a longer number is none, and no float holds it exactly
UNITS = {"k": 1_000, "M": 1_000_000, "G": 1_000_000_000}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Sighting:
    """A step number in a line."""

    step: int | None  # None: one more step, the pattern names no number
    total: int | None = None
    rank: int = 0
    epoch: int | None = None
    source: int = 0  # 0 is the best one
    series: str = ""  # bars of different names or lengths count apart


@dataclasses.dataclass(kw_only=True)
class Counter:
    """Steps of one rank and series, growing across start-overs."""

    first: int
    last: int
    epoch: int | None
    total: int | None
    before: int = 0  # steps of the rounds before the last start-over

    @property
    def count(self) -> int:
        return self.before + self.last

    def see(self, seen: Sighting) -> bool:
        """True when it advanced."""
        step = self.last + 1 if seen.step is None else seen.step
        if seen.epoch is not None and self.epoch is not None and seen.epoch < self.epoch:
            return False  # a rank that lags behind
        if step <= self.last:
            if not self._starts_over(step, seen.epoch):
                return False
            self.before += self.total if self.total and self.total >= self.last else self.last + (step == 0)
        self.last, self.total = step, seen.total
        self.epoch = self.epoch if seen.epoch is None else seen.epoch
        return True

    def _starts_over(self, step: int, epoch: int | None) -> bool:
        at_first = step <= self.first
        if epoch is not None and self.epoch is not None and epoch > self.epoch:
            return step < self.last or at_first
        return at_first and self.last - step >= FALL


class ProgressParser:
    """Incremental: feed it chunks of each stream as they come.

    `step_pattern` is a regular expression: its group `step` (else its first group) is the number, and without any group
    each match is one step; `total`, `rank` and `epoch` are optional groups.  Raises BadPattern.
    """

    def __init__(self, step_pattern: str | None = None, finished_pattern: str | None = None, learnt: str = "") -> None:
        """`learnt`: how an earlier run of the same program showed its steps, see `Progress.learnt`."""
        self._pattern = UserPattern(step_pattern) if step_pattern is not None else None
        self._learner = StepLearner(learnt)
        self._finished_pattern = UserPattern(finished_pattern) if finished_pattern is not None else None
        self.finished = False  # the finished line was seen
        self.last_step: int | None = None  # of the rank and series that is furthest
        self.total_steps: int | None = None
        self.last_line = ""
        self.timeline: list[tuple[float, int]] = []  # (seconds, step) of advances, thinned out when it grows long
        self._counters: dict[tuple[int, str], Counter] = {}
        self._source: int | None = None
        self._partial: dict[str, bytes] = {}
        self._every, self._skipped = 1, 0
        self._first_s: float | None = None
        self._last_s: float | None = None
        self._gap_s: float | None = None
        self._unread_s = 0.0  # since the last step

    @property
    def why_no_steps(self) -> str:
        """Reason why the pattern of a step was switched off; "": it was not."""
        return self._pattern.why_off if self._pattern else ""

    @property
    def switched_off(self) -> dict[str, str]:
        """Reasons why patterns of the user were switched off, by what they were for."""
        named = {"steps": self._pattern, "the line that says that it finished": self._finished_pattern}
        return {what: pattern.why_off for what, pattern in named.items() if pattern and pattern.why_off}

    @property
    def ranks(self) -> dict[int, int]:
        """Last step of each rank; a program that prints no ranks is rank 0."""
        found: dict[int, int] = {}
        for (rank, _), counter in sorted(self._counters.items()):
            found[rank] = max(counter.count, found.get(rank, 0))
        return found

    @property
    def source(self) -> int | None:
        """Return which form of step the steps were read from: 0 is the best; None: no step was seen."""
        return self._source

    def feed(self, stream: str, data: bytes, now_s: float) -> None:
        """Take a chunk of one stream's bytes; `now_s` is seconds since the start of the attempt."""
        data = self._partial.get(stream, b"") + data  # whole characters and colour codes again
        cut = max(data.rfind(b"\n"), data.rfind(b"\r")) + 1
        complete, partial = data[:cut], data[cut:]
        if self._finished_pattern and not self.finished:
            self.finished = _finished(self._finished_pattern, complete, partial)
        if len(complete) > LOOK_BYTES:  # without the line that is cut in front: it could show a wrong number
            complete = complete[-LOOK_BYTES:].replace(b"\r", b"\n").partition(b"\n")[2]
        self._partial[stream] = partial = partial[-KEEP_BYTES:]
        lines = _text(complete).split("\n")
        for line in lines:
            self._line(line, now_s, complete=True)
        incomplete = _text(partial)
        self._line(incomplete, now_s, complete=False)
        shown = next((line for line in [incomplete, *reversed(lines)] if line.strip()), "")
        self.last_line = shown.strip()[-300:] or self.last_line

    def paused(self, seconds: float) -> None:
        """Nobody read its output for so long: the gap that this makes is not the program's."""
        self._unread_s += seconds

    def record(self, ran_gap_s: float | None = None) -> Progress:
        """The facts so far, and that one of somebody who saw whether the program ran."""
        if self.last_step is None and not self._pattern and (guessed := self._learner.guess()):
            self._see(_as_sighting(guessed, rank=0), guessed.at_s)
        pattern, finished = self._finished_pattern, self.finished
        if pattern and not finished:
            finished = any(pattern.found_in(_text(partial)) for partial in self._partial.values())
        return Progress(
            last_step=self.last_step,
            total_steps=self.total_steps,
            first_step_s=self._first_s,
            last_step_s=self._last_s,
            longest_gap_s=self._gap_s,
            ran_gap_s=ran_gap_s,
            finished_line=finished if pattern and (finished or not pattern.why_off) else None,
            last_line=self.last_line,
            rank_steps=self.ranks if len(self.ranks) > 1 else {},
            halves=self._halves(),
            learnt=self._learner.pattern if self._source == LEARNT_SOURCE else "",
        )

    def _halves(self) -> tuple[int, int] | None:
        if len(self.timeline) < 2:
            return None
        (first_s, first), (last_s, last) = self.timeline[0], self.timeline[-1]
        middle = max(step for at_s, step in self.timeline if at_s <= (first_s + last_s) / 2)
        return middle - first, last - middle

    def _line(self, line: str, now_s: float, *, complete: bool) -> None:
        """An incomplete line may end within a number, and its "epoch 3" may go on with "step 17"."""
        line = line[:LINE_CHARS]
        if self._pattern:
            for seen in _by_pattern(self._pattern, line, complete):
                self._see(seen, now_s)
            return
        found = _by_form(line, complete)
        if complete and (found is None or found.source > LEARNT_SOURCE) and (self._source is None or self._source >= LEARNT_SOURCE):
            self._learn(line, now_s)
        if found:
            self._see(found, now_s)

    def _learn(self, line: str, now_s: float) -> None:
        """Look for a number that counts steps in a form of the program's own."""
        if not line or SIDE_BAR.match(line.strip()) or not any(map(str.isdigit, line)):
            return
        steps, anew = self._learner.see(line, now_s)
        if anew and self._source == LEARNT_SOURCE:
            self._source = None
        ranked = RANK.search(line)
        rank = (_number(ranked[1] or ranked[2]) if ranked else None) or 0
        for seen in steps:
            self._see(_as_sighting(seen, rank=rank), seen.at_s)

    def _see(self, seen: Sighting, now_s: float) -> None:
        if self._source is None or seen.source < self._source:
            self._source, self._every = seen.source, 1
            self._counters, self.timeline, self.last_step, self.total_steps = {}, [], None, None
            self._first_s = None if seen.source == LEARNT_SOURCE else self._first_s
        elif seen.source > self._source:
            return
        key = (seen.rank, seen.series)
        counter = self._counters.get(key)
        if counter is None:
            first = 1 if seen.step is None else seen.step
            counter = self._counters[key] = Counter(first=first, last=first, epoch=seen.epoch, total=seen.total)
        elif not counter.see(seen):
            return
        self._advanced(counter, now_s)

    def _advanced(self, counter: Counter, now_s: float) -> None:
        if self._last_s is not None:
            self._gap_s = max(self._gap_s or 0.0, now_s - self._last_s - self._unread_s)
        self._unread_s = 0.0
        self._first_s = now_s if self._first_s is None else self._first_s
        self._last_s = now_s
        if self.last_step is not None and counter.count <= self.last_step:
            return
        self.last_step = counter.count
        self.total_steps = None if counter.before else counter.total  # what is printed is then one round's
        self._skipped += 1
        if self._skipped >= self._every:
            self.timeline.append((now_s, self.last_step))
            self._skipped = 0
        if len(self.timeline) > TIMELINE:
            del self.timeline[1::2]
            self._every *= 2


def _text(data: bytes) -> str:
    """Text without colours and control characters, a carriage return taken as the end of a line."""
    return CONTROL.sub("", _without_colours(data))


def _without_colours(data: bytes) -> str:
    text = data.decode("utf-8", "replace").replace("\r", "\n")
    return ANSI.sub("", text) if "\x1b" in text else text


def _finished(pattern: UserPattern, complete: bytes, partial: bytes) -> bool:
    """In complete lines only, where `$` means what it says; a line that is too long to wait for counts as complete."""
    long = partial if len(partial) > KEEP_BYTES else b""
    return pattern.found_in(_without_colours(complete)) or bool(long and pattern.found_in(_without_colours(long)))


def _by_pattern(pattern: UserPattern, line: str, complete: bool) -> Iterator[Sighting]:
    for match in pattern.matches(line):
        if not complete and (match.end() == len(line) or not pattern.groups):
            return
        groups = match.groupdict()
        if not pattern.groups:
            yield Sighting(step=None)
        elif (step := _number(groups["step"] if "step" in groups else match[1])) is not None:
            total, rank, epoch = (_number(groups.get(name)) for name in ("total", "rank", "epoch"))
            yield Sighting(step=step, total=total, rank=rank or 0, epoch=epoch)


def _by_form(line: str, complete: bool) -> Sighting | None:
    bar = (BAR.search(line) if "%|" in line else None) or (OPEN_BAR.search(line) if "it [" in line else None)
    if bar:
        name = line[: bar.start()].strip()
        return None if SIDE_BAR.search(name) else _bar(name, bar)
    lowered = line.lower()
    if not any(word in lowered for word in WORDS):
        return None
    epoch, ranked = EPOCH.search(line), RANK.search(line)
    number = _number(epoch[1]) if epoch else None
    rank = (_number(ranked[1] or ranked[2]) if ranked else None) or 0
    for source, form in enumerate(FORMS):
        match = form.search(line)
        step = _number(match["step"]) if match else None
        if match and step is not None and (complete or match.end() < len(line)):
            return Sighting(step=step, total=_number(match["total"]), epoch=number, source=source, rank=rank)
    return Sighting(step=number, source=EPOCH_SOURCE, rank=rank) if number is not None and complete else None


def _as_sighting(seen: Seen, *, rank: int) -> Sighting:
    return Sighting(step=seen.step, total=seen.total, epoch=seen.epoch, rank=rank, source=LEARNT_SOURCE)


def _bar(name: str, match: re.Match[str]) -> Sighting:
    total = match.groupdict().get("total")
    epoch = EPOCH.search(name)
    return Sighting(
        step=_scaled(match["step"]),
        total=_scaled(total) if total else None,
        epoch=_number(epoch[1]) if epoch else None,
        source=BAR_SOURCE,
        series=f"{re.sub(r'[0-9]+', '#', name)}/{total}",
    )


def _scaled(text: str) -> int:
    """`1.2k` as 1200."""
    return int(float(text.rstrip("kMG.")) * UNITS.get(text[-1], 1))


def _number(text: str | None) -> int | None:
    """The number that `text` is; None where it is none, or has more digits than a count has."""
    words = (text or "").strip()
    is_count = words.isascii() and words.isdecimal() and len(words) <= MOST_DIGITS  # "²" is a digit, and int() refuses it
    return int(words) if is_count else None
