"""How things would be if confirmed statements on discarded curvature were false."""

from __future__ import annotations

from runner.contract import Alternative, Alternatives
from runner.stats.alternatives import exchanged, reversed_order

ALTERNATIVES: Alternatives = (
    Alternative(
        "layers and output neurons exchange their places",
        exchanged("partition", "layer", "output neuron"),
        (
            "order-one error of layer blocks, initial",
            "near block-diagonal in output neurons, initial",
        ),
    ),
    Alternative(
        "networks of most and of fewest classes exchange their places",
        reversed_order("classes"),
        ("fewer couplings with more classes, final",),
    ),
)
