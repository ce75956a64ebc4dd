"""Variance components: against formulas for two and three factors, and the coverage of their intervals."""

import numpy as np
import pytest

from runner.stats.intervals import components, mean_squares, weights

NAMES = ["network", "order", "images"]


def draw(rng, shape, stds):
    y = np.zeros(shape)
    for axes, std in stds.items():
        size = [n if i in axes else 1 for i, n in enumerate(shape)]
        y = y + std * rng.standard_normal(size)
    return y


def test_two_factors_by_the_textbook():
    y = np.random.default_rng(1).standard_normal((4, 3)) + np.arange(4)[:, None]
    rows, columns = y.mean(1) - y.mean(), y.mean(0) - y.mean()
    rest = y - y.mean() - rows[:, None] - columns[None]
    want = {"a": (3 * (rows**2).sum() / 3, 3), "b": (4 * (columns**2).sum() / 2, 2), "a:b": ((rest**2).sum() / 6, 6)}
    found = mean_squares(y, ["a", "b"])
    assert list(found) == list(want)
    for name, (ms, df) in want.items():
        assert found[name] == (pytest.approx(ms), df)
    by = {c.source: c for c in components(y, ["a", "b"])}
    assert by["a"].variance == pytest.approx(max(0.0, (want["a"][0] - want["a:b"][0]) / 3))
    assert sum(c.share for c in by.values()) == pytest.approx(1)


def test_sums_of_squares_add_up_and_weights_are_the_expected_mean_squares():
    y = np.random.default_rng(2).standard_normal((3, 4, 5))
    found = mean_squares(y, NAMES)
    assert sum(ms * df for ms, df in found.values()) == pytest.approx(((y - y.mean()) ** 2).sum())
    network = weights(y.shape, NAMES)["network"]
    assert network == pytest.approx(
        {"network": 1 / 20, "network:order": -1 / 20, "network:images": -1 / 20, "network:order:images": 1 / 20}
    )


def test_components_are_found_where_there_are_many_levels():
    stds = {(0,): 3.0, (1,): 1.0, (2,): 2.0, (0, 1): 0.5, (0, 1, 2): 0.2}
    y = draw(np.random.default_rng(3), (60, 60, 60), stds)
    by = {c.source: c for c in components(y, NAMES)}
    for source, variance in {"network": 9, "order": 1, "images": 4, "network:order": 0.25}.items():
        assert by[source].variance == pytest.approx(variance, rel=0.5)
        assert by[source].low < variance < by[source].high
    assert by["network:images"].variance == pytest.approx(0, abs=1e-3)
    grouped = components(y, NAMES, {"all": list(by)})
    assert grouped[0].share == 1 and grouped[0].variance == pytest.approx(sum(c.variance for c in by.values()))


def test_an_order_without_influence_leaves_two_factors():
    y = np.repeat(np.random.default_rng(4).standard_normal((4, 1, 6)), 3, axis=1)
    by = {c.source: c for c in components(y, NAMES)}
    two = {c.source: c for c in components(y[:, 0], ["network", "images"])}
    assert by["order"].variance + by["network:order"].variance == pytest.approx(0, abs=1e-20)
    for source in ("network", "images"):
        assert by[source].variance == pytest.approx(two[source].variance)
    assert by["network:images"].variance == pytest.approx(two["network:images"].variance)


def test_intervals_cover(monkeypatch):
    monkeypatch.setattr("runner.stats.intervals.DRAWS", 800)
    rng, stds = np.random.default_rng(5), {(0,): 1.0, (1,): 0.5, (0, 1): 0.7}
    hits = {"a": 0, "b": 0, "a:b": 0}
    runs = 300
    for _ in range(runs):
        for c in components(draw(rng, (4, 4), stds), ["a", "b"]):
            hits[c.source] += c.low <= {"a": 1.0, "b": 0.25, "a:b": 0.49}[c.source] <= c.high
    assert all(n / runs > 0.92 for n in hits.values()), hits


def test_one_level_has_no_variance():
    with pytest.raises(ValueError, match="expected two levels or more of network, order"):
        components(np.zeros((1, 4)), ["network", "order"])
