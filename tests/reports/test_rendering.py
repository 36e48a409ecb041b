"""Nothing that a program printed, or that stands in a specification, becomes markup."""

from __future__ import annotations

import html
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from markdown_it.token import Token

import reports
from matrix.records import Failure, Ranked, Verdict
from reports.model import Bullets, Code, Heading, Para, ReportModel, Row, Section, Span, Table, line
from reports.render_html import to_html
from reports.render_markdown import to_markdown
from reports.text import clean
from tests.reports.run_folders import Story, aborted, finished
from tests.reports.test_report import Page

HOSTILE = [
    "<script>alert(1)</script>",
    "</pre></code><img src=x onerror=alert(1)>",
    "| pipes | in | a | cell |",
    "`code` ``` fence",
    "````\n# a heading\n````",
    "**bold** _it_ ~~gone~~ [link](http://example.org) ![x](y)",
    "\x1b[31mred\x1b[0m \x00 \u202e mirrored",
    "&lt;b&gt; &amp; &#60;",
    "# heading",
    "- item",
    "> quoted",
    ">",
    "1. item",
    "---",
    "$x^2$ \\(y\\)",
    "a\\",
    "{{ 7 * 7 }} {% raw %}",
    "_\n=",
]
MARKDOWN = MarkdownIt("commonmark").enable(["table", "strikethrough"])


def model(text: str) -> ReportModel:
    """Every kind of block with the same text in it."""
    blocks = [
        Para(line(text)),
        Bullets([line(text), line("see ", Span(text, "verdict.json"))]),
        Table("caption", ["first", "second"], [Row([line(Span(text, style="strong")), line(Span(text, style="code"))])]),
        Heading("x" + text),
        Code(text, "what it printed"),
    ]
    return ReportModel(
        name="name" + text,
        label="Cause found",
        tone="bad",
        headline=line(text),
        status=(),
        verdict=[("Why", line(text))],
        notices=[line(text)],
        sections=[Section("one", "x" + text, blocks)],
    )


def plain(tokens: list[Token]) -> str:
    """What a reader sees of inline tokens."""
    return "".join(plain(token.children) if token.children else token.content for token in tokens)


def squeezed(text: str) -> str:
    return " ".join(text.split())


def check_markdown(text: str) -> None:
    tokens = MARKDOWN.parse(to_markdown(model(text)))
    kinds = [token.type for token in tokens]
    shown = [squeezed(plain([token])) for token in tokens if token.type == "inline"]
    expected = squeezed(clean(text).replace("\n", " "))
    assert kinds.count("heading_open") == 3 and kinds.count("tr_open") == 2 and kinds.count("td_open") == 2
    assert kinds.count("bullet_list_open") == 2 and kinds.count("list_item_open") == 3 and kinds.count("blockquote_open") == 1
    assert kinds.count("hr") == kinds.count("ordered_list_open") == kinds.count("code_block") == 0
    assert [token.content.strip("\n") for token in tokens if token.type == "fence"] == [clean(text).strip("\n")]
    assert [found.content for token in tokens for found in token.children or [] if found.type == "html_inline"] == ['<a id="one">', "</a>"]
    if expected:
        # headline, key figure, notice, paragraph, bullet, linked bullet, strong cell, code cell
        assert len([found for found in shown if found.endswith(expected)]) >= 8, shown


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_text_is_shown_as_it_is_in_markdown(text: str) -> None:
    check_markdown(text)


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_text_is_shown_as_it_is_in_html(text: str) -> None:
    page = to_html(model(text))
    body = page[page.index("<body>") :]
    assert Page(page).wrong == []
    assert Page(page).all("script") == [{}] and Page(page).all("img", "b") == []
    assert html.escape(clean(text), quote=False) in body.replace("&#34;", '"').replace("&#39;", "'")


@given(st.text(alphabet=st.sampled_from("ab1 \n`|*_[]()<>&;#-+=.!~\\$\"'{}%"), max_size=30))
def test_any_mix_of_marks_keeps_the_structure_of_both(text: str) -> None:
    tokens = MARKDOWN.parse(to_markdown(model(text)))
    kinds = [token.type for token in tokens]
    assert (kinds.count("heading_open"), kinds.count("tr_open"), kinds.count("td_open"), kinds.count("fence")) == (3, 2, 2, 1)
    assert Page(to_html(model(text))).wrong == []


def hostile_story(root: Path) -> Path:
    """A run folder in which every text that a stranger can write is hostile."""
    nasty = "".join(HOSTILE)
    story = Story(root, {"a|`b": "$x$ <img src=x>", "bs": 32})
    died = story.run({}, aborted(), steps=5, wall_s=6, output_tail=HOSTILE, kernel_lines=[nasty], crash_stack=[nasty])
    story.run({"a|`b": nasty}, finished(), steps=9, wall_s=6, trial={"probes": {nasty: nasty}})
    ranking = [
        Ranked(cause=nasty, probability=0.6, grade="suspected", summary=nasty),
        Ranked(cause="unknown", probability=0.4, grade="suspected", summary=""),
    ]
    failure = Failure(id=nasty, signature=nasty, main=True, ranking=ranking, attempts=[died])
    verdict = Verdict(
        name=nasty, complete=True, status="suspected", status_text=nasty, ranking=ranking, failures=[failure], never_tested=HOSTILE
    )
    return story.end(verdict, {"a|`b": ["$x$ <img src=x>", nasty], "bs": [32]}, unavailable={"bs": {nasty: nasty}})


def test_a_whole_run_folder_of_hostile_texts_makes_a_report_without_foreign_markup(tmp_path: Path) -> None:
    written = reports.write(hostile_story(tmp_path))
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert Page(page).wrong == [] and Page(page).all("img", "b", "iframe") == []
    assert [script for script in Page(page).all("script") if script.get("type") != "application/json"] == [{}]
    for path in written:
        text = path.read_text(encoding="utf-8")
        assert "<script>alert" not in text or path.suffix == ".md"
        assert not re.search("[\x00-\x08\x0b-\x1f\x7f\u202e]", text), path
    tokens = MARKDOWN.parse((tmp_path / "report.md").read_text(encoding="utf-8"))
    foreign = [found.content for token in tokens for found in token.children or [] if found.type == "html_inline"]
    assert [content for content in foreign if not re.fullmatch(r'<a id="[a-z-]+">|</a>', content)] == []
    assert [token for token in tokens if token.type == "html_block"] == []
