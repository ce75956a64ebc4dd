"""Which values are paired with the published ones, and what sets of images add to a difference."""

import numpy as np
import pandas as pd
import pytest

from experiments.dag.protocol.scores import image_spread, paired, scored
from tests.experiments.tables import grid

SEEDS, SETS = range(6), range(9)
KEYS = (["arch", "checkpoint"], {"R": "R"})


def table(images_std, draws=0):
    rng = np.random.default_rng(draws)
    rows = grid(arch=["plain"], checkpoint=("init", "final"), seed=SEEDS, images=SETS)
    shift = images_std * rng.standard_normal(len(SETS))
    noise = 0.01 * rng.standard_normal(len(rows))
    return rows.assign(R=1 + shift[rows["images"]] + noise)


def origin(**changed):
    named = {"initial": "published", "order": "published", "train_records": "official"}
    first = {"test_records": "official in the first 32 records"}
    return grid(arch=["plain"], seed=SEEDS).assign(**named | first | changed)


def values(**tables):
    return scored(table(0.2), *KEYS, tables, ["arch"])


def test_images_enter_twice_and_only_as_far_as_they_vary():
    spreads = [image_spread(table(0.2, d), *KEYS)["image_variance"].mean() for d in range(60)]
    assert np.mean(spreads) == pytest.approx(2 * 0.2**2, rel=0.2)
    flat = image_spread(table(0.2).assign(R=0.5), *KEYS)
    assert (flat["image_variance"] == 0).all() and (flat["image_df"] == 7).all()


@pytest.mark.parametrize(
    "changed, init, final, same_images",
    [
        ({}, True, True, True),
        ({"order": "named"}, True, False, True),
        ({"train_records": "shuffled"}, True, False, True),
        ({"initial": "named"}, False, False, True),
        ({"test_records": "shuffled"}, False, False, False),
    ],
)
def test_pairs_need_networks_images_and_for_trained_ones_the_order(
    changed, init, final, same_images
):
    found = values(origin=origin(**changed))
    by = found.groupby("checkpoint")["paired"].all().to_dict()
    assert by == {"init": init, "final": final}
    assert (found["image_variance"] == 0).all() == same_images


def test_without_an_origin_nothing_is_paired():
    found = values()
    assert not found["paired"].any() and (found["image_variance"] > 0).all()
    assert len(found) == 2 * len(SEEDS)
    assert not paired(found.drop(columns="image_variance"), {}, ["arch"])["paired"].any()


def test_a_network_measured_in_two_cells_counts_once():
    untrained_and_trained = pd.concat([origin(), origin()], ignore_index=True)
    pd.testing.assert_frame_equal(values(origin=untrained_and_trained), values(origin=origin()))
