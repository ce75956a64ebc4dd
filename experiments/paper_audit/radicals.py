"""Polynomials of degree five without a solution in radicals, by exact arithmetic.

Modulo a prime that leaves a polynomial without repeated factors, the degrees of its factors are the
cycle lengths of an element of its Galois group (Dedekind). A cycle of length five and one of types
(2, 3) or (2, 1, 1, 1) generate the symmetric group, which is not solvable.
"""

from __future__ import annotations

import torch

from experiments.paper_audit.checks import Errors
from experiments.paper_audit.tensors import real

Polynomial = list[int]
"""Coefficients from the highest power, modulo a prime where one is given."""
PRIMES = (2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37, 41, 43, 47)


def characteristic(diagonal: Polynomial, squares: Polynomial) -> Polynomial:
    """|λ I − T| of the symmetric tridiagonal matrix with this diagonal and these squares next to
    it.

    >>> characteristic([1, 1], [4])
    [1, -2, -3]
    """
    before: Polynomial = [1]
    last = [1, -diagonal[0]]
    for entry, square in zip(diagonal[1:], squares, strict=True):
        grown = [*last, 0]
        shifted = [0, *(entry * c for c in last)]
        corner = [0, 0, *(square * c for c in before)]
        columns = zip(grown, shifted, corner, strict=True)
        before, last = last, [a - b - c for a, b, c in columns]
    return last


def reduced(polynomial: Polynomial, prime: int) -> Polynomial:
    """Coefficients modulo the prime, without leading zeros."""
    values = [c % prime for c in polynomial]
    while values and values[0] == 0:
        values = values[1:]
    return values


def divided(left: Polynomial, right: Polynomial, prime: int) -> tuple[Polynomial, Polynomial]:
    """Quotient and remainder modulo the prime."""
    inverse = pow(right[0], -1, prime)
    rest = list(left)
    quotient = []
    for k in range(max(len(left) - len(right) + 1, 0)):
        factor = rest[k] * inverse % prime
        quotient.append(factor)
        for i, c in enumerate(right):
            rest[k + i] = (rest[k + i] - factor * c) % prime
    return quotient, reduced(rest, prime)


def common(left: Polynomial, right: Polynomial, prime: int) -> Polynomial:
    """Greatest common divisor modulo the prime, up to a factor."""
    while right:
        _, rest = divided(left, right, prime)
        left, right = right, rest
    return left


def multiplied(left: Polynomial, right: Polynomial, modulus: Polynomial, prime: int) -> Polynomial:
    """left · right modulo the polynomial and the prime."""
    product = [0] * (len(left) + len(right) - 1) if left and right else []
    for i, a in enumerate(left):
        for j, b in enumerate(right):
            product[i + j] += a * b
    return divided(reduced(product, prime), modulus, prime)[1]


def power(base: Polynomial, exponent: int, modulus: Polynomial, prime: int) -> Polynomial:
    """base^exponent modulo the polynomial and the prime."""
    result: Polynomial = [1]
    while exponent:
        if exponent & 1:
            result = multiplied(result, base, modulus, prime)
        base = multiplied(base, base, modulus, prime)
        exponent >>= 1
    return result


def degrees(polynomial: Polynomial, prime: int) -> tuple[int, ...]:
    """Degrees of the irreducible factors modulo the prime, () where a factor is repeated.

    >>> degrees([1, 0, 0, 0, -1, -1], 2), degrees([1, 0, -1], 5)
    ((2, 3), (1, 1))
    """
    left = reduced(polynomial, prime)
    size = len(left) - 1
    slope = reduced([c * (size - k) for k, c in enumerate(left[:-1])], prime)
    if not slope or len(common(left, slope, prime)) > 1:
        return ()
    found: list[int] = []
    frobenius: Polynomial = [1, 0]
    degree = 0
    while len(left) > 1:
        degree += 1
        frobenius = power(divided(frobenius, left, prime)[1], prime, left, prime)
        padded = [0] * (2 - len(frobenius)) + frobenius
        padded[-2] -= 1
        factor = common(left, reduced(padded, prime), prime)
        found += [degree] * ((len(factor) - 1) // degree)
        left = divided(left, factor, prime)[0]
    return tuple(found)


def symmetric_group(polynomial: Polynomial) -> bool:
    """Whether the cycle lengths at some primes show that the Galois group of this polynomial of
    degree five with leading coefficient 1 is the symmetric group.

    >>> symmetric_group([1, 0, 0, 0, -1, -1]), symmetric_group([1, 0, 0, 0, 0, -2])
    (True, False)
    """
    found = {degrees(polynomial, prime) for prime in PRIMES}
    return (5,) in found and not found.isdisjoint({(2, 3), (1, 1, 1, 2)})


DIAGONAL = [0, 0, 0, 0, 2]
"""Of a symmetric tridiagonal matrix with ones next to it."""


def general_quintic() -> Errors:
    """No formula in radicals gives the eigenvalues of every symmetric matrix of size five: the
    Galois group of one characteristic polynomial is the symmetric group, while that of the matrix
    with diagonal zero is not."""
    ones = [1, 1, 1, 1]
    polynomial = characteristic(DIAGONAL, ones)
    off = torch.diag(real(ones), 1)
    matrix = torch.diag(real(DIAGONAL)) + off + off.mT
    for value in torch.linalg.eigvalsh(matrix).tolist():
        found = 0.0
        for coefficient in polynomial:
            found = found * value + coefficient
        yield abs(found) / 100
    yield float(not symmetric_group(polynomial))
    yield float(symmetric_group(characteristic([0, 0, 0, 0, 0], ones)))
