"""Ten largest eigenpairs against scipy's eigsh on kept double backward, written by hand, at equal
residual.

`eigsh` is given a tolerance of 1e-4; ours is then the largest residual that eigsh reached. Copies
of repeated eigenvalues: eigsh sees one of each, ours is certain of all (the default), or searches
with one vector as eigsh does (block=1). Goal: at most 1.2 times the processor time.

CPU time, one thread. Run: python -m tests.bench eigenpairs [--quick]
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import torch
from scipy.sparse.linalg import LinearOperator, eigsh
from torch import Tensor, nn

from runner.curvature import ParameterOperator, top_eigenpairs
from runner.curvature.spectra.eigenpairs import Eigenpairs
from tests.bench.machine import in_turns
from tests.bench.table import Row
from tests.draws import tanh_net, trained

COUNT, TOLERANCE, GOAL = 10, 1e-4, 1.2

Network = tuple[nn.Module, Tensor, Tensor]


def convolutional() -> Network:
    torch.manual_seed(0)
    first = [nn.Conv2d(1, 8, 3, 2, 1), nn.ReLU(), nn.Conv2d(8, 16, 3, 2, 1), nn.ReLU()]
    net = nn.Sequential(*first, nn.Flatten(), nn.Linear(256, 10))
    return net, torch.randn(256, 1, 16, 16), torch.randint(0, 10, (256,))


def perceptron(width: int) -> Network:
    torch.manual_seed(0)
    net = tanh_net(20, width, 10)
    x = torch.randn(128, 20)
    return net, x, x[:, :10].argmax(1)


def fitted(network: Network) -> Network:
    """After 60 steps of Adam, with eigenvalues that stand apart."""
    trained(*network, 60)
    return network


def by_hand(network: Network) -> Callable[[np.ndarray], np.ndarray]:
    """A Hessian product from the graph of the gradient, which is kept."""
    net, x, y = network
    parameters = list(net.parameters())
    loss = nn.functional.cross_entropy(net(x), y)
    gradients = torch.autograd.grad(loss, parameters, create_graph=True)
    flat = torch.cat([g.flatten() for g in gradients])

    def product(v: np.ndarray) -> np.ndarray:
        vector = torch.from_numpy(v.reshape(-1)).float()
        images = torch.autograd.grad(flat, parameters, vector, retain_graph=True)
        return torch.cat([t.flatten() for t in images]).numpy()

    return product


def compared(name: str, network: Network, repeats: int) -> Iterator[Row]:
    """Ours with all copies certain, and with one vector, against eigsh."""
    product, calls = by_hand(network), [0]
    size = sum(p.numel() for p in network[0].parameters())

    def counted(v: np.ndarray) -> np.ndarray:
        calls[0] += 1
        return product(v)

    def theirs() -> tuple[np.ndarray, np.ndarray]:
        operator = LinearOperator((size, size), matvec=counted, dtype=np.float32)
        return eigsh(operator, COUNT, which="LA", tol=TOLERANCE)

    values, vectors = theirs()
    used = calls[0]
    off = [
        np.linalg.norm(product(v) - value * v) for value, v in zip(values, vectors.T, strict=True)
    ]
    reached = float(max(off) / abs(values).max())
    operator = ParameterOperator(network[0], nn.CrossEntropyLoss(), [network[1:]], check=False)
    for how, block in (("all copies certain", None), ("one vector, as eigsh", 1)):

        def ours(block: int | None = block) -> Eigenpairs:
            return top_eigenpairs(operator, COUNT, tolerance=reached, block=block, progress=False)

        found = ours()
        times = in_turns(ours, theirs, repeats=repeats)
        difference = abs(found.values.flip(0).numpy() - np.sort(values)).max()
        note = (
            f"{found.products} products, eigsh {used}; residual {reached:.0e} of the largest; "
            f"eigenvalues differ by {difference:.0e}"
        )
        what = f"{name}, {size} parameters: ten largest eigenpairs, {how}, against eigsh"
        yield Row("eigenpairs", what, *times, GOAL, at_least=False, note=note)


def rows(quick: bool = False, word: str = "") -> Iterator[Row]:
    """word: part of the name of a network."""
    networks = {
        "convolutional network": convolutional,
        "MLP": lambda: perceptron(24),
        "trained MLP": lambda: fitted(perceptron(150)),
    }
    for name, make in networks.items():
        if word in name:
            yield from compared(name, make(), 2 if quick else 5)
