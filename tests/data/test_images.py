"""Reading CIFAR records, the normalisation of batches, and laws of the data sets that are made from
seeds."""

from dataclasses import replace
from hashlib import sha256

import numpy as np
import pytest
import torch
from torch.testing import assert_close

from runner.contract import Context, SettingError
from runner.contract.experiment import torch_generator
from runner.data import cifar, images
from runner.data.cifar import Archive, archive, data_root, read
from runner.data.images import DataError, Split, load, load_images
from runner.data.synthetic import MEAN, STD, gaussian_classes, linear, wedge
from runner.kinds.dataset import AttentionData, CifarData, GaussianData, SurrogateData
from tests.data.test_fetch import records
from tests.draws import seeded
from tests.errors import refusal

SPEC = Archive(
    "cifar100",
    "none",
    "",
    "bin",
    train={"train.bin": 5},
    test={"test.bin": 3},
    limits=(2, 6),
    names=(),
)


@pytest.fixture
def root(tmp_path):
    (tmp_path / "bin").mkdir()
    for seed, (file, count) in enumerate({**SPEC.train, **SPEC.test}.items()):
        records(count, seed, SPEC.limits).tofile(tmp_path / "bin" / file)
    return tmp_path


def test_fine_labels_pixels_and_order(root):
    raw = np.fromfile(root / "bin" / "train.bin", np.uint8).reshape(5, 3074)
    data = read(SPEC, root / "bin")
    assert data.classes == 6 and data.source == "cifar100"
    assert (
        data.train.targets.dtype == torch.int64
        and data.train.targets.tolist() == raw[:, 1].tolist()
    )
    assert data.train.inputs.dtype == torch.uint8
    assert (
        data.train.inputs.numpy()[2, 1, 31] == raw[2, 2 + 1024 + 31 * 32 :][:32]
    ).all()  # green, last row
    assert len(read(SPEC, root / "bin", train=4, test=1).train) == 4


def test_fingerprint_follows_the_content(root):
    before = read(SPEC, root / "bin").fingerprint
    assert before == read(SPEC, root / "bin", train=2).fingerprint
    rows = np.fromfile(root / "bin" / "test.bin", np.uint8)
    rows[-1] ^= 1
    rows.tofile(root / "bin" / "test.bin")
    assert read(SPEC, root / "bin").fingerprint != before


def test_missing_and_broken_files_say_what_to_do(root, monkeypatch):
    with refusal("1 to 5 examples, found 9", DataError):
        read(SPEC, root / "bin", train=9)
    with (root / "bin" / "test.bin").open("ab") as stream:
        stream.write(b"x")
    with refusal(r"expected 9222 bytes in .*test.bin, found 9223", DataError):
        read(SPEC, root / "bin")
    rows = np.fromfile(root / "bin" / "train.bin", np.uint8).reshape(5, 3074)
    rows[3, 1] = 6
    rows.tofile(root / "bin" / "train.bin")
    (root / "bin" / "test.bin").write_bytes(bytes(9222))
    with refusal(r"expected labels 0 to 5 in .*train.bin, found 6 in record 3", DataError):
        read(SPEC, root / "bin")
    monkeypatch.setenv("HESS_DATA", str(root / "nowhere"))
    assert data_root() == root / "nowhere"
    for name, classes in (("cifar10", 10), ("cifar100", 100)):
        settings = CifarData(kind=name, classes=classes)
        with pytest.raises(DataError) as error:
            cifar.load(settings)
        assert settings.missing() == str(error.value)
        for part in (
            "expected",
            "found no such file",
            f"hess-run data fetch {name}",
            "profile=quick",
        ):
            assert part in str(error.value)


def test_only_the_published_records_are_read_in_whatever_order(root):
    sums = []
    for name, count in (("train", 5), ("test", 3)):
        rows = np.fromfile(root / "bin" / f"{name}.bin", np.uint8).reshape(count, 3074)
        digests = [sha256(row[1:].tobytes()).digest() for row in rows]  # without the coarse class
        total = sum(int.from_bytes(digest, "big") for digest in digests)
        sums.append(f"{total % 2**128:032x}")
    published = replace(SPEC, records=tuple(sums))
    before = read(published, root / "bin").train.targets
    rows = np.fromfile(root / "bin" / "train.bin", np.uint8).reshape(5, 3074)
    rows[::-1].tofile(root / "bin" / "train.bin")
    assert torch.equal(read(published, root / "bin").train.targets, before.flip(0))
    rows[2, 100] ^= 1
    rows.tofile(root / "bin" / "train.bin")
    with refusal(r"expected the published records in train.bin of", DataError):
        read(published, root / "bin")


def test_the_order_of_records_is_known_by_all_bytes_or_by_the_first(root, monkeypatch):
    rows = np.fromfile(root / "bin" / "train.bin", np.uint8).reshape(5, 3074)
    beginning = sha256(rows[:, 1].tobytes() + rows[:, 2:].tobytes()).hexdigest()
    monkeypatch.setattr(cifar, "ORDERS", {beginning[:32]: "as published"})
    data = read(SPEC, root / "bin")
    assert (data.train_order, data.test_order) == ("as published", "not known")
    images, labels = torch.zeros(2, 3, 4, 4, dtype=torch.uint8), torch.tensor([1, 7])
    first = sha256(bytes([1, 7]) + bytes(2 * 48)).hexdigest()
    monkeypatch.setattr(cifar, "ORDERS", {"a" * 32: "official", first[:32]: "shuffled"})
    orders = [cifar.record_order(all_bytes * 64, images, labels) for all_bytes in "ab"]
    assert orders == ["official", "shuffled"]
    assert cifar.record_order("b" * 64, images, labels + 1) == "not known"


@pytest.mark.parametrize(
    ("name", "train", "size"), [("cifar10", 5 * 30_730_000, 3073), ("cifar100", 153_700_000, 3074)]
)
def test_the_archives_have_the_published_sizes(name, train, size):
    spec = archive(name)
    assert sum(spec.sizes[file] for file in spec.train) == train
    assert sum(spec.sizes[file] for file in spec.test) == 10_000 * size


def test_unknown_names_are_refused():
    with refusal("cifar10, cifar100", DataError):
        archive("mnist")
    with refusal("cifar10, cifar100", SettingError):
        CifarData(kind="mnist")
    with refusal("expected 100 for cifar100, found 10", SettingError):
        CifarData(kind="cifar100")
    with refusal("expected at most 50000, found 50001", SettingError):
        CifarData(train=50_001)


def test_normalisation_of_every_byte():
    values = torch.arange(256, dtype=torch.uint8).repeat(12)[:3072].view(1, 3, 32, 32)
    split = Split(values, torch.zeros(1, dtype=torch.int64))
    expected = (values.double() / 255 - 0.5) / 0.5
    x, _ = split.batch(slice(1))
    assert x.shape == (1, 3072) and x.dtype == torch.float32
    assert_close(x.double(), expected.flatten(1), rtol=0, atol=2e-7)
    mean, std = (0.1, 0.2, 0.3), (0.5, 0.4, 0.25)
    x, _ = replace(split, mean=mean, std=std, flat=False).batch(slice(1))
    expected = (values.double() / 255 - torch.tensor(mean).view(3, 1, 1)) / torch.tensor(std).view(
        3, 1, 1
    )
    assert_close(x.double(), expected, rtol=0, atol=1e-6)


def test_reader_gives_the_same_batches():
    split = Split(
        torch.randint(0, 256, (20, 3, 8, 8), generator=seeded(), dtype=torch.uint8),
        torch.arange(20),
    )
    read_batch = split.reader(6)
    for index in torch.randperm(20, generator=seeded(1)).split(6):
        x, y = read_batch(index, None)
        expected, labels = split.batch(index)
        assert torch.equal(x, expected) and torch.equal(y, labels)
    mirrored, _ = read_batch(torch.arange(3), lambda images: images.flip(-1))
    assert torch.equal(
        mirrored.view(3, 3, 8, 8), split.batch(slice(3))[0].view(3, 3, 8, 8).flip(-1)
    )


def test_subsamples():
    split = Split(torch.randn(9, 2, generator=seeded()), torch.arange(9))
    assert split.first(4)[1].tolist() == [0, 1, 2, 3]
    chosen = split.random(5, seeded(3))[1].tolist()
    assert len(set(chosen)) == 5 and chosen == split.random(5, seeded(3))[1].tolist()
    for bad in (0, 10):
        with refusal("1 to 9", DataError):
            split.first(bad)
        with refusal("1 to 9", DataError):
            split.random(bad, seeded())


def test_gaussian_classes():
    x, q = gaussian_classes(4001, 3, 1.5, 2.0, seeded())
    assert x.shape == (4001, 3) and x.dtype == torch.float64 and q.sum() == 2001
    for label, mean in (
        (0.0, 1.5),
        (1.0, -1.5),
    ):  # WS bound, Appendix C: class 0 at [1 1], class 1 at [-1 -1]
        rows = x[q == label]
        assert (rows.mean(0) - mean).abs().max() < 4 * (2 / 2000) ** 0.5
        covariance = torch.cov(rows.T)
        assert (covariance - 2 * torch.eye(3)).abs().max() < 0.3
    again, _ = gaussian_classes(4001, 3, 1.5, 2.0, seeded())
    assert torch.equal(x, again)


def test_wedge_and_linear():
    x, y = wedge(1000, np.random.default_rng(0), right=2.0, left=0.5)
    np.testing.assert_allclose(y, np.where(x > 0, 2 * x, -0.5 * x))
    x, y = wedge(1000, np.random.default_rng(0), noise=0.3)
    assert np.std(y - np.abs(x)) == pytest.approx(0.3, rel=0.1)
    x, y = linear(20000, np.random.default_rng(1), slope=3.0, scale=2.0, noise=0.5)
    draws = np.random.default_rng(1).standard_normal((2, 20000))
    np.testing.assert_allclose(y, 6 * draws[0] + 0.5 * draws[1], rtol=1e-12)
    assert np.std(y - 3 * x) == pytest.approx(0.5, rel=0.03) and np.std(x) == pytest.approx(
        2, rel=0.03
    )


def test_sequences_with_a_teacher():
    data = load(AttentionData(train=4000, validation=500, noise=0.1), Context(seed=1))
    y = data.train.targets
    assert data.train.inputs.shape == (4000, 8, 16) and y.shape == (4000,)
    assert y.mean().abs() < 1e-6 and y.std(correction=0) == pytest.approx(1, abs=1e-5)
    quiet = load(AttentionData(train=4000, validation=500, noise=0.0), Context(seed=1))
    assert torch.equal(quiet.train.inputs, data.train.inputs)
    # the teacher explains all but the noise: Var(ε)/Var(y) is between 0 and 1, and the same teacher
    # gives the same y
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
    assert pixels.mean() == pytest.approx(MEAN, abs=6) and pixels.std() == pytest.approx(
        STD, rel=0.1
    )
    channels = torch.corrcoef(pixels.transpose(0, 1).reshape(3, -1))
    assert (channels[0, 1] > 0.8) and (channels[0, 2] > 0.8)
    power = (
        torch.fft.rfft2(pixels - pixels.mean((-1, -2), keepdim=True)).abs().square().mean((0, 1))
    )
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
    assert len(images._HELD) == 1  # no memory for images of two


def test_published_streams_draw_inputs_from_torchs_generator_of_the_seed():
    settings = AttentionData(train=8, validation=4, tokens=3, width=5, streams="published")
    inputs = load(settings, Context(seed=3)).train.inputs
    assert torch.equal(inputs, torch.randn(8, 3, 5, generator=seeded(3)))
    named = load(replace(settings, streams="named"), Context(seed=3)).train.inputs
    assert not torch.equal(inputs, named)


def test_every_kind_is_loaded_by_the_module_of_its_settings():
    splits = load(GaussianData(train=6, test=[4, 9]), Context(seed=1))
    assert splits.train[0].shape == (6, 2) and {n: len(q) for n, (_, q) in splits.test.items()} == {
        4: 4,
        9: 9,
    }
    tokens = load(AttentionData(train=8, validation=4, tokens=3, width=5), Context(seed=1))
    assert tokens.train.inputs.shape == (8, 3, 5)
    with refusal("expected a function load", DataError):
        load(object(), Context(seed=1))
