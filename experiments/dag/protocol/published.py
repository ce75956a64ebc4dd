"""The published initial networks and data orders of the DAG paper, seeds 42 to 46, drawn again.

The paper's trainings set torch's global seed for each model, build the network's layers in order on the CPU with
torch's default initialisation, and go on with the same stream: each epoch's DataLoader draws its permutation from it.
The same draws give the same networks (Exp. 1 at init: R(d), mean and spread over seeds, to eight digits) and, on
records in the official order, the same batches. For every other seed, and for what the paper does not have, the
project's named streams are used; `streams_of` says which.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

from experiments.dag.protocol.companions import PUBLISHED_SEEDS
from runner.models import Network, SpectralLinear

STREAMS = ("named", "published")


def streams_of(setting: str, seed: int) -> str:
    """What the setting "named" or "published" means at one seed: published streams exist for the paper's seeds only.

    >>> streams_of("published", 42), streams_of("published", 47), streams_of("named", 42)
    ('published', 'named', 'named')
    """
    return setting if seed in PUBLISHED_SEEDS else "named"


def published_network(make: Callable[[], Network], seed: int) -> tuple[Network, torch.Generator]:
    """make() under torch.manual_seed(seed), and a generator that goes on where the global stream then stood.

    The global state of the caller is kept. make() must build the layers on the CPU in the paper's order. Spectral
    weights get a 16th step of their power iteration: torch's spectral_norm makes 15 and, as it registers the
    parametrization of a layer in training mode, one more (Table N.2 at init: ρ = 0.91, with 15 steps 0.92 at L = 12).
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        network = make()
        for module in network.modules():
            if isinstance(module, SpectralLinear):
                module.iterate()
        stream = torch.Generator()
        stream.set_state(torch.get_rng_state())
    return network, stream
