"""Networks stated as graphs: `Stage`, `Network`, and default torch initialisation from a named random stream."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor, nn

if TYPE_CHECKING:
    from runner.curvature import Dag, Node
    from runner.curvature.graph.losses import LossSpec

INPUT = "input"


class Stage(NamedTuple):
    """One node of the graph: its name, its parents in order ("input" is the data), and the module that maps them."""

    name: str
    parents: tuple[str, ...]
    module: nn.Module


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
    """Modules made inside get torch's default initialisation, drawn from `generator`; the global state is kept.

    None draws from torch's global generator as usual.
    """
    if generator is None:
        yield
        return
    seed = int(torch.randint(2**62, (1,), generator=generator, device=generator.device))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        yield
