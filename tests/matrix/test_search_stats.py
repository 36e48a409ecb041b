"""The statistics against closed forms and against simulation."""

from __future__ import annotations

import itertools
import random

import pytest

from matrix.search.stats import Beta, beta_cdf, clean_runs_for, clean_runs_for_e_value, fewest, mixture, upper95


def test_the_beta_distribution_agrees_with_its_closed_forms():
    assert beta_cdf(0.3, 1, 1) == pytest.approx(0.3)
    assert beta_cdf(0.3, 2, 1) == pytest.approx(0.09)
    assert beta_cdf(0.3, 1, 3) == pytest.approx(1 - 0.7**3)
    assert beta_cdf(0.5, 0.5, 0.5) == pytest.approx(0.5)
    assert [beta_cdf(x, 2.5, 4) for x in (-1.0, 0.0, 1.0, 2.0)] == [0.0, 0.0, 1.0, 1.0]
    binomial = sum(p for p in (0.2**k * 0.8 ** (60 - k) * c for k, c in enumerate(_row(60))) if p) - sum(
        0.2**k * 0.8 ** (60 - k) * c for k, c in enumerate(_row(60)[:9])
    )
    assert beta_cdf(0.2, 9, 52) == pytest.approx(binomial)  # P(at least 9 of 60)


def _row(n: int) -> list[int]:
    row = [1]
    for k in range(n):
        row.append(row[-1] * (n - k) // (k + 1))
    return row


@pytest.mark.parametrize(("deaths", "survivals"), [(0, 14), (2, 0), (3, 7), (40, 160)])
def test_quantiles_invert_the_distribution(deaths, survivals):
    rate = Beta.after(deaths, survivals)
    for share in (0.025, 0.5, 0.975):
        assert beta_cdf(rate.quantile(share), rate.a, rate.b) == pytest.approx(share, abs=1e-6)


def test_clean_runs_bound_the_rate():
    assert upper95(0) == 1.0
    assert upper95(1) == pytest.approx(0.95)
    assert upper95(14) == pytest.approx(0.1926, abs=1e-4)
    assert clean_runs_for(0.20) == 14 and upper95(13) > 0.20


@pytest.mark.parametrize(("deaths", "survivals"), [(2, 0), (3, 3), (3, 14), (20, 20)])
def test_without_changes_a_mixture_is_the_jeffreys_posterior(deaths, survivals):
    posterior, exact = mixture(deaths, survivals, 0, ()), Beta.after(deaths, survivals)
    assert posterior.rate == pytest.approx(exact.a / (exact.a + exact.b), rel=1e-3)
    product = 1.0
    for runs in range(1, 8):
        product *= (exact.b + runs - 1) / (exact.a + exact.b + runs - 1)
        assert posterior.all_survive(runs) == pytest.approx(product, rel=1e-2)


def test_more_survivals_make_it_less_likely_that_a_change_still_dies():
    posterior = mixture(12, 11, 6, (3, 3, 4))
    chances = [posterior.still_dies(runs) for runs in range(12)]
    assert all(later < earlier for earlier, later in itertools.pairwise(chances))


def test_the_probability_that_a_change_still_dies_is_calibrated():
    """Changes of random worlds, half of them dying at a random rate: of those given 10 to 30 %, so many do die."""
    rng, said, true = random.Random(0), 0.0, 0
    counted = 0
    for _ in range(400):
        rate, share = rng.betavariate(0.5, 0.5), rng.random()
        dying = [rng.random() < share for _ in range(12)]
        deaths = survivals = convicted = 0
        undecided = []
        for index, dies in enumerate([True, *dying]):
            outcomes = [dies and rng.random() < rate for _ in range(3)]
            if any(outcomes) or index == 0:
                deaths, survivals, convicted = deaths + sum(outcomes), survivals + 3 - sum(outcomes), convicted + (index > 0)
            else:
                undecided.append(dies)
        chance = mixture(deaths, survivals, convicted, (3,) * len(undecided)).still_dies(3)
        if 0.1 <= chance <= 0.3:
            said, true, counted = said + chance * len(undecided), true + sum(undecided), counted + len(undecided)
    assert counted > 300
    assert true / counted == pytest.approx(said / counted, abs=0.05)


def test_an_e_value_of_twenty_is_reached_by_chance_in_at_most_one_of_twenty_useless_fixes():
    rng, alarms = random.Random(1), 0
    for _ in range(1000):
        rate = rng.betavariate(0.5, 0.5)
        outcomes = [rng.random() < rate for _ in range(8)]
        wanted = clean_runs_for_e_value(mixture(sum(outcomes), 8 - sum(outcomes), 0, ()), 20.0)
        alarms += all(rng.random() >= rate for _ in range(wanted))
    assert alarms <= 0.06 * 1000


def test_clean_runs_for_an_e_value_grow_as_the_crash_gets_rarer():
    wanted = [clean_runs_for_e_value(mixture(deaths, 12 - deaths, 0, ()), 20.0) for deaths in (12, 6, 3)]
    assert wanted == [1, 6, 15]


def test_fewest_finds_the_smallest_number_that_is_enough():
    assert [fewest(lambda runs, n=n: runs >= n) for n in (1, 2, 3, 7, 8, 100)] == [1, 2, 3, 7, 8, 100]
    assert fewest(lambda runs: False) == 1024
