"""The shared curvature engine: Hessians of networks by parameters and by layer outputs.

Imports torch, and scipy for spectra.

>>> import torch
>>> from runner.curvature import Dag, LayerOperator, exact_blocks, graph_metrics, verify
>>> _ = torch.manual_seed(0)
>>> net = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.Tanh(), torch.nn.Linear(3, 2))
>>> net = net.double()
>>> x, y = torch.randn(8, 4).double(), torch.randint(0, 2, (8,))
>>> dag = Dag.from_sequential(net, names=["hidden", "act", "out"])
>>> blocks = exact_blocks(dag, x, y)
>>> blocks["hidden", "out"].shape
torch.Size([3, 2])
>>> operator = LayerOperator(dag.as_module(), dag.loss, (x, y), dag.order)
>>> operator.block("hidden", "out").dense().allclose(blocks["hidden", "out"])
True
>>> metrics = graph_metrics(dag, x, y)["hidden", "out"]
>>> abs(metrics.R.value - float(blocks["hidden", "out"].norm())) < 1e-9
True
>>> verify(dag, x, y).ok
True

State a network     Dag, Node, Dag.from_sequential
Exact blocks        exact_blocks, gauss_newton_blocks, split_blocks
Without matrices    LayerOperator(dag.as_module(), ...); SymmetricOperator for operators of your
                    own
Is it right?        verify; MeasurementError
Pairs of nodes      graph_metrics of a stated graph, inter_layer_metrics of an operator: R, C, D
                    and gap by the cheapest way, each with its error
A user's network      LayerOperator (between layers), ParameterOperator
Any symmetric operator  top_eigenpairs, spectral_density, trace_estimate, upper_bound_estimate;
                    batch_errors (over batches); as_linear_operator, as_curvlinops
During a training   monitor
Results             all have value, error, low, high and to_dict(); pairs of nodes also
                    to_frame() and plot()

Whatever would make a number wrong is refused with a ValueError of one line: where, expected, found,
what to do.
"""

from typing import Any

from runner.curvature.basics.adapters import as_linear_operator
from runner.curvature.basics.curvlinops import as_curvlinops
from runner.curvature.basics.errors import MeasurementError
from runner.curvature.basics.estimate import Estimate
from runner.curvature.basics.removed import removed_name
from runner.curvature.basics.symmetric import SymmetricOperator
from runner.curvature.graphs.blocks import (
    BlockSplit,
    exact_blocks,
    gauss_newton_blocks,
    split_blocks,
)
from runner.curvature.graphs.dag import Dag, Node
from runner.curvature.graphs.metrics import graph_metrics
from runner.curvature.operators.users import LayerOperator, ParameterOperator
from runner.curvature.pairs.metrics import inter_layer_metrics
from runner.curvature.spectra.density import spectral_density
from runner.curvature.spectra.eigenpairs import top_eigenpairs
from runner.curvature.spectra.traces import trace_estimate
from runner.curvature.spectra.upper_bound import upper_bound_estimate
from runner.curvature.uses.batch_errors import batch_errors
from runner.curvature.uses.monitor import monitor
from runner.curvature.uses.verify import verify

__all__ = [
    "Dag",
    "Estimate",
    "LayerOperator",
    "MeasurementError",
    "Node",
    "ParameterOperator",
    "SymmetricOperator",
    "as_curvlinops",
    "as_linear_operator",
    "batch_errors",
    "exact_blocks",
    "gauss_newton_blocks",
    "graph_metrics",
    "inter_layer_metrics",
    "monitor",
    "spectral_density",
    "split_blocks",
    "top_eigenpairs",
    "trace_estimate",
    "upper_bound_estimate",
    "verify",
]


def __getattr__(name: str) -> Any:
    """Raises ImportError for a name of the version before, with what to write instead."""
    raise removed_name(name) or AttributeError(f"module {__name__!r} has no attribute {name!r}")
