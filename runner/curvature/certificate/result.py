"""What a certificate says."""

from __future__ import annotations

import math
from dataclasses import dataclass

from runner.curvature.result import Estimated


def nan_last(value: float) -> float:
    """The value for comparisons in which NaN is the largest."""
    return math.inf if math.isnan(value) else value


@dataclass(frozen=True, repr=False)
class Certificate(Estimated):
    """ok: every error is within the tolerance, and every difference was sharp enough to tell,
    except near kinks.

    examples: example -> relative error of its product alone, of the first and the last (empty where
    there is one example, or the operator cannot say). nodes: of the batch's product, at each node.
    step: median of the differences', relative to the size of the nodes' outputs. reasons: what is
    wrong, the likely cause and the node, and notes. noun, piece: what nodes and examples are
    (groups of parameters, batches).

    kinks: examples with a kink within every usable step (a ReLU so near 0 that rounding decides on
    which side it is, two equal entries under a maximum). Differences tell nothing there: such an
    example counts in the batch with the value on the side that fits, or the engine's own product;
    its entry of `examples` is NaN, and the certificate is of the others. `ok` needs half of all.

    gradients: what it cost, in gradients of all examples. value: the largest of `nodes`; error: 0,
    since it is not an estimate."""

    ok: bool
    examples: dict[int, float]
    nodes: dict[str, float]
    tolerance: float
    step: float
    reasons: tuple[str, ...] = ()
    noun: str = "node"
    piece: str = "example"
    kinks: tuple[int, ...] = ()
    gradients: float = 0.0

    @property
    def value(self) -> float:
        return worst_of(self.nodes)

    @property
    def error(self) -> float:
        return 0.0

    def summary(self) -> str:
        return (
            f"{self.verdict}, largest relative error {self.value:.1e}, tolerance "
            f"{self.tolerance:.0e}"
        )

    @property
    def verdict(self) -> str:
        return "certified" if self.ok else "NOT certified"

    def __str__(self) -> str:
        worst = max(self.nodes, key=lambda v: nan_last(self.nodes[v]))
        lines = [
            f"{self.verdict}: products against differences of gradients, step {self.step:.0e}, "
            f"tolerance {self.tolerance:.0e}"
            + (f", cost {self.gradients:.0f} gradients" if self.gradients else ""),
            f"  batch: largest relative error {self.nodes[worst]:.1e}, at {self.noun} {worst!r}",
        ]
        told = {b: error for b, error in self.examples.items() if b not in self.kinks}
        if told:
            b = max(told, key=lambda i: nan_last(told[i]))
            alone = f"{len(told)} {plural(self.piece)} alone"
            lines.append(f"  {alone}: largest {told[b]:.1e}, of {self.piece} {b}")
        return "\n".join([*lines, *(f"  {reason}" for reason in self.reasons)])


def plural(noun: str) -> str:
    return f"{noun}es" if noun.endswith("h") else f"{noun}s"


def is_note(reason: str) -> bool:
    return reason.startswith("note:")


def worst_of(errors: dict[str, float]) -> float:
    """The largest error, NaN before all."""
    return max(errors.values(), key=nan_last, default=math.nan)
