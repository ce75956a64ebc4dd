"""A store of three cells of the toy, measured once, and a copy of it for each test."""

import shutil
from pathlib import Path

import pytest

from runner.kinds.dataset import GaussianData
from runner.run.execute import run
from runner.store.job import Job, claim_outputs
from tests.run.toy import Toy

TOY = Toy(width=[1, 2, 3], shape=["round"], dataset=GaussianData(train=8))


def flipped(content: bytes, at: int = 0) -> bytes:
    """One bit changed, in the middle if no place is given."""
    at = at or len(content) // 2
    return content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :]


@pytest.fixture(scope="session")
def calm(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An undisturbed store; nothing changes it."""
    root = tmp_path_factory.mktemp("calm")
    claim_outputs(root)
    run(Job("toy", TOY, 42, root))
    return root


@pytest.fixture
def outputs(calm: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(calm, tmp_path / "outputs"))
