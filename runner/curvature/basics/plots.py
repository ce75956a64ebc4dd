"""Tables and figures of results. Imports pandas and matplotlib late: measuring needs neither."""

from __future__ import annotations

import io
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from pandas import DataFrame


def frame(rows: Iterable[Mapping[str, Any]], index: list[str]) -> DataFrame:
    """One row for each mapping, indexed by the columns `index`."""
    import pandas

    return pandas.DataFrame(list(rows)).set_index(index)


def axes_for(ax: Axes | None) -> Any:
    """`ax`, or the axes of a new figure that a notebook shows without pyplot."""
    if ax is not None:
        return ax
    from matplotlib.figure import Figure

    class Shown(Figure):
        def _repr_png_(self) -> bytes:
            target = io.BytesIO()
            self.savefig(target, format="png", dpi=150)
            return target.getvalue()

    return Shown(figsize=(5.0, 3.6), layout="constrained").subplots()


def plot_map(values: Mapping[tuple[str, str], float], label: str, ax: Axes | None) -> Figure:
    """A symmetric map of one number for each pair of nodes; pairs not measured stay blank."""
    names = list(dict.fromkeys(node for pair in values for node in pair))
    shown = torch.full((len(names), len(names)), torch.nan, dtype=torch.float64)
    for (v, w), value in values.items():
        i = names.index(v)
        j = names.index(w)
        shown[i, j] = shown[j, i] = value
    axes = axes_for(ax)
    image = axes.imshow(shown.numpy())
    places = range(len(names))
    longest = max(map(len, names), default=0)
    axes.set_xticks(places, names, rotation=90 if longest > 4 else 0)
    axes.set_yticks(places, names)
    axes.figure.colorbar(image, ax=axes, label=label)
    return axes.figure


def plot_band(
    x: Tensor, y: Tensor, low: Tensor, high: Tensor, labels: tuple[str, str], ax: Axes | None
) -> Figure:
    """A curve with its 95 % band."""
    axes = axes_for(ax)
    axes.fill_between(x.cpu(), low.cpu(), high.cpu(), alpha=0.3, linewidth=0)
    axes.plot(x.cpu(), y.cpu())
    axes.set(xlabel=labels[0], ylabel=labels[1])
    return axes.figure


def plot_values(values: Tensor, errors: Tensor, label: str, ax: Axes | None) -> Figure:
    """Numbers in order, each with its error."""
    axes = axes_for(ax)
    index = range(1, len(values) + 1)
    axes.errorbar(index, values.cpu(), errors.cpu(), fmt="o", markersize=4, capsize=3)
    axes.set(xlabel="index", ylabel=label)
    axes.locator_params("x", integer=True)
    return axes.figure
