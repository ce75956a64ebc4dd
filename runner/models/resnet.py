"""ResNet-18 in measured segments, with and without shortcuts (DAG, Exp. 6)."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from runner.models.activations import activation
from runner.models.convolution import Convolution
from runner.models.network import INPUT, Network, Stage, default_init


class Stem(nn.Module):
    """Convolution 7×7 stride 2, BatchNorm, σ, max-pool 3×3 stride 2: the ImageNet stem, (3, 32, 32) -> (64, 8, 8)."""

    def __init__(self, activation_name: str) -> None:
        super().__init__()
        self.conv = Convolution(3, 64, 7, 2)
        self.norm = nn.BatchNorm2d(64)
        self.pool = nn.MaxPool2d(3, stride=2, padding=1)
        self.act, _ = activation(activation_name)

    def forward(self, x: Tensor) -> Tensor:
        return self.pool(self.act(self.norm(self.conv(x))))


class ConvBlock(nn.Module):
    """σ(BN(conv(σ(BN(conv h)))) + shortcut(h)); without the shortcut where that is None.

    The shortcut is the identity, or a strided 1×1 convolution with BatchNorm where the shape changes.
    """

    def __init__(self, inputs: int, outputs: int, stride: int, activation_name: str, skip: bool = True) -> None:
        super().__init__()
        self.conv1, self.norm1 = Convolution(inputs, outputs, 3, stride), nn.BatchNorm2d(outputs)
        self.conv2, self.norm2 = Convolution(outputs, outputs, 3, 1), nn.BatchNorm2d(outputs)
        self.shortcut: nn.Module | None = None
        if skip:
            same = inputs == outputs and stride == 1
            self.shortcut = (
                nn.Identity()
                if same
                else nn.Sequential(Convolution(inputs, outputs, 1, stride), nn.BatchNorm2d(outputs))
            )
        self.act, _ = activation(activation_name)

    def forward(self, h: Tensor) -> Tensor:
        out = self.norm2(self.conv2(self.act(self.norm1(self.conv1(h)))))
        return self.act(out if self.shortcut is None else out + self.shortcut(h))


class PoolHead(nn.Module):
    """Average over positions, then a linear map to the logits."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.linear = nn.Linear(inputs, outputs)

    def forward(self, h: Tensor) -> Tensor:
        return self.linear(h.mean((-2, -1)))


def resnet18(
    *,
    outputs: int = 10,
    activation: str = "relu",
    skip: bool = True,
    generator: torch.Generator | None = None,
) -> Network:
    """stem, layer1 … layer4 (two blocks each), head; measured at stem and layers.

    Parameters with ten outputs: 11,181,642; skip=False drops every shortcut with its downsampling weights once the
    network is drawn: 11,007,818, the same as in its twin. Convolutions are drawn normal with variance 2/fan_out, the
    rest is torch's default; all defaults are drawn before, in the order of the modules, as in the standard
    construction of the network.
    """
    with default_init(generator):
        stages = [Stage("stem", (INPUT,), Stem(activation))]
        channels = 64
        for i, outputs_i in enumerate((64, 128, 256, 512)):
            first = ConvBlock(channels, outputs_i, 1 if i == 0 else 2, activation)
            layer = nn.Sequential(first, ConvBlock(outputs_i, outputs_i, 1, activation))
            stages.append(Stage(f"layer{i + 1}", (stages[-1].name,), layer))
            channels = outputs_i
        stages.append(Stage("head", ("layer4",), PoolHead(channels, outputs)))
        network = Network(stages, [stage.name for stage in stages[:-1]])
        for module in network.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
        for module in network.modules():
            if isinstance(module, ConvBlock) and not skip:
                module.shortcut = None
    return network
