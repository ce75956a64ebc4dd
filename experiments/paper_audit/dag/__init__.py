"""The DAG paper: inter-layer Hessian blocks over a graph."""

from experiments.paper_audit.dag import (
    blocks_of_attention,
    canonical,
    decay,
    estimates,
    kinks,
    low_rank,
    norms,
    parameters,
    paths,
    ranks,
    recursion,
    residual,
    saddles,
    zeros,
)
from experiments.paper_audit.dag.effects import NUMBERS
from experiments.paper_audit.papers import read

PAPER = read(
    __file__,
    (
        blocks_of_attention,
        canonical,
        decay,
        estimates,
        kinks,
        low_rank,
        norms,
        parameters,
        paths,
        ranks,
        recursion,
        residual,
        saddles,
        zeros,
    ),
    numbers=NUMBERS,
)
