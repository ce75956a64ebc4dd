"""Named random streams: one seed and a role give one generator, whoever asks and in whatever order.

A stream is keyed by SHA-256 over the seed and the role, so adding a stream never shifts another one, and the same
role gives the same numbers on every machine.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    import torch


def stream_key(seed: int, role: str) -> int:
    """64-bit key of the stream `role` under `seed`. Raises ValueError for an empty role."""
    if not role or role != role.strip():
        raise ValueError(f"random stream: expected a role such as 'init' or 'data/train', found {role!r}")
    digest = hashlib.sha256(f"hess-run/{seed}/{role}".encode()).digest()
    return int.from_bytes(digest[:8], "big") >> 1  # torch takes signed 64-bit seeds


def torch_generator(seed: int, role: str, device: str = "cpu") -> torch.Generator:
    """A torch generator for the stream `role` of `seed`."""
    import torch

    generator = torch.Generator(device=device)
    generator.manual_seed(stream_key(seed, role))
    return generator


def numpy_generator(seed: int, role: str) -> np.random.Generator:
    """A numpy generator for the stream `role` of `seed`."""
    import numpy as np

    return np.random.default_rng(stream_key(seed, role))
