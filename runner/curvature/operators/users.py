"""The two operators of a user's network: over its parameters, and between outputs of its layers."""

from __future__ import annotations

from typing import Any

from torch import nn

from runner.curvature.basics.removed import refuses_removed
from runner.curvature.function.context import ONE_AT_A_TIME
from runner.curvature.function.data import Settings, Weights
from runner.curvature.function.groups import GroupSpec
from runner.curvature.function.layers import Nodes, Pick
from runner.curvature.function.variables import Parameters, Perturbations
from runner.curvature.operators.operator import MEMORY_BUDGET, FunctionOperator
from runner.curvature.products.of_batch import Part


class ParameterOperator(FunctionOperator):
    """The curvature matrix of a module's mean loss L(theta) with respect to its parameters, shape
    (n, n).

    Parameters
    ----------
    module
        Unmodified; it is never written to. Called as module(*input) for a tuple, module(**input)
        for a dict, and with both for (tuple, dict). Evaluation mode is advised.
    loss
        loss(output, target), a scalar: the mean over the examples of the batch, or one value for
        each example; "cross_entropy" or "mse"; or None, where the module returns its loss
        (output="loss").
    data
        One batch (input, target), a list of batches, or a loader that gives the same batches
        whenever it is read.
    groups
        {name: pattern or patterns}, or patterns, of modules or parameters; default: one group for
        each module with parameters. `groups[name]` of the operator is the slice of the flat vector.
    part
        "hessian"; or "gauss_newton", J^T (d2 loss / df2) J.
    weights
        What a batch weighs in the mean: a function (input, target) -> number, which parts of
        batches are compared with, or one number a batch, which are taken as they are. Default: its
        number of examples, or of labels that are not ignored where the losses of its parts say so.
        Batches that cannot be cut, such as graphs, need it where they differ in size.
    output
        Which tensor of a structured output the loss gets ("logits", "0"); default: all of it.
    memory_budget
        Bytes that products may use in addition to the network and its data. Graphs are kept where
        they fit; batches that do not fit are cut by examples, where that helps and the loss of a
        batch is the weighted mean over its parts; else it is exceeded, with a warning. `planned`
        has the choice and the predicted peak.
    check
        True: the identities of Notes are compared, and a failure raises ValueError. "report": it
        warns and is kept in `failures`. False: nothing is compared.
    batch_dim
        The dimension of the examples in the input.
    seed
        A fixed draw for networks that draw at random (dropout in training mode).

    Raises
    ------
    ValueError
        With one line that says what was compared, the cause and what to do.

    Notes
    -----
    Checked when the operator is built, at about ten gradients of one batch: the module's own
    parameters give the same loss and gradient as replaced ones (0); two seeds do (1); the gradient
    (2) and a product (3) agree with central differences in float64, on two examples, or on four
    where two have no loss or slope; losses of parts add up to that of their batch (4). `products`
    counts products with one vector.

    For softmax cross-entropy, logistic loss and squared error the Fisher matrix is the Gauss-Newton
    matrix up to a factor. For other losses it is another matrix, which curvlinops has.

    Examples
    --------
    >>> import torch
    >>> data = [(torch.ones(4, 3), torch.zeros(4, 2))]
    >>> operator = ParameterOperator(nn.Linear(3, 2), nn.MSELoss(), data)
    >>> operator.shape, (operator @ torch.ones(8)).shape
    ((8, 8), torch.Size([8]))
    """

    @refuses_removed
    def __init__(
        self,
        module: nn.Module,
        loss: Any,
        data: Any,
        groups: GroupSpec | None = None,
        part: Part = "hessian",
        *,
        weights: Weights = None,
        output: Pick = None,
        memory_budget: int = MEMORY_BUDGET,
        check: bool | str = True,
        batch_dim: int = 0,
        seed: int | None = None,
    ) -> None:
        settings = Settings(weights, memory_budget, check, batch_dim)
        with ONE_AT_A_TIME:  # while no other thread has replaced the module's tensors
            self._build(
                module,
                loss,
                data,
                lambda m: Parameters(m, groups),
                part,
                output,
                settings,
                seed,
            )


class LayerOperator(FunctionOperator):
    """The curvature of a module's mean loss between the outputs of its layers, all blocks H[v, w]
    as one matrix.

    H[v, w] = d2 L / de_v de_w at e = 0, where a forward hook adds e_v to the output of layer v of
    every example: e_v has the shape of that output without the dimension of examples, H[v, w] is
    the mean over the examples.

    Parameters
    ----------
    layers
        Names or patterns of submodules ("encoder.*.linear1"; * stays inside one part of a name, **
        crosses dots), or {name: which tensor of its output}. Default: the submodules with
        parameters directly below the network. The second call of layer "act" is "act#2".
    module, loss, data, part, weights, output, memory_budget, check, batch_dim, seed
        As of `ParameterOperator`.

    Raises
    ------
    ValueError
        As `ParameterOperator`, for a layer that is never called, and where the loss is a mean over
        parts along the other one of the first two dimensions of the input alone (`batch_dim`).

    Notes
    -----
    The dimension of examples is the one that shrinks in a run with one example fewer. Of flattened
    tokens, (B T, d) or (T B, d), e has the shape (T, d), by where rows, and slopes of the loss by
    them, are found when the examples change places; where they are found nowhere (packed sequences
    of several lengths), or everywhere, e has the shape (d,). Where no dimension shrinks, that of
    the output.

    Examples
    --------
    >>> import torch
    >>> net = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))
    >>> batch = torch.ones(5, 3), torch.tensor([0, 1, 0, 1, 0])
    >>> operator = LayerOperator(net, nn.CrossEntropyLoss(), batch)
    >>> operator.sizes, operator.blocks()["0", "2"].shape
    ({'0': 4, '2': 2}, torch.Size([4, 2]))
    """

    @refuses_removed
    def __init__(
        self,
        module: nn.Module,
        loss: Any,
        data: Any,
        layers: Nodes = None,
        part: Part = "hessian",
        *,
        weights: Weights = None,
        output: Pick = None,
        memory_budget: int = MEMORY_BUDGET,
        check: bool | str = True,
        batch_dim: int = 0,
        seed: int | None = None,
    ) -> None:
        settings = Settings(weights, memory_budget, check, batch_dim)
        with ONE_AT_A_TIME:  # while no other thread has replaced the module's tensors
            self._build(
                module,
                loss,
                data,
                lambda m: Perturbations(m, layers),
                part,
                output,
                settings,
                seed,
            )
