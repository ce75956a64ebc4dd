"""The DAG paper: inter-layer Hessian blocks over a graph."""

from experiments.paper_audit.dag.blocks_of_attention import FORMULAS as ATTENTION
from experiments.paper_audit.dag.canonical import FORMULAS as CANONICAL
from experiments.paper_audit.dag.decay import FORMULAS as DECAY
from experiments.paper_audit.dag.effects import NUMBERS
from experiments.paper_audit.dag.estimates import FORMULAS as ESTIMATES
from experiments.paper_audit.dag.kinks import FORMULAS as KINKS
from experiments.paper_audit.dag.low_rank import FORMULAS as LOW_RANK
from experiments.paper_audit.dag.norms import COUPLING, STABILITY
from experiments.paper_audit.dag.parameters import FORMULAS as PARAMETERS
from experiments.paper_audit.dag.paths import FORMULAS as PATHS
from experiments.paper_audit.dag.ranks import FORMULAS as RANKS
from experiments.paper_audit.dag.recursion import FORMULAS as RECURSION
from experiments.paper_audit.dag.residual import FORMULAS as RESIDUAL
from experiments.paper_audit.dag.saddles import FORMULAS as SADDLES
from experiments.paper_audit.dag.zeros import FORMULAS as ZEROS
from experiments.paper_audit.papers import read

FORMULAS = (
    *(*RECURSION, *CANONICAL, *PARAMETERS, *COUPLING, *DECAY, *STABILITY, *PATHS, *RESIDUAL),
    *(*RANKS, *ESTIMATES, *LOW_RANK, *SADDLES, *KINKS, *ATTENTION, *ZEROS),
)
PAPER = read(__file__, FORMULAS, numbers=NUMBERS)
