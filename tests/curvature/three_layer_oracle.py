"""An independent three-layer network for the tests, written from Eqs. 1–5 and differentiated by autograd."""

import math

import torch

ACTIVATIONS = {
    "linear": lambda y: y,
    "sigmoid": lambda y: 1 / (1 + torch.exp(-y)),
    "tanh": torch.tanh,
    "softplus": lambda y: torch.log1p(torch.exp(y)),
    "gelu": lambda y: 0.5 * y * (1 + torch.erf(y / math.sqrt(2))),
}

# (M, N, I): square and skew, one unit, one sample, more samples than parameters and fewer.
SIZES = [(1, 1, 1), (2, 3, 50), (3, 1, 7), (5, 8, 40), (4, 10, 12), (10, 20, 60)]
LARGEST = (30, 50, 200)


def instance(sizes, seed=0, scale=1.0, batch=()):
    """(theta, x, q) in float64 with N(0, scale²) parameters and N(0, 1) inputs."""
    inputs, hidden, samples = sizes
    generator = torch.Generator().manual_seed(seed)
    dimension = inputs * hidden + 2 * hidden + 1
    theta = scale * torch.randn(*batch, dimension, generator=generator, dtype=torch.float64)
    x = torch.randn(samples, inputs, generator=generator, dtype=torch.float64)
    q = torch.randint(0, 2, (samples,), generator=generator).double()
    return theta, x, q


def loss(theta, x, q, activation):
    """L for one theta (D,), summed over samples."""
    inputs = x.shape[1]
    hidden = (len(theta) - 1) // (inputs + 2)
    columns = [theta[m * hidden : (m + 1) * hidden] for m in range(inputs + 1)]
    tail = theta[(inputs + 1) * hidden :]
    y = columns[0] + sum(x[:, m : m + 1] * columns[m + 1] for m in range(inputs))
    z = tail[0] + ACTIVATIONS[activation](y) @ tail[1:]
    return torch.nn.functional.binary_cross_entropy_with_logits(z, q, reduction="sum")


def gradient(theta, x, q, activation):
    return torch.func.grad(loss)(theta, x, q, activation)


def hessian(theta, x, q, activation):
    return torch.func.jacrev(torch.func.jacrev(loss))(theta, x, q, activation)


def relative_error(found, expected):
    """Largest deviation relative to the largest entry of the expected tensor."""
    return float((found - expected).abs().max() / expected.abs().max().clamp_min(1e-300))
