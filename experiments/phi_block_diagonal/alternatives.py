"""How things would be if confirmed statements on discarded curvature were false."""

from __future__ import annotations

from runner.stats.alternatives import exchanged, reversed_order

CHANGES = {
    "layers and output neurons exchange their places": exchanged(
        "partition", "layer", "output neuron"
    ),
    "networks of most and of fewest classes exchange their places": reversed_order("classes"),
}
