"""torch.randn on a CUDA device, drawn again on the CPU: Philox 4x32-10, Box–Muller, and torch's order of the threads.

A generator on a GPU gives other numbers than one on the CPU with the same seed, and the paper's trainings may well have
drawn their data there. Thread i of torch's kernel takes the counter (offset/4, 0, i, 0) under the key `seed`, makes
four normal numbers of the four words and puts them at i, i + n, i + 2n, i + 3n for n threads. The number of threads
depends on the device where there are more blocks of 256 than it holds at a time (`blocks`).
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

Words = NDArray[np.uint64]
MULTIPLIERS = np.uint64(0xD2511F53), np.uint64(0xCD9E8D57)
WEYL = 0x9E3779B9, 0xBB67AE85
LOW = np.uint64(0xFFFFFFFF)
HIGH = np.uint64(32)
ROUNDS, BLOCK, UNROLL = 10, 256, 4
UNIT = 2.0**-32


def philox(counter: tuple[Words, Words, Words, Words], seed: int) -> tuple[Words, Words, Words, Words]:
    """Philox 4x32-10 of 32-bit counters (as uint64 arrays) under a 64-bit key: four words each."""
    a, b, c, d = counter
    keys = [seed & 0xFFFFFFFF, seed >> 32 & 0xFFFFFFFF]
    for _ in range(ROUNDS):
        first, second = a * MULTIPLIERS[0], c * MULTIPLIERS[1]
        a, b, c, d = (
            second >> HIGH ^ b ^ np.uint64(keys[0]),
            second & LOW,
            first >> HIGH ^ d ^ np.uint64(keys[1]),
            first & LOW,
        )
        keys = [(key + step) & 0xFFFFFFFF for key, step in zip(keys, WEYL, strict=True)]
    return a, b, c, d


class CudaStream:
    """The generator of a CUDA device with a seed: `normal` as torch.randn gives it there, to float32.

    blocks: how many blocks of 256 threads the device holds (multiprocessors times 8 on data-centre GPUs, times 4 on a
    T4). It matters for tensors of more than 256·blocks numbers alone.

    >>> [round(float(v), 4) for v in CudaStream(0).normal(4)]  # torch.manual_seed(0); torch.randn(4, device="cuda")
    [-0.9247, -0.4253, -2.6438, 0.1452]
    """

    def __init__(self, seed: int, blocks: int = 864) -> None:
        self.seed, self.blocks, self.offset = seed, blocks, 0

    def normal(self, *shape: int) -> NDArray[np.float32]:
        """The next tensor of this shape."""
        count = math.prod(shape)
        threads = BLOCK * min(self.blocks, -(-count // BLOCK))
        rounds = -(-count // (threads * UNROLL))
        index, zero = np.arange(threads, dtype=np.uint64), np.zeros(threads, dtype=np.uint64)
        parts: list[NDArray[np.float64]] = []
        for k in range(rounds):
            words = philox((zero + np.uint64(self.offset // 4 + k), zero, index, zero), self.seed)
            for i in range(0, UNROLL, 2):
                if sum(map(len, parts)) < count:
                    parts += _box_muller(words[i], words[i + 1])
        self.offset += 4 * rounds
        return np.concatenate(parts)[:count].astype(np.float32).reshape(shape)


def _box_muller(a: Words, b: Words) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Two normal numbers from two 32-bit words: sine first."""
    radius = np.sqrt(-2 * np.log(a * UNIT + UNIT / 2))
    angle = 2 * np.pi * (b * UNIT + UNIT / 2)
    return radius * np.sin(angle), radius * np.cos(angle)
