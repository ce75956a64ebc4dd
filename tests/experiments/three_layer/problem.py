"""Three-layer networks and their data, as the tests of descents need them."""

import torch
from torch import Tensor

from runner.closed_form import three_layer as tl
from tests.draws import normal, seeded


def problem(
    samples: int = 20,
    inputs: int = 2,
    units: int = 3,
    starts: int | None = 7,
    seed: int = 0,
    scale: float = 1.0,
) -> tuple[Tensor, Tensor, Tensor]:
    """theta (starts, D), of starts=None (D,); x (samples, inputs); labels 0 and 1 in turn."""
    generator = seeded(seed)
    x = normal(samples, inputs, generator=generator)
    rows = () if starts is None else (starts,)
    theta = normal(*rows, tl.parameter_count(inputs, units), generator=generator)
    return scale * theta, x, (torch.arange(samples) % 2).double()
