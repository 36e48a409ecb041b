"""The vocabulary of the reports is that of the verdict."""

from __future__ import annotations

import typing

from matrix.records import EndedBy, Fix, Grade, Memory, Purpose, Status
from reports.ending import ENDED_BY_US
from reports.words import CAUSES, FIXES, GRADES, ISOLATION, PURPOSES, STATUSES, cause

VOCABULARY = """
openmp_runtime_conflict fork_unsafe shm_or_disk_full file_changed_under_mmap memory_working_set memory_retention
memory_worker_multiplication memory_allocator_retention resource_limit watchdog_or_time_limit illegal_instruction stack_overflow
native_memory_corruption native_bad_argument native_thread_race numerical_divergence binary_incompatibility external_signal deadlock
cpu_bound_stall library_exit corrupt_input_data device_backend_fault python_exception healthy unknown
"""


def choices(record: type, field: str) -> set[str]:
    return set(typing.get_args(typing.get_type_hints(record)[field]))


def test_every_cause_of_the_vocabulary_has_words_and_no_other() -> None:
    assert set(CAUSES) == set(VOCABULARY.split())
    assert len({words.title for words in CAUSES.values()}) == len({words.clause for words in CAUSES.values()}) == 26


def test_a_clause_can_follow_because_and_a_title_can_stand_alone() -> None:
    assert [name for name, words in CAUSES.items() if words.title[0].islower() or words.title.endswith(".")] == []
    assert [name for name, words in CAUSES.items() if words.clause.endswith(".") or words.clause.split()[0].istitle()] == []


def test_a_cause_of_a_newer_version_is_shown_by_its_name() -> None:
    assert cause("solar_flare").title == "solar_flare"


def test_every_kind_that_a_record_can_hold_has_words() -> None:
    assert set(GRADES) == set(typing.get_args(Grade))
    assert set(STATUSES) == set(typing.get_args(Status))
    assert set(PURPOSES) == set(typing.get_args(Purpose))
    assert set(ENDED_BY_US) == set(typing.get_args(EndedBy)) - {"itself"}
    assert set(FIXES) == choices(Fix, "kind")
    assert set(ISOLATION) == choices(Memory, "isolation")
