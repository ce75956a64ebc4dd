"""Settings whose cells stand beside an experiment's own: perturbed inputs, orders of other seeds, further seeds.

    hess-run -m experiment=exp3_gn_gap training.perturbation=1e-7 seed=range(42,47)         what rounding does
    hess-run -m experiment=exp3_gn_gap training.order_seed=43 seed=42,44                    networks crossed with orders
    hess-run -m experiment=exp3_gn_gap model.initial=named training.order=named seed=range(100,110)    further seeds

Measured or not, they change no value of the experiment itself; its report says what they add (`protocol.spread`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from runner.contract import Companion

if TYPE_CHECKING:
    from experiments.dag.protocol.inter_layer import InterLayer

PUBLISHED_SEEDS = range(42, 47)
"""The paper's training seeds."""
FURTHER_SEEDS = range(100, 110)
"""Seeds of named streams that say how typical the published five are; their values are no part of a scorecard."""
ROUNDING, FURTHER = "rounding", "further seeds"
WITHOUT_NORM = "without LayerNorm"
"""Of Exps. 1 and 4: untrained networks without LayerNorm, with which printed norms agree better (Sections 5.1, 5.4)."""
DEEPER = "L = 32"
"""Of Exp. 1b: the depth to which Section 5.1 follows the norms of plain networks."""
PERTURBATION = 1e-7
"""Relative change of every input: about the rounding of float32."""


def order_of(seed: int) -> str:
    """Name of the companion that takes the order of one seed for all networks."""
    return f"order of seed {seed}"


ORDERS = frozenset(order_of(seed) for seed in PUBLISHED_SEEDS)
"""Names of the companions that cross networks with orders."""


def without_norm(experiment: InterLayer, model: Any, **grid: Any) -> Companion:
    """Untrained networks without LayerNorm on the paper's images; grid: fields of the experiment that change."""
    metric = replace(experiment.metric, subsamples=0)
    changed = replace(experiment, model=replace(model, norm=False), untrained=True, metric=metric, **grid)  # type: ignore[call-arg]
    return Companion(changed, PUBLISHED_SEEDS)


def companions(experiment: InterLayer, model: Any) -> Mapping[str, Companion]:
    """The companions of an experiment on images; none of settings that are a companion themselves."""
    training = experiment.training
    if training.perturbation or training.order_seed >= 0:
        return {}
    changed = {ROUNDING: {"perturbation": PERTURBATION}}
    changed |= {order_of(seed): {"order_seed": seed} for seed in PUBLISHED_SEEDS}
    found = {
        name: Companion(replace(experiment, training=replace(training, **change)), PUBLISHED_SEEDS)  # type: ignore[arg-type]
        for name, change in changed.items()
    }
    named: dict[str, Any] = {"training": replace(training, order="named"), "model": replace(model, initial="named")}
    return {**found, FURTHER: Companion(replace(experiment, **named), FURTHER_SEEDS)}
