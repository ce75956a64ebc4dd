import itertools
import math

import numpy as np
import pandas as pd
import pytest

from experiments.dag.protocol.summary import (
    between,
    decay_fits,
    global_gaps,
    images_component,
    over_seeds,
    through_training,
)


def two_way(seeds, images, rest, n=6, k=8, draw=0):
    """value[seed, images] with given standard deviations, and the papers' own set as number 0."""
    rng = np.random.default_rng(draw)
    value = 10 + seeds * rng.standard_normal((n, 1)) + images * rng.standard_normal((1, k))
    value = value + rest * rng.standard_normal((n, k))
    rows = [{"seed": 42 + i, "images": j + 1, "R": value[i, j]} for i in range(n) for j in range(k)]
    return pd.DataFrame(rows + [{"seed": 42 + i, "images": 0, "R": 1e6} for i in range(n)])


@pytest.mark.parametrize(
    "truth", [(2.0, 0.5, 0.3), (0.5, 2.0, 0.3), (0.0, 1.0, 0.1), (1.0, 1.0, 1.0)]
)
def test_the_variance_between_images_is_unbiased(truth):
    found = np.array([images_component(two_way(*truth, draw=d), "R").variance for d in range(120)])
    error = found.std(ddof=1) / math.sqrt(len(found))
    assert abs(found.mean() - truth[1] ** 2) <= 4 * error + 0.01 * truth[1] ** 2


def test_variance_needs_two_of_each():
    lone = images_component(two_way(1, 1, 1, n=1), "R")
    assert math.isnan(lone.variance) and lone.sets == 8


def decay_table():
    keys = itertools.product(range(5), ("plain", "residual"), ("init", "final"), range(6))
    table = pd.DataFrame(keys, columns=["seed", "arch", "checkpoint", "distance"]).assign(images=0)
    rate, scale = (
        table["arch"].map({"plain": a, "residual": b}) for a, b in ((0.3, 0.01), (1.0, 2.0))
    )
    gain = table["checkpoint"].map({"init": 1.0, "final": 10.0})
    return table.assign(
        R=scale * gain * (1 + 0.01 * table["seed"]) * np.exp(-rate * table["distance"])
    )


def test_decay_fits_find_the_rate():
    found = decay_fits(decay_table(), "R", keys=["arch", "checkpoint"], figure="f")
    fits = {s.group: s for s in found if s.kind != "summary"}
    assert fits["arch=plain checkpoint=init"].decay == pytest.approx(0.3)
    assert fits["arch=residual checkpoint=final"].decay == pytest.approx(0.01)
    assert fits["arch=plain checkpoint=init"].r2 == pytest.approx(1)


def test_tests_pair_seeds_and_name_groups():
    table = decay_table()
    found = between(
        table,
        "R",
        column="arch",
        a="plain",
        b="residual",
        keys=["checkpoint", "distance"],
        figure="f",
    )
    assert len(found) == 12 and {s.n_a for s in found} == {5}
    assert found[0].effect == -1 and found[0].p == pytest.approx(2 / 252)
    paired = through_training(table, "R", keys=["arch", "distance"], figure="f")
    assert all(s.p == pytest.approx(0.0625) and s.effect == 1 and not s.has_power for s in paired)


def test_pairing_drops_seeds_without_a_partner():
    table = decay_table()
    table = table[~((table["seed"] == 3) & (table["checkpoint"] == "final"))]
    assert {s.n_a for s in through_training(table, "R", keys=["arch", "distance"], figure="f")} == {
        4
    }


def test_over_seeds_uses_the_sample_deviation():
    table = pd.DataFrame({"seed": [1, 2, 3], "arch": "a", "R": [1.0, 2.0, 3.0]})
    assert over_seeds(table, ["arch"], "R").iloc[0].tolist() == ["a", 2.0, 1.0, 3]


def test_the_global_gap_is_a_ratio_of_sums():
    where = {"activation": "silu", "seed": 1, "checkpoint": "init", "images": 0}
    values = {"gn": [4.0, 1.0], "tensor": [1.0, 0.0]}
    table = pd.DataFrame(where | {"distance": [0, 1], "pairs": [2, 1]} | values)
    (row,) = global_gaps(table, ["activation"]).itertuples()
    assert row.gap == pytest.approx(0.2)
    empty = global_gaps(table.assign(gn=0.0, tensor=0.0), ["activation"])
    assert math.isnan(empty["gap"].iloc[0])
