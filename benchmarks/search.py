"""How many runs the search takes, how often it is right, and whether its probabilities mean what they say.

    python -m benchmarks.search --worlds 8        # two minutes
    python -m benchmarks.search                   # hours; what is done is kept in results/tmp and not done again

Simulated programs (`benchmarks.worlds`) of 7 axes of 2 to 4 levels; exactly the crash set that is true is required.  All methods
see the same programs.  Every run costs the same second, so the search counts runs.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import math
import random
import statistics
import time
from collections import defaultdict
from typing import Any

import numpy as np

from benchmarks import peers
from benchmarks.record import RESULTS, save
from benchmarks.worlds import KINDS, World, world
from matrix.search import Search
from matrix.search.grid import Grid
from matrix.search.space import Space

KEPT = RESULTS / "tmp" / "search.jsonl"  # one line a program; remove it after a change of the search
METHODS = {"adaptive": peers.adaptive, "one_at_a_time": peers.one_at_a_time, "random": peers.random_design, "full": peers.full}
RATES = (1.0, 0.5, 0.2)
LOOKED = 20  # worlds of each kind and rate in which every answer is looked at, for the calibration
HARDER = {"noise": {"noise": 0.1}, "three conditions": {}, "four conditions": {}}  # with p = 1, adaptive only
WANTED = {1.0: 5, 0.5: 21, 0.2: 68}  # median runs

Key = tuple[str, float, str, int]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--worlds", type=int, default=300, help="programs of each kind and rate")
    parser.add_argument("--rates", type=float, nargs="+", default=RATES, help="chance of a death per run")
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=list(METHODS))
    options = parser.parse_args()
    done = _read()
    for number in range(options.worlds):
        for rate in options.rates:
            for kind in KINDS:
                for method in options.methods:
                    _once(done, (method, rate, kind, number), world(number, kind, rate))
        for name in HARDER:
            _once(done, ("adaptive", 1.0, name, number), _harder(number, name))
    save("search", _summary(done))


def _harder(number: int, name: str) -> World:
    kind = {"noise": KINDS[number % len(KINDS)], "three conditions": "3", "four conditions": "4"}[name]
    return world(number, kind, 1.0, noise=HARDER[name].get("noise", 0.0))


def _read() -> dict[Key, dict[str, Any]]:
    lines = [json.loads(line) for line in KEPT.read_text().splitlines()] if KEPT.exists() else []
    return {tuple(line.pop("key")): line for line in lines}


def _once(done: dict[Key, dict[str, Any]], key: Key, program: World) -> None:
    if key in done:
        return
    method, number = key[0], key[3]
    looks = method == "adaptive" and number < LOOKED
    played = peers.adaptive(program, number, looks=looks) if method == "adaptive" else METHODS[method](program, number)
    done[key] = json.loads(json.dumps(dataclasses.asdict(played)))
    KEPT.parent.mkdir(parents=True, exist_ok=True)
    with KEPT.open("a") as sink:
        sink.write(json.dumps({"key": key, **done[key]}) + "\n")


# ------------------------------------------------------------------ figures
def _summary(done: dict[Key, dict[str, Any]]) -> dict[str, Any]:
    groups: dict[tuple[str, float, str], list[dict[str, Any]]] = defaultdict(list)
    for (method, rate, kind, _), played in done.items():
        groups[method, rate, kind].append(played)
        if kind in KINDS:
            groups[method, rate, "all"].append(played)
    figures = {f"{method}, p={rate:g}, {kind}": _figures(group) for (method, rate, kind), group in sorted(groups.items())}
    for name in figures:
        if name.startswith("full,"):
            del figures[name]["exact"]  # it is the bill alone, nothing was run
    looks = [look for played in done.values() for look in played["looks"]]
    entropy = _prior_entropy()
    bounds = {f"p={rate:g}": round((entropy + math.log2(1 / peers.ERROR)) / _capacity(rate), 1) for rate in RATES}
    return {
        "figures": figures,
        "wanted_median_runs": {f"p={rate:g}": runs for rate, runs in WANTED.items()},
        "prior_entropy_bits": round(entropy, 2),
        "bound_runs": bounds,
        "calibration": _calibration(looks),
        "decision_cpu_ms": {"7 axes": _decisions(axes=7, levels=(2, 4)), "20 axes of 4": _decisions(axes=20, levels=(4, 4))},
    }


def _decisions(axes: int, levels: tuple[int, int]) -> dict[str, float]:
    """Processor milliseconds of one `ask`, the posterior of the last answer included; the first builds the hypotheses."""
    program = world(0, "pair", 1.0, axes=axes, levels=levels)
    search, rng, took = Search(program.spec, seed=0), random.Random(0), list[float]()
    while True:
        began = time.process_time()
        trial = search.ask()
        took.append((time.process_time() - began) * 1e3)
        if trial is None:
            break
        search.tell(trial, program.run(trial.cell, rng))
    first, later = took[1], took[2:]  # took[0] asks for the known-bad cell
    return {"first": round(first, 1), "median": round(statistics.median(later), 1), "max": round(max(later), 1)}


def _figures(group: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "worlds": len(group),
        "median_runs": statistics.median(played["runs"] for played in group),
        "exact": round(sum(played["exact"] for played in group) / len(group), 4),
    } | (_verified(group) if any(played["verify"] for played in group) else {})


def _verified(group: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "median_verify_runs": statistics.median(played["verify"] for played in group),
        "confirmed": round(sum(played["confirmed"] for played in group) / len(group), 4),
        "confirmed_and_wrong": sum(played["confirmed"] and not played["exact"] for played in group),
    }


def _calibration(looks: list[tuple[float, bool]]) -> dict[str, Any]:
    """Looks by what was said: how much was said and how much was true; the error is their mean distance, weighted by looks."""
    bins: dict[int, list[tuple[float, bool]]] = defaultdict(list)
    for said, right in looks:
        bins[min(9, int(said * 10))].append((said, right))
    table = [
        {"looks": len(of), "said": round(statistics.mean(s for s, _ in of), 3), "true": round(sum(r for _, r in of) / len(of), 3)}
        for _, of in sorted(bins.items())
    ]
    error = sum(row["looks"] * abs(row["said"] - row["true"]) for row in table) / max(1, len(looks))
    return {"looks": len(looks), "error": round(error, 4), "bins": table}


def _prior_entropy() -> float:
    """Bits of the search's own prior over crash sets, on average over programs."""
    found = []
    for number in range(10):
        space = Space(Grid(world(number, "single", 1.0).spec), 0)
        found.append(float(-(np.exp(space.log_prior) * space.log_prior).sum() / math.log(2)))
    return statistics.mean(found)


def _capacity(rate: float) -> float:
    """Bits of one run at best: a Z-channel, since outside the crash set nothing dies."""
    miss = 1 - rate
    return 1.0 if miss <= 0 else math.log2(1 + rate * miss ** (miss / rate))


if __name__ == "__main__":
    main()
