"""Networks that are one chain of blocks between a projection and a head (DAG, Exp. 1, 1b, 2, 3, 3b)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

from runner.contract import kind, setting, since
from runner.models.kinds.initial import INITIAL, initial_setting

ARCHITECTURES = ("plain", "residual", "plain_sn")
"""Blocks that experiments vary: σ(LayerNorm(W h + b)), h + L^-1/2 σ(W h + b), σ(Ŵ h + b) with ‖Ŵ‖₂ = 1."""


@dataclass(frozen=True)
class BlockChain(ABC):
    """Settings of a chain of `depth` blocks, as many as the experiment says. archs: the blocks that it can have."""

    kind: str = kind("chain")
    archs: ClassVar[tuple[str, ...]] = ("plain",)

    @abstractmethod
    def network(self, *, outputs: int, depth: int, arch: str, activation: str) -> dict[str, Any]:
        """Name of a builder under "builder", and its keyword arguments."""


@dataclass(frozen=True)
class MlpModel(BlockChain):
    """Plain, residual or spectrally normalised blocks, as the experiment's grid says (DAG, Section 5).

    width: of projection and blocks. norm: LayerNorm in projection and plain blocks; residual blocks have none, and the
    spectral norm takes its place. initial: "published" starts the paper's seeds 42 to 46 from the published initial
    networks (any other seed: the project's named streams), "named" starts all from the named streams.
    """

    kind: str = kind("mlp")
    width: int = setting(64, above=0)
    norm: bool = True
    initial: str = since("named", free=True, choices=INITIAL)
    archs: ClassVar[tuple[str, ...]] = ARCHITECTURES

    def network(self, *, outputs: int, depth: int, arch: str, activation: str) -> dict[str, Any]:
        return {
            **initial_setting(self.initial),
            "builder": "mlp",
            "outputs": outputs,
            "depth": depth,
            "width": self.width,
            "activation": activation,
            "residual": arch == "residual",
            "norm": self.norm and arch != "plain_sn",
            "spectral": arch == "plain_sn",
        }


@dataclass(frozen=True)
class ResidualMlpModel(BlockChain):
    """Residual blocks h + L^-1/2 σ(W h + b) only (DAG, Exp. 1). norm: LayerNorm in the projection."""

    kind: str = kind("residual_mlp")
    width: int = setting(64, above=0)
    norm: bool = True
    initial: str = since("named", free=True, choices=INITIAL)
    archs: ClassVar[tuple[str, ...]] = ("residual",)

    def network(self, *, outputs: int, depth: int, arch: str, activation: str) -> dict[str, Any]:
        plain = MlpModel(width=self.width, norm=self.norm, initial=self.initial)
        return plain.network(outputs=outputs, depth=depth, arch=arch, activation=activation)


@dataclass(frozen=True)
class BottleneckMlpModel(BlockChain):
    """Plain blocks with LayerNorm, of which number L//2 has `narrow` outputs and all others `width` (DAG, Exp. 2)."""

    kind: str = kind("bottleneck_mlp")
    width: int = setting(512, above=0)
    narrow: int = setting(64, above=0)
    initial: str = since("named", free=True, choices=INITIAL)

    def network(self, *, outputs: int, depth: int, arch: str, activation: str) -> dict[str, Any]:
        shape: dict[str, Any] = {"depth": depth, "width": self.width, "narrow": self.narrow}
        shape |= initial_setting(self.initial)
        return {"builder": "bottleneck_mlp", "outputs": outputs, "activation": activation, **shape}
