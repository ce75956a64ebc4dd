"""Settings of what is measured, and the place where a metric of one's own adds its columns."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from runner.contract import free, kind, setting

if TYPE_CHECKING:
    from runner.curvature import BlockSplit


@dataclass(frozen=True)
class InterLayerMetric:
    """R, C, D and GN-gap of the batch-mean blocks of all pairs of measured nodes (DAG, Section 4).

    examples: B, the examples of a block's mean. subsample: "first" B test examples, the paper's, or
    "random". subsamples: further random sets, for the error bar over examples. double: blocks in
    float64. memory_gib: largest exact computation at a time.
    """

    kind: str = kind("inter_layer", stored="blocks")
    examples: int = setting(32, above=0, help="B: examples of a block's mean")
    subsample: str = setting(
        "first",
        choices=("first", "random"),
        help="the first B test images, unshuffled: the paper's protocol; or random",
    )
    subsamples: int = free(10, at_least=0, help="further random subsets, for the error bar")
    double: bool = free(False, help="blocks in float64")
    memory_gib: float = free(2.0, above=0, unit="GiB", help="largest exact computation")

    def columns(
        self, blocks: BlockSplit, pairs: Sequence[tuple[str, str]]
    ) -> dict[str, list[float]]:
        """Further columns of the pairs, by name; a value for each of `pairs`, in their order.

        A subclass returns its own: they stand in the table `pairs`, and their means over the pairs
        at each distance in `distances`. blocks: the batch-mean blocks `total`, `gauss_newton`,
        `tensor`, each by pair.
        """
        return {}

    def added(self, blocks: BlockSplit, pairs: Sequence[tuple[str, str]]) -> dict[str, list[float]]:
        """What `columns` gives. Raises ValueError, which names the file, for a column without a
        value for each pair."""
        found = self.columns(blocks, pairs)
        for name, values in found.items():
            if len(values) != len(pairs):
                raise ValueError(
                    f"metric={self.kind} ({sys.modules[type(self).__module__].__file__}): expected "
                    f"{len(pairs)} values of {name!r}, one for each pair, found {len(values)}"
                )
        return found


@dataclass(frozen=True)
class WsBoundMetric:
    """λ_sup = tr H/D + √((D − 1)(tr H²/D − (tr H/D)²)) ≥ λ_max of the loss (WS bound, Theorem 1;
    HSR, Eq. 5)."""

    kind: str = kind("ws_bound")


@dataclass(frozen=True)
class SpectrumMetric:
    """Every eigenvalue of the Hessian of the loss (scalar spectrum, Sections 2 and 3)."""

    kind: str = kind("spectrum")
