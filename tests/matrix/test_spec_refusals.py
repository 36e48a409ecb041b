"""Everything that a specification can get wrong is refused at its place, with the remedy, and all of it at once."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from matrix.spec import Problem, Spec, SpecError, load_spec

GOOD = """\
name: crash
run:
  command: [python, train.py]
matrix:
  accum: [1, 4, 16]
  mining: ["off", sync]
known_bad: {accum: 16}
"""


def problems(folder: Path, text: str | bytes) -> list[Problem]:
    path = folder / "crash.yaml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(SpecError) as caught:
        load_spec(path)
    return caught.value.problems


def only(folder: Path, text: str | bytes) -> Problem:
    found = problems(folder, text)
    assert len(found) == 1, found
    return found[0]


def changed(old: str, new: str) -> str:
    assert GOOD.count(old) == 1
    return GOOD.replace(old, new)


def test_the_specification_that_these_tests_spoil_is_good(tmp_path: Path) -> None:
    (tmp_path / "crash.yaml").write_text(GOOD)
    assert load_spec(tmp_path / "crash.yaml").known_bad == {"accum": 16, "mining": "off"}


def test_a_problem_is_one_line_with_place_reason_and_remedy(tmp_path: Path) -> None:
    path = tmp_path / "crash.yaml"
    path.write_text(changed("{accum: 16}", "{acum: 16}"))
    with pytest.raises(SpecError) as caught:
        load_spec(path)
    assert str(caught.value) == f"{path}:7:13: known_bad: unknown axis 'acum'; did you mean 'accum'? (axes: accum, mining)"


def test_all_problems_come_at_once_in_the_order_of_the_file(tmp_path: Path) -> None:
    text = """\
name: crash
runs: 3
run:
  command: [python, "{atempt_dir}/x", no]
  progress: 'step (\\d+)'
matrix:
  accum: {values: [1, 4, "4"], ordered: true, colour: red}
known_bad: {acum: 16, accum: 99}
search: {max_runs: many}
limits: {memory: 6G}
"""
    found = [(p.line, p.column, p.where) for p in problems(tmp_path, text)]
    assert found == [
        (2, 1, ""),
        (4, 21, "run.command[1]"),
        (4, 39, "run.command[2]"),
        (5, 13, "run.progress"),
        (7, 26, "matrix.accum.values[2]"),
        (7, 41, "matrix.accum.ordered"),
        (7, 47, "matrix.accum"),
        (8, 13, "known_bad"),
        (8, 30, "known_bad.accum"),
        (9, 20, "search.max_runs"),
        (10, 18, "limits.memory"),
    ]


@pytest.mark.parametrize(
    ("text", "place", "what"),
    [
        ("name: [1, 2", (1, 12), "expected ',' or ']'"),
        ("name: a\n\trun: b", (2, 1), "'\\t'"),
        ("name: a: b", (1, 8), "mapping values are not allowed"),
        ("name: *other", (1, 7), "undefined alias"),
        ("--- {}\n--- {}", (2, 1), "another document"),
        ("- a\n- b", (1, 1), "a specification is a mapping"),
        ("word", (1, 1), "a specification is a mapping"),
        ("", (1, 1), "is empty"),
        ("# only a comment\n", (1, 1), "is empty"),
        ("name: a\nnote: \x01", (None, None), "special characters are not allowed"),
        ("[" * 500, (None, None), "nested too deeply"),
        (b"name: a\nnote: \xff", (2, None), "is not UTF-8"),
    ],
)
def test_what_is_no_yaml_mapping_is_refused_where_it_breaks(
    tmp_path: Path, text: str | bytes, place: tuple[int | None, int | None], what: str
) -> None:
    problem = only(tmp_path, text)
    assert (problem.line, problem.column) == place
    assert what in problem.what


@pytest.mark.parametrize(("make", "what"), [(None, "there is no such file"), ("mkdir", "cannot be read"), ("loop", "cannot be read")])
def test_a_file_that_is_missing_or_unreadable_is_named(tmp_path: Path, make: str | None, what: str) -> None:
    path = tmp_path / "crash.yaml"
    if make == "mkdir":
        path.mkdir()
    if make == "loop":
        path.symlink_to(path)
    with pytest.raises(SpecError, match=f"^{path}: {what}"):
        load_spec(path)


@pytest.mark.parametrize(
    ("old", "new", "place", "what", "hint"),
    [
        ("name: crash", "nmae: crash", (1, 1), "unknown key 'nmae'", "did you mean 'name'?"),
        ("name: crash", "wall: 3m", (1, 1), "unknown key 'wall'", "it belongs to limits"),
        ("name: crash", "name: a/b", (1, 7), "'a/b' cannot name a folder", "letters"),
        ("  command:", "  comand:", (2, 1), "the key 'command' is missing", "add it"),
        ("[python, train.py]", "[]", (3, 12), "is empty", "at least one"),
        ("[python, train.py]", "python 'train.py", (3, 12), "cannot be split into words", "close the quotation"),
        ("[python, train.py]", "[python, [train.py]]", (3, 21), "not a list", ""),
        ("[python, train.py]", '[python, "a{b"]', (3, 21), "unbalanced '{'", "{{ and }}"),
        ("[python, train.py]", '[python, "{prot}"]', (3, 21), "unknown placeholder '{prot}'", "did you mean 'port'?"),
        ("[python, train.py]", "[python, {port}]", (3, 21), "unquoted {port}", 'quote it: "{port}"'),
        ("[python, train.py]", "[x]\n  progress: '(?P<step>'", (4, 13), "is not a regular expression", "quote it"),
        ("[python, train.py]", "[x]\n  progress: 'step (?P<n>.)'", (4, 13), "no group named step", "(?P<step>"),
        ("[python, train.py]", "[x]\n  finished: '*'", (4, 13), "is not a regular expression", ""),
        ("[python, train.py]", "[x]\n  pty: 'true'", (4, 8), "must be true or false, not the word 'true'", ""),
        ("[python, train.py]", "[x]\n  env: {A-B: 1}", (4, 9), "'A-B' cannot be the name", "letters"),
        ("[python, train.py]", "[x]\n  env: {A: '{here}'}", (4, 12), "unknown placeholder", ""),
        ("[python, train.py]", "[x]\n  writes: ['{here}']", (4, 12), "unknown placeholder", ""),
        ("[python, train.py]", "[x]\n  length: {flag: a b}", (4, 18), "'a b' cannot be a flag", "one word"),
        ("[python, train.py]", "[x]\n  length: {flg: --n, flag: --n}", (4, 12), "unknown key 'flg'", "did you mean 'flag'?"),
        ("[1, 4, 16]", "[]", (5, 10), "is empty", "at least one"),
        ("[1, 4, 16]", "16", (5, 10), "must be a mapping", ""),
        ("[1, 4, 16]", "[1, [4], 16]", (5, 14), "not a list", ""),
        ("[1, 4, 16]", "[1, 4, 16, 4.0]", (5, 21), "duplicate value: the number 4.0 is the number 4 again", ""),
        ("[1, 4, 16]", "[1, '1', 16]", (5, 14), "duplicate value: the word '1' is the number 1 again", ""),
        ("[1, 4, 16]", "[1, .inf, 16]", (5, 14), "is not a finite number", "quote it"),
        ("[1, 4, 16]", "{values: [1, 16], flg: --a}", (5, 28), "unknown key 'flg'", "did you mean 'flag'?"),
        ("[1, 4, 16]", "{values: [1, 16], hides: true}", (5, 28), "unknown key 'hides'", "it belongs to one of an axis's choices"),
        ("[1, 4, 16]", "{values: [1, 16], flag: -a, env: A}", (5, 3), "has both flag and env", "at most one of"),
        ("[1, 4, 16]", "{values: [1, 16], env: A=B}", (5, 33), "'A=B' cannot be the name", "letters"),
        ("[1, 4, 16]", "{values: [1, 16, some], ordered: true}", (5, 43), "only numbers", "remove `ordered`"),
        ("[1, 4, 16]", "{flag: --accum}", (5, 3), "has no values", "values"),
        ("[1, 4, 16]", "[1, 4, 16]\n  -x: [1]", (6, 3), "'-x' cannot name an axis", "letters"),
        ("[1, 4, 16]", "[1, 4, 16]\n  a2: {flag: --accum, values: [1]}", (6, 3), "sets --accum, and so does accum", "one of them"),
        ('["off", sync]', "{choices: {a: {ags: [x]}}}", (6, 26), "unknown key 'ags'", "did you mean 'args'?"),
        ('["off", sync]', "{choices: {a: {args: x}, b: {}}, ordered: true}", (6, 53), "only numbers", ""),
        ('["off", sync]', "{choices: {a: {env: {X: '{y}'}}}}", (6, 35), "unknown placeholder", ""),
        ('["off", sync]', "{package: numpy, values: ['1.26']}", (6, 21), "not available yet", ""),
        ('["off", sync]', "{python: true, values: ['3.10']}", (6, 20), "not available yet", ""),
        ("{accum: 16}", "{accum: 17}", (7, 20), "the number 17 is not a value of accum", "values: 1, 4, 16"),
        ("{accum: 16}", "{accum: '16'}", (7, 20), "the word '16' is not a value", "remove the quotes"),
        ("{accum: 16}", "{accum: true}", (7, 20), "true is not a value of accum", "values"),
        ("{accum: 16}", "{mining: snyc}", (7, 21), "the word 'snyc' is not a value", "did you mean 'sync'?"),
        ("{accum: 16}", "16", (7, 12), "must be a mapping", ""),
        ("{accum: 16}", "{}\nknown_good: {acum: 1}", (8, 14), "unknown axis 'acum'", "did you mean 'accum'?"),
        ("{accum: 16}", "{}\nknown_good: {accum: 1}", (8, 13), "the same cell as known_bad", "survives"),
        ("{accum: 16}", "{}\nexclude: [{acum: 1}]", (8, 12), "unknown axis 'acum'", "did you mean 'accum'?"),
        ("{accum: 16}", "{}\nexclude: [{accum: 2}]", (8, 19), "the number 2 is not a value", ""),
        ("{accum: 16}", "{}\nexclude: [{}]", (8, 11), "names no axis", "accum, mining"),
        ("{accum: 16}", "{}\nexclude: {accum: 1}", (8, 10), "must be a list", ""),
        ("{accum: 16}", "{}\ninclude: [{acum: 1}]", (8, 12), "unknown axis 'acum'", "did you mean 'accum'?"),
        ("{accum: 16}", "{}\ninclude: [{accum: '16'}]", (8, 19), "the word '16' is not a value", "remove the quotes"),
        ("{accum: 16}", "{accum: 16}\nexclude: [{accum: 16}]", (7, 12), "is excluded by the rule accum=16", "change the rule"),
        ("known_bad: {accum: 16}", "exclude: [{accum: 16}, {accum: 1}]", (7, 24), "is excluded by the rule accum=1", "change the rule"),
        ("{accum: 16}", "{}\nknown_good: {accum: 4}\nexclude: [{accum: 4}]", (8, 13), "known_good", "change the rule"),
        ("{accum: 16}", "{}\nobserved: [{cell: {acum: 1}, died: true}]", (8, 20), "unknown axis 'acum'", ""),
        ("{accum: 16}", "{}\nobserved: [{cell: {}, dead: true}]", (8, 12), "the key 'died' is missing", ""),
        ("{accum: 16}", "{}\nobserved: [{cell: {}, died: true, step: -1}]", (8, 41), "must be at least 0, not -1", ""),
        ("{accum: 16}", "{}\nsearch: {strategy: adaptve}", (8, 20), "not the word 'adaptve'", "did you mean 'adaptive'?"),
        ("{accum: 16}", "{}\nsearch: {confidence: 95}", (8, 22), "must be less than 1", ""),
        ("{accum: 16}", "{}\nsearch: {max_runs: 1.5}", (8, 20), "must be a whole number, not the number 1.5", ""),
        ("{accum: 16}", "{}\nsearch: {max_run: 5}", (8, 10), "unknown key 'max_run'", "did you mean 'max_runs'?"),
        ("{accum: 16}", "{}\nlimits: {wall: 10 min}", (8, 16), "cannot read '10 min' as a time", "d h m s ms"),
        ("{accum: 16}", "{}\nlimits: {wall: 0}", (8, 16), "longer than 0", ""),
        ("{accum: 16}", "{}\nlimits: {memory: 6 gigs}", (8, 18), "cannot read '6 gigs' as a size", "GiB"),
        ("{accum: 16}", "{}\nlimits: {memory: 6Gi}", (8, 18), "cannot read '6Gi' as a size", "write GiB or GB"),
        ("{accum: 16}", "{}\nlimits: {memory: 0}", (8, 18), "more than 0 bytes", ""),
        ("{accum: 16}", "{}\nlimits: {wal: 3m}", (8, 10), "unknown key 'wal'", "did you mean 'wall'?"),
        ("{accum: 16}", "{}\nexecutor: {kind: slurm}", (8, 18), "'slurm' is not available yet", "local"),
        ("{accum: 16}", "{}\nexecutor: {kind: ray}", (8, 18), "'ray' is not available yet", "local"),
        ("{accum: 16}", "{}\nexecutor: {jobs: 0}", (8, 18), "from 1, or auto", ""),
        ("{accum: 16}", "{}\nevidence: {hok: true}", (8, 12), "unknown key 'hok'", "did you mean 'hook'?"),
    ],
)
def test_one_slip_is_one_problem_at_its_place(tmp_path: Path, old: str, new: str, place: tuple[int, int], what: str, hint: str) -> None:
    found = problems(tmp_path, changed(old, new))
    problem = next(p for p in found if what in p.what)
    assert (problem.line, problem.column) == place
    assert hint in problem.hint
    assert len(found) == (2 if "is missing" in what else 1), found  # a misspelt key is unknown, and the right one is missing


def test_an_empty_matrix_and_an_absent_one_are_refused(tmp_path: Path) -> None:
    assert only(tmp_path, "run: {command: x}\nmatrix: {}\n") == Problem(2, 9, "matrix", "is empty", "name at least one")
    assert only(tmp_path, "run: {command: x}\n").what == "the key 'matrix' is missing"


@pytest.mark.parametrize("key", ["name", "  command", "  accum", "known_bad"])
def test_a_duplicate_key_is_refused_at_its_second_place(tmp_path: Path, key: str) -> None:
    line = next(line for line in GOOD.splitlines(keepends=True) if line.startswith(key))
    problem = only(tmp_path, GOOD.replace(line, line + line))
    first = GOOD.splitlines(keepends=True).index(line) + 1
    assert (problem.line, problem.what) == (first + 1, f"duplicate key '{key.strip()}'")
    assert f"line {first}" in problem.hint


@pytest.mark.parametrize("word", ["on", "off", "yes", "no", "null", "Off", "YES", "~", "Null"])
@pytest.mark.parametrize(
    ("old", "new", "place"),
    [
        ('"off", sync', "{}, sync", (6, 12)),
        ("{accum: 16}", "{{mining: {}}}", (7, 21)),
        ('["off", sync]', "{{choices: {{a: {{args: [{}]}}}}}}", (6, 33)),
        ('["off", sync]', "{{choices: {{a: {{env: {{X: {}}}}}}}}}", (6, 35)),
        ('["off", sync]', "{{choices: {{{}: {{}}}}}}", (6, 22)),
        ("[python, train.py]", "[python, {}]", (3, 21)),
    ],
)
def test_an_unquoted_word_that_yaml_readers_disagree_about_is_refused_with_the_reason(
    tmp_path: Path, word: str, old: str, new: str, place: tuple[int, int]
) -> None:
    problem = next(p for p in problems(tmp_path, changed(old, new.format(word))) if "disagree" in p.what)
    assert problem.what.startswith(f"unquoted {word}: YAML readers disagree")
    assert f'write "{word}"' in problem.hint
    assert (problem.line, problem.column) == place


@pytest.mark.parametrize("word", ["on", "off", "yes", "no", "null"])
@pytest.mark.parametrize("quote", ["'", '"'])
def test_the_same_word_in_quotes_is_a_value(tmp_path: Path, word: str, quote: str) -> None:
    path = tmp_path / "crash.yaml"
    path.write_text(changed('["off", sync]', f"[{quote}{word}{quote}, sync]"))
    assert load_spec(path).axis("mining").values == (word, "sync")


@pytest.mark.parametrize("number", ["007", "1_000", "1:30"])
def test_a_number_that_yaml_readers_disagree_about_is_refused(tmp_path: Path, number: str) -> None:
    assert "disagree which number" in only(tmp_path, changed("[1, 4, 16]", f"[{number}, 16]")).what


def test_a_missing_value_is_refused_instead_of_taken_as_null(tmp_path: Path) -> None:
    problem = only(tmp_path, GOOD + "exclude:\n")
    assert (problem.line, problem.what) == (8, "has no value")


def test_package_and_python_versions_must_be_quoted_everywhere(tmp_path: Path) -> None:
    text = changed('["off", sync]', "{package: numpy, values: [1.26, '2.4']}")
    text = text.replace("{accum: 16}", "{mining: 1.26}\ninclude: [{mining: 3.10}]")
    found = [(p.line, p.what) for p in problems(tmp_path, text) if "unquoted" in p.what]
    assert found == [
        (6, "unquoted 1.26: as a number, 3.10 is 3.1"),
        (8, "unquoted 3.10: as a number, 3.10 is 3.1"),
    ]


def test_aliases_may_repeat_a_value_but_not_hold_themselves(tmp_path: Path) -> None:
    path = tmp_path / "crash.yaml"
    path.write_text(GOOD.replace("{accum: 16}", "&bad {accum: 16}\nobserved: [{cell: *bad, died: true}]"))
    assert load_spec(path).observed[0].cell == {"accum": 16, "mining": "off"}
    assert "contains itself" in problems(tmp_path, changed("[1, 4, 16]", "&a [1, *a]"))[0].what


def test_aliases_of_aliases_do_not_unfold_without_end(tmp_path: Path) -> None:
    lines = ["x0: &x0 [1, 2, 3, 4, 5, 6, 7, 8]"] + [f"x{n}: &x{n} [{', '.join([f'*x{n - 1}'] * 8)}]" for n in range(1, 9)]
    assert any("unfolds without end" in p.what for p in problems(tmp_path, GOOD + "\n".join(lines)))


def test_tags_are_refused(tmp_path: Path) -> None:
    assert only(tmp_path, changed("[1, 4, 16]", "[1, !secret 4, 16]")).what == "unknown tag '!secret'"
    assert "unknown tag" in only(tmp_path, changed("name: crash", "name: !!python/name:os.system crash")).what


def test_a_specification_built_in_python_is_refused_with_the_same_words_but_no_line() -> None:
    with pytest.raises(SpecError) as caught:
        Spec.model_validate({"run": {"command": "x"}, "matrix": {"bs": [1, 2]}, "known_bad": {"bz": 1}, "limits": {"memory": "1G"}})
    assert [(p.line, p.column, p.where, p.what) for p in caught.value.problems] == [
        (None, None, "limits.memory", "cannot read '1G' as a size"),
        (None, None, "known_bad", "unknown axis 'bz'"),
    ]
    assert "known_bad: unknown axis 'bz'; did you mean 'bs'?" in str(caught.value)


def test_a_null_in_python_is_no_value_either() -> None:
    with pytest.raises(SpecError, match="must be a word, a number, true or false, not nothing"):
        Spec.model_validate({"run": {"command": "x"}, "matrix": {"bs": [1, None]}})


def test_the_error_survives_the_way_between_processes() -> None:
    error = SpecError([Problem(1, 2, "run", "is bad", "make it good")], Path("crash.yaml"))
    back = pickle.loads(pickle.dumps(error))
    assert (str(back), back.problems) == ("crash.yaml:1:2: run: is bad; make it good", error.problems)
