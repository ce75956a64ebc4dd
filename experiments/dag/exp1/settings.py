"""DAG, Exp. 1: decay of resonance R(d) and coupling C(d) with the distance between layers; at
depth; 1b."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from experiments.dag.protocol.inter_layer import (
    ACTIVATIONS,
    DEEPER,
    WITHOUT_NORM,
    InterLayer,
    companion,
    companions,
    without_norm,
)
from runner import contract as c
from runner.kinds.model import ARCHITECTURES, BlockChain
from runner.training.streams import HE, PUBLISHED, PUBLISHED_SEEDS

DESCRIBED = "as described"
DESCRIBED_TRAINED = "as described, trained"
"""Networks with He initialisation, as the text says (Section 5.1, Appendix N.1), before training
and, where they are measured, through it."""


@dataclass(frozen=True, kw_only=True)
class Exp1Resonance(InterLayer):
    """DAG, Exp. 1 (Section 5.1): plain and residual networks on CIFAR-10; Figs. 2, 3, Table 2.

    described_archs: the blocks whose printed values depend on the initialisation that the text
    names.
    """

    title = "Resonance and coupling decay with the distance between layers"
    paper = "DAG"
    reproduces = "Figs. 2, 3; Table 2"
    claimed = "exp1_resonance"
    replication_seeds = tuple(range(42, 62))
    analysis = "experiments.dag.exp1.report:ResonanceAnalysis"
    described_archs: ClassVar[tuple[str, ...]] = ("plain", "residual")

    depth: list[int] = c.grid(above=0, help="L: blocks between projection and head")
    arch: list[str] = c.grid(
        choices=ARCHITECTURES,
        help=(
            "residual: skip at every block, alpha = L^-1/2; plain_sn: weights of "
            "spectral norm 1, no LayerNorm"
        ),
    )
    activation: str = c.setting("relu", choices=ACTIVATIONS)
    untrained: bool = c.since(False, help="networks at initialisation alone")
    model: BlockChain

    def __post_init__(self) -> None:
        super().__post_init__()
        if not set(self.arch) & set(self.model.archs):
            c.one_of(f"experiment.arch of model={self.model.kind}", self.arch, self.model.archs)

    def cells(self) -> list[c.Cell]:
        """Depths and blocks of the grid, of those blocks that the model can have."""
        wanted = [params for params in self.combinations() if params["arch"] in self.model.archs]
        return [self.priced(c.Cell(params), int(params["depth"])) for params in wanted]

    def network_settings(self, cell: c.Cell) -> Mapping[str, Any]:
        depth = int(cell.params["depth"])
        arch = str(cell.params["arch"])
        return self.model.network(
            outputs=self.dataset.classes, depth=depth, arch=arch, activation=self.activation
        )

    def companions(self) -> Mapping[str, c.Companion]:
        """Those of all experiments on images, networks with the initialisation that the text names,
        and untrained plain networks without LayerNorm (Section 5.1's norms)."""
        found = companions(self)
        if found:
            found |= self._as_described()
        with_norm = self.model.kind == "mlp" and getattr(self.model, "norm", False)
        if type(self) is not Exp1Resonance or not found or not with_norm:
            return found
        plain = without_norm(self, self.model, arch=["plain"], depth=[12, 32])
        return {**found, WITHOUT_NORM: plain}

    def _as_described(self) -> dict[str, c.Companion]:
        """Networks with He initialisation on the paper's images, where the settings' own are the
        published ones."""
        archs = [arch for arch in self.arch if arch in self.described_archs]
        model: Any = self.model
        if getattr(model, "initial", "") != PUBLISHED or not archs:
            return {}
        changes: dict[str, Any] = {
            "model": replace(model, initial=HE),
            "metric": replace(self.metric, subsamples=0),
            "arch": archs,
        }
        return {
            DESCRIBED: companion(self, PUBLISHED_SEEDS, untrained=True, **changes),
            DESCRIBED_TRAINED: companion(self, PUBLISHED_SEEDS, **changes),
        }


@dataclass(frozen=True, kw_only=True)
class Exp1bSpectralNorm(Exp1Resonance):
    """DAG, Exp. 1b (Appendix N.1): spectral normalisation on projection and blocks, residual
    networks as control; Fig. N.1, Table N.2.

    Every block Jacobian contracts.
    """

    title = "Resonance under spectral normalisation"
    paper = "DAG"
    reproduces = "Fig. N.1; Table N.2"
    claimed = "exp1b_spectral_norm"
    analysis = "experiments.dag.exp1.report:SpectralNormAnalysis"
    described_archs = ("residual",)

    def companions(self) -> Mapping[str, c.Companion]:
        """Those of Exp. 1, and plain networks of 32 blocks on the paper's images alone
        (metric.subsamples=0)."""
        found = super().companions()
        if not found or not self.metric.subsamples:
            return found
        metric = replace(self.metric, subsamples=0)
        deeper = replace(self, depth=[32], arch=["plain_sn"], metric=metric)
        return {**found, DEEPER: c.Companion(deeper, PUBLISHED_SEEDS)}


@dataclass(frozen=True, kw_only=True)
class Exp1Deep(Exp1Resonance):
    """DAG, Exp. 1 at depths 16 and 32 (Appendix N.2): plain and residual networks of width 128 on
    CIFAR-10; Table N.3.

    Depths 16 and 32 (Appendix N.2).
    """

    title = "Resonance and coupling at depths 16 and 32"
    paper = "DAG"
    reproduces = "Table N.3"
    claimed = "exp1_deep"
    measure = "experiments.dag.exp1.measure:measure"
    analysis = "experiments.dag.exp1.report:DeepAnalysis"

    probes: int = c.setting(
        100, above=0, help="Table N.3 is estimated; the exact values are in columns of their own"
    )
