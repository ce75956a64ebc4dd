"""A small network of every architecture, by name."""

from functools import partial

from runner.models.activations import ACTIVATIONS
from runner.models.architectures import bottleneck_mlp, diamond, mlp
from runner.models.network import Network
from tests.draws import seeded


def architectures():
    """Name -> what makes the network."""
    for name in ACTIVATIONS:
        yield f"plain-{name}", partial(mlp, depth=3, width=5, activation=name)
        yield f"bare-{name}", partial(mlp, depth=2, width=6, activation=name, norm=False)
    yield "residual", partial(mlp, depth=3, width=5, residual=True)
    yield "residual-silu", partial(mlp, depth=2, width=5, residual=True, activation="silu")
    yield "spectral", partial(mlp, depth=3, width=5, norm=False, spectral=True)
    yield "bottleneck", partial(bottleneck_mlp, narrow=2, width=6, depth=4)
    for merge in ("sum", "cat"):
        for k in (1, 2, 3):
            branches = {"branch_depth": k, "merge": merge, "activation": "silu"}
            yield f"diamond-{merge}-{k}", partial(diamond, width=4, **branches)


ARCHITECTURES = dict(architectures())


def network(name: str) -> Network:
    """The network of that name, of 7 inputs and 4 outputs."""
    return ARCHITECTURES[name](inputs=7, outputs=4, generator=seeded(3))
