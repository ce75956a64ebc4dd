"""Formulas of the paper on inter-layer Hessian blocks over a graph ("DAG"), each checked against automatic
differentiation."""

from experiments.paper_audit.dag.blocks import FORMULAS as BLOCKS
from experiments.paper_audit.dag.bounds import FORMULAS as BOUNDS
from experiments.paper_audit.dag.parameters import FORMULAS as PARAMETERS
from experiments.paper_audit.dag.ranks import FORMULAS as RANKS
from experiments.paper_audit.formula import Formula

FORMULAS: tuple[Formula, ...] = (*BLOCKS, *PARAMETERS, *BOUNDS, *RANKS)
