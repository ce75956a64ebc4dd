"""Loss and gradient of one batch: written out for networks of Block and SumMerge stages, by
autograd for the others.

Operations per step of the plain network (depth 8, width 64, batch 128): 2·2·128·3072·64 = 101
million in the projection, which needs no gradient to its input, and 6·128·64² = 3 million per
block. On one thread that is 1.05 ms and 0.3 ms at the speed the matrix products reach, next to 0.25
ms of LayerNorm, activations and sums. What is left is bookkeeping: 0.9 ms in autograd, half of that
here, where kernels hold tensors instead of looking them up in modules.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from runner.models.network import INPUT, Block, Network, SpectralLinear, SumMerge

_aten = torch.ops.aten

LossGradient = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]
Gradient = Callable[[Tensor, Tensor], Tensor]


def cross_entropy(logits: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    """Mean of -log softmax(logits)[target], and its gradient (softmax - onehot)/B."""
    log_p = torch.log_softmax(logits, 1)
    column = target[:, None]
    loss = log_p.gather(1, column).mean().neg_()
    grad = log_p.exp_()
    grad.scatter_add_(1, column, torch.full_like(column, -1, dtype=grad.dtype))
    return loss, grad.div_(len(target))


def mean_squared_error(output: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    """Mean of (output - target)², and its gradient."""
    error = output - target.reshape(output.shape)
    return error.square().mean(), error * (2 / error.numel())


LOSSES: dict[str, LossGradient] = {"cross_entropy": cross_entropy, "mse": mean_squared_error}


def loss_value(name: str, output: Tensor, target: Tensor) -> Tensor:
    """Mean loss of a batch as a differentiable scalar."""
    if name == "cross_entropy":
        return F.cross_entropy(output, target)
    return F.mse_loss(output, target.reshape(output.shape))


def gradient_function(network: Network, loss: str) -> Gradient:
    """f(x, y) -> mean loss, leaving the gradient in every parameter's `.grad`.

    It holds on to the parameters' memory: make it after anything that moves them
    (flatten_parameters, to).
    """
    for p in network.parameters():
        if p.grad is None:
            p.grad = torch.zeros_like(p)
    if written_out(network):
        return Backpropagation(network, LOSSES[loss])
    return _by_autograd(network, loss)


def written_out(network: Network) -> bool:
    """True when every stage has a kernel here and no parameter serves two stages."""
    modules = [stage.module for stage in network.graph()]
    parameters = [p for module in modules for p in module.parameters()]
    shared = len(set(parameters)) < len(parameters)
    return not shared and all(type(module) in KERNELS for module in modules)


def _by_autograd(network: Network, loss: str) -> Gradient:
    parameters = [p for p in network.parameters() if p.requires_grad]

    def gradient(x: Tensor, y: Tensor) -> Tensor:
        value = loss_value(loss, network(x), y)
        found = torch.autograd.grad(value, parameters, allow_unused=True)
        for p, g in zip(parameters, found, strict=True):
            if g is None:
                p.grad.zero_()
            else:  # 0 + g in the optimiser's memory, in one pass: zeroing and adding up take three
                torch.add(g, 0.0, out=p.grad)
        return value.detach()

    return gradient


class Backpropagation:
    """Forward and reverse sweep over the stages without autograd; gradients overwrite the
    parameters' `.grad`."""

    def __init__(self, network: Network, loss: LossGradient) -> None:
        self.loss = loss
        self.stages = [
            (s.name, s.parents, KERNELS[type(s.module)](s.module)) for s in network.graph()
        ]
        self.output = self.stages[-1][0]

    @torch.no_grad()
    def __call__(self, x: Tensor, y: Tensor) -> Tensor:
        values = {INPUT: x}
        saved = {}
        for name, parents, kernel in self.stages:
            values[name], saved[name] = kernel.push(*[values[p] for p in parents])
        value, grad = self.loss(values[self.output], y)
        grads = {self.output: grad}
        for name, parents, kernel in reversed(self.stages):
            pulled = kernel.pull(grads.pop(name), saved[name], INPUT not in parents)
            for parent, g in zip(parents, pulled, strict=False):
                grads[parent] = grads[parent] + g if parent in grads else g
        return value


class BlockKernel:
    """A Block and its vector-Jacobian product."""

    def __init__(self, block: Any) -> None:
        linear = block.linear
        norm = block.norm
        self.block = block
        self.skip = block.skip
        self.act = block.act
        self.act_gradient = block.act_gradient
        self.spectral = linear if isinstance(linear, SpectralLinear) else None
        self.weight = linear.weight.detach()
        self.bias = linear.bias.detach()
        self.weight_t = self.weight.t()
        self.d_weight = linear.weight.grad
        self.d_bias = linear.bias.grad
        self.norm = norm is not None
        if norm is not None:
            self.shape = norm.normalized_shape
            self.eps = norm.eps
            self.gamma = norm.weight.detach()
            self.beta = norm.bias.detach()
            self.d_gamma = norm.weight.grad
            self.d_beta = norm.bias.grad

    def push(self, *parents: Tensor) -> tuple[Tensor, Any]:
        """The block's output, and what pull() needs."""
        h = parents[0] if len(parents) == 1 else torch.cat(parents, -1)
        weight = self.weight
        weight_t = self.weight_t
        sigma = None
        if self.spectral is not None:
            if self.block.training:
                self.spectral.iterate()
            sigma = self.spectral.sigma()
            weight = weight / sigma
            weight_t = weight.t()
        z = torch.addmm(self.bias, h, weight_t)
        n = z
        mean = None
        scale = None
        if self.norm:
            n, mean, scale = torch.native_layer_norm(z, self.shape, self.gamma, self.beta, self.eps)
        a = self.act(n)
        out = a
        if self.skip is not None:
            out = torch.add(h, a, alpha=self.skip)
        return out, (h, weight, sigma, z, mean, scale, n, a, [p.shape[-1] for p in parents])

    def pull(self, grad: Tensor, saved: Any, input_grad: bool) -> list[Tensor]:
        """Gradients to the parents (none unless input_grad); those of the parameters go into their
        `.grad`."""
        h, weight, sigma, z, mean, scale, n, a, widths = saved
        g = self.act_gradient(grad if self.skip is None else grad * self.skip, n, a)
        if self.norm:
            g, d_gamma, d_beta = _aten.native_layer_norm_backward.default(
                g, z, self.shape, mean, scale, self.gamma, self.beta, [True, True, True]
            )
            self.d_gamma.copy_(d_gamma)
            self.d_beta.copy_(d_beta)
        torch.sum(g, 0, out=self.d_bias)
        torch.mm(g.t(), h, out=self.d_weight)
        if self.spectral is not None:  # dW = (dŴ - <dŴ, Ŵ> u vᵀ) / σ, as dσ/dW = u vᵀ
            radial = torch.sum(self.d_weight * weight)
            self.d_weight.addr_(self.spectral.u, self.spectral.v * -radial).div_(sigma)
        if not input_grad:
            return []
        d_h = torch.mm(g, weight) if self.skip is None else torch.addmm(grad, g, weight)
        if len(widths) == 1:
            return [d_h]
        return list(d_h.split(widths, -1))


class SumKernel:
    """A SumMerge and its vector-Jacobian product."""

    def __init__(self, merge: nn.Module) -> None:
        self.merge = merge

    def push(self, *parents: Tensor) -> tuple[Tensor, Any]:
        """The merge's output, and the number of parents."""
        return self.merge(*parents), len(parents)

    def pull(self, grad: Tensor, saved: Any, input_grad: bool) -> list[Tensor]:
        """Gradients to the parents."""
        return [grad * saved**-0.5] * saved


KERNELS: dict[type[nn.Module], type[BlockKernel] | type[SumKernel]] = {
    Block: BlockKernel,
    SumMerge: SumKernel,
}
