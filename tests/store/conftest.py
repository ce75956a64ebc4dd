"""A store of three cells of the toy, measured once, and a copy of it for each test."""

import gzip
import hashlib
import json
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


def as_before(entries: list[tuple[str, bytes]]) -> list[tuple[str, bytes]]:
    """The files of a cell as version 0.3.0 and before wrote them: a sum for each table."""
    tables = {name: content for name, content in entries if name.endswith(".csv.gz")}
    ((place, text),) = [entry for entry in entries if entry[0] not in tables]
    sums, sizes = {}, {}
    for name, content in tables.items():
        table = name.partition("/")[2].removesuffix(".csv.gz")
        sums[table] = hashlib.sha256(content).hexdigest()
        sizes[table] = [len(content), len(gzip.decompress(content))]
    meta = {**json.loads(text), "sha256": sums, "sizes": sizes}
    return [*tables.items(), (place, json.dumps(meta, indent=1, sort_keys=True).encode() + b"\n")]
