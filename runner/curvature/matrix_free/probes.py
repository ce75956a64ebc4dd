"""What every estimator is made of: the Estimate, random streams that belong to a node, norms at every scale."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Iterator
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from runner.curvature.graph.errors import MeasurementError
from runner.curvature.matrix_free.base import Pair, Products, SymmetricOperator

Stream = Literal["node", "shared"]

NOT_FINITE = "the products are not finite: the second derivative is NaN or overflows there"


class Estimate(NamedTuple):
    """value; error: standard error (Hutchinson) or residual bound (power iteration, Lanczos); products used.

    reason says why value is NaN, else "".
    """

    value: float
    error: float
    products: int
    reason: str = ""


def unknown(products: int, reason: str) -> Estimate:
    """NaN, with the reason."""
    return Estimate(math.nan, math.nan, products, reason)


def finished(value: float, error: float, products: int) -> Estimate:
    """The estimate, or NaN with a reason when it is not finite."""
    return Estimate(value, error, products) if math.isfinite(value) else unknown(products, NOT_FINITE)


def rademacher(shape: tuple[int, ...], dtype: torch.dtype, generator: torch.Generator | None) -> Tensor:
    """Independent signs."""
    return torch.randint(0, 2, shape, generator=generator, device="cpu").to(dtype) * 2 - 1


def on_sphere(shape: tuple[int, int], dtype: torch.dtype, generator: torch.Generator | None) -> Tensor:
    """Rows (k, d), each uniform on the sphere of radius sqrt(d): E[z z^T] = I, as of signs, and about their variance.

    Few signs can agree up to a factor on the two components that carry a block (of twelve, once in 2,048 times): all
    samples are then equal, and wrong. These never agree.
    """
    z = torch.randn(shape, generator=generator, dtype=torch.float64, device="cpu")
    return (z * (shape[1] ** 0.5 / z.norm(dim=1, keepdim=True))).to(dtype)


def own_stream(generator: torch.Generator | None) -> torch.Generator:
    """The generator, or one that torch's global one seeds: a measurement that leaves the global one as it was must not
    give the same probes to the next."""
    if generator is not None:
        return generator
    return torch.Generator().manual_seed(int(torch.randint(0, 2**62, (), device="cpu")))


class Streams:
    """Random streams by name: one draw from the generator seeds them all, so that what a node gets does not depend on
    what else is asked for. kind="shared": one stream for everything, in the order of the calls."""

    def __init__(self, generator: torch.Generator | None, kind: Stream = "node") -> None:
        self.generator, self.kind = generator, kind
        self.seed = int(torch.randint(0, 2**62, (), generator=generator, device="cpu")) if kind == "node" else 0

    def of(self, name: str) -> torch.Generator | None:
        if self.kind == "shared":
            return self.generator
        digest = hashlib.sha256(f"{self.seed}/{name}".encode()).digest()
        return torch.Generator().manual_seed(int.from_bytes(digest[:8], "big") >> 1)


class Squares(NamedTuple):
    """|H z_k|^2 of every probe as values * 4**exponent, float64: squares of 1e±160 have no other form."""

    values: Tensor
    exponent: int

    @property
    def root_mean(self) -> float:
        return _ldexp(math.sqrt(float(self.values.mean())), self.exponent)

    def plain(self) -> Tensor:
        """The squares themselves; 0 or infinity where they leave the range of float64."""
        return torch.ldexp(self.values, torch.tensor(2 * self.exponent, device="cpu"))


def squares_of(images: Tensor) -> Squares:
    """Squared norms of the rows. Scaling by a power of two changes no digit."""
    wide = images.double()
    exponent = exponent_of(wide)
    return Squares((wide * 2.0**-exponent).square().sum(1), exponent)


def exponent_of(values: Tensor) -> int:
    """e with max |values| about 2**e; 0 for zeros and values that are not finite."""
    largest = float(values.abs().max()) if values.numel() else 0.0
    return max(-1000, min(1000, math.frexp(largest)[1])) if math.isfinite(largest) else 0


def norm_of(vector: Tensor) -> float:
    """Euclidean norm in float64 at every scale."""
    found = squares_of(vector.reshape(1, -1))
    return _ldexp(math.sqrt(float(found.values[0])), found.exponent)


def _ldexp(value: float, exponent: int) -> float:
    try:
        return math.ldexp(value, exponent)
    except OverflowError:
        return math.inf


def unit(vector: Tensor) -> Tensor:
    """vector / |vector|, whatever its scale; zeros stay zeros."""
    largest = vector.abs().max()
    if not float(largest) > 0:
        return vector
    scaled = vector / largest
    return scaled / scaled.norm()


def gaussian(operator: SymmetricOperator, size: int, generator: torch.Generator | None) -> Tensor:
    """Drawn on the CPU, so that the numbers do not depend on the device."""
    return torch.randn(size, generator=generator, device="cpu").to(operator.device, operator.dtype)


def checked_pairs(operator: SymmetricOperator, pairs: Iterable[Pair]) -> list[Pair]:
    """The pairs as a list. Raises ValueError for anything but pairs of the operator's nodes."""
    found = list(pairs)
    for pair in found:
        if isinstance(pair, str) or len(pair) != 2 or any(v not in operator.sizes for v in pair):
            raise MeasurementError(
                f"expected pairs (v, w) of the operator's nodes {list(operator.nodes)}, found {pair!r}"
            )
    return [(v, w) for v, w in found]


def not_measurable(operator: SymmetricOperator) -> str:
    """Why the operator has no numbers at all, "" when it has."""
    return getattr(operator, "reason", "")


def whole_products(operator: SymmetricOperator, directions: Products) -> tuple[Products, Products]:
    """`SymmetricOperator.whole`, also of an operator that only has `apply`."""
    if isinstance(operator, SymmetricOperator):
        return operator.whole(directions)
    found = operator.apply(directions)
    return found, found


def probe_batches(
    operator: SymmetricOperator, pairs: list[Pair], probes: int, streams: Streams
) -> Iterator[tuple[str, Tensor, list[str]]]:
    """(w, Rademacher probes on w, nodes v of the pairs (v, w)) for every w."""
    if probes < 2:
        raise ValueError(f"a standard error needs at least 2 probes, got {probes}")
    targets: dict[str, list[str]] = {}
    for v, w in pairs:
        targets.setdefault(w, []).append(v)
    for w, nodes in targets.items():
        yield w, rademacher((probes, operator.sizes[w]), operator.dtype, streams.of(w)), nodes


def student(freedom: int) -> float:
    """The 97.5 % point of Student's t over that of the normal distribution, by Fisher's expansion."""
    z, n = 1.959964, freedom
    first, second = (z**2 + 1) / 4, (5 * z**4 + 16 * z**2 + 3) / 96
    third = (3 * z**6 + 19 * z**4 + 17 * z**2 - 15) / 384
    return 1 + first / n + second / n**2 + third / n**3
