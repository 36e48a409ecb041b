"""Steps in output of a form that nobody has described: a number that counts up on lines that are alike.

Each whole number of a line has a form: the words before the number as they are, other numbers as any number.  A form whose numbers
grow regularly counts steps.  The number before it on the line counts epochs: with a larger one the steps may start over.
"""

from __future__ import annotations

import dataclasses
import re
from collections import Counter

SIGHTINGS, WITH_TOTAL = 3, 2  # of one form before it is believed; fewer when the line says of how many
REGULAR = 0.7  # of the steps between sightings are alike
REPEATED = 0.8  # of the sightings may say what the one before said: several processes print the same line
STALE = 3  # advances of another form, in which the one that was believed did not appear
MOST_FORMS = 300
MOST_LINES = 20_000  # without a form that counts: then there is none
LONGEST_PREFIX = 200
MOST_FIELDS = 5
KEPT = 20  # sightings before a form is believed

DAY = r"\d{4}[-/.]\d\d?[-/.]\d\d?|\d\d?[-/.]\d\d?[-/.]\d{4}|\d\d/\d\d(?= +\d\d?:\d\d:)"
CLOCK = r"\d\d?:\d\d(?::\d\d)?(?:[.,]\d+)?"
STAMP = rf"(?:{DAY})(?:[T ]{CLOCK})?Z?|{CLOCK}"
FIGURE = r"[-+]?(?:\d+\.\d*|\.\d+|\d+)(?:[eE][-+]?\d+)?(?![A-Za-z_])|\b(?:nan|inf)\b"
DATE = re.compile(STAMP)
TOKEN = re.compile(rf"(?P<stamp>{STAMP})|(?P<word>[A-Za-z_]\w*)|(?P<figure>{FIGURE})|(?P<space>\s+)|(?P<sign>.)", re.I)
WHOLE = re.compile(r"(?<![\w.:/%-])(?P<step>\d{1,9})(?:\s*(?:/|of)\s*(?P<total>\d{1,9}))?(?![\w:]|\.\d|\s*%|-\d)")
LAST_WORD = re.compile(r"([A-Za-z]+)\W*$")
NO_STEPS = re.compile(
    r"^(?:time|t|s|ms|sec\w*|elapsed|eta|mem\w*|rss|size|seed|port|pid|id|workers?|threads?|gpus?|cuda|device|version|rank|local|retry|"
    r"attempts?|loss|lr|acc\w*|nodes?|shards?|layers?|params?|files?|cpus?|hosts?|line|exit|code|status|signal|total|max|every|val\w*)$",
    re.I,
)
TRAINS = re.compile(r"\b(?:train\w*|epochs?|iter\w*|batch\w*|steps?|rounds?)\b", re.I)
FIELD = r"(?P<step>\d{1,12})"
TOTAL = r"\s*(?:/|of)\s*(?P<total>\d{1,12})"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Seen:
    """A number that may count steps."""

    at_s: float
    step: int
    total: int | None
    epoch: int | None


@dataclasses.dataclass(kw_only=True)
class Form:
    """What the numbers of one form did."""

    pattern: str
    trains: bool  # its words are of a training loop
    sightings: list[Seen] = dataclasses.field(default_factory=list)  # the first ones
    count: int = 0
    advances: Counter[int] = dataclasses.field(default_factory=Counter)  # how far, how often
    falls: int = 0
    last: Seen | None = None
    first_step: int = 0

    def see(self, seen: Seen) -> bool:
        """True when the number advanced, or began a new round."""
        before, self.last = self.last, seen
        self.count += 1
        if len(self.sightings) < KEPT:
            self.sightings.append(seen)
        if before is None:
            self.first_step = seen.step
            return False
        if seen.step > before.step:
            self.advances[seen.step - before.step] += 1
            return True
        new_round = (seen.epoch or 0) > (before.epoch or 0) or seen.step <= self.first_step
        if seen.step < before.step:
            self.falls += not new_round
        return seen.step < before.step and new_round

    @property
    def counts_steps(self) -> bool:
        advances = sum(self.advances.values())
        has_total = self.last is not None and self.last.total is not None
        if self.falls or not advances or self.count < (WITH_TOTAL if has_total else SIGHTINGS):
            return False
        if has_total:
            return True
        regular = self.advances.most_common(1)[0][1] >= REGULAR * advances
        return regular and advances >= (1 - REPEATED) * (self.count - 1)


class StepLearner:
    """Incremental; `known`: the pattern that an earlier run of the same program taught."""

    def __init__(self, known: str = "") -> None:
        self.pattern = known
        self._known = re.compile(known) if known else None
        self._forms: dict[str, Form] = {}
        self._believed: Form | None = None
        self._others = 0  # advances of other forms since the believed one was seen
        self._lines = 0

    def see(self, line: str, at_s: float) -> tuple[list[Seen], bool]:
        """The steps that this line tells, and whether they begin anew because another form counts them."""
        if self._known and (match := self._known.search(line)):
            self._others = 0
            return [_seen(match, at_s)], False
        if self._believed is None and self._lines > MOST_LINES:
            return [], False
        self._lines += 1
        fields = self._fields(line, at_s)
        advanced = [form for form, seen in fields if form.see(seen)]
        believed = next((seen for form, seen in fields if form is self._believed), None)
        if believed is not None:
            self._others = 0
            return [believed], False
        self._others += bool(advanced)
        found = next((form for form in advanced if form.counts_steps), None)
        is_settled = self._believed is not None or self._known is not None
        if found is None or (is_settled and self._others < STALE):
            return [], False
        anew, self._believed, self._known, self.pattern, self._others = is_settled, found, None, found.pattern, 0
        assert found.last is not None  # for mypy: the form advanced
        return ([*found.sightings] if found.count <= KEPT else [found.last]), anew

    def guess(self) -> Seen | None:
        """The last step of a run that ended before a form could be believed: it says of how many, in the words of a training loop."""
        able = [form for form in self._forms.values() if form.trains and not form.falls and form.last and form.last.total]
        found = max(able, key=lambda form: form.count, default=None)
        if found is None or found.last is None or found.last.step > (found.last.total or 0):
            return None
        self.pattern = found.pattern
        return found.last

    def _fields(self, line: str, at_s: float) -> list[tuple[Form, Seen]]:
        """Each whole number of the line that may be a step, with its form."""
        found = []
        stamps = [stamp.span() for stamp in DATE.finditer(line)]
        for match in list(WHOLE.finditer(line[: LONGEST_PREFIX + 30]))[:MOST_FIELDS]:
            if any(start <= match.start() < end for start, end in stamps):
                continue
            prefix = line[: match.start()]
            word = LAST_WORD.search(prefix)
            if len(prefix) > LONGEST_PREFIX or (word and NO_STEPS.match(word[1])):
                continue
            pattern = _pattern(prefix, match)
            form = self._forms.get(pattern)
            if form is None:
                if len(self._forms) >= MOST_FORMS:
                    continue
                form = self._forms[pattern] = Form(pattern=pattern, trains=bool(TRAINS.search(line)))
            read = re.match(pattern, line)
            if read:
                found.append((form, _seen(read, at_s)))
        return found


def _seen(match: re.Match[str], at_s: float) -> Seen:
    groups = match.groupdict()
    total, epoch = groups.get("total"), groups.get("epoch")
    return Seen(at_s=at_s, step=int(groups["step"]), total=int(total) if total else None, epoch=int(epoch) if epoch else None)


def _pattern(prefix: str, number: re.Match[str]) -> str:
    """The line up to the number as a regular expression; the whole number before it counts epochs."""
    tokens = list(TOKEN.finditer(prefix))
    wholes = [index for index, token in enumerate(tokens) if (token["figure"] or "").isdecimal()]
    parts = [_part(token, is_epoch=index == (wholes[-1] if wholes else -1)) for index, token in enumerate(tokens)]
    return "^" + "".join(_merged(parts)) + FIELD + (TOTAL if number["total"] else r"(?![\w.:%]\d)")


def _part(token: re.Match[str], *, is_epoch: bool) -> str:
    if token["stamp"]:
        return r"[-\d:/.,TZ ]+?"
    if token["word"]:
        return re.sub(r"\d+", r"\\d+", re.escape(token[0]))
    if token["figure"]:
        return r"(?P<epoch>\d{1,12})" if is_epoch else r"[-+\w.]+"
    if token["space"]:
        return r"\s*"
    return re.escape(token[0])


def _merged(parts: list[str]) -> list[str]:
    """Without repeats: a bar of signs grows from line to line."""
    found: list[str] = []
    for part in parts:
        if not found or part != found[-1]:
            found.append(part)
        elif not found[-1].endswith("+") and part != r"\s*":
            found[-1] = f"(?:{part})+"
    return found
