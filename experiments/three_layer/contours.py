"""Length of the contour of values on a grid, by marching squares: decision boundaries of both
three-layer papers."""

from __future__ import annotations

from itertools import combinations

import torch
from torch import Tensor


def contour_length(z: Tensor) -> Tensor:
    """Length of the line z = 0 of values z (..., K, K) on a grid of step 1, (...,)."""
    corners = [z[..., :-1, :-1], z[..., :-1, 1:], z[..., 1:, 1:], z[..., 1:, :-1]]
    places = z.new_tensor([[0, 0], [1, 0], [1, 1], [0, 1]])  # counter-clockwise
    crossings = []
    present = []
    for k in range(4):
        following = (k + 1) % 4
        a = corners[k]
        b = corners[following]
        crossed = (a > 0) != (b > 0)
        share = torch.where(crossed, a / (a - b), 0.0)
        edge = places[following] - places[k]
        present.append(crossed)
        crossings.append(places[k] + share[..., None] * edge)

    def between(first: int, second: int) -> Tensor:
        distance = (crossings[first] - crossings[second]).norm(dim=-1)
        return torch.where(present[first] & present[second], distance, 0.0)

    number = torch.stack(present).sum(0)
    every = sum(between(*pair) for pair in combinations(range(4), 2))
    simple = torch.where(number == 2, every, 0.0)
    # four crossings: the diagonal corners agree, and the middle says which pair the lines cut off
    middle = torch.stack(corners).mean(0)
    first_agrees = (middle > 0) == (corners[0] > 0)
    around_others = between(0, 1) + between(2, 3)
    around_first = between(3, 0) + between(1, 2)
    double = torch.where(first_agrees, around_others, around_first)
    double = torch.where(number == 4, double, 0.0)
    return (simple + double).sum((-2, -1))
