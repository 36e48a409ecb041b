"""Versions: known-bad combinations, the interpreter's own age, the C library."""

from __future__ import annotations

import datetime
from collections.abc import Iterator

from matrix.doctor.finding import Check, NotSeen, Seen, check
from matrix.doctor.known_bad import ROWS, Row
from matrix.doctor.place import Place

# Of Python: the month after which there are no fixes any more.
ENDS = {
    (3, 8): (2024, 10),
    (3, 9): (2025, 10),
    (3, 10): (2026, 10),
    (3, 11): (2027, 10),
    (3, 12): (2028, 10),
    (3, 13): (2029, 10),
    (3, 14): (2030, 10),
}
REPORTED = "that your program meets it; it is known from reports, for these versions"
TRIED = "nothing, where it is imported; tried with pandas 2.1.4, scikit-learn 1.4.1 and scipy 1.12.0 beside numpy 2.2.6"
LOST_WAKEUP = ((2, 27), (2, 40))


def _of_row(row: Row) -> Check:
    names = " and ".join(f"{name} {versions}".strip() for name, versions in row.packages.items())

    def look(place: Place) -> Iterator[Seen]:
        if row.holds(place.python, place.system):
            found = [place.python.installed(name) for name in row.packages]
            yield Seen(severity=row.severity, summary=" with ".join(f"{each.name} {each.version}" for each in found if each))

    return Check(
        id=row.id,
        group="versions",
        fine=f"not {names} together" if len(row.packages) > 1 else f"not {names}",
        causes=row.causes,
        unproven=TRIED if row.severity == "error" else REPORTED,
        by_hand=f"pip list | grep -iE '{'|'.join(row.packages)}'",
        remedy=row.remedy,
        references=row.references,
        look=look,
    )


KNOWN_BAD = tuple(map(_of_row, ROWS))


@check(
    id="static-tls",
    group="versions",
    fine="few enough libraries with static thread-local storage",
    causes='ImportError "libgomp…: cannot allocate memory in static TLS block", depending on the order of imports',
    unproven="that your order of imports meets it",
    by_hand="import the packages in the job's order",
    remedy="import the package named in the message first, or LD_PRELOAD its libgomp",
    references=(
        "https://github.com/scikit-learn/scikit-learn/issues/17231",
        "https://github.com/dmlc/xgboost/issues/8488",
        "https://github.com/lightgbm-org/LightGBM/issues/6509",
    ),
)
def static_tls(place: Place) -> Iterator[Seen]:
    if place.python.machine == "aarch64" and place.system == "linux" and len(found := place.of_family("openmp-gnu")) > 1:
        owners = ", ".join(sorted(each.owner for each in found))
        yield Seen(severity="warning", summary=f"{len(found)} copies of libgomp on aarch64 ({owners})")


@check(
    id="python-end-of-life",
    group="versions",
    fine="this Python still gets fixes",
    causes="bugs of the interpreter are not fixed any more, and new wheels are not built for it",
    unproven="that it has to do with any crash",
    by_hand="python --version; https://devguide.python.org/versions/",
    remedy="a newer Python",
    references=("https://devguide.python.org/versions/",),
)
def end_of_life(place: Place) -> Iterator[Seen]:
    version = place.python.version[:2]
    if version < min(ENDS):
        yield Seen(severity="warning", summary=f"Python {version[0]}.{version[1]} gets no fixes since {ENDS[min(ENDS)][0]} or longer")
        return
    if version not in ENDS:
        raise NotSeen(f"when Python {version[0]}.{version[1]} ends is not in the table")
    year, month = ENDS[version]
    if place.today >= datetime.date(year + month // 12, month % 12 + 1, 1):
        yield Seen(severity="info", summary=f"Python {version[0]}.{version[1]} gets no fixes since {year}-{month:02}")


@check(
    id="glibc-lost-wakeup",
    group="versions",
    fine="a C library without the lost wake-up of condition variables",
    causes="a thread that was signalled sleeps for ever: a rare hang in native thread pools, all threads in futex, no CPU use",
    unproven="that this build has it: distributions fix it without changing the version; it needs days of heavy use to be met",
    by_hand="ldd --version; the distribution's changelog for bug 25847",
    remedy="the distribution's updates; suspect it only for hangs that nothing else explains",
    references=("https://sourceware.org/bugzilla/show_bug.cgi?id=25847", "https://github.com/MinaProtocol/mina/pull/18654"),
)
def lost_wakeup(place: Place) -> Iterator[Seen]:
    glibc = place.python.glibc
    if glibc and LOST_WAKEUP[0] <= glibc <= LOST_WAKEUP[1]:
        yield Seen(severity="info", summary=f"glibc {glibc[0]}.{glibc[1]} may lose a wake-up, unless the distribution fixed it (2.41 did)")
