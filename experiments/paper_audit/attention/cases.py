"""Attention paper, Sections C and D: derivatives of the factors of dc/dx, case by case of the indices."""

from __future__ import annotations

from torch import Tensor

from experiments.paper_audit.attention.terms import (
    Terms,
    all_different,
    all_same,
    both_other,
    both_other_equal,
    compare,
    derivative_lemma,
    points,
    same_then_other,
    second_derivative,
)
from experiments.paper_audit.checks import Entry


def same2(t: Terms) -> float:
    """1 where i1 = i2, else 0."""
    return float(t.k.i1 == t.k.i2)


def df01(t: Terms) -> Tensor:
    """d f_{i0,i1}/dx_{i2,j2} for i2 != i0, corrected: f_{i0,i1} (delta_{i1,i2} - f_{i0,i2}) w2."""
    return t.f01 * (same2(t) - t.f02) * t.w2


def ds(t: Terms) -> Tensor:
    """d <f, h>/dx_{i2,j2} for i2 != i0, corrected: f_{i0,i2} ((h_{j0,i2} - s) w2 + v_{j2,j0})."""
    return t.f02 * ((t.h2 - t.s) * t.w2 + t.v2)


def _d3(t: Terms) -> Tensor:
    """Right-hand side of Lemma D.3 as printed."""
    return (-t.f * t.f02 * t.w2 + t.f * t.e1 * t.w2) @ t.h + t.f02 * t.v2


def _d6(t: Terms) -> Tensor:
    """Right-hand side of Lemma D.6 as printed."""
    first = (-t.f * t.f02 * t.w2 + t.f * t.e1 * t.w2) @ t.h
    return first + t.f02 * t.v2 * t.f01 * t.w1 - t.s * (-t.f02 * t.f01 + t.f01) * t.w2 * t.w1


def _d7(t: Terms) -> Tensor:
    """Right-hand side of Lemma D.7 as printed, the part of the index pair."""
    if t.k.i1 == t.k.i2:
        return (-t.f02 + 1 + t.v2) * t.f01 * t.w2 * t.h1 * t.w1
    return (-t.f02 * t.f01 + t.f01) * t.w2 * t.h1 * t.w1


def _d8(t: Terms) -> Tensor:
    return (-t.f02 * t.f01 + t.f01) * t.w2 * t.v1


def _dc(t: Terms) -> Tensor:
    """The corrected second derivative of c, both cases."""
    return df01(t) * (t.w1 * (t.h1 - t.s) + t.v1) + t.f01 * t.w1 * (same2(t) * t.v2 - ds(t))


CHECKS: dict[str, Entry] = {
    "attention.c.1.part_1": derivative_lemma(lambda t: t.w1, all_same, lambda t: t.w12),
    "attention.c.1.part_2": derivative_lemma(lambda t: t.w1, same_then_other, lambda t: 0 * t.w12),
    "attention.c.2.part_1": derivative_lemma(lambda t: t.x1, all_same, lambda t: t.e0 * t.w21),
    "attention.c.2.part_2": derivative_lemma(
        lambda t: t.x1, same_then_other, lambda t: t.e2 * t.w21
    ),
    "attention.c.3.part_1": derivative_lemma(
        lambda t: t.f00, all_same, lambda t: -t.f00 * (t.f00 * t.w2 + t.z2) + t.f00 * (t.w2 + t.y20)
    ),
    "attention.c.3.part_2": derivative_lemma(
        lambda t: t.f00, same_then_other, lambda t: -t.f00 * t.f02 * t.w2
    ),
    "attention.c.4.part_1": derivative_lemma(lambda t: t.h0, all_same, lambda t: t.v2),
    "attention.c.4.part_2": derivative_lemma(lambda t: t.h0, same_then_other, lambda t: 0 * t.v2),
    "attention.c.5.part_1": derivative_lemma(
        lambda t: t.z1,
        all_same,
        lambda t: (
            -t.z1 * t.f00 * t.w2
            - t.z1 * t.z2
            + t.f00 * t.y10 * t.w2
            + (t.f * t.x2) @ t.x1
            + t.f00 * t.w21
        ),
    ),
    "attention.c.5.part_2": derivative_lemma(
        lambda t: t.z1,
        same_then_other,
        lambda t: -t.z1 * t.f00 * t.w2 + t.f00 * t.w2 * t.y10 + t.f00 * t.w21,
        lambda t: -t.z1 * t.f02 * t.w2 + t.f02 * t.w2 * t.y12 + t.f02 * t.w21,
    ),
    "attention.c.6.part_1": derivative_lemma(
        lambda t: t.f00 * t.h0,
        all_same,
        lambda t: (-t.f00 * (t.f00 * t.w2 + t.z2) + t.f00 * (t.w2 + t.y20)) * t.h0 + t.f00 * t.v2,
    ),
    "attention.c.6.part_2": derivative_lemma(
        lambda t: t.f00 * t.h0, same_then_other, lambda t: -t.f00 * t.f02 * t.w2 * t.h0
    ),
    "attention.c.7.part_1": derivative_lemma(
        lambda t: t.f00 * t.w1,
        all_same,
        lambda t: (t.f00 * (t.f00 * t.w2 + t.z2) + t.f00 * (t.w2 + t.y20)) * t.w1 + t.f00 * t.w12,
        lambda t: (-t.f00 * (t.f00 * t.w2 + t.z2) + t.f00 * (t.w2 + t.y20)) * t.w1 + t.f00 * t.w12,
    ),
    "attention.c.7.part_2": derivative_lemma(
        lambda t: t.f00 * t.w1, same_then_other, lambda t: -t.f00 * t.f02 * t.w2 * t.w1
    ),
    "attention.c.8.part_1": derivative_lemma(
        lambda t: t.f * t.x1,
        all_same,
        lambda t: (
            (-t.f * (t.f00 * t.w2 + t.z2) + t.f * (t.e0 * t.w2 + t.x2)) * t.x1 + t.f * t.e0 * t.w21
        ),
    ),
    "attention.c.8.part_2": derivative_lemma(
        lambda t: t.f * t.x1,
        same_then_other,
        lambda t: (-t.f * t.f02 * t.w2 + t.f * t.e2 * t.w2) * t.x1 + t.f * t.e2 * t.w21,
    ),
    "attention.c.9.part_2": derivative_lemma(
        lambda t: -t.s * t.f00 * t.w1,
        same_then_other,
        lambda t: (
            t.s * t.f02 * t.w2 * t.f00 * t.w1
            - t.f02 * t.h2 * t.w2 * t.f00 * t.w1
            - t.f02 * t.v2 * t.f00 * t.w1
            + t.s * t.f00 * t.f02 * t.w2 * t.w1
        ),
    ),
    "attention.c.10.part_2": derivative_lemma(
        lambda t: -t.s * t.z1,
        same_then_other,
        lambda t: (
            t.s * t.f02 * t.w2 * t.z1
            - t.f02 * t.h2 * t.w2 * t.z1
            - t.f02 * t.v2 * t.z1
            + t.s * t.z1 * t.f00 * t.w2
            - t.s * t.f00 * t.y10 * t.w2
            - t.s * t.f00 * t.w21
        ),
        lambda t: (
            2 * t.s * t.f02 * t.w2 * t.z1
            - t.f02 * t.h2 * t.w2 * t.z1
            - t.f02 * t.v2 * t.z1
            - t.s * t.f02 * t.y12 * t.w2
            - t.s * t.f02 * t.w21
        ),
    ),
    "attention.c.11.part_2": derivative_lemma(
        lambda t: t.f00 * t.h0 * t.w1,
        same_then_other,
        lambda t: -t.f00 * t.f02 * t.w2 * t.h0 * t.w1,
    ),
    "attention.c.12.part_2": derivative_lemma(
        lambda t: t.m1,
        same_then_other,
        lambda t: -t.m1 * t.f02 * t.w2 + t.f02 * (t.h2 * (t.y12 * t.w2 + t.w21) + t.y12 * t.v2),
    ),
    "attention.c.13.part_2": derivative_lemma(
        lambda t: t.f00 * t.v1, same_then_other, lambda t: -t.f00 * t.f02 * t.w2 * t.v1
    ),
    "attention.d.1": derivative_lemma(
        lambda t: t.f01, both_other, lambda t: -t.f01 * t.f02 * t.w2 + t.f01 * t.w2, df01
    ),
    "attention.d.2.part_1": derivative_lemma(lambda t: t.h1, both_other_equal, lambda t: t.v2),
    "attention.d.2.part_2": derivative_lemma(lambda t: t.h1, all_different, lambda t: 0 * t.v2),
    "attention.d.3": derivative_lemma(lambda t: t.s, both_other, _d3, ds),
    "attention.d.4": derivative_lemma(
        lambda t: t.f01 * t.w1,
        both_other,
        lambda t: (-t.f02 * t.f01 + t.f01) * t.w2 * t.w1,
        lambda t: df01(t) * t.w1,
    ),
    "attention.d.5.part_1": derivative_lemma(
        lambda t: t.f01 * t.h1,
        both_other_equal,
        lambda t: (-t.f02 + 1 + t.v2) * t.f01 * t.w2 * t.h1,
        lambda t: df01(t) * t.h1 + t.f01 * t.v2,
    ),
    "attention.d.5.part_2": derivative_lemma(
        lambda t: t.f01 * t.h1,
        all_different,
        lambda t: (-t.f02 * t.f01 + t.f01) * t.w2 * t.h1,
        lambda t: df01(t) * t.h1,
    ),
    "attention.d.6": derivative_lemma(
        lambda t: -t.s * t.f01 * t.w1,
        both_other,
        _d6,
        lambda t: -ds(t) * t.f01 * t.w1 - t.s * df01(t) * t.w1,
    ),
    "attention.d.7.part_1": derivative_lemma(
        lambda t: t.f01 * t.h1 * t.w1,
        both_other_equal,
        _d7,
        lambda t: (df01(t) * t.h1 + t.f01 * t.v2) * t.w1,
    ),
    "attention.d.7.part_2": derivative_lemma(
        lambda t: t.f01 * t.h1 * t.w1, all_different, _d7, lambda t: df01(t) * t.h1 * t.w1
    ),
    "attention.d.8": derivative_lemma(
        lambda t: t.f01 * t.v1, both_other, _d8, lambda t: df01(t) * t.v1
    ),
    "attention.d.9.part_1": lambda: compare(
        points(both_other_equal), second_derivative, lambda t: _d6(t) + _d7(t) + _d8(t), _dc
    ),
    "attention.d.9.part_2": lambda: compare(
        points(all_different), second_derivative, lambda t: _d6(t) + _d7(t) + _d8(t), _dc
    ),
}
