"""What a certificate says, and how it reads."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from runner.curvature.certificate.causes import nan_last


@dataclass(frozen=True)
class Certificate:
    """ok: every error is within the tolerance, and every difference was sharp enough to tell, save beside kinks.

    examples: relative error of the product of each example alone (empty where there is one, or the operator cannot
    say); nodes: of the
    batch's product, at each node; step: of the differences, relative to the size of the nodes' outputs; reasons: what
    is wrong, the likely cause and the node, and notes. noun, piece: what nodes and examples are (groups of parameters,
    batches).

    kinks: examples with a kink within every usable step (a ReLU so near 0 that rounding decides on which side it is,
    two equal entries under a maximum). Differences tell nothing there: such an example counts in the batch with the
    engine's own product, its entry of `examples` is NaN, and the certificate is of the others; `ok` needs half of all.

    gradients: what it cost, in gradients of all examples.
    """

    ok: bool
    examples: tuple[float, ...]
    nodes: dict[str, float]
    tolerance: float
    step: float
    reasons: tuple[str, ...] = ()
    noun: str = "node"
    piece: str = "example"
    kinks: tuple[int, ...] = ()
    gradients: float = 0.0

    def __str__(self) -> str:
        verdict = "certified" if self.ok else "NOT certified"
        worst = max(self.nodes, key=lambda v: nan_last(self.nodes[v]))
        lines = [
            f"{verdict}: products against differences of gradients, step {self.step:.0e}, "
            f"tolerance {self.tolerance:.0e}" + (f", cost {self.gradients:.0f} gradients" if self.gradients else ""),
            f"  batch: largest relative error {self.nodes[worst]:.1e}, at {self.noun} {worst!r}",
        ]
        told = [b for b in range(len(self.examples)) if b not in self.kinks]
        if told:
            b = max(told, key=lambda i: nan_last(self.examples[i]))
            alone = f"{len(told)} {plural(self.piece)} alone"
            lines.append(f"  {alone}: largest {self.examples[b]:.1e}, of {self.piece} {b}")
        return "\n".join([*lines, *(f"  {reason}" for reason in self.reasons)])


def plural(noun: str) -> str:
    return f"{noun}es" if noun.endswith("h") else f"{noun}s"


def some(names: Iterable[object], most: int = 5) -> str:
    """The first names of many: "1, 2, 3 and 9 more"."""
    found = [str(name) for name in names]
    rest = f" and {len(found) - most} more" if len(found) > most else ""
    return ", ".join(found[:most]) + rest


def is_note(reason: str) -> bool:
    return reason.startswith("note:")


def worst_of(errors: dict[str, float]) -> float:
    """The largest error, NaN before all."""
    return max(errors.values(), key=nan_last, default=math.nan)
