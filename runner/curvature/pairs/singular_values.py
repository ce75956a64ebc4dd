"""Largest singular values of many blocks at once, from products alone.

`leading_singular_values`: Golub-Kahan bidiagonalisation, block by block. `SharedSubspaces`: of the
blocks of one symmetric matrix, from subspaces that the blocks share. A product with a direction on
node w gives a column of every block H[v,w] at once. Each node w therefore keeps one orthonormal
basis D_w with the images H[v,w] D_w for all v, to which every pair with w contributes: sigma_1 of
H[v,w] is at least the largest singular value of H[v,w] D_w, whose left vector u is the next
direction on v (half a step of a block power iteration that forgets nothing). The bases begin with
random directions, so that no singular vector is orthogonal to them, and with the Gauss-Newton
singular vectors, where the tensor part is small near the answer."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from torch import Tensor

from runner.curvature.basics.estimate import numbers
from runner.curvature.basics.symmetric import Pair

MAX_STEPS = 40
"""Of a search for singular values."""
AT_ONCE = 4
"""Directions of one product that cost little more than one."""
Directions = Mapping[Pair, Tensor]
"""(v, w): a direction on w; what the block A[v,w] makes of it is an image on v."""


def partner(pair: Pair, node: str) -> str:
    """The other node of the pair; the node itself of a diagonal pair."""
    if pair[1] == node:
        return pair[0]
    return pair[1]


class Leading(NamedTuple):
    """sigma_1 of a block from below, with the estimated error and the right singular vector."""

    value: float
    error: float
    right: Tensor


ROUNDING = 4 * torch.finfo(torch.float64).eps


@dataclass
class _Bidiagonal:
    """A V = U B, A^T U = V B^T + beta v e^T, B upper bidiagonal; V and U kept orthonormal in
    float64."""

    right: list[Tensor]
    left: list[Tensor] = field(default_factory=list)
    alphas: list[float] = field(default_factory=list)
    betas: list[float] = field(default_factory=list)
    done: bool = False

    def forward(self, image: Tensor) -> None:
        """Takes A v of the newest right vector."""
        rest = _orthogonal(image.double(), self.left)
        alpha = float(rest.norm())
        self.alphas.append(alpha)
        self.done = alpha <= ROUNDING * max(self.alphas)
        self.left.append(torch.zeros_like(rest) if self.done else rest / alpha)

    def backward(self, image: Tensor) -> None:
        """Takes A^T u of the newest left vector."""
        rest = _orthogonal(image.double(), self.right)
        beta = float(rest.norm())
        self.betas.append(beta)
        self.done = beta <= ROUNDING * max(self.alphas)
        if not self.done:
            self.right.append(rest / beta)

    def leading(self) -> Leading:
        """The largest Ritz value of B, with the error that the residual leaves."""
        k = len(self.alphas)
        alphas = numbers(self.alphas)
        betas = numbers(self.betas[: k - 1])
        bidiagonal = alphas.diag()
        if k > 1:
            bidiagonal = bidiagonal + betas.diag(1)
        u, s, vh = torch.linalg.svd(bidiagonal)
        first = float(s[0])
        second = float(s[1]) if k > 1 else 0.0
        residual = 0.0
        if not self.done:
            residual = self.betas[k - 1] * abs(float(u[-1, 0]))
        right = torch.stack(self.right[:k], 1) @ vh[0].to(self.right[0])
        return Leading(first, kato_temple(first, second, residual), right)


def leading_singular_values(
    products: Callable[[Directions], Directions],
    starts: Directions,
    tolerance: float,
) -> dict[Pair, Leading]:
    """sigma_1 of A[v,w] for every pair of `starts` (its start: a right vector of w), all pairs in
    the same calls.

    products: A[v,w] r for each direction r of (v, w), where A[w,v] = A[v,w]^T. A pair stops when
    its error is at most tolerance * sigma_1, when its Krylov space is exhausted, or after MAX_STEPS
    (2 products each). A zero block gives 0."""
    active = {}
    for pair, start in starts.items():
        active[pair] = _Bidiagonal([start.double() / start.double().norm()])
    found: dict[Pair, Leading] = {}
    for _ in range(MAX_STEPS):
        images = products({pair: state.right[-1] for pair, state in active.items()})
        for pair, state in active.items():
            state.forward(images[pair])
        begun = {pair: state for pair, state in active.items() if not state.done}
        lefts = {(w, v): state.left[-1] for (v, w), state in begun.items()}
        images = products(lefts)
        for (v, w), state in begun.items():
            state.backward(images[w, v])
        found |= {pair: state.leading() for pair, state in active.items()}
        active = {}
        for pair, state in begun.items():
            if not state.done and found[pair].error > tolerance * found[pair].value:
                active[pair] = state
        if not active:
            break
    return found


def _orthogonal(vector: Tensor, basis: list[Tensor]) -> Tensor:
    if basis:
        stacked = torch.stack(basis)
        for _ in range(2):  # once is not enough in floating point
            vector = vector - stacked.mT @ (stacked @ vector)
    return vector


def kato_temple(first: float, second: float, residual: float) -> float:
    """Estimate of sigma_1 - first from A q = first u, |A^T u - first q| = residual, and second,
    close to sigma_2.

    first residual^2 / (2 (first^2 - second^2)) by the inequality of Kato and Temple for A^T A, at
    most the residual; 0 where it is below the rounding of float64."""
    gap = first**2 - second**2
    error = residual
    if gap > 0:
        error = min(residual, first * residual**2 / (2 * gap))
    return error if error > 1e-15 * first else 0.0


Apply = Callable[[str, Tensor], Mapping[str, Tensor]]
"""(w, directions (k, d_w)) -> images H[v,w] r for every v, (k, d_v), float64."""

STEPS = 1.25
"""Last steps of a sequence of Ritz values that are taken for one standard error."""
NEW = 0.05  # share of a unit vector that must lie outside a basis to be worth a product


def _with_error(before: float, found: Leading) -> Leading:
    """The leading value with its standard error, after a step from `before`."""
    step = STEPS * (found.value - before)
    return found._replace(error=max(min(found.error / 2, step), found.error / 8))


class SharedSubspaces:
    """Bases of the nodes, each (k, d_w) with images; `sweeps` improves them until every pair is as
    close as asked."""

    def __init__(self, apply: Apply, sizes: Mapping[str, int]) -> None:
        self._apply = apply
        self.sizes = sizes
        self.basis: dict[str, Tensor] = {}
        self.images: dict[str, dict[str, Tensor]] = {}
        self._spectra: dict[Pair, tuple[Tensor, Tensor]] = {}

    def know(self, w: str, directions: Tensor, images: Mapping[str, Tensor]) -> None:
        """Takes directions whose images are known already; what depends on the others is
        dropped."""
        u, s, vh = torch.linalg.svd(directions.double(), full_matrices=False)
        kept = s > 1e-2 * s[0]
        mixing = u[:, kept].mT / s[kept, None]
        self._append(w, vh[kept], {v: mixing @ image.double() for v, image in images.items()})

    def add(self, w: str, proposals: Sequence[Tensor], worth: float = NEW) -> int:
        """Multiplies the matrix with what the proposals add to the basis of w; returns how many
        products that took.

        worth: the share of a proposal outside of the basis below which it is left out.
        """
        found = []
        if w in self.basis:
            found = list(self.basis[w])
        new: list[Tensor] = []
        for proposal in proposals:
            rest = _orthogonal(proposal.double() / proposal.double().norm(), found)
            if float(rest.norm()) > worth and len(found) < self.sizes[w]:
                new.append(rest / rest.norm())
                found.append(new[-1])
        if new:
            self._append(w, torch.stack(new), self._apply(w, torch.stack(new)))
        return len(new)

    def complete(self, w: str) -> bool:
        """Whether the basis spans the whole space of w, so that all its blocks are known."""
        return w in self.basis and len(self.basis[w]) == self.sizes[w]

    def sweeps(
        self, found: dict[Pair, Leading], pairs: Sequence[Pair], tolerance: float
    ) -> Iterator[None]:
        """Puts sigma_1 of each pair with a standard error into `found`, in at most MAX_STEPS sweeps
        over the nodes; yields before each step.

        At each node, all pairs with it that are not yet as close as asked take a half step
        together, in products of AT_ONCE directions or more at once: first their leading vectors
        there, then their second ones. sigma_1 is approached from below. Its standard error is half
        the bound of Kato and Temple, or STEPS times the last step where that is less (the bound
        says too much of close singular values), but never below an eighth of the bound (a sequence
        that stands still need not be near)."""
        found |= {pair: self.leading(pair) for pair in pairs}
        worth = min(NEW, math.sqrt(tolerance) / 2)  # sigma_1 gains the square of what lies outside
        for _ in range(MAX_STEPS):
            waiting = [p for p in pairs if found[p].error > tolerance * found[p].value]
            nodes = dict.fromkeys(node for pair in waiting for node in pair)
            added = 0
            for node in nodes:
                proposals = self._proposals(node, waiting)
                yield
                added += self.add(node, proposals, worth)
            if not added:
                break
            found |= {pair: _with_error(found[pair].value, self.leading(pair)) for pair in waiting}

    def _proposals(self, node: str, pairs: Sequence[Pair]) -> list[Tensor]:
        """Left singular vectors on `node` of what is known of the pairs with it: the first of each,
        then the second."""
        vectors = []
        for pair in pairs:
            if node in pair:
                other = partner(pair, node)
                _, mixing = self._spectrum(node, other)
                vectors.append(mixing[:, -2:].mT.flip(0) @ self.images[other][node])
        firsts = [rows[0] for rows in vectors if len(rows) > 0]
        seconds = [rows[1] for rows in vectors if len(rows) > 1]
        few = [*firsts, *seconds[: max(0, AT_ONCE - len(firsts))]]
        return [u for u in few if float(u.norm()) > 0]

    def _spectrum(self, v: str, w: str) -> tuple[Tensor, Tensor]:
        """Eigenvalues and eigenvectors of (H[v,w] D_w)^T H[v,w] D_w, kept until D_w grows."""
        if (v, w) not in self._spectra:
            images = self.images[w][v]
            self._spectra[v, w] = torch.linalg.eigh(images @ images.mT)
        return self._spectra[v, w]

    def _append(self, w: str, basis: Tensor, images: Mapping[str, Tensor]) -> None:
        for v in images:
            self._spectra.pop((v, w), None)
        if w not in self.basis:
            self.basis[w] = basis
            self.images[w] = dict(images)
            return
        self.basis[w] = torch.cat([self.basis[w], basis])
        before = self.images[w]
        self.images[w] = {v: torch.cat([before[v], image]) for v, image in images.items()}

    def leading(self, pair: Pair) -> Leading:
        """sigma_1 as far as the bases know it, from the better of both sides."""
        v, w = pair
        sides = [self._side(v, w)]
        if v != w:
            sides.append(self._side(w, v))
        return max(sides, key=lambda side: side.value)

    def _side(self, v: str, w: str) -> Leading:
        """From H[v,w] D_w: sigma, and the residual H[w,v] u - sigma q of its left vector u as far
        as D_v knows it.

        With u = D_v c + u', H[w,v] u is known except H[w,v] u', which is at most sigma_1 |u'|.
        """
        images = self.images[w][v]
        values, vectors = self._spectrum(v, w)
        sigma = float(values[-1].clamp_min(0).sqrt())
        second = 0.0
        if len(values) > 1:
            second = float(values[-2].clamp_min(0).sqrt())
        right = vectors[:, -1] @ self.basis[w]
        if sigma == 0:
            return Leading(0.0, 0.0, right)
        inside = self.basis[v] @ (vectors[:, -1] @ images / sigma)
        outside = float((1 - inside.square().sum()).clamp_min(0).sqrt())
        if outside < 1e-7:
            outside = 0.0
        residual = float((inside @ self.images[v][w] - sigma * right).norm())
        if outside != 0:
            residual = max(outside * sigma, residual)
        return Leading(sigma, kato_temple(sigma, second, residual), right)
