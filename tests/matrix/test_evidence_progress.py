"""Steps from real-looking output, whole and in pieces."""

from __future__ import annotations

import io
import random

import pytest
from tqdm import tqdm

from matrix.evidence.progress import LOOK_BYTES, TIMELINE, ProgressParser
from matrix.records import Progress


def steps_of(*lines: str, pattern: str | None = None) -> list[int]:
    parser = ProgressParser(pattern)
    for second, line in enumerate(lines):
        parser.feed("stdout", line.encode() + b"\n", float(second))
    return [step for _, step in parser.timeline]


@pytest.mark.parametrize(
    "line",
    [
        "step 17 loss=0.3",
        "step 0017 loss=0.3",
        "Step: 17, loss 0.3",
        "step=17",
        "[step 17] loss",
        "global_step 17",
        "Step 17/4000",
        "step 17 of 4000",
        '{"step": 17, "loss": 0.3}',
        "batch 17 done",
        "Iter: 17 loss",
        "iteration 17",
        "iter [17/100]",
        "Epoch: [3][ 17/5005]\tTime 0.3",
        "Train Epoch: 1 [17/60000 (1%)]\tLoss: 2.3",
        " 37%|███▋      | 17/46 [00:01<00:02, 15.2it/s]",
        "Epoch 0:  37%|███▋      | 17/46 [00:01<00:02, 15.2it/s, v_num=0]",
        "17it [00:01, 15.2it/s]",
        "\x1b[32mstep\x1b[0m \x1b[1m17\x1b[0m loss",
    ],
)
def test_common_forms_are_understood_without_a_pattern(line: str) -> None:
    assert steps_of(line) == [17]


@pytest.mark.parametrize(
    "line",
    [
        "max step 4000",
        "total_steps: 4000",
        "step size 0.1",
        "lr step 0.1",
        "validation step 3",
        "val/step 3",
        "batch size 32",
        "batch_size=32",
        "step 50% done",
        "loss 0.37 accuracy 0.5",
        "Loading bank: 100%|██████████| 771115/771115 [00:01<00:00]",
        "Validation DataLoader 0: 50%|█████     | 5/10 [00:01<00:01]",
    ],
)
def test_what_only_looks_like_a_step_is_none(line: str) -> None:
    assert steps_of(line) == []


def test_steps_that_start_over_every_epoch_are_added_up() -> None:
    lines = [f"epoch {epoch} step {step}" for epoch in (1, 2, 3) for step in (1, 2, 3)]
    assert steps_of(*lines) == list(range(1, 10))


def test_steps_that_count_from_zero_start_over_without_losing_one() -> None:
    assert steps_of(*[f"step {step}" for _ in range(2) for step in range(5)]) == list(range(10))


def test_a_new_round_counts_the_whole_length_of_the_last_one() -> None:
    assert steps_of("step 50/100", "step 99/100", "step 0/100", "step 1/100") == [50, 99, 100, 101]


def test_ranks_that_print_out_of_turn_do_not_start_over() -> None:
    assert steps_of("step 1", "step 2", "step 1", "step 3", "step 2") == [1, 2, 3]


def test_a_global_step_goes_on_across_epochs() -> None:
    assert steps_of("epoch 1 step 99", "epoch 1 step 100", "epoch 2 step 101") == [99, 100, 101]


def test_resuming_at_a_later_step_keeps_the_number() -> None:
    assert steps_of("resuming from step 5000", "step 5001") == [5000, 5001]


def test_a_better_source_replaces_a_bar() -> None:
    bar = " 90%|█████████ | 900/1000 [00:01<00:02, 15.2it/s]"
    assert steps_of(bar, "step 1", bar, "step 2") == [1, 2]


def test_epochs_alone_are_steps_only_while_there_is_nothing_better() -> None:
    assert steps_of("epoch 1 done", "epoch 2 done") == [1, 2]
    assert steps_of("epoch 1 done", "epoch 2 step 7") == [7]


def test_nested_bars_count_the_inner_one() -> None:
    lines = []
    for epoch in range(3):
        lines += [f"Epochs: 33%|███ | {epoch}/3 [00:01<00:02]", *(f"Train: 37%|███ | {step}/10 [00:01<00:02]" for step in range(1, 11))]
    assert steps_of(*lines)[-1] == 30


def test_a_real_tqdm_bar_is_followed_to_its_end() -> None:
    sink = io.StringIO()
    for _ in tqdm(range(300), file=sink, mininterval=0, miniters=1, desc="train"):
        pass
    parser = ProgressParser()
    data = sink.getvalue().encode()
    for at in range(0, len(data), 7):
        parser.feed("stderr", data[at : at + 7], at / 1000)
    record = parser.record()
    assert (record.last_step, record.total_steps) == (300, 300)
    assert record.last_line.startswith("train: 100%|")


@pytest.mark.parametrize("seed", range(20))
def test_pieces_of_any_size_give_the_same_as_the_whole(seed: int) -> None:
    text = "".join(f"épochè {n} step {n} loss={1 / n:.3f}\r\n\x1b[1m{n * 7}% done\x1b[0m\n" for n in range(1, 200)).encode()
    whole, pieces = ProgressParser(), ProgressParser()
    whole.feed("stdout", text, 1.0)
    chance, at = random.Random(seed), 0
    while at < len(text):
        size = chance.randint(1, 60)
        pieces.feed("stdout", text[at : at + size], 1.0)
        at += size
    assert pieces.record() == whole.record()
    assert pieces.last_step == 199


def test_a_number_cut_by_the_end_of_the_output_is_not_believed() -> None:
    parser = ProgressParser()
    parser.feed("stdout", b"step 116 loss\nstep 11", 1.0)
    assert parser.record().last_step == 116


def test_a_bar_without_a_line_end_counts_at_once() -> None:
    parser = ProgressParser()
    parser.feed("stderr", "\r 37%|███▋      | 37/100 [00:01<00:02, 15.2it/s]".encode(), 1.0)
    assert (parser.last_step, parser.total_steps) == (37, 100)


def test_two_streams_do_not_tear_each_others_lines() -> None:
    parser = ProgressParser()
    parser.feed("stdout", b"step 1", 1.0)
    parser.feed("stderr", b"warning\n", 1.1)
    parser.feed("stdout", b"7 loss\n", 1.2)
    assert parser.last_step == 17


def test_a_pattern_may_name_total_and_rank() -> None:
    parser = ProgressParser(r"^r(?P<rank>\d) (?P<step>\d+)/(?P<total>\d+)")
    for line in (b"r0 5/10\n", b"r1 4/10\n", b"r0 6/10\n", b"step 99\n"):
        parser.feed("stdout", line, 1.0)
    assert (parser.ranks, parser.last_step, parser.total_steps) == ({0: 6, 1: 4}, 6, 10)


def test_a_pattern_without_a_group_counts_its_matches() -> None:
    assert steps_of("tick", "tock", "tick", "tick", pattern="tick") == [1, 2, 3]


def test_a_raised_figure_in_the_place_of_a_step_is_no_step() -> None:
    assert steps_of("round ²", "round 17", pattern=r"round (?P<step>\S+)") == [17]


def test_a_bad_pattern_is_refused_with_its_text() -> None:
    with pytest.raises(ValueError, match=r"'step \(' is not a regular expression"):
        ProgressParser("step (")


def test_the_finished_line_is_found_anywhere_in_a_huge_chunk() -> None:
    parser = ProgressParser(None, "^training finished$")
    parser.feed("stdout", b"step 5\ntraining finished\n" + b"x" * 70 + b"\n" + (b"y" * 79 + b"\n") * 20_000, 1.0)
    assert parser.finished
    assert parser.record().finished_line is True


def test_the_finished_line_is_found_across_chunks_and_without_a_line_end() -> None:
    parser = ProgressParser(None, "^training finished$")
    parser.feed("stdout", b"step 5\ntraining fin", 1.0)
    assert parser.record().finished_line is False
    parser.feed("stdout", b"ished", 1.0)
    assert parser.record().finished_line is True


def test_without_a_finished_pattern_the_record_does_not_say() -> None:
    assert ProgressParser().record().finished_line is None


def test_only_the_end_of_a_huge_chunk_is_searched_for_steps() -> None:
    parser = ProgressParser()
    parser.feed("stdout", b"step 1000000\n" + b"a line of text\n" * LOOK_BYTES + b"step 7\n", 1.0)
    assert parser.last_step == 7


def test_a_line_cut_at_the_edge_of_a_huge_chunk_shows_no_wrong_number() -> None:
    parser = ProgressParser(r"(\d+) of")
    parser.feed("stdout", b"x" * 100 + b"1234 of" + b" " * (LOOK_BYTES - 6) + b"\n", 1.0)
    assert parser.last_step is None


def test_binary_output_is_no_error() -> None:
    parser = ProgressParser(None, "finished")
    parser.feed("stdout", bytes(range(256)) * 5000, 1.0)
    parser.feed("stdout", b"\nstep 3\n", 2.0)
    assert (parser.last_step, parser.record().finished_line) == (3, False)


def test_the_timeline_stays_bounded_and_grows_only() -> None:
    parser = ProgressParser()
    for step in range(1, 3 * TIMELINE):
        parser.feed("stdout", b"step %d\n" % step, float(step))
    times = [step for _, step in parser.timeline]
    assert len(times) <= TIMELINE
    assert times == sorted(set(times))
    assert times[0] == 1
    assert times[-1] > 2.9 * TIMELINE


def test_gaps_are_between_steps_and_not_before_the_first() -> None:
    parser = ProgressParser()
    for second, line in ((30.0, b"step 1\n"), (32.0, b"step 2\n"), (37.0, b"step 3\n"), (99.0, b"warning\n")):
        parser.feed("stdout", line, second)
    record = parser.record()
    assert (record.first_step_s, record.last_step_s, record.longest_gap_s) == (30.0, 37.0, 5.0)


# ------------------------------------------------------------------ forms that nobody has described
def learnt_from(*lines: str, learnt: str = "") -> Progress:
    parser = ProgressParser(learnt=learnt)
    for second, line in enumerate(lines):
        parser.feed("stdout", line.encode() + b"\n", float(second))
    return parser.record()


BAR_SIGN = "\u2501"
OWN_FORMS = {
    "epochs start over, a percentage": (
        [f"Train: {e} [   {i}/6 ({i * 20:3d}%)]  Loss: 2.3{i} (2.4)  Time: 0.5{i}s, LR: 1.000e-05" for e in (0, 1) for i in range(6)], 11),
    "table with bars": ([f"| epoch   1 | {200 * i:5d}/ 2983 batches | lr 20.00 | ms/batch 12.3{i}" for i in range(1, 8)], 1400),
    "two numbers in brackets": ([f"[{e}, {b:5d}] loss: {1 / (b + e):.3f}" for e in (1, 2) for b in (2000, 4000, 6000, 8000)], 16000),
    "a number in brackets": ([f"[{i}]\ttrain-rmse:0.5{i}\teval-rmse:0.6{i}" for i in range(10)], 9),
    "a bar that grows": ([f"{i}/10 {BAR_SIGN * 2 * i} {10 - i}s {500 + i}ms/step - loss: 0.{i}" for i in range(1, 11)], 10),
    "a log record": (
        [f"2026-11-29 10:00:0{i} | INFO | train_inner | epoch 001:  {i * 10:4d} / 391 loss={1 / (i + 1):.3f}" for i in range(1, 8)], 70),
    "a log record with a date of its own": (
        [f"11/29 10:00:0{i} - INFO - Epoch(train)  [{e}][{50 * i:3d}/391]  eta: 0:01:{60 - i}" for e in (1, 2) for i in range(1, 8)], 741),
    "json": ([f'{{"time": "2026-11-29T10:00:0{i}", "loss": 0.{i}, "n_updates": {i * 5}}}' for i in range(6)], 25),
    "words": ([f"gen {i} best={100 - i * 7 % 13}" for i in range(10)], 9),
    "after something else that counts": (
        [*(f"shard {i} of 10 is here" for i in range(1, 11)), *(f"Train: 0 [   {i}/6 ({i * 20}%)]  Loss" for i in range(6))], 5),
}  # fmt: skip


@pytest.mark.parametrize("form", OWN_FORMS)
def test_a_number_that_counts_up_is_learnt_from_the_output_and_known_from_the_first_line_of_the_next_run(form: str) -> None:
    lines, last = OWN_FORMS[form]
    seen = learnt_from(*lines)
    assert seen.last_step == last and seen.learnt
    again = learnt_from(*lines, learnt=seen.learnt)
    assert again.last_step == last
    alone = next(line for line in reversed(lines) if learnt_from(line, learnt=seen.learnt).last_step is not None)
    assert learnt_from(alone).last_step is None or "/" in alone, "one line of an unknown form says nothing"


def test_the_first_step_is_where_the_form_was_first_seen_and_not_where_it_was_believed() -> None:
    assert learnt_from("start", *(f"[{i}] rmse:0.5{i}" for i in range(10))).first_step_s == 1.0


def test_a_run_that_dies_at_its_first_line_of_a_training_loop_has_come_to_that_step() -> None:
    assert learnt_from("Train: 0 [   3/391 (  1%)]  Loss: 2.3").last_step == 3
    assert learnt_from("file 3/391 is here").last_step is None


@pytest.mark.parametrize(
    "lines",
    [
        [f"worker {i} started" for i in range(9)],
        [f"elapsed {i} s" for i in range(9)],
        [f"memory {1234 + i * i} MB in use" for i in range(9)],
        [f"accuracy 0.{i} of 9 classes" for i in range(9)],
        [f"2026-11-29 10:00:0{i} alive" for i in range(9)],
        [f"Test: [  {i}/9] Time 0.3" for i in range(9)],
        ["3 batches, 17 files", "seed 7"],
        [f"11/29/2026 11:03:4{i} - WARNING - trainer - begin to train with seed 0" for i in range(9)],
        ["29.11.2026 11:03:45 train: ready", "11/29 11:03:45 train: ready", "2026/11/29 11:03 train: ready"],
        [f"1{i}/29/2026 train" for i in range(3)],
        [f"pid {4000 + i} says hello" for i in range(9)],
        [f"loss {i}.5 lr 1e-{i}" for i in range(9)],
    ],
)  # fmt: skip
def test_other_numbers_count_no_steps(lines: list[str]) -> None:
    assert learnt_from(*lines).last_step is None


def test_an_epoch_that_is_a_fraction_is_no_epoch_that_stands_still() -> None:
    assert steps_of(*(f"{{'loss': 2.3, 'epoch': 0.0{i}}}" for i in range(1, 9))) == []


def test_a_form_that_an_earlier_run_taught_wrongly_is_given_up() -> None:
    """The run that taught it died while it read its files."""
    taught = learnt_from(*(f"chunk {i} is here" for i in range(1, 4))).learnt
    lines = [*(f"chunk {i} is here" for i in range(1, 11)), *(f"[{i}] rmse:0.5{i}" for i in range(8))]
    seen = learnt_from(*lines, learnt=taught)
    assert seen.last_step == 7 and seen.learnt != taught
