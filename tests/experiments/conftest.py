"""One thread, whatever a test before has set."""

import pytest
import torch


@pytest.fixture(autouse=True, scope="module")
def _one_thread():
    torch.set_num_threads(1)
