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
from runner.kinds.dataset import AttentionData, CifarData, DigitsData, GaussianData, SurrogateData
from tests.data.test_fetch import records
from tests.draws import seeded
from tests.errors import refusal

FILES = {"train": {"train.bin": 5}, "test": {"test.bin": 3}}
SPEC = Archive("cifar100", "none", "", "bin", **FILES, limits=(2, 6), names=())


@pytest.fixture
def folder(tmp_path):
    found = tmp_path / "bin"
    found.mkdir()
    for seed, (file, count) in enumerate((SPEC.train | SPEC.test).items()):
        records(count, seed, SPEC.limits).tofile(found / file)
    return found


def stored(path):
    """The records of a file."""
    return np.fromfile(path, np.uint8).reshape(-1, 3074)


def test_fine_labels_pixels_and_order(folder):
    raw, data = stored(folder / "train.bin"), read(SPEC, folder)
    inputs, targets = data.train.inputs, data.train.targets
    assert data.classes == 6 and data.source == "cifar100"
    assert targets.dtype == torch.int64 and targets.tolist() == raw[:, 1].tolist()
    assert inputs.dtype == torch.uint8
    green_last_row = raw[2, 2 + 1024 + 31 * 32 :][:32]
    assert (inputs.numpy()[2, 1, 31] == green_last_row).all()
    assert len(read(SPEC, folder, train=4, test=1).train) == 4


def test_fingerprint_follows_the_content(folder):
    before = read(SPEC, folder).fingerprint
    assert before == read(SPEC, folder, train=2).fingerprint
    rows = stored(folder / "test.bin")
    rows[-1, -1] ^= 1
    rows.tofile(folder / "test.bin")
    assert read(SPEC, folder).fingerprint != before


def test_broken_files_are_refused(folder):
    with refusal("1 to 5 examples, found 9", DataError):
        read(SPEC, folder, train=9)
    (folder / "test.bin").write_bytes(bytes(9223))
    with refusal(r"expected 9222 bytes in .*test.bin, found 9223", DataError):
        read(SPEC, folder)
    rows = stored(folder / "train.bin")
    rows[3, 1] = 6
    rows.tofile(folder / "train.bin")
    (folder / "test.bin").write_bytes(bytes(9222))
    with refusal(r"expected labels 0 to 5 in .*train.bin, found 6 in record 3", DataError):
        read(SPEC, folder)


@pytest.mark.parametrize("name, classes", [("cifar10", 10), ("cifar100", 100)])
def test_missing_files_say_what_to_do(tmp_path, monkeypatch, name, classes):
    monkeypatch.setenv("HESS_DATA", str(tmp_path / "nowhere"))
    assert data_root() == tmp_path / "nowhere"
    settings = CifarData(kind=name, classes=classes)
    with pytest.raises(DataError) as error:
        cifar.load(settings)
    text = str(error.value)
    assert settings.missing() == text
    command = f"hess-run data fetch {name}"
    for part in ("expected", "found no such file", command, "profile=quick"):
        assert part in text


def test_only_the_published_records_are_read_in_whatever_order(folder):
    sums = []
    for name in ("train", "test"):
        total = 0
        for row in stored(folder / f"{name}.bin"):  # without the coarse class
            total += int.from_bytes(sha256(row[1:].tobytes()).digest(), "big")
        sums.append(f"{total % 2**128:032x}")
    published = replace(SPEC, records=tuple(sums))
    before = read(published, folder).train.targets
    rows = stored(folder / "train.bin")
    rows[::-1].tofile(folder / "train.bin")
    assert torch.equal(read(published, folder).train.targets, before.flip(0))
    rows[2, 100] ^= 1
    rows.tofile(folder / "train.bin")
    with refusal(r"expected the published records in train.bin of", DataError):
        read(published, folder)


def test_the_order_of_records_is_known_by_all_bytes_or_by_the_first(folder, monkeypatch):
    rows = stored(folder / "train.bin")
    beginning = sha256(rows[:, 1].tobytes() + rows[:, 2:].tobytes()).hexdigest()
    monkeypatch.setattr(cifar, "ORDERS", {beginning[:32]: "as published"})
    data = read(SPEC, folder)
    assert (data.train_order, data.test_order) == ("as published", "not known")
    images, labels = torch.zeros(2, 3, 4, 4, dtype=torch.uint8), torch.tensor([1, 7])
    first = sha256(bytes([1, 7]) + bytes(2 * 48)).hexdigest()
    monkeypatch.setattr(cifar, "ORDERS", {"a" * 32: "official", first[:32]: "shuffled"})
    for letter, own, order in (
        ("a", labels, "official"),
        ("b", labels, "shuffled"),
        ("b", labels + 1, "not known"),
    ):
        assert cifar.record_order(letter * 64, images, own) == order


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


def test_normalisation_of_every_byte():
    values = torch.arange(256, dtype=torch.uint8).repeat(12)[:3072].view(1, 3, 32, 32)
    split, exact = Split(values, torch.zeros(1, dtype=torch.int64)), values.double() / 255
    x, _ = split.batch(slice(1))
    assert x.shape == (1, 3072) and x.dtype == torch.float32
    assert_close(x.double(), ((exact - 0.5) / 0.5).flatten(1), rtol=0, atol=2e-7)
    mean, std = (0.1, 0.2, 0.3), (0.5, 0.4, 0.25)
    x, _ = replace(split, mean=mean, std=std, flat=False).batch(slice(1))
    mean, std = (torch.tensor(values).view(3, 1, 1) for values in (mean, std))
    assert_close(x.double(), (exact - mean) / std, rtol=0, atol=1e-6)


def test_reader_gives_the_same_batches():
    pixels = torch.randint(0, 256, (20, 3, 8, 8), generator=seeded(), dtype=torch.uint8)
    split = Split(pixels, torch.arange(20))
    read_batch = split.reader(6)
    for index in torch.randperm(20, generator=seeded(1)).split(6):
        x, y = read_batch(index, None)
        expected, labels = split.batch(index)
        assert torch.equal(x, expected) and torch.equal(y, labels)
    mirrored, _ = read_batch(torch.arange(3), lambda images: images.flip(-1))
    expected = replace(split, inputs=pixels.flip(-1)).batch(slice(3))[0]
    assert torch.equal(mirrored, expected)


def test_subsamples():
    split = Split(torch.randn(9, 2, generator=seeded()), torch.arange(9))
    assert split.first(4)[1].tolist() == [0, 1, 2, 3]
    drawn, again = (split.random(5, seeded(3))[1].tolist() for _ in range(2))
    assert len(set(drawn)) == 5 and drawn == again
    for bad in (0, 10):
        with refusal("1 to 9", DataError):
            split.first(bad)
        with refusal("1 to 9", DataError):
            split.random(bad, seeded())


def test_gaussian_classes():
    x, q = gaussian_classes(4001, 3, 1.5, 2.0, seeded())
    assert x.shape == (4001, 3) and x.dtype == torch.float64 and q.sum() == 2001
    # WS bound, Appendix C: class 0 at [1 1], class 1 at [-1 -1]
    for label, mean in ((0.0, 1.5), (1.0, -1.5)):
        rows = x[q == label]
        assert (rows.mean(0) - mean).abs().max() < 4 * (2 / 2000) ** 0.5
        assert (torch.cov(rows.T) - 2 * torch.eye(3)).abs().max() < 0.3
    again, _ = gaussian_classes(4001, 3, 1.5, 2.0, seeded())
    assert torch.equal(x, again)


def test_wedge():
    x, y = wedge(1000, np.random.default_rng(0), right=2.0, left=0.5)
    np.testing.assert_allclose(y, np.where(x > 0, 2 * x, -0.5 * x))
    x, y = wedge(1000, np.random.default_rng(0), noise=0.3)
    assert np.std(y - np.abs(x)) == pytest.approx(0.3, rel=0.1)


def test_linear():
    x, y = linear(20000, np.random.default_rng(1), slope=3.0, scale=2.0, noise=0.5)
    first, second = np.random.default_rng(1).standard_normal((2, 20000))
    np.testing.assert_allclose(y, 6 * first + 0.5 * second, rtol=1e-12)
    assert [np.std(y - 3 * x), np.std(x)] == pytest.approx([0.5, 2], rel=0.03)


def correlation(a, b):
    return torch.corrcoef(torch.stack([a, b]))[0, 1]


def test_sequences_with_a_teacher():
    noisy, quiet = (
        load(AttentionData(train=4000, validation=500, noise=noise), Context(seed=1))
        for noise in (0.1, 0.0)
    )
    inputs, y = noisy.train.inputs, noisy.train.targets
    assert inputs.shape == (4000, 8, 16) and y.shape == (4000,)
    assert y.mean().abs() < 1e-6 and y.std(correction=0) == pytest.approx(1, abs=1e-5)
    assert torch.equal(quiet.train.inputs, inputs) and noisy.fingerprint != quiet.fingerprint
    # the teacher explains all but the noise: Var(ε)/Var(y) is between 0 and 1, and the same teacher
    # gives the same y
    g = torch_generator(0, "teacher")
    matrix, vector = torch.randn(16, 16, generator=g) / 4, torch.randn(16, generator=g) / 4
    clean = torch.tanh(quiet.validation.inputs @ matrix).mean(1) @ vector
    assert correlation(clean, quiet.validation.targets) > 0.99999
    assert 0.5 < correlation(clean, noisy.validation.targets) < 0.999


def test_surrogate_has_natural_brightness_spectrum_and_colour():
    inputs = load(SurrogateData(train=2000, test=100), Context(seed=1)).train.inputs
    pixels = inputs.double()
    assert inputs.dtype == torch.uint8 and inputs.shape == (2000, 3, 32, 32)
    assert pixels.mean() == pytest.approx(MEAN, abs=6)
    assert pixels.std() == pytest.approx(STD, rel=0.1)
    channels = torch.corrcoef(pixels.transpose(0, 1).reshape(3, -1))
    assert (channels[0] > 0.8).all()
    centred = pixels - pixels.mean((-1, -2), keepdim=True)
    power = torch.fft.rfft2(centred).abs().square().mean((0, 1))[0, 1:13]
    slope, _ = np.polyfit(np.log(np.arange(1, 13)), np.log(power.numpy()), 1)
    assert -2.4 < slope < -1.6  # power 1/f²


def test_surrogate_classes_are_balanced_and_tell_apart():
    settings = SurrogateData(classes=5, train=1003, test=500)
    data = load_images(settings, Context(seed=2))
    counts = torch.bincount(data.train.targets, minlength=5)
    assert counts.max() - counts.min() <= 1 and data.classes == 5 and data.source == "surrogate"
    assert data.train.targets[:20].unique().numel() > 2  # in random order
    x, y = data.train.batch(slice(None))
    means = torch.stack([x[y == c].mean(0) for c in range(5)])
    x_test, y_test = data.test.batch(slice(None))
    right = (torch.cdist(x_test, means).argmin(1) == y_test).float().mean()
    assert 0.25 < right < 0.95
    assert load_images(settings, Context(seed=2)).fingerprint == data.fingerprint
    assert load_images(settings, Context(seed=3)).fingerprint != data.fingerprint
    assert len(images._HELD) == 1  # no memory for images of two


def test_every_kind_is_loaded_by_the_module_of_its_settings():
    splits = load(GaussianData(train=6, test=[4, 9]), Context(seed=1))
    assert splits.train[0].shape == (6, 2)
    assert {n: len(q) for n, (_, q) in splits.test.items()} == {4: 4, 9: 9}
    tokens = load(AttentionData(train=8, validation=4, tokens=3, width=5), Context(seed=1))
    assert tokens.train.inputs.shape == (8, 3, 5)
    kind = DigitsData()
    x, y = load(kind, Context(seed=1))
    assert x.shape == (kind.size, kind.inputs) and set(y.tolist()) == set(range(kind.classes))
    assert float(x.min()) == 0 and float(x.max()) == 1
    with refusal("expected a function load", DataError):
        load(object(), Context(seed=1))
