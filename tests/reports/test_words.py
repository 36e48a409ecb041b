"""The vocabulary of the reports is that of the verdict."""

from __future__ import annotations

import typing

from matrix.records import EndedBy, Fix, Grade, Memory, Purpose, Ranked, Status
from reports.ending import ENDED_BY_US
from reports.words import FIXES, GRADES, ISOLATION, PURPOSES, STATUSES, clause, title


def choices(record: type, field: str) -> set[str]:
    return set(typing.get_args(typing.get_type_hints(record)[field]))


def test_a_cause_has_the_words_of_its_verdict_and_its_name_where_there_are_none() -> None:
    told = Ranked(cause="solar_flare", probability=0.5, grade="suspected", summary="", title="A flare", clause="the sun has one")
    untold = Ranked(cause="solar_flare", probability=0.5, grade="suspected", summary="")
    assert (title(told), clause(told)) == ("A flare", "the sun has one")
    assert (title(untold), clause(untold)) == ("Solar flare", "of solar flare")


def test_every_kind_that_a_record_can_hold_has_words() -> None:
    assert set(GRADES) == set(typing.get_args(Grade))
    assert set(STATUSES) == set(typing.get_args(Status))
    assert set(PURPOSES) == set(typing.get_args(Purpose))
    assert set(ENDED_BY_US) == set(typing.get_args(EndedBy)) - {"itself"}
    assert set(FIXES) == choices(Fix, "kind")
    assert set(ISOLATION) == choices(Memory, "isolation")
