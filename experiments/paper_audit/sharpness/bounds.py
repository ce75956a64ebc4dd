"""Wrong constants in bounds that are nearly attained: each has to be noticed by the clause that states the bound.

A wrong constant in a bound that is far from attained may still be true, so these errors are not drawn at random: each
is listed with the clause, the module, the text that is replaced and what replaces it.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass

from experiments.paper_audit.sharpness.injection import changed, source_of


@dataclass(frozen=True)
class Wrong:
    """One wrong constant: paper, clause, module, text and replacement."""

    paper: str
    clause: str
    module: str
    text: str
    wrong: str


WRONG = (
    Wrong("ws_bound", "ws.theorem3", "ws_bound.traces", "(instance.units + 1) / 4", "(instance.units + 0.9) / 4"),
    Wrong("ws_bound", "ws.theorem4", "ws_bound.traces", "BEND[instance.name] * size", "BEND[instance.name] * size / 2"),
    Wrong("ws_bound", "ws.theorem4", "ws_bound.traces", "SLOPE[instance.name] / 4", "0.95 * SLOPE[instance.name] / 4"),
    Wrong(
        "ws_bound", "ws.theorem4.gelu", "ws_bound.traces", "SLOPE[instance.name] / 4", "0.99 * SLOPE[instance.name] / 4"
    ),
    Wrong("ws_bound", "ws.theorem6", "ws_bound.squares", "psi.square().sum() + (1 + phi", "(1 + phi"),
    Wrong("ws_bound", "ws.theorem6", "ws_bound.squares", "hidden.square().sum() / 16)", "hidden.square().sum() / 64)"),
    Wrong("ws_bound", "ws.theorem6", "ws_bound.squares", "(1 + phi.max())", "(1 + 0.9 * phi.max())"),
    Wrong("ws_bound", "ws.eq92", "ws_bound.squares", "hidden.square().sum() / 16\n", "hidden.square().sum() / 17\n"),
    Wrong(
        "ws_bound", "ws.eq92", "ws_bound.squares", "- psi.square().sum() - scale", "- psi.square().sum() - 0.9 * scale"
    ),
    Wrong("ws_bound", "ws.theorem1", "ws_bound.traces", "len(eigenvalues) - 1) * eig", "len(eigenvalues) - 1.1) * eig"),
    Wrong("ws_bound", "ws.omega", "ws_bound.limits", "omega - 1 / 16", "omega - 1 / 17"),
    Wrong("hsr", "hsr.omega", "hsr.gradients", "omega - 1 / 16", "omega - 1 / 17"),
    Wrong(
        "hsr",
        "hsr.eq1",
        "hsr.gradients",
        "- mean - math.sqrt(dimension - 1)",
        "- mean - 0.95 * math.sqrt(dimension - 1)",
    ),
    Wrong(
        "hsr",
        "hsr.eq61",
        "hsr.gradients",
        "(mean - math.sqrt(dimension - 1)",
        "(mean - 0.95 * math.sqrt(dimension - 1)",
    ),
)


def noticed(error: Wrong) -> bool:
    """Whether the clause no longer has the agreement that is expected of it."""
    source = source_of(error.module)
    if error.text not in source:
        raise ValueError(f"{error.module}: expected the text {error.text!r}, found none")
    with changed(error.paper, error.module, ast.parse(source.replace(error.text, error.wrong))) as mutant:
        formula = next(f for f in mutant.formulas if f.id == error.clause)
        return formula.check().agreement != formula.expected
