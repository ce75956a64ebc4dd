"""Readings of "random inputs, a fixed teacher, a network of the seed" as code: which numbers come out of which stream.

A `Recipe` is one way to draw inputs and noise, a `Teacher` one way to draw the teacher of seed 0; each is a line or two
of code that the authors may have written. Everything is deterministic, so the right one gives every printed digit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from experiments.dag.exp5.search.philox import CudaStream
from runner.models import Network, attention_regressor, positionwise_mlp

TRAIN, VALIDATION, TOKENS, WIDTH, MEASURED = 2048, 512, 8, 16, 64
SOURCES = ("torch", "torch float64", "numpy legacy", "numpy", "numpy float32", "torch on a GPU", "torch on a T4")
GPU_BLOCKS = {"torch on a GPU": 864, "torch on a T4": 160}
"""Blocks of threads that an A100 holds; more or fewer, down to 256, change no validation sample. A T4 holds fewer."""
OFFSETS = (0, 1, 2, 3, 7, 10, 42, 99, 100, 123, 500, 999, 1000, 1234, 2000, 5000, 10000, 12345, 100000)
CONSTANTS = (0, 1, 42, 123, 1234)
FACTORS = (2, 10, 100, 1000)
SEEDINGS = (*(f"plus {k}" for k in OFFSETS), *(f"times {k}" for k in FACTORS), *(f"fixed {k}" for k in CONSTANTS))
"""Seed of the data from the seed of the training."""
ORDERS = (
    "x x n n",
    "x n x n",
    "val first",
    "val first with noise",
    "val of seed + 1",
    "val of seed + 1000",
    "shuffled",
)
"""Order of the draws: inputs x and noise n of training and validation; one pool that is permuted before the split."""
BEFORE = ("", "teacher", "attention", "mlp", "attention mlp", "attention teacher", "mlp teacher")
"""What was drawn from the same stream before the data (torch alone)."""

BUILD: dict[str, Callable[..., Network]] = {"attention": attention_regressor, "mlp": positionwise_mlp}


class Data(NamedTuple):
    """Inputs (N, S, d) and noise of unit variance (N,) of both parts."""

    x: Tensor
    noise: Tensor
    x_val: Tensor
    noise_val: Tensor


@dataclass(frozen=True)
class Recipe:
    """One way to draw the data of a seed: source of numbers, its seed, what came before, order of the draws."""

    source: str
    seeding: str
    before: str
    order: str

    def key(self, seed: int) -> int:
        """The seed of the stream: "plus k", "times k" or "fixed k" of the training's seed."""
        word, number = self.seeding.split()
        return {"plus": seed + int(number), "times": seed * int(number), "fixed": int(number)}[word]

    def draw(self, seed: int) -> tuple[Data, Stream]:
        """The data of a training seed, and the stream as they leave it."""
        stream = Stream(self.source, self.key(seed))
        for what in self.before.split():
            stream.skip(what)
        return self._ordered(stream, seed), stream

    def _ordered(self, stream: Stream, seed: int) -> Data:
        def x(count: int, of: Stream = stream) -> Tensor:
            return of.normal(count, TOKENS, WIDTH)

        if self.order == "x n x n":
            found = [x(TRAIN), stream.normal(TRAIN), x(VALIDATION), stream.normal(VALIDATION)]
            return Data(*found)
        if self.order == "val first":
            x_val, x_train = x(VALIDATION), x(TRAIN)
            noise_val, noise = stream.normal(VALIDATION), stream.normal(TRAIN)
            return Data(x_train, noise, x_val, noise_val)
        if self.order == "val first with noise":
            x_val, noise_val, x_train, noise = x(VALIDATION), stream.normal(VALIDATION), x(TRAIN), stream.normal(TRAIN)
            return Data(x_train, noise, x_val, noise_val)
        if self.order.startswith("val of seed"):
            other = Stream(self.source, self.key(seed) + int(self.order.rsplit(" ", 1)[1]))
            x_train, noise = x(TRAIN), stream.normal(TRAIN)
            return Data(x_train, noise, x(VALIDATION, other), other.normal(VALIDATION))
        pool, noise = x(TRAIN + VALIDATION), stream.normal(TRAIN + VALIDATION)
        if self.order == "shuffled":
            index = stream.permutation(TRAIN + VALIDATION)
            pool, noise = pool[index], noise[index]
        return Data(pool[:TRAIN], noise[:TRAIN], pool[TRAIN:], noise[TRAIN:])

    def __str__(self) -> str:
        after = f" after {self.before}" if self.before else ""
        return f"{self.source}, seed {self.seeding}{after}: {self.order}"


class Stream:
    """Normal numbers of one source, from one seed, as float32."""

    def __init__(self, source: str, key: int) -> None:
        self.source = source
        self.torch = torch.Generator().manual_seed(key)
        self.cuda = CudaStream(key, GPU_BLOCKS[source]) if source in GPU_BLOCKS else None
        self.legacy = np.random.RandomState(key % 2**32) if source == "numpy legacy" else None
        self.new = np.random.default_rng(key) if source in ("numpy", "numpy float32") else None

    def normal(self, *shape: int) -> Tensor:
        if self.cuda is not None:
            return torch.from_numpy(self.cuda.normal(*shape))
        if self.legacy is not None:
            return torch.from_numpy(self.legacy.standard_normal(shape).astype(np.float32))
        if self.new is not None:
            kind = np.float32 if self.source == "numpy float32" else np.float64
            return torch.from_numpy(self.new.standard_normal(shape, dtype=kind).astype(np.float32))
        kind_of = torch.float64 if self.source == "torch float64" else torch.float32
        return torch.randn(*shape, generator=self.torch, dtype=kind_of).float()

    def permutation(self, count: int) -> Tensor:
        if self.legacy is not None:
            return torch.from_numpy(self.legacy.permutation(count))
        if self.new is not None:
            return torch.from_numpy(self.new.permutation(count))
        return torch.randperm(count, generator=self.torch)

    def skip(self, what: str) -> None:
        """Draw what came before from the stream: a network's parameters, or the teacher's weights."""
        if what == "teacher":
            self.normal(WIDTH, WIDTH)
            self.normal(WIDTH)
        else:
            self.network(what)

    def network(self, kind: str) -> Network:
        """The network that torch builds where its global stream stands as this one does."""
        with torch.random.fork_rng(devices=[]):
            torch.set_rng_state(self.torch.get_state())
            found = BUILD[kind](width=WIDTH)
            self.torch.set_state(torch.get_rng_state())
        return found


def recipes(source: str, seedings: Sequence[str] = SEEDINGS) -> Iterator[Recipe]:
    """All recipes of a source."""
    for seeding in seedings:
        for before in BEFORE if (source, seeding) == ("torch", "plus 0") else BEFORE[:2]:
            for order in ORDERS if source not in GPU_BLOCKS else ORDERS[:-1]:
                yield Recipe(source, seeding, before, order)


@dataclass(frozen=True)
class Teacher:
    """One way to draw the teacher: name, source of seed 0, order, whether its matrix is transposed, its response."""

    source: str
    vector_first: bool = False
    transposed: bool = False
    squared: bool = False

    def __call__(self, x: Tensor) -> Tensor:
        """Targets without noise, mean over the tokens of φ(x W) w; x: (N, S, d) -> (N,)."""
        matrix, vector = _weights(self.source, self.vector_first)
        z = torch.tanh(x @ (matrix.T if self.transposed else matrix))
        return (z**2 if self.squared else z).mean(1) @ vector

    def __str__(self) -> str:
        parts = {"w first": self.vector_first, "W transposed": self.transposed, "tanh squared": self.squared}
        return ", ".join([f"{self.source} teacher", *(name for name, on in parts.items() if on)])


@cache
def _weights(source: str, vector_first: bool) -> tuple[Tensor, Tensor]:
    stream, scale = Stream(source, 0), WIDTH**-0.5
    if vector_first:
        vector = stream.normal(WIDTH) * scale
        return stream.normal(WIDTH, WIDTH) * scale, vector
    matrix = stream.normal(WIDTH, WIDTH) * scale
    return matrix, stream.normal(WIDTH) * scale


def teachers() -> list[Teacher]:
    """All teachers."""
    plain = [Teacher(s, v, t) for s in SOURCES[:-1] for v in (False, True) for t in (False, True)]
    return [*plain, Teacher("torch", squared=True)]


NOISES = (0.0, 0.01, 0.1)
NETWORKS = ("of the seed", "built second", "after the data")
"""Where the initial network comes from: torch.manual_seed(seed); the other network built first from the same stream; or
the stream of the data, once they are drawn (torch alone, data seeded by the training's seed)."""


@cache
def network_of(kind: str, how: str, seed: int) -> Network:
    """The initial network of a seed, for the first two of NETWORKS."""
    stream = Stream("torch", seed)
    if how == "built second":
        stream.skip("mlp" if kind == "attention" else "attention")
    return stream.network(kind)
