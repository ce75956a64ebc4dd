"""Length of the contour of values on a grid, by marching squares: decision boundaries of both
three-layer papers."""

from __future__ import annotations

import torch
from torch import Tensor


def contour_length(z: Tensor) -> Tensor:
    """Length of the line z = 0 of values z (..., K, K) on a grid of step 1, (...,)."""
    corners = (
        z[..., :-1, :-1],
        z[..., :-1, 1:],
        z[..., 1:, 1:],
        z[..., 1:, :-1],
    )  # counter-clockwise
    place = z.new_tensor([[0, 0], [1, 0], [1, 1], [0, 1]])
    crossings = []
    present = []
    for k in range(4):
        a = corners[k]
        b = corners[(k + 1) % 4]
        present.append((a > 0) != (b > 0))
        share = torch.where(present[-1], a / (a - b), 0.0)
        crossings.append(place[k] + share[..., None] * (place[(k + 1) % 4] - place[k]))
    number = torch.stack(present).sum(0)

    def between(first: int, second: int) -> Tensor:
        way = (crossings[first] - crossings[second]).norm(dim=-1)
        return torch.where(present[first] & present[second], way, 0.0)

    simple = torch.where(
        number == 2, sum(between(i, j) for i in range(4) for j in range(i + 1, 4)), 0.0
    )
    # four crossings: the diagonal corners agree, and the middle says which pair the lines cut off
    middle = torch.stack(corners).mean(0)
    cut = torch.where(
        (middle > 0) == (corners[0] > 0),
        between(0, 1) + between(2, 3),
        between(3, 0) + between(1, 2),
    )
    return (simple + torch.where(number == 4, cut, 0.0)).sum((-2, -1))
