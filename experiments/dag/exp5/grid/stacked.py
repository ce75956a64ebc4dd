"""The two networks of Exp. 5 for many trials at once: parameters of all trials stacked, trained side by side.

The trials of a cell share inputs, initial network and order of the examples, and differ in their targets alone. A trial
ends where `runner.training.minibatch.train` would end for its targets, up to rounding: the same loss, clipping, Adam
and schedule, each trial clipped by its own norm.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from runner.models import Network
from runner.training.kinds.minibatch import MinibatchTraining
from runner.training.order import Order

Parameters = dict[str, Tensor]
"""Name of a parameter -> its values in all trials, (T, …)."""


def stacked(network: Network, trials: int) -> Parameters:
    """The network's parameters, alike in all trials."""
    found = {name: value.detach() for name, value in network.named_parameters()}
    return {name: value.expand(trials, *value.shape).clone().requires_grad_() for name, value in found.items()}


def attention_outputs(p: Mapping[str, Tensor], x: Tensor) -> Tensor:
    """(T, B) outputs of `runner.models.attention_regressor` at inputs x (B, S, d)."""
    batch, tokens, width = x.shape
    flat = x.reshape(1, batch * tokens, width)
    q, k = ((flat @ p[f"stages.{name}.weight"].mT).view(-1, batch, tokens, width) for name in "qk")
    # the head is linear and the mean over tokens too: values enter as the numbers u = V^T w
    u = (p["stages.head.linear.weight"] @ p["stages.v.weight"]).mT
    values = (flat @ u).view(-1, batch, tokens, 1)
    weights = torch.softmax(q @ k.mT * width**-0.5, -1).mean(-2, keepdim=True)
    return (weights @ values)[..., 0, 0] + p["stages.head.linear.bias"]


def relu_outputs(p: Mapping[str, Tensor], x: Tensor) -> Tensor:
    """(T, B) outputs of `runner.models.positionwise_mlp` with ReLU at inputs x (B, S, d)."""
    batch, tokens, width = x.shape
    h = x.reshape(1, batch * tokens, width).expand(len(p["stages.head.linear.bias"]), -1, -1)
    for name in (name for name in p if name.endswith("weight") and "block" in name):
        bias = p[name.replace("weight", "bias")]
        h = torch.relu(torch.baddbmm(bias.unsqueeze(1), h, p[name].mT))
    pooled = h.unflatten(1, (batch, tokens)).mean(2)
    return (pooled @ p["stages.head.linear.weight"].mT)[..., 0] + p["stages.head.linear.bias"]


OUTPUTS: dict[str, Callable[[Mapping[str, Tensor], Tensor], Tensor]] = {
    "attention": attention_outputs,
    "relu_mlp": relu_outputs,
}


def train_all(
    kind: str,
    network: Network,
    x: Tensor,
    targets: Tensor,
    training: MinibatchTraining,
    order: Order,
    progress: Callable[[int, int, str], None],
) -> dict[str, Parameters]:
    """checkpoint -> parameters of all trials, for inputs x (N, S, d) and targets (T, N), with Adam.

    Raises ValueError for another optimizer: no protocol of the experiment has one.
    """
    if training.optimizer != "adam":
        raise ValueError(f"training.optimizer: expected adam, found {training.optimizer!r}")
    parameters = stacked(network, len(targets))
    leaves, outputs = list(parameters.values()), OUTPUTS[kind]
    optimizer = torch.optim.Adam(leaves, training.rate, weight_decay=training.weight_decay, fused=True)
    due = {0: "init", training.epochs // 2: "mid", training.epochs: "final"}
    states = {"init": _copy(parameters)}
    for epoch in range(training.epochs):
        optimizer.param_groups[0]["lr"] = _rate(training, epoch)
        for rows in order.permutation(len(x)).split(training.batch):
            optimizer.zero_grad(set_to_none=True)
            (outputs(parameters, x[rows]) - targets[:, rows]).square().mean(1).sum().backward()
            _clip(leaves, training.clip)
            optimizer.step()
        if epoch + 1 in due:
            states[due[epoch + 1]] = _copy(parameters)
        progress(epoch + 1, training.epochs, kind)
    return states


def _rate(training: MinibatchTraining, epoch: int) -> float:
    if training.schedule == "constant":
        return training.rate
    return training.rate * (1 + math.cos(math.pi * epoch / training.epochs)) / 2


def _clip(leaves: Sequence[Tensor], limit: float) -> None:
    """Scale the gradient of every trial to at most `limit`, as `minibatch.train` does."""
    gradients = [leaf.grad for leaf in leaves if leaf.grad is not None]
    norms = torch.stack([g.flatten(1).norm(dim=1) for g in gradients]).norm(dim=0)
    scale = (limit / (norms + 1e-6)).clamp_(max=1.0)
    for g in gradients:
        g.mul_(scale.view(-1, *[1] * (g.dim() - 1)))


def _copy(parameters: Mapping[str, Tensor]) -> Parameters:
    return {name: value.detach().clone() for name, value in parameters.items()}


def trial_network(network: Network, states: Mapping[str, Tensor], trial: int) -> Network:
    """`network` with the parameters of one trial, in evaluation mode."""
    own: dict[str, Any] = {name: value[trial] for name, value in states.items()}
    network.load_state_dict(own, strict=False)
    return network.eval()
