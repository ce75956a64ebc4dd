"""The counterparts of Figs. 8-15, and what five data sets say of the comparisons together."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING

from experiments.hsr.regularization.analysis import Tables, variants
from experiments.hsr.regularization.figures import compared, search, views

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from experiments.hsr.regularization import HsrRegularization


def figures(experiment: HsrRegularization, tables: Tables) -> Mapping[str, Callable[[], Figure]]:
    """Figures that the stored tables allow, by name; each is drawn when it is called."""
    found: dict[str, Callable[[], Figure]] = {"fig08_data": partial(search.data, tables)}
    with_points = [p for p in experiment.protocol if p in set(tables["critical_points"]["protocol"])]
    if with_points:
        found["fig09_bound"] = partial(search.bound, experiment, tables, with_points)
    known = variants(experiment, tables)
    for protocol in dict.fromkeys(v.protocol for v in known):
        found[f"fig10_dynamics_{protocol}"] = partial(views.dynamics, tables, protocol)
        found[f"fig11_along_u1_{protocol}"] = partial(views.along_u1, tables, protocol)
        found[f"fig13_saddle_check_{protocol}"] = partial(views.saddle_check, tables, protocol)
        found[f"fig15_boundaries_{protocol}"] = partial(views.boundaries, tables, protocol)
    for variant in known:
        name = f"{variant.protocol}_{variant.reading}"
        found[f"fig12_spectrum_{name}"] = partial(compared.spectrum, tables, variant)
        found[f"fig14_f1_{name}"] = partial(compared.f1, tables, variant)
        found[f"effects_{name}"] = partial(compared.effects, experiment, tables, variant)
    return dict(sorted(found.items()))
