"""A training epoch against its own matrix products and convolutions alone, in one run on one
thread.

Operations of a step on a batch of B = 128:

    MLP, width 512, depth 6 (Exp. 2)   2 B 3072 512 forward, as many for the weights; 6 B 512^2 in
                                       each of 6 blocks: 2.0 Gflop in matrix products
    ResNet-18 (Exp. 6)                 3 times 74 Mflop an image, less the gradient at the images:
                                       28 Gflop

Goals: an epoch within 1.15 times (MLP) and 1.3 times (ResNet-18) the time of these alone. Both
sides take the same number of steps, in turns; the medians of the rounds are compared. Our side is
the whole training: order, gathering, augmentation, normalisation, loss, clipping, SGD. The MLP
takes an epoch of 50,000 images, ResNet-18 part of one. The epoch that is measured is not one of the
two after which the state is kept (mid, final): a copy of 45 MB is nothing to 391 steps, and a tenth
of 4.

CPU time, one thread. Run: python -m tests.bench epoch [--quick]
"""

import time
from collections.abc import Callable, Iterator
from contextlib import suppress

import torch
from torch import Tensor, nn

from runner.data.images import Split
from runner.kinds.training import MinibatchTraining
from runner.models.architectures import mlp
from runner.models.network import Network
from runner.models.resnet import resnet18
from runner.training.minibatch import train
from tests.bench.machine import peak, seconds
from tests.bench.table import Row
from tests.draws import seeded

BATCH = 128
GOALS = {"MLP width 512": 1.15, "ResNet-18": 1.3}


def images(count: int, flat: bool) -> Split:
    generator = seeded(1)
    pixels = torch.randint(0, 256, (count, 3, 32, 32), generator=generator, dtype=torch.uint8)
    return Split(pixels, torch.randint(10, (count,), generator=generator), flat=flat)


SETTINGS = MinibatchTraining(epochs=6)


class Enough(Exception):
    """Ends a training from its progress function."""


def trained(network: Network, steps: int, flat: bool) -> Callable[[], float]:
    """Runs epochs of `steps` steps; gives the seconds of a step, with an evaluation of two images
    in all."""
    split, test = images(steps * BATCH, flat), images(2, flat)
    augment = None if flat else seeded(2)

    def run() -> float:
        marks: list[float] = []

        def progress(*_: object) -> None:
            marks.append(time.process_time())
            if len(marks) == 2:  # the second epoch is measured: memory and code are there
                raise Enough

        order = seeded(3)
        with suppress(Enough):
            train(network, split, test, SETTINGS, order=order, augment=augment, progress=progress)
        return (marks[1] - marks[0]) / steps

    return run


def products_of_mlp(network: Network) -> tuple[Callable[[], object], float]:
    """The matrix products of a step, results into memory that is there, and their operations."""
    layers = [m for m in network.modules() if isinstance(m, nn.Linear)]
    work: list[tuple[Tensor, Tensor, Tensor]] = []
    for k, layer in enumerate(layers):
        x, g = torch.randn(BATCH, layer.in_features), torch.randn(BATCH, layer.out_features)
        weight = layer.weight.detach()
        work += [(x, weight.t(), torch.empty_like(g)), (g.t(), x, torch.empty_like(weight))]
        if k:  # no gradient at the images
            work.append((g, weight, torch.empty_like(x)))

    def run() -> None:
        for a, b, out in work:
            torch.mm(a, b, out=out)

    return run, sum(2.0 * a.shape[0] * a.shape[1] * b.shape[1] for a, b, _ in work)


def convolutions_of(network: Network) -> tuple[Callable[[], object], float]:
    """Forward pass and both gradients of every convolution, on the shapes of a step, and their
    operations."""
    shapes: list[tuple[nn.Conv2d, torch.Size]] = []
    modules = [m for m in network.modules() if isinstance(m, nn.Conv2d)]
    handles = [
        m.register_forward_pre_hook(lambda m, args: shapes.append((m, args[0].shape)))
        for m in modules
    ]
    with torch.no_grad():
        network(torch.randn(BATCH, 3, 32, 32))
    for handle in handles:
        handle.remove()
    work, count = [], 0.0
    for k, (m, shape) in enumerate(shapes):
        x, weight = torch.randn(shape), m.weight.detach()
        out = nn.functional.conv2d(x, weight, None, m.stride, m.padding)
        work.append((m, x, weight, torch.randn_like(out), k > 0))
        count += 2.0 * out.numel() * weight[0].numel() * (3 if k else 2)

    def run() -> None:
        for m, x, weight, g, by_input in work:
            nn.functional.conv2d(x, weight, None, m.stride, m.padding)
            torch.ops.aten.convolution_backward(
                g,
                x,
                weight,
                None,
                m.stride,
                m.padding,
                m.dilation,
                False,
                [0, 0],
                1,
                [by_input, True, False],
            )

    return run, count


def compared(name: str, network: Network, steps: int, rounds: int, flat: bool) -> Row:
    """Our steps and their products alone, in turns; every round gives the mean of its steps."""
    ours = trained(network, steps, flat)
    alone, count = products_of_mlp(network) if flat else convolutions_of(network)
    mine, bare = [], []
    alone()
    ours()
    for _ in range(rounds):
        mine.append(ours())
        bare.append(seconds(alone, steps))
    work = "products" if flat else "convolutions"
    what = f"training step of {name}, B = {BATCH}, against its {work} alone"
    return Row(
        "epoch", what, tuple(mine), tuple(bare), GOALS[name], at_least=False,
        operations=(count, count), peak=peak(), note=f"mean of {steps} steps a round",
    )  # fmt: skip


def rows(quick: bool = False, word: str = "") -> Iterator[Row]:
    """Of the networks whose names hold `word`."""
    generator = seeded(1)
    wide = mlp(depth=6, width=512, generator=generator)
    for name, network in (("MLP width 512", wide), ("ResNet-18", resnet18(generator=generator))):
        if word.lower() in name.lower():
            flat = network is wide
            steps, rounds = (391, 3) if flat else (16, 5)
            yield compared(name, network, *((steps // 8, 2) if quick else (steps, rounds)), flat)
