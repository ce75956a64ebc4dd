"""Settings of the architectures, and how each becomes the arguments of a builder.

`network(...)` of a kind gives the name of a function of `runner.models` (or "module.function" of a
module of your own) under "builder", and its keyword arguments; the class count of the data, and the
depth and activation that an experiment varies, are arguments of it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from runner.contract import kind, setting, since
from runner.models.activations import ACTIVATIONS

INITIAL = {
    "named": "",
    "published": "the paper's initial networks, seeds 42 to 46 (other seeds: named streams)",
}
CHAIN_INITIAL = {**INITIAL, "he": "weights N(0, 2/fan-in), biases 0"}
"""Where networks start, and chains of blocks; he: He initialisation, which the DAG paper's text
names."""

ARCHITECTURES = ("plain", "residual", "plain_sn")
"""Blocks that experiments vary: σ(LayerNorm(W h + b)), h + L^-1/2 σ(W h + b), σ(Ŵ h + b) with ‖Ŵ‖₂
= 1."""


def initial_field(choices: Mapping[str, str] = INITIAL) -> Any:
    """The field that says where a network starts. choices: each with what it means."""
    meanings = [f"{name}: {meaning}" for name, meaning in choices.items() if meaning]
    return since("named", free=True, choices=tuple(choices), help="; ".join(meanings))


def initial_setting(initial: str) -> dict[str, str]:
    """The entry of the network settings for published initial networks; none for named ones, whose
    keys are older."""
    return {} if initial == "named" else {"initial": initial}


@dataclass(frozen=True)
class BlockChain(ABC):
    """Settings of a chain of `depth` blocks, as many as the experiment says. archs: the blocks that
    it can have."""

    kind: str = kind("chain")
    archs: ClassVar[tuple[str, ...]] = ("plain",)

    @abstractmethod
    def network(self, *, outputs: int, depth: int, arch: str, activation: str) -> dict[str, Any]:
        """Name of a builder under "builder", and its keyword arguments."""


@dataclass(frozen=True)
class MlpModel(BlockChain):
    """Plain, residual or spectrally normalised blocks, as the experiment's grid says (DAG, Section
    5).

    width: of projection and blocks. norm: LayerNorm in projection and plain blocks; residual blocks
    have none, and the spectral norm takes its place. initial: "published" starts the paper's seeds
    42 to 46 from the published initial networks (any other seed: the project's named streams),
    "named" starts all from the named streams, "he" draws weights N(0, 2/fan-in) and biases 0 from
    torch's global stream (`runner.training.initial`).
    """

    kind: str = kind("mlp")
    width: int = setting(64, above=0, help="units of projection and blocks")
    norm: bool = setting(
        True,
        help=(
            "LayerNorm in projection and plain blocks; residual blocks have none, "
            "spectral norm replaces it"
        ),
    )
    initial: str = initial_field(CHAIN_INITIAL)
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
    """Residual blocks h + L^-1/2 σ(W h + b) only (DAG, Exp. 1). norm: LayerNorm in the
    projection."""

    kind: str = kind("residual_mlp")
    width: int = setting(64, above=0, help="units of projection and blocks")
    norm: bool = setting(True, help="LayerNorm in the projection; the blocks have none")
    initial: str = initial_field(CHAIN_INITIAL)
    archs: ClassVar[tuple[str, ...]] = ("residual",)

    def network(self, *, outputs: int, depth: int, arch: str, activation: str) -> dict[str, Any]:
        plain = MlpModel(width=self.width, norm=self.norm, initial=self.initial)
        return plain.network(outputs=outputs, depth=depth, arch=arch, activation=activation)


@dataclass(frozen=True)
class BottleneckMlpModel(BlockChain):
    """Plain blocks with LayerNorm, of which number L//2 has `narrow` outputs and all others `width`
    (DAG, Exp. 2)."""

    kind: str = kind("bottleneck_mlp")
    width: int = setting(
        512, above=0, help="units of projection and blocks, 512 as published (the text says 256)"
    )
    narrow: int = setting(
        64, above=0, help="d_u: units of block L//2, where no experiment varies it"
    )
    initial: str = initial_field(CHAIN_INITIAL)

    def network(self, *, outputs: int, depth: int, arch: str, activation: str) -> dict[str, Any]:
        shape: dict[str, Any] = {"depth": depth, "width": self.width, "narrow": self.narrow}
        shape |= initial_setting(self.initial)
        return {"builder": "bottleneck_mlp", "outputs": outputs, "activation": activation, **shape}


@dataclass(frozen=True)
class DiamondModel:
    """Stem, two branches of blocks, merge, head; length and merge are the experiment's grid.

    width: of stem and branches. norm: LayerNorm in them.
    """

    kind: str = kind("diamond", stored="mlp")
    width: int = setting(32, above=0, help="units of stem and branches")
    norm: bool = setting(True, help="LayerNorm in stem and branches; there is no other form")
    initial: str = initial_field()

    def network(
        self, *, outputs: int, branch_depth: int, merge: str, activation: str
    ) -> dict[str, Any]:
        """The builder `diamond` and its keyword arguments."""
        shape: dict[str, Any] = {
            "branch_depth": branch_depth,
            "merge": merge,
            "activation": activation,
            "width": self.width,
        }
        shape |= {} if self.norm else {"norm": False}
        return {**initial_setting(self.initial), "builder": "diamond", "outputs": outputs, **shape}


@dataclass(frozen=True)
class ResNetModel:
    """Stem, four layers of two blocks, head. kind: resnet18, or plain_resnet18, which drops every
    shortcut."""

    kind: str = kind("resnet18", choices=("resnet18", "plain_resnet18"))
    activation: str = setting("relu", choices=tuple(ACTIVATIONS), help="after every BatchNorm")

    def network(self, *, outputs: int) -> dict[str, Any]:
        """The builder `resnet18` and its keyword arguments; its inputs are images, not vectors."""
        return {
            "builder": "resnet18",
            "outputs": outputs,
            "activation": self.activation,
            "skip": self.kind == "resnet18",
        }


@dataclass(frozen=True)
class AttentionModel:
    """q, k, v without bias, softmax(q kᵀ/√d) v, mean over tokens, linear head. width: d, that of
    the tokens."""

    kind: str = kind("attention")
    width: int = setting(16, above=0, help="d: width of q, k and v, that of the tokens")
    initial: str = initial_field()

    def network(self) -> dict[str, Any]:
        """The builder `attention_regressor` and its keyword arguments."""
        return {
            **initial_setting(self.initial),
            "builder": "attention_regressor",
            "width": self.width,
        }

    def control(self, depth: int) -> dict[str, Any]:
        """The builder `positionwise_mlp` of the ReLU control and its keyword arguments."""
        shape = {"width": self.width, "depth": depth, "activation": "relu"}
        return {**initial_setting(self.initial), "builder": "positionwise_mlp", **shape}

    def flat_control(self, tokens: int, width: int, depth: int) -> dict[str, Any]:
        """The builder `flat_mlp` of the ReLU control that reads all tokens at once, and its keyword
        arguments."""
        shape = {"inputs": tokens * self.width, "width": width, "depth": depth}
        return {**initial_setting(self.initial), "builder": "flat_mlp", **shape}


@dataclass(frozen=True)
class ThreeLayerModel:
    """x in R^M, N hidden units with bias, one logistic output, cross-entropy (WS bound, Section
    III; HSR, Section II).

    D = N (M + 2) + 1 parameters; runner.closed_form.three_layer.
    """

    kind: str = kind("three_layer")


@dataclass(frozen=True)
class ScalarModel:
    """f(x) = Σ_i v_i σ(w_i x), σ linear or ReLU, squared error (scalar spectrum, Section 2).

    2 m parameters, 3 m with bias; runner.closed_form.scalar.
    """

    kind: str = kind("scalar")
