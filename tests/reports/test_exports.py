"""The same run for machines: JSON, CSV, JUnit XML, the summary of a CI job; and two runs held against each other."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree

import pytest
from click.testing import CliRunner

import reports
from matrix.__main__ import main
from matrix.records import Ranked, Verdict
from tests.reports.conftest import Told
from tests.reports.run_folders import Story, aborted, finished
from tests.reports.test_rendering import MARKDOWN, hostile_story

Tell = Callable[[str], Told]


def test_json_holds_the_verdict_as_it_is_every_attempt_and_every_configuration(tell: Tell) -> None:
    told = tell("openmp")
    found = json.loads(reports.export(told.folder, "json"))
    assert found["schema"] == "matrix.report/1" and found["problems"] == []
    assert found["verdict"] == json.loads((told.folder / "verdict.json").read_text())
    assert [row["attempt"] for row in found["attempts"]] == sorted(path.name for path in (told.folder / "attempts").iterdir())
    fixed = next(entry for entry in found["configurations"] if entry["role"] == "fix")
    assert (fixed["died"], fixed["survived"], fixed["steps"], len(fixed["attempts"])) == (0, 6, 12000, 6)
    assert fixed["per_run"] == pytest.approx(1 - 0.05 ** (1 / 6)) and fixed["per_step"] == pytest.approx(2.9957 / 12000, rel=1e-3)


def test_csv_has_one_line_for_each_attempt_with_a_column_for_each_axis_and_probe(tell: Tell) -> None:
    told = tell("openmp")
    lines = list(csv.DictReader(io.StringIO(reports.export(told.folder, "csv"))))
    assert len(lines) == len(list((told.folder / "attempts").iterdir()))
    first = lines[0]
    assert (first["outcome"], first["how"], first["step"], first["axis:runtime"]) == ("died", "SIGABRT", "117", "two")
    assert [line["probe:one_core"] for line in lines if line["probe:one_core"]] == ["1"]


def test_no_cell_of_the_csv_is_a_formula_that_a_spreadsheet_would_run(tmp_path: Path) -> None:
    story = Story(tmp_path, {"=x": "=1+1", "lr": "-0.5", "tag": "@SUM(A1)"})
    story.run({}, aborted(), steps=5, wall_s=2)
    header, line = csv.reader(io.StringIO(reports.export(tmp_path, "csv")))
    assert [text for text in [*header, *line] if text[:1] in {"=", "+", "@"}] == []
    assert dict(zip(header, line, strict=True))["axis:lr"] == "-0.5"


def test_junit_has_a_case_for_each_configuration_that_failed_where_a_run_died(tell: Tell) -> None:
    (suite,) = ElementTree.fromstring(reports.export(tell("openmp").folder, "junit"))
    failures = [case for case in suite if case.find("failure") is not None]
    assert (suite.get("tests"), suite.get("failures"), suite.get("skipped")) == ("8", "4", "1")
    assert len(suite.findall("testcase")) == 8 and len(failures) == 4
    message = failures[0].find("failure")
    assert message is not None and message.get("message") == "died 3/3: SIGABRT at step 117, 118, 464"
    assert "OMP: Error #15" in (message.text or "")


def test_the_summary_for_ci_says_the_five_lines_and_has_no_link(tell: Tell) -> None:
    text = reports.export(tell("openmp").folder, "summary")
    lines = re.findall(r"^- \*\*([A-Z][a-z ]+):\*\*", text, re.MULTILINE)
    assert lines == ["What dies", "Why", "How sure", "The fix", "Ruled out"]
    assert "](" not in text and "Accumulation of more than 16 steps was not run." in text
    assert "| **fix: runtime=one**" in text


def test_hostile_texts_stay_texts_in_every_form(tmp_path: Path) -> None:
    hostile_story(tmp_path)
    assert json.loads(reports.export(tmp_path, "json"))["attempts"]
    assert ElementTree.fromstring(reports.export(tmp_path, "junit")).find(".//failure") is not None
    assert len(list(csv.reader(io.StringIO(reports.export(tmp_path, "csv"))))) == 3
    kinds = [token.type for token in MARKDOWN.parse(reports.export(tmp_path, "summary"))]
    assert "html_block" not in kinds and "fence" not in kinds


def run_of(root: Path, died: int, survived: int) -> Path:
    story = Story(root, {"bs": 32})
    for _ in range(died):
        story.run({}, aborted(), steps=40, wall_s=2)
    for _ in range(survived):
        story.run({}, finished(), steps=200, wall_s=2)
    ranking = [Ranked(cause="unknown", probability=1.0, grade="suspected", summary="")]
    return story.end(Verdict(name="before_after", complete=True, status="inconclusive", status_text="", ranking=ranking), {"bs": [32]})


@pytest.mark.parametrize(("before", "after", "said"), [
    ((8, 0), (0, 8), "died in 8 of 8 runs before and in 0 of 8 runs after**: it dies less often"),
    ((0, 8), (8, 0), "died in 0 of 8 runs before and in 8 of 8 runs after**: it dies more often"),
    ((1, 1), (0, 2), "died in 1 of 2 runs before and in 0 of 2 runs after**: the difference can be chance"),
])  # fmt: skip
def test_a_comparison_says_whether_the_difference_can_be_chance(
    tmp_path: Path, before: tuple[int, int], after: tuple[int, int], said: str
) -> None:
    reports.write(run_of(tmp_path / "one", *before))
    written = reports.compare(tmp_path / "one", run_of(tmp_path / "two", *after))
    assert [path.name for path in written] == ["compare.md", "compare.html"]
    assert said in written[0].read_text() and "(../one/report.html)" in written[0].read_text()
    (pair,) = json.loads(reports.compare_json(tmp_path / "one", tmp_path / "two"))["configurations"]
    assert (pair["before"]["died"], pair["after"]["died"]) == (before[0], after[0])


def test_the_command_prints_a_form_and_refuses_what_makes_no_sense(tmp_path: Path) -> None:
    run_of(tmp_path / "one", 1, 0)
    ask = CliRunner().invoke
    assert json.loads(ask(main, ["report", str(tmp_path / "one"), "--json"]).stdout)["name"] == "before_after"
    assert not (tmp_path / "one/report.html").exists()
    refused = {
        ("report", "--compare", "one"): "--compare takes two runs",
        ("report", "one", "two"): "give one RUN, or two with --compare",
        ("report", "one", "two", "--compare", "--csv"): "it has no --csv",
        ("report", str(tmp_path / "none")): "is not a run folder",
    }
    for words, said in refused.items():
        result = ask(main, list(words))
        assert result.exit_code == 2 and said in result.output, words


def test_an_empty_folder_has_every_form_too(tell: Tell) -> None:
    for form in ("json", "csv", "junit", "summary"):
        assert reports.export(tell("empty").folder, form)
