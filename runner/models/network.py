"""Networks stated as graphs (`Stage`, `Network`), default torch initialisation from a named random
stream, and the blocks of the fully connected networks: plain torch, differentiable as often as
needed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from runner.models.activations import PIECEWISE_LINEAR, activation

if TYPE_CHECKING:
    from runner.curvature import Dag, Node
    from runner.curvature.graphs.losses import LossSpec
    from runner.curvature.graphs.structure import Stage as StructureStage, Structure


INPUT = "input"


class Stage(NamedTuple):
    """One node of the graph: its name, its parents in order ("input" is the data), and the module
    that maps them."""

    name: str
    parents: tuple[str, ...]
    module: nn.Module


def follow(stages: list[Stage], name: str, module: nn.Module) -> None:
    """Append a stage whose parent is the last one, or the data."""
    parent = stages[-1].name if stages else INPUT
    stages.append(Stage(name, (parent,), module))


class Network(nn.Module):
    """A network as an ordered list of stages; the last one gives the output.

    measured: names of the stages whose outputs the papers measure curvature at, in order.
    """

    def __init__(self, stages: Sequence[Stage], measured: Sequence[str]) -> None:
        super().__init__()
        self.parents = {stage.name: stage.parents for stage in stages}
        self.stages = nn.ModuleDict({stage.name: stage.module for stage in stages})
        self.measured = tuple(measured)

    def graph(self) -> list[Stage]:
        """The stages in order."""
        return [Stage(name, self.parents[name], module) for name, module in self.stages.items()]

    def activations(self, x: Tensor) -> dict[str, Tensor]:
        """Output of every stage for the batch x, by name, in order."""
        values = {INPUT: x}
        for name, parents, module in self.graph():
            values[name] = module(*(values[p] for p in parents))
        del values[INPUT]
        return values

    def forward(self, x: Tensor) -> Tensor:
        return list(self.activations(x).values())[-1]

    def nodes(self) -> list[Node]:
        """The stages as nodes of a curvature graph (runner.curvature.Dag)."""
        from runner.curvature import Node

        return [Node(stage.name, stage.parents, stage.module) for stage in self.graph()]

    def to_dag(self, loss: LossSpec = "cross_entropy") -> Dag:
        """The network with its loss as a graph to measure; put it in evaluation mode first."""
        from runner.curvature import Dag

        return Dag(self.nodes(), loss=loss)

    @property
    def parameter_count(self) -> int:
        return sum(p.numel() for p in self.parameters())


@contextmanager
def default_init(generator: torch.Generator | None) -> Iterator[None]:
    """Modules made inside get torch's default initialisation, drawn from `generator`; the global
    state is kept.

    None draws from torch's global generator as usual.
    """
    if generator is None:
        yield
        return
    seed = int(torch.randint(2**62, (1,), generator=generator, device=generator.device))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        yield


class SpectralLinear(nn.Linear):
    """x Ŵᵀ + b with Ŵ = W / (uᵀ W v), u and v the leading singular vectors by power iteration
    (Miyato et al., 2018).

    As torch's spectral_norm: 15 iterations when made, one more at each forward pass in training
    mode, none in evaluation mode; u and v are constants for the gradient.
    """

    STEPS = 15
    """Iterations when made."""
    u: Tensor
    v: Tensor

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__(inputs, outputs)
        self.register_buffer("u", F.normalize(torch.randn(outputs), dim=0))
        self.register_buffer("v", F.normalize(torch.randn(inputs), dim=0))
        for _ in range(self.STEPS):
            self.iterate()

    @torch.no_grad()
    def iterate(self) -> None:
        """One step of the power iteration for u and v."""
        u = F.normalize(self.weight @ self.v, dim=0)
        self.v.copy_(F.normalize(self.weight.t() @ u, dim=0))
        self.u.copy_(u)

    def sigma(self) -> Tensor:
        """uᵀ W v, the estimate of ‖W‖₂."""
        return torch.dot(self.u, self.weight @ self.v)

    def forward(self, x: Tensor) -> Tensor:
        if self.training:
            self.iterate()
        return F.linear(x, self.weight / self.sigma(), self.bias)


class Block(nn.Module):
    """σ(N(W h + b)), or h + α σ(N(W h + b)) with a skip; N is LayerNorm or nothing, h the parents
    side by side.

    inputs, outputs: widths; activation: a name of ACTIVATIONS; norm: LayerNorm after the linear
    map; skip: α of the residual form, None without a skip; spectral: W is divided by its spectral
    norm.
    Raises ValueError for a skip between different widths.
    """

    def __init__(
        self,
        inputs: int,
        outputs: int,
        activation_name: str,
        *,
        norm: bool = False,
        skip: float | None = None,
        spectral: bool = False,
    ) -> None:
        super().__init__()
        if skip is not None and inputs != outputs:
            raise ValueError(f"residual block: expected equal widths, found {inputs} -> {outputs}")
        self.linear = (SpectralLinear if spectral else nn.Linear)(inputs, outputs)
        self.norm = nn.LayerNorm(outputs) if norm else None
        self.skip = skip
        self.activation_name = activation_name
        self.act, self.act_gradient = activation(activation_name)

    def pre_activation(self, *parents: Tensor) -> Tensor:
        """N(W h + b), the argument of the activation."""
        z = self.linear(parents[0] if len(parents) == 1 else torch.cat(parents, -1))
        return z if self.norm is None else self.norm(z)

    def forward(self, *parents: Tensor) -> Tensor:
        a = self.act(self.pre_activation(*parents))
        if self.skip is None:
            return a
        return torch.add(parents[0], a, alpha=self.skip)

    def curvature_structure(self, parents: int) -> Structure | None:
        """`forward` as stages whose first and second derivatives the curvature engine has in closed
        form.

        None for a spectral weight in training mode, where each forward pass changes it.
        """
        from runner.curvature.graphs.structure import (
            Chain,
            ElementwiseStage,
            LayerNormStage,
            LinearStage,
            ResidualStage,
            Structure,
        )

        linear = self.linear
        if isinstance(linear, SpectralLinear) and self.training:
            return None
        weight = linear.weight
        if isinstance(linear, SpectralLinear):
            weight = weight / linear.sigma()
        stages: list[StructureStage] = [LinearStage(weight.detach(), linear.bias.detach())]
        if (norm := self.norm) is not None:
            stages.append(LayerNormStage(norm.weight.detach(), norm.bias.detach(), norm.eps))
        if self.activation_name != "linear":
            stages.append(ElementwiseStage(self.act, self.activation_name in PIECEWISE_LINEAR))
        chain = Chain(tuple(stages))
        if self.skip is not None:
            chain = Chain((ResidualStage(chain, self.skip),))
        return Structure((1.0,) if parents == 1 else None, chain)


class SumMerge(nn.Module):
    """(h_A + h_B + …)/√m over m parents: the linear merge, of unit gain for independent
    branches."""

    def forward(self, *parents: Tensor) -> Tensor:
        return torch.stack(parents).sum(0) * len(parents) ** -0.5

    def curvature_structure(self, parents: int) -> Structure:
        """The weighted sum, in the curvature engine's closed form."""
        from runner.curvature.graphs.structure import Chain, Structure

        return Structure((parents**-0.5,) * parents, Chain(()))
