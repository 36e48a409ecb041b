"""What a good specification comes to: axes, cells, and how the program is started for one of them."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import pytest

from matrix.spec import Launch, Spec, SpecError, load_spec, schema
from matrix.spec.axes import Axis

ROOT = Path(__file__).parents[2]
HOLDERS = {"attempt_dir": "/runs/1", "attempt": "0001", "port": "4711", "cpu_list": "0,1", "gpu": "0"}

FULL = """\
name: crash_isolation
run:
  command: [python, -m, trainer, train, --pairs, data/pairs.npz, --out, "{attempt_dir}/out"]
  env: {WANDB_MODE: offline, PORT: "{port}", WORKERS: 2}
  cwd: sub
  length: {flag: --max-steps}
  progress: 'step (?P<step>\\d+)'
  finished: 'training finished'
  writes: ["cache/{attempt}"]
  pty: false
  environment: {base: freeze}
matrix:
  accum: {values: [1, 4, 16, 32], ordered: true}
  bs: [4, 8, 16, 32]
  threads: {values: [1, 2], env: [OMP_NUM_THREADS, MKL_NUM_THREADS]}
  mining: {flag: --mining, values: ["off", sync, thread, process]}
  omp: {choices: {plain: {}, duplicate_ok: {env: {KMP_DUPLICATE_LIB_OK: "TRUE"}, hides: true}}}
  shuffle: {choices: {shuffled: {args: [--shuffle]}, sequential: {args: [--no-shuffle]}}}
exclude: [{mining: process, shuffle: sequential}]
include: [{accum: 64, bs: 8}]
known_bad: {accum: 16, bs: 32, threads: 2, mining: sync, omp: plain, shuffle: shuffled}
known_good: {mining: "off"}
observed: [{cell: {accum: 4}, died: true, step: 117, log: old/run.log}]
search: {strategy: adaptive, confidence: 0.95, max_runs: 60, max_wall: 30m, seed: 0}
limits: {wall: 10m, startup: 5m, idle: 60s, stall: 10m, memory: 6GiB, cpus: 2, nofile: 1024, stack: 8MiB, core: 0, pids: 99, cpu_time: 1h,
         address_space: 8GiB, data: 4GiB, file_size: 2GiB, processes: 500}
executor: {kind: local, jobs: auto}
evidence: {hook: false}
"""
BAD = {"accum": 16, "bs": 32, "threads": 2, "mining": "sync", "omp": "plain", "shuffle": "shuffled"}


def load(folder: Path, text: str) -> Spec:
    path = folder / "crash.yaml"
    path.write_text(text)
    return load_spec(path)


def built(matrix: dict[str, Any], **more: Any) -> Spec:
    return Spec.model_validate({"run": {"command": "prog"}, "matrix": matrix, **more})


def argv(spec: Spec, **changes: Any) -> list[str]:
    return spec.launch({**spec.known_bad, **changes}, max_steps=None, placeholders=HOLDERS).argv


# ------------------------------------------------------------------ the file as a whole
def test_every_key_of_the_file_arrives(tmp_path: Path) -> None:
    spec = load(tmp_path, FULL)
    assert spec.name == "crash_isolation"
    assert spec.run.command == ["python", "-m", "trainer", "train", "--pairs", "data/pairs.npz", "--out", "{attempt_dir}/out"]
    assert spec.run.env == {"WANDB_MODE": "offline", "PORT": "{port}", "WORKERS": "2"}
    assert (spec.run.cwd, spec.run.writes, spec.run.pty, spec.run.unbuffered) == ("sub", ["cache/{attempt}"], False, True)
    assert (spec.run.progress, spec.run.finished) == (r"step (?P<step>\d+)", "training finished")
    assert spec.run.length is not None and spec.run.length.flag == "--max-steps"
    assert spec.search.model_dump() == {
        "strategy": "adaptive",
        "confidence": 0.95,
        "max_runs": 60,
        "max_wall_s": 1800.0,
        "seed": 0,
        "repeats": 3,
    }
    assert spec.limits.model_dump() == {
        "wall_s": 600.0,
        "startup_s": 300.0,
        "idle_s": 60.0,
        "stall_s": 600.0,
        "memory_bytes": 6 * 1024**3,
        "cpus": 2,
        "nofile": 1024,
        "stack_bytes": 8 * 1024**2,
        "core_bytes": 0,
        "pids": 99,
        "cpu_time_s": 3600.0,
        "address_space_bytes": 8 * 1024**3,
        "data_bytes": 4 * 1024**3,
        "file_size_bytes": 2 * 1024**3,
        "processes": 500,
    }
    assert (spec.executor.kind, spec.executor.jobs, spec.evidence.hook) == ("local", "auto", False)
    assert (spec.source, spec.base_dir) == (tmp_path / "crash.yaml", tmp_path)


def test_axes_keep_names_kinds_order_and_what_hides(tmp_path: Path) -> None:
    axes = [(axis.name, axis.values, axis.ordered, axis.hides, axis.kind) for axis in load(tmp_path, FULL).axes]
    assert axes == [
        ("accum", (1, 4, 16, 32, 64), True, (), "flag"),
        ("bs", (4, 8, 16, 32), True, (), "flag"),
        ("threads", (1, 2), True, (), "env"),
        ("mining", ("off", "sync", "thread", "process"), False, (), "flag"),
        ("omp", ("plain", "duplicate_ok"), False, ("duplicate_ok",), "choices"),
        ("shuffle", ("shuffled", "sequential"), False, (), "choices"),
    ]


def test_cells_are_completed_from_known_bad(tmp_path: Path) -> None:
    spec = load(tmp_path, FULL)
    assert spec.known_bad == BAD
    assert spec.known_good == {**BAD, "mining": "off"}
    assert spec.included == [{**BAD, "accum": 64, "bs": 8}]
    seen = spec.observed[0]
    assert (seen.cell, seen.died, seen.step, seen.log) == ({**BAD, "accum": 4}, True, 117, "old/run.log")


def test_a_file_of_two_keys_is_enough(tmp_path: Path) -> None:
    spec = load(tmp_path, "run: {command: python train.py --name 'a b'}\nmatrix: {bs: [8, 4]}\n")
    assert spec.run.command == ["python", "train.py", "--name", "a b"]
    assert (spec.name, spec.known_bad, spec.known_good, spec.observed) == ("crash", {"bs": 8}, None, [])
    assert (spec.search.strategy, spec.search.max_wall_s, spec.limits.wall_s, spec.limits.memory_bytes) == ("adaptive", None, None, None)


def test_a_file_whose_name_cannot_name_a_folder_still_has_a_name(tmp_path: Path) -> None:
    (tmp_path / "my run.yaml").write_text("run: {command: x}\nmatrix: {bs: [8, 4]}\n")
    assert load_spec(str(tmp_path / "my run.yaml")).name == "matrix"


def test_json_is_a_specification_too(tmp_path: Path) -> None:
    data = {"run": {"command": ["python", "x.py"]}, "matrix": {"lr": {"values": [0.1, 50.0], "ordered": True}, "mode": ["off", "on"]}}
    for indent in (None, 1):
        spec = load(tmp_path, json.dumps(data, indent=indent))
        assert [axis.values for axis in spec.axes] == [(0.1, 50.0), ("off", "on")]


def test_a_dumped_specification_is_the_same_specification(tmp_path: Path) -> None:
    spec = load(tmp_path, FULL)
    dumped = spec.model_dump(by_alias=True)
    again = Spec.model_validate(dumped)
    assert again.model_dump(by_alias=True) == dumped
    assert (again.axes, list(again.cells())) == (spec.axes, list(spec.cells()))
    assert Spec.model_validate_json(spec.model_dump_json(by_alias=True)).model_dump(by_alias=True) == dumped


def test_a_specification_built_in_python_equals_the_one_from_the_file(tmp_path: Path) -> None:
    text = "name: n\nrun: {command: [x, 1]}\nmatrix: {bs: [4, 8], omp: {choices: {a: {}, b: {hides: true}}}}\nlimits: {wall: 1m}\n"
    data = {
        "name": "n",
        "run": {"command": ["x", 1]},
        "matrix": {"bs": [4, 8], "omp": {"choices": {"a": {}, "b": {"hides": True}}}},
        "limits": {"wall": "1m"},
    }
    assert load(tmp_path, text).model_dump() == Spec.model_validate(data).model_dump()
    assert Spec.model_validate(data).source is None
    assert Spec.model_validate(data).base_dir == Path.cwd()


# ------------------------------------------------------------------ axes
def test_numbers_are_ordered_by_themselves_and_ascend() -> None:
    spec = built({"bs": [32, 8, 2.5], "seed": {"values": [2, 0, 1], "ordered": False}, "mixed": [1, "auto"], "flag": [True, False]})
    assert [(axis.ordered, axis.values) for axis in spec.axes] == [
        (True, (2.5, 8, 32)),
        (False, (2, 0, 1)),
        (False, (1, "auto")),
        (False, (True, False)),
    ]
    assert spec.known_bad == {"bs": 32, "seed": 2, "mixed": 1, "flag": True}  # the first as written


def test_a_value_that_include_adds_joins_its_axis_in_order() -> None:
    spec = built({"bs": [8, 32], "mode": ["a", "b"]}, include=[{"bs": 16}, {"mode": "c"}, {"bs": 64, "mode": "a"}])
    assert [axis.values for axis in spec.axes] == [(8, 16, 32, 64), ("a", "b", "c")]
    assert spec.included == [{"bs": 16, "mode": "a"}, {"bs": 8, "mode": "c"}, {"bs": 64, "mode": "a"}]


def test_cells_come_back_in_the_axes_own_values() -> None:
    spec = built({"walltime": [0.0, 2.0]}, known_bad={"walltime": 2}, exclude=[{"walltime": 0}])
    assert [repr(value) for value in (spec.known_bad["walltime"], *next(spec.cells()).values())] == ["2.0", "2.0"]


def test_one_environment_variable_needs_no_list() -> None:
    spec = built({"threads": {"values": [1, 2], "env": "OMP_NUM_THREADS"}})
    assert spec.launch({"threads": 2}, max_steps=None, placeholders={}) == Launch(["prog"], {"OMP_NUM_THREADS": "2"})


def test_an_axis_can_be_made_by_hand() -> None:
    axis = Axis("bs", (4, 8), True)
    assert (axis.hides, axis.kind, axis.match(8.0), axis.match("8"), axis.match(True)) == ((), "flag", 8, None, None)


# ------------------------------------------------------------------ cells
def test_cells_are_the_product_without_the_excluded_and_with_the_included() -> None:
    spec = built(
        {"a": [1, 2, 3], "b": ["x", "y"]},
        exclude=[{"a": 3}, {"a": 2, "b": "y"}],
        include=[{"a": 3, "b": "y"}],
    )
    assert list(spec.cells()) == [{"a": 1, "b": "x"}, {"a": 1, "b": "y"}, {"a": 2, "b": "x"}, {"a": 3, "b": "y"}]
    assert spec.size == 4
    assert [spec.allowed({"a": a, "b": b}) for a, b in itertools.product((1, 2, 3), "xy")] == [True, True, True, False, False, True]


def test_the_size_is_counted_without_listing_the_cells() -> None:
    matrix = {f"a{n}": [1, 2, 3, 4, 5, 6, 7, 8] for n in range(12)}
    spec = built(matrix, exclude=[{"a0": 8}, {"a1": 8, "a2": 8}])
    assert spec.size == 7 * (64 - 1) * 8**9
    assert next(spec.cells()) == dict.fromkeys(matrix, 1)


def test_the_size_is_the_number_of_cells(tmp_path: Path) -> None:
    spec = load(tmp_path, FULL)
    cells = list(spec.cells())
    assert spec.size == len(cells) == len({tuple(cell.items()) for cell in cells}) == 5 * 4 * 2 * (4 * 2 - 1) * 2


def test_the_same_included_cell_twice_counts_once() -> None:
    spec = built({"a": [1, 2], "b": [1, 2]}, exclude=[{"a": 2}], include=[{"a": 2}, {"a": 2, "b": 1}])
    assert (spec.size, len(list(spec.cells()))) == (3, 3)


def test_a_cell_that_include_names_may_be_the_known_bad_one_in_spite_of_a_rule() -> None:
    spec = built({"a": [1, 2]}, exclude=[{"a": 2}], known_bad={"a": 2}, include=[{"a": 2}])
    assert spec.allowed(spec.known_bad)


# ------------------------------------------------------------------ starting the program
def test_launch_adds_flags_choices_length_and_environment(tmp_path: Path) -> None:
    spec = load(tmp_path, FULL)
    cell = {**BAD, "omp": "duplicate_ok", "shuffle": "sequential"}
    command = ["python", "-m", "trainer", "train", "--pairs", "data/pairs.npz", "--out", "/runs/1/out"]
    assert spec.launch(cell, max_steps=100, placeholders=HOLDERS) == Launch(
        argv=[*command, "--accum", "16", "--bs", "32", "--mining", "sync", "--no-shuffle", "--max-steps", "100"],
        env={
            "WANDB_MODE": "offline",
            "PORT": "4711",
            "WORKERS": "2",
            "OMP_NUM_THREADS": "2",
            "MKL_NUM_THREADS": "2",
            "KMP_DUPLICATE_LIB_OK": "TRUE",
        },
    )
    assert spec.launch(cell, max_steps=None, placeholders=HOLDERS).argv[-1] == "--no-shuffle"


def test_no_length_is_passed_on_where_the_specification_does_not_say_how() -> None:
    assert built({"bs": [1]}).launch({"bs": 1}, max_steps=5, placeholders={}) == Launch(["prog", "--bs", "1"], {})


@pytest.mark.parametrize(
    ("written", "passed"),
    [
        ("1e-3", "1e-3"),
        ("5E-5", "5E-5"),
        ("2.0", "2.0"),
        ("0.10", "0.10"),
        (".5", ".5"),
        ("32", "32"),
        ("-1", "-1"),
        ("true", "true"),
        ("False", "false"),
        ("'1e-3'", "1e-3"),
        ("'TRUE'", "TRUE"),
        ("2024-01-01", "2024-01-01"),
        ('"a b"', "a b"),
        ("'{\"x\": 1}'", '{"x": 1}'),
        ("'{attempt_dir}'", "{attempt_dir}"),
    ],
)
def test_a_value_is_passed_on_as_it_was_written(tmp_path: Path, written: str, passed: str) -> None:
    spec = load(tmp_path, f"run: {{command: prog}}\nmatrix: {{x: [{written}]}}\n")
    assert argv(spec) == ["prog", "--x", passed]
    read_back = json.loads(json.dumps(spec.known_bad))  # as a cell comes from an attempt's record
    assert argv(spec, **read_back) == ["prog", "--x", passed]


def test_a_flag_that_ends_in_an_equals_sign_joins_its_value() -> None:
    spec = built({"bs": {"flag": "trainer.bs=", "values": [4]}}, run={"command": "prog", "length": {"flag": "--steps="}})
    assert spec.launch({"bs": 4}, max_steps=9, placeholders={}).argv == ["prog", "trainer.bs=4", "--steps=9"]


def test_placeholders_and_braces_work_in_command_environment_and_choices() -> None:
    run = {"command": ["prog", "{{x}}", "{port}{port}", "{{{attempt}}}"], "env": {"CPUS": "{cpu_list}"}}
    spec = built({"d": {"choices": {"a": {"args": ["--gpu", "{gpu}"], "env": {"DIR": "{attempt_dir}"}}}}}, run=run)
    assert spec.launch({"d": "a"}, max_steps=None, placeholders=HOLDERS) == Launch(
        ["prog", "{x}", "47114711", "{0001}", "--gpu", "0"], {"CPUS": "0,1", "DIR": "/runs/1"}
    )
    assert spec.placeholders == {"port", "attempt", "cpu_list", "gpu", "attempt_dir"}


def test_axes_come_after_the_environment_of_the_run() -> None:
    spec = built({"t": {"values": [1], "env": "OMP_NUM_THREADS"}}, run={"command": "prog", "env": {"OMP_NUM_THREADS": 8}})
    assert spec.launch({"t": 1}, max_steps=None, placeholders={}).env == {"OMP_NUM_THREADS": "1"}


@pytest.mark.parametrize(
    ("cell", "message"),
    [
        ({"a": 1}, "names every axis"),
        ({"a": 1, "b": "x", "c": 1}, "names every axis"),
        ({"a": 3, "b": "x"}, "3 is not a value of a; values: 1, 2"),
        ({"a": "1", "b": "x"}, "'1' is not a value of a"),
    ],
)
def test_only_complete_cells_of_the_grid_can_be_started(cell: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        built({"a": [1, 2], "b": ["x"]}).launch(cell, max_steps=None, placeholders=HOLDERS)


def test_a_placeholder_without_a_value_is_an_error_and_not_an_empty_word() -> None:
    spec = built({"a": [1]}, run={"command": ["prog", "{gpu}"]})
    with pytest.raises(ValueError, match=r"uses \{gpu\}, which has no value"):
        spec.launch({"a": 1}, max_steps=None, placeholders={"port": "1"})


# ------------------------------------------------------------------ the JSON Schema
def errors(data: object) -> list[str]:
    jsonschema = pytest.importorskip("jsonschema")
    validator = jsonschema.Draft202012Validator(schema())
    return [error.message for error in validator.iter_errors(data)]


def as_data(text: str) -> Any:
    from matrix.spec.document import parse_document

    return parse_document(text).data


def test_the_schema_is_a_schema() -> None:
    pytest.importorskip("jsonschema").Draft202012Validator.check_schema(schema())
    json.dumps(schema())


@pytest.mark.parametrize("text", [FULL, (ROOT / "crash_isolation.yaml").read_text(), "run: {command: x}\nmatrix: {bs: [1]}"])
def test_the_schema_accepts_good_files(text: str) -> None:
    assert errors(as_data(text)) == []


@pytest.mark.parametrize(
    ("section", "value"),
    [
        ("runn", {}),
        ("run", {"command": "x", "pty": "yes"}),
        ("run", {"comand": "x"}),
        ("run", {"command": "x", "progress": "step"}),
        ("matrix", {}),
        ("matrix", {"bs": []}),
        ("matrix", {"bs": 3}),
        ("matrix", {"bs": {"values": [1], "flg": "--bs"}}),
        ("matrix", {"bs": {"flag": "--bs"}}),
        ("matrix", {"bs": {"values": [1], "choices": {"a": {}}}}),
        ("known_bad", {"bs": [1]}),
        ("known_good", None),
        ("search", {"strategy": "pairwide"}),
        ("search", {"max_runs": 0}),
        ("limits", {"memory": "6G"}),
        ("limits", {"memory": "GiB"}),
        ("limits", {"wall": "10 min"}),
        ("limits", {"wall": ""}),
        ("executor", {"jobs": 0}),
        ("executor", {"kind": "slurm"}),
    ],
)
def test_the_schema_refuses_what_loading_refuses(section: str, value: object) -> None:
    good = {"run": {"command": "x"}, "matrix": {"bs": [1]}}
    assert errors(good) == []
    assert errors({**good, section: value}) != []


def test_every_key_has_a_description_for_editors() -> None:
    definitions = schema()["$defs"]
    silent = [
        f"{name}.{key}"
        for name, definition in [("Spec", schema()), *definitions.items()]
        for key, value in definition.get("properties", {}).items()
        if "description" not in value
    ]
    assert silent == []


def test_the_first_story_loads() -> None:
    spec = load_spec(ROOT / "crash_isolation.yaml")
    assert spec.allowed(spec.known_bad)
    assert spec.axis("omp").hides == ("duplicate_ok",)


def test_words_of_an_axis_may_follow_a_word_of_the_command() -> None:
    spec = Spec.model_validate(
        {
            "run": {"command": "torchrun --standalone train.py --x torchrun"},
            "matrix": {"ranks": {"values": [1, 2], "flag": "--nproc_per_node", "after": "torchrun"}, "bs": [4, 8]},
        }
    )
    words = spec.launch({"ranks": 2, "bs": 8}, max_steps=None, placeholders={}).argv
    assert words == ["torchrun", "--nproc_per_node", "2", "--standalone", "train.py", "--x", "torchrun", "--bs", "8"]
    with pytest.raises(SpecError, match=r"matrix.ranks.after: the command has no word 'tochrun'; name one of: torchrun"):
        Spec.model_validate(
            {"run": {"command": ["torchrun", "train.py"]}, "matrix": {"ranks": {"values": [1, 2], "after": "tochrun"}}}
        )
