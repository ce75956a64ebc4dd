"""Attention paper, Sections C and D: derivatives of the factors of dc/dx, case by case of the
indices."""

from __future__ import annotations

from torch import Tensor

from experiments.paper_audit.attention.terms import (
    Terms,
    all_different,
    all_same,
    both_other,
    both_other_equal,
    by_x2,
    lemma,
    same_then_other,
    second_derivative,
)
from experiments.paper_audit.checks import Checks

CHECKS = Checks()

# Section C, i0 = i1: Part 1 has i2 = i1, Part 2 another i2.

CHECKS["attention.c.1.part_1"] = by_x2(lambda t: t.w1, all_same, lambda t: t.w12)
CHECKS["attention.c.1.part_2"] = by_x2(lambda t: t.w1, same_then_other, lambda t: 0 * t.w12)
CHECKS["attention.c.2.part_1"] = by_x2(lambda t: t.x1, all_same, lambda t: t.e0 * t.w21)
CHECKS["attention.c.2.part_2"] = by_x2(lambda t: t.x1, same_then_other, lambda t: t.e2 * t.w21)


def df00(t: Terms) -> Tensor:
    """d f_{i0,i0}/dx_{i2,j2} of Lemma C.3, Part 1."""
    return -t.f00 * (t.f00 * t.w2 + t.z2) + t.f00 * (t.w2 + t.y20)


def df00_other(t: Terms) -> Tensor:
    """The same of Part 2."""
    return -t.f00 * t.f02 * t.w2


CHECKS["attention.c.3.part_1"] = by_x2(lambda t: t.f00, all_same, df00)
CHECKS["attention.c.3.part_2"] = by_x2(lambda t: t.f00, same_then_other, df00_other)
CHECKS["attention.c.4.part_1"] = by_x2(lambda t: t.h0, all_same, lambda t: t.v2)
CHECKS["attention.c.4.part_2"] = by_x2(lambda t: t.h0, same_then_other, lambda t: 0 * t.v2)


def c5_part_1(t: Terms) -> Tensor:
    of_f = -t.z1 * t.f00 * t.w2 - t.z1 * t.z2 + t.f00 * t.y10 * t.w2
    return of_f + (t.f * t.x2) @ t.x1 + t.f00 * t.w21


def c5_part_2(t: Terms) -> Tensor:
    return -t.z1 * t.f00 * t.w2 + t.f00 * t.w2 * t.y10 + t.f00 * t.w21


def right_c5_part_2(t: Terms) -> Tensor:
    return -t.z1 * t.f02 * t.w2 + t.f02 * t.w2 * t.y12 + t.f02 * t.w21


CHECKS["attention.c.5.part_1"] = by_x2(lambda t: t.z1, all_same, c5_part_1)
CHECKS["attention.c.5.part_2"] = by_x2(lambda t: t.z1, same_then_other, c5_part_2, right_c5_part_2)
CHECKS["attention.c.6.part_1"] = by_x2(
    lambda t: t.f00 * t.h0, all_same, lambda t: df00(t) * t.h0 + t.f00 * t.v2
)
CHECKS["attention.c.6.part_2"] = by_x2(
    lambda t: t.f00 * t.h0, same_then_other, lambda t: -t.f00 * t.f02 * t.w2 * t.h0
)


def c7_part_1(t: Terms) -> Tensor:
    df = t.f00 * (t.f00 * t.w2 + t.z2) + t.f00 * (t.w2 + t.y20)
    return df * t.w1 + t.f00 * t.w12


CHECKS["attention.c.7.part_1"] = by_x2(
    lambda t: t.f00 * t.w1, all_same, c7_part_1, lambda t: df00(t) * t.w1 + t.f00 * t.w12
)
CHECKS["attention.c.7.part_2"] = by_x2(
    lambda t: t.f00 * t.w1, same_then_other, lambda t: -t.f00 * t.f02 * t.w2 * t.w1
)


def c8_part_1(t: Terms) -> Tensor:
    df = -t.f * (t.f00 * t.w2 + t.z2) + t.f * (t.e0 * t.w2 + t.x2)
    return df * t.x1 + t.f * t.e0 * t.w21


def c8_part_2(t: Terms) -> Tensor:
    df = -t.f * t.f02 * t.w2 + t.f * t.e2 * t.w2
    return df * t.x1 + t.f * t.e2 * t.w21


CHECKS["attention.c.8.part_1"] = by_x2(lambda t: t.f * t.x1, all_same, c8_part_1)
CHECKS["attention.c.8.part_2"] = by_x2(lambda t: t.f * t.x1, same_then_other, c8_part_2)


def c9_part_2(t: Terms) -> Tensor:
    of_s = t.s * t.f02 * t.w2 * t.f00 * t.w1 - t.f02 * t.h2 * t.w2 * t.f00 * t.w1
    return of_s - t.f02 * t.v2 * t.f00 * t.w1 + t.s * t.f00 * t.f02 * t.w2 * t.w1


CHECKS["attention.c.9.part_2"] = by_x2(lambda t: -t.s * t.f00 * t.w1, same_then_other, c9_part_2)


def c10_part_2(t: Terms) -> Tensor:
    of_s = t.s * t.f02 * t.w2 * t.z1 - t.f02 * t.h2 * t.w2 * t.z1 - t.f02 * t.v2 * t.z1
    of_z = t.s * t.z1 * t.f00 * t.w2 - t.s * t.f00 * t.y10 * t.w2 - t.s * t.f00 * t.w21
    return of_s + of_z


def right_c10_part_2(t: Terms) -> Tensor:
    of_s = 2 * t.s * t.f02 * t.w2 * t.z1 - t.f02 * t.h2 * t.w2 * t.z1 - t.f02 * t.v2 * t.z1
    return of_s - t.s * t.f02 * t.y12 * t.w2 - t.s * t.f02 * t.w21


CHECKS["attention.c.10.part_2"] = by_x2(
    lambda t: -t.s * t.z1, same_then_other, c10_part_2, right_c10_part_2
)
CHECKS["attention.c.11.part_2"] = by_x2(
    lambda t: t.f00 * t.h0 * t.w1,
    same_then_other,
    lambda t: -t.f00 * t.f02 * t.w2 * t.h0 * t.w1,
)


def c12_part_2(t: Terms) -> Tensor:
    spread = t.h2 * (t.y12 * t.w2 + t.w21) + t.y12 * t.v2
    return -t.m1 * t.f02 * t.w2 + t.f02 * spread


CHECKS["attention.c.12.part_2"] = by_x2(lambda t: t.m1, same_then_other, c12_part_2)
CHECKS["attention.c.13.part_2"] = by_x2(
    lambda t: t.f00 * t.v1, same_then_other, lambda t: -t.f00 * t.f02 * t.w2 * t.v1
)

# Section D, i0 is neither i1 nor i2: Part 1 has i1 = i2, Part 2 has not.


def same2(t: Terms) -> float:
    """1 where i1 = i2, else 0."""
    return float(t.k.i1 == t.k.i2)


def df01(t: Terms) -> Tensor:
    """d f_{i0,i1}/dx_{i2,j2} for i2 != i0, corrected: f_{i0,i1} (delta_{i1,i2} - f_{i0,i2}) w2."""
    return t.f01 * (same2(t) - t.f02) * t.w2


def ds(t: Terms) -> Tensor:
    """d <f, h>/dx_{i2,j2} for i2 != i0, corrected: f_{i0,i2} ((h_{j0,i2} - s) w2 + v_{j2,j0})."""
    return t.f02 * ((t.h2 - t.s) * t.w2 + t.v2)


def d1(t: Terms) -> Tensor:
    """Right-hand side of Lemma D.1 as printed."""
    return -t.f01 * t.f02 * t.w2 + t.f01 * t.w2


CHECKS["attention.d.1"] = by_x2(lambda t: t.f01, both_other, d1, df01)
CHECKS["attention.d.2.part_1"] = by_x2(lambda t: t.h1, both_other_equal, lambda t: t.v2)
CHECKS["attention.d.2.part_2"] = by_x2(lambda t: t.h1, all_different, lambda t: 0 * t.v2)


def d3(t: Terms) -> Tensor:
    """Right-hand side of Lemma D.3 as printed."""
    return (-t.f * t.f02 * t.w2 + t.f * t.e1 * t.w2) @ t.h + t.f02 * t.v2


CHECKS["attention.d.3"] = by_x2(lambda t: t.s, both_other, d3, ds)
CHECKS["attention.d.4"] = by_x2(
    lambda t: t.f01 * t.w1,
    both_other,
    lambda t: (-t.f02 * t.f01 + t.f01) * t.w2 * t.w1,
    lambda t: df01(t) * t.w1,
)


def d5_part_1(t: Terms) -> Tensor:
    return (-t.f02 + 1 + t.v2) * t.f01 * t.w2 * t.h1


def d5_part_2(t: Terms) -> Tensor:
    return (-t.f02 * t.f01 + t.f01) * t.w2 * t.h1


def right_d5(t: Terms) -> Tensor:
    """Both parts."""
    return df01(t) * t.h1 + same2(t) * t.f01 * t.v2


CHECKS["attention.d.5.part_1"] = by_x2(
    lambda t: t.f01 * t.h1, both_other_equal, d5_part_1, right_d5
)
CHECKS["attention.d.5.part_2"] = by_x2(lambda t: t.f01 * t.h1, all_different, d5_part_2, right_d5)


def d6(t: Terms) -> Tensor:
    """Right-hand side of Lemma D.6 as printed."""
    first = (-t.f * t.f02 * t.w2 + t.f * t.e1 * t.w2) @ t.h
    second = t.f02 * t.v2 * t.f01 * t.w1
    return first + second - t.s * (-t.f02 * t.f01 + t.f01) * t.w2 * t.w1


def right_d6(t: Terms) -> Tensor:
    return -ds(t) * t.f01 * t.w1 - t.s * df01(t) * t.w1


CHECKS["attention.d.6"] = by_x2(lambda t: -t.s * t.f01 * t.w1, both_other, d6, right_d6)


def d7(t: Terms) -> Tensor:
    """Right-hand side of Lemma D.7 as printed, the part of the index pair."""
    if t.k.i1 == t.k.i2:
        return (-t.f02 + 1 + t.v2) * t.f01 * t.w2 * t.h1 * t.w1
    return (-t.f02 * t.f01 + t.f01) * t.w2 * t.h1 * t.w1


def right_d7(t: Terms) -> Tensor:
    return (df01(t) * t.h1 + same2(t) * t.f01 * t.v2) * t.w1


CHECKS["attention.d.7.part_1"] = by_x2(
    lambda t: t.f01 * t.h1 * t.w1, both_other_equal, d7, right_d7
)
CHECKS["attention.d.7.part_2"] = by_x2(lambda t: t.f01 * t.h1 * t.w1, all_different, d7, right_d7)


def d8(t: Terms) -> Tensor:
    """Right-hand side of Lemma D.8 as printed."""
    return (-t.f02 * t.f01 + t.f01) * t.w2 * t.v1


CHECKS["attention.d.8"] = by_x2(lambda t: t.f01 * t.v1, both_other, d8, lambda t: df01(t) * t.v1)


def d9(t: Terms) -> Tensor:
    """The second derivative of c as printed."""
    return d6(t) + d7(t) + d8(t)


def right_d9(t: Terms) -> Tensor:
    """The corrected second derivative of c, both cases."""
    by_weight = df01(t) * (t.w1 * (t.h1 - t.s) + t.v1)
    return by_weight + t.f01 * t.w1 * (same2(t) * t.v2 - ds(t))


CHECKS["attention.d.9.part_1"] = lemma(both_other_equal, second_derivative, d9, right_d9)
CHECKS["attention.d.9.part_2"] = lemma(all_different, second_derivative, d9, right_d9)
