"""Synthetic regression over token sequences with a fixed teacher (DAG, Exp. 5 and Appendix N.7)."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, NamedTuple

from runner.kinds.dataset import RESPONSES, AttentionData

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from runner.contract import Context
    from runner.data.images import Split


class RegressionData(NamedTuple):
    """Training and validation split, and a checksum of both."""

    train: Split
    validation: Split
    fingerprint: str

    @property
    def test(self) -> Split:
        """The validation split, under the name that image data have for theirs."""
        return self.validation


def load(settings: AttentionData, ctx: Context) -> RegressionData:
    """Sequences of the run's seed, targets from the teacher of `teacher_seed`, the same for all seeds."""
    import torch

    from runner.contract.seeding import torch_generator

    names = ("train", "validation", "tokens", "width", "noise", "response", "spread", "offset", "standardised")
    published = settings.streams == "published"
    return token_regression(
        generator=torch.Generator().manual_seed(ctx.seed) if published else ctx.torch_generator("inputs"),
        teacher=torch_generator(settings.teacher_seed, "teacher"),
        **{name: getattr(settings, name) for name in names},
    )


def token_regression(
    *,
    train: int,
    validation: int,
    generator: torch.Generator,
    teacher: torch.Generator,
    tokens: int = 8,
    width: int = 16,
    noise: float = 0.1,
    response: str = "tanh",
    spread: float = 1.0,
    offset: float = 0.0,
    standardised: bool = True,
) -> RegressionData:
    """Token sequences x ~ N(0, 1) with targets y + ε, ε ~ N(0, noise²).

    Inputs (N, S, d) float32, targets (N,) float32. response "tanh": y = 1/S Σ_s tanh(x_sᵀ W) w with W, w ~ N(0, 1/d)
    from `teacher`, position-wise, without attention; "norm": y = ‖x‖_F/√(S d). Inputs and noise of the training split
    are drawn before those of the validation split. Standardised targets have the training split's mean and standard
    deviation taken out and are then multiplied by `spread` and shifted by `offset`.
    Raises ValueError for sizes below one, negative noise or an unknown response.
    """
    import torch

    from runner.data.images import Split

    if min(train, validation, tokens, width) < 1 or noise < 0:
        raise ValueError(
            f"token_regression: expected sizes of at least 1 and noise of at least 0, found train {train}, validation "
            f"{validation}, tokens {tokens}, width {width}, noise {noise}"
        )
    if response not in RESPONSES:
        raise ValueError(f"response: expected one of {', '.join(RESPONSES)}, found {response!r}")
    matrix = torch.randn(width, width, generator=teacher) * width**-0.5
    vector = torch.randn(width, generator=teacher) * width**-0.5

    def draw(count: int) -> tuple[Tensor, Tensor]:
        x = torch.randn(count, tokens, width, generator=generator)
        if response == "tanh":
            y = torch.tanh(x @ matrix).mean(1) @ vector
        else:
            y = x.flatten(1).norm(dim=1) * (tokens * width) ** -0.5
        return x, y + noise * torch.randn(count, generator=generator)

    (x, y), (x_val, y_val) = draw(train), draw(validation)
    if standardised:
        mean, std = y.mean(), y.std(correction=0).clamp_min(1e-12)
        y, y_val = ((t - mean) / std * spread + offset for t in (y, y_val))
    digest = hashlib.sha256(b"".join(t.numpy().tobytes() for t in (x, y, x_val, y_val))).hexdigest()[:16]
    return RegressionData(Split(x, y), Split(x_val, y_val), digest)
