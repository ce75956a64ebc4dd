"""Reading CIFAR records, and the normalisation of batches."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from runner.contract import SettingError
from runner.data.cifar import Archive, archive, data_root, load, read
from runner.data.images import DataError, Split
from runner.kinds.dataset import CifarData
from tests.data.test_fetch import records

SPEC = Archive("cifar100", "none", "", "bin", train={"train.bin": 5}, test={"test.bin": 3}, limits=(2, 6), names=())


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


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
    assert data.train.targets.dtype == torch.int64 and data.train.targets.tolist() == raw[:, 1].tolist()
    assert data.train.inputs.dtype == torch.uint8
    assert (data.train.inputs.numpy()[2, 1, 31] == raw[2, 2 + 1024 + 31 * 32 :][:32]).all()  # green, last row
    assert len(read(SPEC, root / "bin", train=4, test=1).train) == 4


def test_fingerprint_follows_the_content(root):
    before = read(SPEC, root / "bin").fingerprint
    assert before == read(SPEC, root / "bin", train=2).fingerprint
    rows = np.fromfile(root / "bin" / "test.bin", np.uint8)
    rows[-1] ^= 1
    rows.tofile(root / "bin" / "test.bin")
    assert read(SPEC, root / "bin").fingerprint != before


def test_missing_and_broken_files_say_what_to_do(root, monkeypatch):
    with pytest.raises(DataError, match="1 to 5 examples, found 9"):
        read(SPEC, root / "bin", train=9)
    with (root / "bin" / "test.bin").open("ab") as stream:
        stream.write(b"x")
    with pytest.raises(DataError, match=r"expected 9222 bytes in .*test.bin, found 9223"):
        read(SPEC, root / "bin")
    rows = np.fromfile(root / "bin" / "train.bin", np.uint8).reshape(5, 3074)
    rows[3, 1] = 6
    rows.tofile(root / "bin" / "train.bin")
    (root / "bin" / "test.bin").write_bytes(bytes(9222))
    with pytest.raises(DataError, match=r"expected labels 0 to 5 in .*train.bin, found 6 in record 3"):
        read(SPEC, root / "bin")
    monkeypatch.setenv("HESS_DATA", str(root / "nowhere"))
    assert data_root() == root / "nowhere"
    for name, classes in (("cifar10", 10), ("cifar100", 100)):
        settings = CifarData(kind=name, classes=classes)
        with pytest.raises(DataError) as error:
            load(settings)
        assert settings.missing() == str(error.value)
        for part in ("expected", "found no such file", f"hess-run data fetch {name}", "profile=quick"):
            assert part in str(error.value)


def test_unknown_names_are_refused():
    with pytest.raises(DataError, match="cifar10, cifar100"):
        archive("mnist")
    with pytest.raises(SettingError, match="cifar10, cifar100"):
        CifarData(kind="mnist")
    with pytest.raises(SettingError, match="expected 100 for cifar100, found 10"):
        CifarData(kind="cifar100")
    with pytest.raises(SettingError, match="expected at most 50000, found 50001"):
        CifarData(train=50_001)


def test_normalisation_of_every_byte():
    values = torch.arange(256, dtype=torch.uint8).repeat(12)[:3072].view(1, 3, 32, 32)
    split = Split(values, torch.zeros(1, dtype=torch.int64))
    expected = (values.double() / 255 - 0.5) / 0.5
    x, _ = split.batch(slice(1))
    assert x.shape == (1, 3072) and x.dtype == torch.float32
    torch.testing.assert_close(x.double(), expected.flatten(1), rtol=0, atol=2e-7)
    mean, std = (0.1, 0.2, 0.3), (0.5, 0.4, 0.25)
    x, _ = replace(split, mean=mean, std=std, flat=False).batch(slice(1))
    expected = (values.double() / 255 - torch.tensor(mean).view(3, 1, 1)) / torch.tensor(std).view(3, 1, 1)
    torch.testing.assert_close(x.double(), expected, rtol=0, atol=1e-6)


def test_reader_gives_the_same_batches():
    split = Split(torch.randint(0, 256, (20, 3, 8, 8), generator=generator(), dtype=torch.uint8), torch.arange(20))
    read_batch = split.reader(6)
    for index in torch.randperm(20, generator=generator(1)).split(6):
        x, y = read_batch(index, None)
        expected, labels = split.batch(index)
        assert torch.equal(x, expected) and torch.equal(y, labels)
    mirrored, _ = read_batch(torch.arange(3), lambda images: images.flip(-1))
    assert torch.equal(mirrored.view(3, 3, 8, 8), split.batch(slice(3))[0].view(3, 3, 8, 8).flip(-1))


def test_subsamples():
    split = Split(torch.randn(9, 2, generator=generator()), torch.arange(9))
    assert split.first(4)[1].tolist() == [0, 1, 2, 3]
    chosen = split.random(5, generator(3))[1].tolist()
    assert len(set(chosen)) == 5 and chosen == split.random(5, generator(3))[1].tolist()
    for bad in (0, 10):
        with pytest.raises(DataError, match="1 to 9"):
            split.first(bad)
        with pytest.raises(DataError, match="1 to 9"):
            split.random(bad, generator())
