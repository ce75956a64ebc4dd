"""One thread for every test: several on a shared machine spend their time waiting for one another.

No test takes a published cell for one that it has measured, unless it asks for the published
results.
"""

import gc
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests import ROOT

for variable in ("OMP_NUM_THREADS", "MKL_NUM_THREADS"):  # read when torch is first imported
    os.environ.setdefault(variable, "1")

os.environ["HESS_PUBLISHED"] = ""

# Collecting the tests makes half a million objects that stay, and each search for garbage among
# them takes a tenth of a second.
gc.set_threshold(100_000, 20, 20)


def pytest_collection_finish() -> None:
    gc.freeze()


def _seed() -> None:
    if "torch" in sys.modules:
        sys.modules["torch"].manual_seed(0)


# No draw depends on which tests ran before in the same process.
seeded_module = pytest.fixture(_seed, scope="module", autouse=True)
seeded = pytest.fixture(_seed, autouse=True)


@pytest.fixture
def published(monkeypatch) -> Path:
    """The published results count, as they do for a user; their folder."""
    folder = ROOT / "outputs" / "published"
    monkeypatch.setenv("HESS_PUBLISHED", str(folder))
    return folder


@pytest.fixture(scope="session")
def clone(tmp_path_factory) -> Path:
    """A fresh clone of the last commit: tests share it, and leave nothing in it for git."""
    folder = tmp_path_factory.mktemp("clone") / "hess"
    found = subprocess.run(
        ["git", "clone", "-q", str(ROOT), str(folder)], capture_output=True, text=True
    )
    if found.returncode:
        pytest.skip(f"no git history here to clone: {found.stderr}")
    return folder
