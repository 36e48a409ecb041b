"""What a reader must find in the report of each story, in markdown and in HTML."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Callable
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path
from urllib.parse import unquote

import pytest

import reports
from matrix.records import Fix, Ranked, Verdict
from reports.folder import RunFolder
from reports.head import headline
from reports.render_markdown import inline
from tests.reports.conftest import Told
from tests.reports.stories import STORIES, healthy, openmp

Tell = Callable[[str], Told]
VOID = {"meta", "br", "hr", "img", "link", "input"}


class Page(HTMLParser):
    """The elements of a page, in order, and whether every one was closed in the right order."""

    def __init__(self, html: str) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.wrong: list[str] = []
        self._open: list[str] = []
        self.feed(html)
        self.wrong += self._open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        if not self._open or self._open.pop() != tag:
            self.wrong.append(f"/{tag} at {self.getpos()}")

    def all(self, *tags: str) -> list[dict[str, str | None]]:
        return [attributes for tag, attributes in self.elements if tag in tags]

    def values(self, name: str) -> list[str]:
        return [value for _, attributes in self.elements if (value := attributes.get(name)) is not None]


@pytest.mark.parametrize("name", STORIES)
def test_every_story_has_a_report_whose_links_all_lead_somewhere(tell: Tell, name: str) -> None:
    told = tell(name)
    targets = re.findall(r"\]\(([^)]+)\)", told.markdown)
    page = Page(told.html)
    ids = set(page.values("id")) | set(re.findall(r'<a id="([^"]+)">', told.markdown))
    targets += page.values("href") + page.values("xlink:href")
    missing = [
        target for target in targets if not (target[1:] in ids if target.startswith("#") else (told.folder / unquote(target)).is_file())
    ]
    assert missing == []
    assert len(targets) >= (10 if name != "empty" else 2)


@pytest.mark.parametrize("name", STORIES)
def test_the_page_is_one_file_that_is_well_formed_and_lets_one_script_run_by_its_hash(tell: Tell, name: str) -> None:
    page = Page(tell(name).html)
    assert page.wrong == []
    assert page.all("link", "img", "iframe", "object") == []
    assert [script for script in page.all("script") if script != {"type": "application/json"}] == [{}]
    (source,) = re.findall(r"<script>(.*?)</script>", tell(name).html, re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(source.encode()).digest()).decode()
    (policy,) = [meta["content"] for meta in page.all("meta") if meta.get("http-equiv")]
    assert f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}';" in str(policy)
    assert [target for target in page.values("href") + page.values("src") if ":" in target.split("/")[0]] == []
    assert sorted(set(page.values("id"))) == sorted(page.values("id"))


@pytest.mark.parametrize("name", STORIES)
def test_the_page_can_be_read_without_seeing_it(tell: Tell, name: str) -> None:
    page = Page(tell(name).html)
    assert "mathdefault" not in tell(name).html
    levels = [int(tag[1]) for tag, _ in page.elements if re.fullmatch("h[1-6]", tag)]
    assert levels[0] == 1 and levels.count(1) == 1
    assert [pair for pair in pairwise(levels) if pair[1] > pair[0] + 1] == []
    assert [header for header in page.all("th") if header.get("scope") not in {"col", "row"}] == []
    assert len(page.all("caption")) == len(page.all("table"))
    named = [drawing for drawing in page.all("svg") if drawing.get("role") == "img" and drawing["aria-labelledby"] in page.values("id")]
    drawn = {path.stem for path in tell(name).folder.glob("plots/*.svg")}
    assert len(named) == len(page.all("svg")) == len(drawn - {"matrix"})
    assert ({"class": "grid"} in page.all("table")) == ("matrix" in drawn)
    assert page.all("html")[0]["lang"] == "en"


def test_the_first_story_says_cause_grade_probability_fix_and_what_only_hides_it(tell: Tell) -> None:
    for text in (tell("openmp").markdown.replace("*", "").replace("`", ""), re.sub("<[^>]+>", "", tell("openmp").text)):
        assert "The job dies: SIGABRT in 6 of 15 runs, at step 117 to 951." in text
        assert "Two OpenMP runtimes in one process: two copies of an OpenMP runtime are loaded into one process" in text
        assert "It happens only with runtime=two and mining=sync together." in text
        assert "Confirmed, probability 97 %" in text
        assert "runtime=one removes the cause (verified: 5 fresh runs without a death; with 95 % confidence it fails" in text
        assert "Set runtime to one (it was two)" in text
        assert "5 fresh runs with 10,000 steps in all, none died; with 95 % confidence it fails at most once in 3,300 steps." in text
        assert "Not verified: anything after 47 s or step 2,000 of one run" in text
        assert "override=duplicate_ok hides the failure without removing the cause. KMP_DUPLICATE_LIB_OK lets both runtimes go on" in text
        assert "once in 380 steps (95 % interval 200 steps to 830 steps)" in text
        assert "OMP: Error #15: Initializing libiomp5.so, but found libiomp5.so already initialized." in text
        assert "SIGABRT (return code -6, 134 in a shell), ended by itself, after 6.5 s" in text
        assert "One step needs more memory than there is. Memory kept from step to step. Memory was flat at 5.4 GiB" in text
        assert "device=mps was not run: this machine has no MPS device." in text
        assert "Accumulation of more than 16 steps was not run." in text
        assert "core. core_pattern pipes to a program outside this container. (6 attempts: 0001 0002 0006 0007 +2)" in re.sub(
            r"\[(\w+)\]\([^)]*\)", r"\1", text
        )
        assert "Notice: PYTHONUNBUFFERED=1 was set" in text
        assert "without instruments" in text
        assert "python -m matrix replay 20260102-030405 0001-" in text


def test_what_to_do_comes_before_what_it_can_be_and_the_matrix_comes_later(tell: Tell) -> None:
    titles = re.findall(r"^## (.+)$", tell("openmp").markdown, re.MULTILINE)
    assert titles == [
        "Do this now",
        "What it can be",
        "The evidence for each cause",
        "How it died",
        "Failing against surviving",
        "What it is not",
        "The matrix",
        "Interventions",
        "When it dies",
        "Memory",
        "Which configuration to run",
        "All attempts",
        "What was never tested",
        "Does watching change the result",
        "What was not collected",
        "How to read the grades",
        "How the runs were made",
        "See it again",
    ]


def matrix_rows(markdown: str) -> list[list[str]]:
    table = next(block for block in markdown.split("## The matrix")[1].split("\n\n") if block.startswith("| Cell"))
    rows = [[cell.strip() for cell in row.strip("|").split("|")] for row in table.splitlines()]
    return [row[:-1] for row in rows[:1] + rows[2:]]


def test_the_matrix_has_one_row_for_each_cell_known_bad_first_and_changes_in_bold(tell: Tell) -> None:
    assert matrix_rows(tell("openmp").markdown) == [
        ["Cell", "Outcome", "accum", "bs", "mining", "runtime", "override", "shuffle", "probe", "Peak RSS, summed"],
        ["known bad", "died 3/3: SIGABRT at step 117, 118, 464", "16", "32", "sync", "two", "plain", "shuffled", "–", "5.5 GiB"],
        ["fix", "survived 6/6 (2,000 steps each)", "16", "32", "sync", "**one**", "plain", "shuffled", "–", "5.5 GiB"],
        ["–", "survived 1/1 (2,000 steps each)", "16", "32", "**off**", "two", "plain", "shuffled", "–", "4.1 GiB"],
        ["hides", "survived 1/1 (2,000 steps each)", "16", "32", "sync", "two", "**duplicate_ok**", "shuffled", "–", "5.5 GiB"],
        ["–", "died 1/1: SIGABRT at step 472", "**1**", "32", "sync", "two", "plain", "shuffled", "–", "5.5 GiB"],
        ["–", "died 1/1: SIGABRT at step 927", "16", "**8**", "sync", "two", "plain", "shuffled", "–", "5.5 GiB"],
        ["–", "died 1/1: SIGABRT at step 951", "16", "32", "sync", "two", "plain", "**sequential**", "–", "5.5 GiB"],
        ["–", "censored 1/1: our time limit at step 1,210", "16", "32", "sync", "two", "plain", "shuffled", "**one_core=1**", "5.5 GiB"],
    ]


def test_nothing_wrong_is_said_with_a_bound_and_without_a_cause_or_a_script(tell: Tell) -> None:
    told = tell("healthy")
    assert (
        "**The failure was not reproduced** in 8 runs with 16,000 steps in all. With 95 % confidence it fails at most once in 5,300 steps."
        in told.markdown
    )
    assert "There is nothing to change." in told.markdown
    assert "evidence for each cause" not in told.markdown
    assert "How it died" not in told.markdown and "because" not in told.markdown.split("## Do this")[0]
    assert not (told.folder / "launch.sh").exists()


def test_what_is_not_settled_is_not_called_a_cause(tell: Tell) -> None:
    text = tell("inconclusive").markdown
    assert "**The cause is not settled** after 5 runs. First on the list, and no more than suspected:" in text
    assert "No fix was verified. More runs can settle it" in text
    assert "segfault at 18 ip 00007f12" in text
    assert "died in 1 of 3 runs (95 % interval 1 % to 58 %)" in text


def test_an_unknown_cause_is_said_together_with_the_change_that_survives(tmp_path: Path) -> None:
    fix = Fix(kind="avoids", set={"mode": "good"}, cell={"mode": "good"}, advice="")
    unknown = Ranked(cause="unknown", probability=0.8, grade="suspected", summary="")
    verdict = Verdict(name="x", complete=True, status="suspected", status_text="", ranking=[unknown], fix=fix, runs=13)
    folder = RunFolder(path=tmp_path, plan=None, verdict=verdict, attempts=[], problems=[])
    assert inline(headline(folder)) == "**The cause is not known, but it survives with mode=good** (13 runs)."


def test_what_was_ruled_out_for_one_reason_is_one_line_with_a_link_to_its_file(tell: Tell) -> None:
    lines = tell("openmp").markdown.split("## What it is not")[1].split("<a id")[0].strip().splitlines()
    assert lines[0].startswith("- **One step needs more memory than there is. Memory kept from step to step.** Memory was flat at 5.4 GiB")
    assert re.search(r"\. \[(0001-\w+/memory\.csv)\]\(attempts/\1\)$", lines[0])
    assert len(lines) == 3


def test_a_hang_is_called_a_hang_with_what_each_process_was_doing_and_the_second_failure_beside_it(tell: Tell) -> None:
    text = tell("hang").markdown.replace("*", "").replace("`", "")
    assert "What dies: The job hangs: no output, no progress in 3 of" in text
    assert "Fork after threads were started, or with open files in use: a process is forked after native threads have started" in text
    assert "Process 4102 (miner, python): state R, 1 thread, 10.0 s of processor in the last 10 s" in text
    assert "Process 4101 (main, python): state S in futex_do_wait, 9 threads, 0.0 s of processor in the last 10 s" in text
    assert "2 different failures were seen." in text
    assert "Stack of process 4102 (miner), innermost first\n\ntext\nsched_yield\nlibopenblaso: exec_blas" in text
    assert re.search(r"\| B +\| exit1:KeyError +\| An ordinary Python exception \(supported, 99 %\)", text)


def test_memory_at_the_limit_is_drawn_with_the_limit_and_by_process(tell: Tell) -> None:
    told = tell("workers")
    memory = (told.folder / "plots/memory.svg").read_text()
    assert "memory limit 4.0 GiB" in memory and "died: exit 1 (RuntimeError) at step 300 (0001, known bad)" in memory
    assert "survived to step 500" in memory and "time since the start of the run (s)" in memory and "(GiB)" in memory
    assert "worker (8 processes)" in (told.folder / "plots/processes.svg").read_text()
    assert "1 kernel OOM kill in its group" in told.markdown


def test_an_unfinished_matrix_says_so_and_counts_only_what_is_complete(tell: Tell) -> None:
    text = tell("partial").markdown
    assert "> **The matrix is not finished.** This is the state after 3 runs; all of it can change." in text
    assert "attempts/0004-00000000/observation.json is not there: the attempt is running" in text
    assert "died 2/2: SIGABRT at step 11" in text


def test_a_folder_before_its_first_run_has_a_report_too(tell: Tell) -> None:
    assert [path.name for path in tell("empty").written] == ["report.md", "report.html"]
    assert "There is no verdict yet" in tell("empty").markdown


def test_the_same_folder_gives_the_same_report(tmp_path: Path) -> None:
    openmp(tmp_path)
    first = {path: path.read_bytes() for path in reports.write(tmp_path)}
    assert {path: path.read_bytes() for path in reports.write(tmp_path)} == first
    assert [path.name for path in tmp_path.rglob(".*.part")] == []


def test_a_launch_script_of_an_earlier_verdict_does_not_stay_behind(tmp_path: Path) -> None:
    healthy(tmp_path)
    (tmp_path / "launch.sh").write_text("exec old\n")
    (tmp_path / "plots").mkdir()
    (tmp_path / "plots/processes.svg").write_text("<svg/>")
    reports.write(tmp_path)
    assert not (tmp_path / "launch.sh").exists() and not (tmp_path / "plots/processes.svg").exists()


def test_a_folder_that_is_not_there_is_an_error_that_says_what_to_give(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="a report needs a run folder, such as runs/NAME/STAMP"):
        reports.write(tmp_path / "nothing")
