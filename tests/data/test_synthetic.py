"""Laws of the data sets that are made from seeds."""

import numpy as np
import pytest
import torch

from runner.contract import Context
from runner.contract.experiment import torch_generator
from runner.data.images import DataError, load, load_images
from runner.data.synthetic import MEAN, STD, gaussian_classes, linear, wedge
from runner.kinds.dataset import AttentionData, GaussianData, SurrogateData


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def test_gaussian_classes():
    x, q = gaussian_classes(4001, 3, 1.5, 2.0, generator())
    assert x.shape == (4001, 3) and x.dtype == torch.float64 and q.sum() == 2001
    for label, mean in ((0.0, 1.5), (1.0, -1.5)):  # WS bound, Appendix C: class 0 at [1 1], class 1 at [-1 -1]
        rows = x[q == label]
        assert (rows.mean(0) - mean).abs().max() < 4 * (2 / 2000) ** 0.5
        covariance = torch.cov(rows.T)
        assert (covariance - 2 * torch.eye(3)).abs().max() < 0.3
    again, _ = gaussian_classes(4001, 3, 1.5, 2.0, generator())
    assert torch.equal(x, again)


def test_wedge_and_linear():
    x, y = wedge(1000, np.random.default_rng(0), right=2.0, left=0.5)
    np.testing.assert_allclose(y, np.where(x > 0, 2 * x, -0.5 * x))
    x, y = wedge(1000, np.random.default_rng(0), noise=0.3)
    assert np.std(y - np.abs(x)) == pytest.approx(0.3, rel=0.1)
    x, y = linear(20000, np.random.default_rng(1), slope=3.0, scale=2.0, noise=0.5)
    assert np.std(y - 3 * x) == pytest.approx(0.5, rel=0.03) and np.std(x) == pytest.approx(2, rel=0.03)


def test_sequences_with_a_teacher():
    data = load(AttentionData(train=4000, validation=500, noise=0.1), Context(seed=1))
    y = data.train.targets
    assert data.train.inputs.shape == (4000, 8, 16) and y.shape == (4000,)
    assert y.mean().abs() < 1e-6 and y.std(correction=0) == pytest.approx(1, abs=1e-5)
    quiet = load(AttentionData(train=4000, validation=500, noise=0.0), Context(seed=1))
    assert torch.equal(quiet.train.inputs, data.train.inputs)
    # the teacher explains all but the noise: Var(ε)/Var(y) is between 0 and 1, and the same teacher gives the same y
    g = torch_generator(0, "teacher")
    matrix, vector = torch.randn(16, 16, generator=g) / 4, torch.randn(16, generator=g) / 4
    clean = torch.tanh(quiet.validation.inputs @ matrix).mean(1) @ vector
    assert torch.corrcoef(torch.stack([clean, quiet.validation.targets]))[0, 1] > 0.99999
    assert 0.5 < torch.corrcoef(torch.stack([clean, data.validation.targets]))[0, 1] < 0.999
    assert data.fingerprint != quiet.fingerprint


def test_surrogate_has_natural_brightness_spectrum_and_colour():
    data = load(SurrogateData(train=2000, test=100), Context(seed=1))
    pixels = data.train.inputs.double()
    assert data.train.inputs.dtype == torch.uint8 and data.train.inputs.shape == (2000, 3, 32, 32)
    assert pixels.mean() == pytest.approx(MEAN, abs=6) and pixels.std() == pytest.approx(STD, rel=0.1)
    channels = torch.corrcoef(pixels.transpose(0, 1).reshape(3, -1))
    assert (channels[0, 1] > 0.8) and (channels[0, 2] > 0.8)
    power = torch.fft.rfft2(pixels - pixels.mean((-1, -2), keepdim=True)).abs().square().mean((0, 1))
    frequency = torch.arange(1, 13)
    slope = np.polyfit(np.log(frequency.numpy()), np.log(power[0, 1:13].numpy()), 1)[0]
    assert -2.4 < slope < -1.6  # power 1/f²


def test_surrogate_classes_are_balanced_and_tell_apart():
    data = load_images(SurrogateData(classes=5, train=1003, test=500), Context(seed=2))
    counts = torch.bincount(data.train.targets, minlength=5)
    assert counts.max() - counts.min() <= 1 and data.classes == 5 and data.source == "surrogate"
    assert data.train.targets[:20].unique().numel() > 2  # in random order
    x, y = data.train.batch(slice(None))
    means = torch.stack([x[y == c].mean(0) for c in range(5)])
    x_test, y_test = data.test.batch(slice(None))
    right = (torch.cdist(x_test, means).argmin(1) == y_test).float().mean()
    assert 0.25 < right < 0.95
    again = load_images(SurrogateData(classes=5, train=1003, test=500), Context(seed=2))
    assert again.fingerprint == data.fingerprint
    other = load_images(SurrogateData(classes=5, train=1003, test=500), Context(seed=3))
    assert other.fingerprint != data.fingerprint


def test_every_kind_is_loaded_by_the_module_of_its_settings():
    splits = load(GaussianData(train=6, test=[4, 9]), Context(seed=1))
    assert splits.train[0].shape == (6, 2) and {n: len(q) for n, (_, q) in splits.test.items()} == {4: 4, 9: 9}
    tokens = load(AttentionData(train=8, validation=4, tokens=3, width=5), Context(seed=1))
    assert tokens.train.inputs.shape == (8, 3, 5)
    with pytest.raises(DataError, match="expected a function load"):
        load(object(), Context(seed=1))
