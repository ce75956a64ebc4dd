"""Initial networks of a seed: from the project's named streams, as the published trainings make
them, or with He initialisation.

Published trainings set torch's global seed for each model, build the network's layers in order on
the CPU with torch's default initialisation, and go on with the same stream: each epoch's DataLoader
draws its permutation from it. The same draws give the same networks for `PUBLISHED_SEEDS` (Exp. 1
at init: R(d), mean and spread over seeds, to eight digits) and, on records in the official order,
the same batches. For every other seed, and for what is not published, the project's named streams
are used; `streams_of` says which.

He initialisation is what the DAG paper's text names (Section 5.1, Appendix N.1), without more: read
as He et al. (2015) define it, weights N(0, 2/fan-in) and biases 0, of every linear layer. A network
is built under the seed as a published one, then its weights are drawn again in the order of the
layers, as `torch.nn.init.kaiming_normal_` in a loop over the modules does.

Networks and permutations are drawn on the CPU, whatever the device: initial weights and data order
do not depend on it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import torch
from torch import nn

from runner.contract.experiment import torch_generator
from runner.models import builder
from runner.models.network import Network, SpectralLinear
from runner.training.streams import HE, NAMED, streams_of

NetworkSettings = Mapping[str, Any]
"""Name of a function of `runner.models` under "builder", "initial" ("published" or "he"; named
streams if left out), and the function's keyword arguments."""


def build(settings: NetworkSettings, seed: int) -> Network:
    """A fresh network on the CPU: the published one of the seed, one with He initialisation, or one
    initialised from the seed's stream "init".

    The stream is the same for all networks of a seed, as in the published trainings, which set the
    seed again for each model.
    """
    return build_with_stream(settings, seed)[0]


def build_with_stream(settings: NetworkSettings, seed: int) -> tuple[Network, torch.Generator]:
    """The network, and torch's global stream as it stands after the published network of these
    settings, or the one with He initialisation, was built."""
    arguments = dict(settings)
    initial = arguments.pop("initial", NAMED)
    make = partial(builder(arguments.pop("builder")), **arguments)
    if initial == HE:
        return published_network(lambda: he_initialised(make(generator=None)), seed)
    network, stream = published_network(lambda: make(generator=None), seed)
    if streams_of(initial, seed) == NAMED:
        network = make(generator=torch_generator(seed, "init"))
    return network, stream


def he_initialised(network: Network) -> Network:
    """The network with weights N(0, 2/fan-in) and biases 0 in every linear layer, drawn in order
    from torch's global stream."""
    for module in network.modules():
        if isinstance(module, nn.Linear):
            nn.init.kaiming_normal_(module.weight, nonlinearity="relu")
            if module.bias is not None:
                nn.init.zeros_(module.bias)
        if isinstance(module, SpectralLinear):
            # the power iteration of the weights that were replaced says nothing of these
            for _ in range(SpectralLinear.STEPS):
                module.iterate()
    return network


def published_network(make: Callable[[], Network], seed: int) -> tuple[Network, torch.Generator]:
    """make() under torch.manual_seed(seed), and a generator that goes on where the global stream
    then stood.

    The global state of the caller is kept. make() must build the layers on the CPU in the published
    order. Spectral weights get a 16th step of their power iteration: torch's spectral_norm makes 15
    and, as it registers the parametrization of a layer in training mode, one more (Table N.2 at
    init: ρ = 0.91, with 15 steps 0.92 at L = 12).
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
