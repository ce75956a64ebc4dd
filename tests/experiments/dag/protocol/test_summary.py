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
from tests.experiments.tables import grid


def two_way(seeds, images, rest, n=6, k=8, draw=0):
    """value[seed, images] with given standard deviations, and the papers' own set as number 0."""
    rng = np.random.default_rng(draw)
    value = 10 + seeds * rng.standard_normal((n, 1)) + images * rng.standard_normal((1, k))
    value = value + rest * rng.standard_normal((n, k))
    table = grid(seed=range(42, 42 + n), images=range(k + 1))
    return table.assign(R=np.hstack([np.full((n, 1), 1e6), value]).ravel())


@pytest.mark.parametrize(
    "truth", [(2.0, 0.5, 0.3), (0.5, 2.0, 0.3), (0.0, 1.0, 0.1), (1.0, 1.0, 1.0)]
)
def test_the_variance_between_images_is_unbiased(truth):
    found = [images_component(two_way(*truth, draw=d), "R").variance for d in range(120)]
    error = np.std(found, ddof=1) / math.sqrt(len(found))
    assert abs(np.mean(found) - truth[1] ** 2) <= 4 * error + 0.01 * truth[1] ** 2


def test_variance_needs_two_of_each():
    lone = images_component(two_way(1, 1, 1, n=1), "R")
    assert math.isnan(lone.variance) and lone.sets == 8


RATES, SCALES = {"plain": 0.3, "residual": 0.01}, {"plain": 1.0, "residual": 2.0}


def decay_table():
    keys = {"checkpoint": ("init", "final"), "distance": range(6), "images": [0]}
    table = grid(seed=range(5), arch=RATES, **keys)
    rate, scale = (table["arch"].map(values) for values in (RATES, SCALES))
    gain = table["checkpoint"].map({"init": 1.0, "final": 10.0})
    size = scale * gain * (1 + 0.01 * table["seed"])
    return table.assign(R=size * np.exp(-rate * table["distance"]))


def test_decay_fits_find_the_rate():
    found = decay_fits(decay_table(), "R", keys=["arch", "checkpoint"], figure="f")
    fits = {s.group: s for s in found if s.kind != "summary"}
    plain = fits["arch=plain checkpoint=init"]
    assert (plain.decay, plain.r2) == (pytest.approx(0.3), pytest.approx(1))
    assert fits["arch=residual checkpoint=final"].decay == pytest.approx(0.01)


def test_tests_pair_seeds_and_name_groups():
    table, archs = decay_table(), {"column": "arch", "a": "plain", "b": "residual"}
    found = between(table, "R", **archs, keys=["checkpoint", "distance"], figure="f")
    assert len(found) == 12 and {s.n_a for s in found} == {5}
    assert found[0].effect == -1 and found[0].p == pytest.approx(2 / 252)
    paired = through_training(table, "R", keys=["arch", "distance"], figure="f")
    assert all(s.p == pytest.approx(0.0625) and s.effect == 1 and not s.has_power for s in paired)


def test_pairing_drops_seeds_without_a_partner():
    table = decay_table().query("seed != 3 or checkpoint != 'final'")
    found = through_training(table, "R", keys=["arch", "distance"], figure="f")
    assert {s.n_a for s in found} == {4}


def test_over_seeds_uses_the_sample_deviation():
    table = pd.DataFrame({"seed": [1, 2, 3], "arch": "a", "R": [1.0, 2.0, 3.0]})
    assert over_seeds(table, ["arch"], "R").iloc[0].tolist() == ["a", 2.0, 1.0, 3]


def test_the_global_gap_is_a_ratio_of_sums():
    table = grid(activation=["silu"], seed=[1], checkpoint=["init"], images=[0], distance=(0, 1))
    table = table.assign(pairs=[2, 1], gn=[4.0, 1.0], tensor=[1.0, 0.0])
    assert global_gaps(table, ["activation"])["gap"].tolist() == [pytest.approx(0.2)]
    (empty,) = global_gaps(table.assign(gn=0.0, tensor=0.0), ["activation"])["gap"]
    assert math.isnan(empty)
