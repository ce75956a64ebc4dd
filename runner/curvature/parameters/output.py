"""The matrix A between the outputs' Jacobians: J^T A J is a Gauss-Newton or Fisher matrix of one batch.

gauss_newton        A = d2 L / df2, L the mean loss of the batch
fisher              A = E_y[g g^T] over targets y of the model's own distribution, a mean over everything that the
                    loss averages (examples, positions, components); equal to d2 L / df2 for cross-entropy, binary
                    cross-entropy and squared error (natural parameters)
fisher, sampled     the mean over sampled targets instead, the expectation of which it has
empirical_fisher    g g^T / B with the given targets
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from runner.curvature.graph.written import as_written

Loss = Callable[[Any, Any], Tensor]
Known = Literal["cross_entropy", "binary", "squared"]


class OutputCurvature(Protocol):
    """A as an operator on tensors of the output's shape."""

    def apply(self, u: Tensor) -> Tensor: ...


class LossHessian:
    """d2 L / df2, from the graph of the loss alone."""

    def __init__(self, loss: Loss, output: Tensor, target: Any) -> None:
        with torch.enable_grad():
            self.leaf = output.detach().requires_grad_()
            (self.gradient,) = torch.autograd.grad(loss(self.leaf, target), self.leaf, create_graph=True)

    def apply(self, u: Tensor) -> Tensor:
        if not self.gradient.requires_grad:
            return torch.zeros_like(u)
        (found,) = torch.autograd.grad(self.gradient, self.leaf, u, retain_graph=True, allow_unused=True)
        return torch.zeros_like(u) if found is None else found


class OuterProducts:
    """sum over samples s of g_sb g_sb^T / (B S) for each example b; gradients: (S, B, ...), of one example's loss."""

    def __init__(self, gradients: Tensor) -> None:
        self.gradients = gradients.flatten(2)

    def apply(self, u: Tensor) -> Tensor:
        samples, examples = self.gradients.shape[:2]
        inner = torch.einsum("sbk,bk->sb", self.gradients, u.reshape(examples, -1))
        return torch.einsum("sb,sbk->bk", inner, self.gradients).div(samples * examples).reshape(u.shape)


def known_loss(loss: Loss) -> Known | None:
    """The kind of a loss of torch whose targets' distribution exp(-loss) is known: mean reduction, no weights."""
    plain = {F.cross_entropy: "cross_entropy", F.binary_cross_entropy_with_logits: "binary", F.mse_loss: "squared"}
    if loss in plain:
        return plain[loss]  # type: ignore[return-value]
    if not isinstance(loss, nn.Module) or getattr(loss, "reduction", "") != "mean":
        return None
    if as_written(loss, nn.CrossEntropyLoss) and loss.weight is None and loss.label_smoothing == 0:
        return "cross_entropy"
    if as_written(loss, nn.BCEWithLogitsLoss) and loss.weight is None and loss.pos_weight is None:
        return "binary"
    return "squared" if as_written(loss, nn.MSELoss) else None


def example_gradients(loss: Loss, output: Tensor, target: Any, examples: int) -> Tensor:
    """d loss_b / df_b of every example of a mean loss, (B, d): an example may have several consecutive rows."""
    with torch.enable_grad():
        leaf = output.detach().requires_grad_()
        (gradient,) = torch.autograd.grad(loss(leaf, target), leaf)
    return gradient.reshape(examples, -1) * examples


def sampled_gradients(kind: Known, output: Tensor, samples: int, generator: torch.Generator) -> Tensor:
    """Gradients at targets drawn from the model's own distribution, (samples, B, ...), drawn on the CPU.

    Scaled so that their mean outer product over samples and examples has the expectation of the exact Fisher matrix.
    """
    if kind == "cross_entropy":
        p = torch.softmax(output, 1)
        rows = p.movedim(1, -1).reshape(-1, p.shape[1])
        drawn = torch.multinomial(rows.cpu().double(), samples, replacement=True, generator=generator).to(p.device)
        positions = p.movedim(1, -1).shape[:-1]
        hot = F.one_hot(drawn.mT, p.shape[1]).view(samples, *positions, p.shape[1]).movedim(-1, 2).to(p)
        return (p - hot) * (len(output) / positions.numel()) ** 0.5
    scale = len(output) / output.numel()
    if kind == "binary":
        p = torch.sigmoid(output)
        drawn = torch.rand((samples, *output.shape), generator=generator, dtype=torch.float64).to(p.device)
        return (p - (drawn < p).to(p)) * scale**0.5
    # exp(-|f - y|^2 / d) with d outputs is a normal distribution with variance d / 2.
    noise = torch.randn((samples, *output.shape), generator=generator, dtype=torch.float64).to(output)
    return noise * (2 * scale) ** 0.5
