"""Synthetic regression over token sequences with a fixed teacher (DAG, Exp. 5 and Appendix N.7)."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from runner.contract import kind, setting

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from runner.contract import Context
    from runner.data.images import Split

RESPONSES = ("tanh", "tanh_squared")
"""Elementwise responses of the teacher."""


@dataclass(frozen=True)
class AttentionData:
    """Token sequences with the targets of a fixed position-wise teacher (DAG, Exp. 5): no attention in it.

    tokens: S. width: d. noise: standard deviation of ε. teacher_seed: seed of W and w. response: "tanh", the paper's,
    or "tanh_squared", a teacher without a linear part. The targets are standardised by the training split, then
    multiplied by `spread` and shifted by `offset` (the paper: 1 and 0).
    """

    kind: str = kind("attention")
    train: int = setting(2048, above=0)
    validation: int = setting(512, above=0)
    tokens: int = setting(8, above=0)
    width: int = setting(16, above=0)
    noise: float = setting(0.1, at_least=0)
    teacher_seed: int = 0
    response: str = setting("tanh", choices=RESPONSES)
    spread: float = setting(1.0, above=0)
    offset: float = 0.0


class RegressionData(NamedTuple):
    """Training and validation split; targets standardised by the training targets' mean and standard deviation."""

    train: Split
    validation: Split
    fingerprint: str

    @property
    def test(self) -> Split:
        """The validation split, under the name that image data have for theirs."""
        return self.validation


def load(settings: AttentionData, ctx: Context) -> RegressionData:
    """Sequences from the stream "inputs" of the seed, targets from the teacher of `teacher_seed`, the same for all."""
    from runner.contract.seeding import torch_generator

    names = ("train", "validation", "tokens", "width", "noise", "response", "spread", "offset")
    return token_regression(
        generator=ctx.torch_generator("inputs"),
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
) -> RegressionData:
    """y = 1/S Σ_s φ(x_sᵀ W) w + ε, with W, w ~ N(0, 1/d) from `teacher`, x ~ N(0, 1) and ε ~ N(0, noise²).

    Inputs (N, S, d) float32, targets (N,) float32. φ is `response`, the paper's tanh or another of RESPONSES. The
    teacher is position-wise: it has no attention in it. Targets are standardised by the mean and standard deviation of
    the training targets, then multiplied by `spread` and shifted by `offset`.
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
        z = torch.tanh(x @ matrix)
        y = (z if response == "tanh" else z**2).mean(1) @ vector
        return x, y + noise * torch.randn(count, generator=generator)

    (x, y), (x_val, y_val) = draw(train), draw(validation)
    mean, std = y.mean(), y.std(correction=0).clamp_min(1e-12)
    y, y_val = ((t - mean) / std * spread + offset for t in (y, y_val))
    digest = hashlib.sha256(b"".join(t.numpy().tobytes() for t in (x, y, x_val, y_val))).hexdigest()[:16]
    return RegressionData(Split(x, y), Split(x_val, y_val), digest)
