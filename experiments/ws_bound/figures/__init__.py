"""The counterpart of every figure of the WS-bound paper, the scan of the rate, and what lies beyond the paper."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING

from experiments.ws_bound.analysis import Tables, unique_points, variants
from experiments.ws_bound.figures import beyond, groups, portraits, scatter

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from experiments.ws_bound import WsBound


def figures(experiment: WsBound, tables: Tables) -> Mapping[str, Callable[[], Figure]]:
    """Figures that the stored tables allow, by name; each is drawn when it is called."""
    paper = [v for v in variants(experiment, tables, paper_only=True) if len(unique_points(tables, v))]
    found: dict[str, Callable[[], Figure]] = {}
    if paper:
        found["fig02_bound_and_eigenvalue"] = partial(scatter.bound_and_eigenvalue, experiment, tables, paper)
        found["fig11_width"] = partial(groups.width, experiment, tables, paper)
    narrow = [v for v in paper if len(unique_points(tables, v, experiment.portrait_hidden))]
    if narrow:
        found["fig06_distribution"] = partial(groups.distribution, experiment, tables, narrow)
        found["fig07_generalisation"] = partial(groups.generalisation, experiment, tables, narrow)
        found["fig10_norms"] = partial(scatter.norms, experiment, tables, narrow)
        found["fig12_hidden_gram"] = partial(scatter.hidden_gram, experiment, tables, narrow)
    drawn = [v for v in paper if "portraits" in tables and len(v.rows(tables["portraits"]))]
    for variant in drawn:
        name = variant.protocol
        found[f"fig03_sharpest_{name}"] = partial(portraits.extremes, tables, variant, "sharpest")
        if portraits.portrayed(tables, variant, "flattest").size:  # not where a search found a single point
            found[f"fig04_flattest_{name}"] = partial(portraits.extremes, tables, variant, "flattest")
    if drawn:
        found["fig05_dynamics"] = partial(portraits.dynamics, tables, drawn)
        found["fig08_hessian"] = partial(portraits.hessian, experiment, tables, drawn[0])
        found["fig09_traces"] = partial(scatter.traces, experiment, tables, drawn)
    if "activations" in tables:
        found["fig13_activations"] = partial(beyond.activation_curves, tables)
    if any(v.protocol == "printed" for v in paper):
        found["scan_of_the_rate"] = partial(beyond.scan, experiment, tables)
    found["slack_and_limit"] = partial(beyond.slack_and_limit, tables)
    if len(variants(experiment, tables)) > len(paper):
        found["beyond_activations"] = partial(beyond.activations, experiment, tables)
    return dict(sorted(found.items()))
