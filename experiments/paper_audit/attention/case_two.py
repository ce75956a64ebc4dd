"""Attention paper, Section D: second derivatives of c_{i0,j0} where i0 != i1 and i0 != i2."""

from __future__ import annotations

from torch import Tensor

from experiments.paper_audit.attention.terms import (
    Terms,
    all_different,
    both_other,
    both_other_equal,
    compare,
    derivative_lemma,
    formula,
    points,
    second_derivative,
)
from experiments.paper_audit.formula import Formula

DELTA = (
    "the term without f_{i0,i2} is there for i1 = i2 only: "
    "the proof takes the entry i1 of f o e_{i1} instead of f o e_{i2}"
)


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


H4 = (
    "f_{i0,i1} (delta - f_{i0,i2}) w2 (w1 (h_{j0,i1} - s) + v_{j1,j0}) "
    "+ f_{i0,i1} w1 (delta v_{j2,j0} - f_{i0,i2} ((h_{j0,i2} - s) w2 + v_{j2,j0})), delta = 1 if i1 = i2 else 0"
)
EMPTY = "the right-hand side is blank in our text; what the end of the proof shows is checked. "

SECOND_CASE: tuple[Formula, ...] = (
    derivative_lemma(
        "Lemma D.1",
        "d f_{i0,i1}/dx_{i2,j2} = -f_{i0,i1} f_{i0,i2} w2 + f_{i0,i1} w2, i0 != i2",
        lambda t: t.f01,
        both_other,
        lambda t: -t.f01 * t.f02 * t.w2 + t.f01 * t.w2,
        df01,
        "attention.d.1",
        "f_{i0,i1} (delta_{i1,i2} - f_{i0,i2}) w2: " + DELTA,
    ),
    derivative_lemma(
        "Lemma D.2, Part 1",
        "d h_{j0,i1}/dx_{i2,j2} = v_{j2,j0}, i1 = i2",
        lambda t: t.h1,
        both_other_equal,
        lambda t: t.v2,
    ),
    derivative_lemma(
        "Lemma D.2, Part 2",
        "d h_{j0,i1}/dx_{i2,j2} = 0, i1 != i2",
        lambda t: t.h1,
        all_different,
        lambda t: 0 * t.v2,
    ),
    derivative_lemma(
        "Lemma D.3",
        "d <f, h>/dx_{i2,j2} = <-f f_{i0,i2} w2 + f o (e_{i1} w2), h> + f_{i0,i2} v_{j2,j0}, i0 != i2",
        lambda t: t.s,
        both_other,
        _d3,
        ds,
        "attention.d.1",
        "e_{i2} for e_{i1}: f_{i0,i2} ((h_{j0,i2} - s) w2 + v_{j2,j0}). As printed it is right for i1 = i2 only",
    ),
    derivative_lemma(
        "Lemma D.4",
        "d (f_{i0,i1} w1)/dx_{i2,j2} = (-f_{i0,i2} f_{i0,i1} + f_{i0,i1}) w2 w1, i0 != i2",
        lambda t: t.f01 * t.w1,
        both_other,
        lambda t: (-t.f02 * t.f01 + t.f01) * t.w2 * t.w1,
        lambda t: df01(t) * t.w1,
        "attention.d.1",
        "f_{i0,i1} (delta_{i1,i2} - f_{i0,i2}) w2 w1: " + DELTA,
    ),
    derivative_lemma(
        "Lemma D.5, Part 1",
        "d (f_{i0,i1} h_{j0,i1})/dx_{i2,j2} = (-f_{i0,i2} + 1 + v_{j2,j0}) f_{i0,i1} w2 h_{j0,i1}, i1 = i2",
        lambda t: t.f01 * t.h1,
        both_other_equal,
        lambda t: (-t.f02 + 1 + t.v2) * t.f01 * t.w2 * t.h1,
        lambda t: df01(t) * t.h1 + t.f01 * t.v2,
        "attention.d.5.1",
        "((1 - f_{i0,i2}) w2 h_{j0,i1} + v_{j2,j0}) f_{i0,i1}: v_{j2,j0} is not multiplied by w2 h_{j0,i1}",
    ),
    derivative_lemma(
        "Lemma D.5, Part 2",
        "d (f_{i0,i1} h_{j0,i1})/dx_{i2,j2} = (-f_{i0,i2} f_{i0,i1} + f_{i0,i1}) w2 h_{j0,i1}, i1 != i2",
        lambda t: t.f01 * t.h1,
        all_different,
        lambda t: (-t.f02 * t.f01 + t.f01) * t.w2 * t.h1,
        lambda t: df01(t) * t.h1,
        "attention.d.1",
        "-f_{i0,i2} f_{i0,i1} w2 h_{j0,i1} (and the left-hand side is printed with i0 for i1): " + DELTA,
    ),
    derivative_lemma(
        "Lemma D.6",
        "dC_6/dx_{i2,j2} = <-f f_{i0,i2} w2 + f o (e_{i1} w2), h> + f_{i0,i2} v_{j2,j0} f_{i0,i1} w1 "
        "- s (-f_{i0,i2} f_{i0,i1} + f_{i0,i1}) w2 w1",
        lambda t: -t.s * t.f01 * t.w1,
        both_other,
        _d6,
        lambda t: -ds(t) * t.f01 * t.w1 - t.s * df01(t) * t.w1,
        "attention.d.6",
        "-(ds/dx_{i2,j2}) f_{i0,i1} w1 - s (d f_{i0,i1}/dx_{i2,j2}) w1: the minus sign of C_6 and the bracket around "
        "ds are lost, and Lemmas D.3 and D.4 are used as printed",
    ),
    derivative_lemma(
        "Lemma D.7, Part 1",
        "dC_7/dx_{i2,j2} = (-f_{i0,i2} + 1 + v_{j2,j0}) f_{i0,i1} w2 h_{j0,i1} w1, i1 = i2",
        lambda t: t.f01 * t.h1 * t.w1,
        both_other_equal,
        _d7,
        lambda t: (df01(t) * t.h1 + t.f01 * t.v2) * t.w1,
        "attention.d.5.1",
        "((1 - f_{i0,i2}) w2 h_{j0,i1} + v_{j2,j0}) f_{i0,i1} w1, as in Lemma D.5",
    ),
    derivative_lemma(
        "Lemma D.7, Part 2",
        "dC_7/dx_{i2,j2} = (-f_{i0,i2} f_{i0,i1} + f_{i0,i1}) w2 h_{j0,i1} w1, i1 != i2",
        lambda t: t.f01 * t.h1 * t.w1,
        all_different,
        _d7,
        lambda t: df01(t) * t.h1 * t.w1,
        "attention.d.1",
        "-f_{i0,i2} f_{i0,i1} w2 h_{j0,i1} w1: " + DELTA,
    ),
    derivative_lemma(
        "Lemma D.8",
        "dC_8/dx_{i2,j2} = (-f_{i0,i2} f_{i0,i1} + f_{i0,i1}) w2 v_{j1,j0}, i0 != i2",
        lambda t: t.f01 * t.v1,
        both_other,
        _d8,
        lambda t: df01(t) * t.v1,
        "attention.d.1",
        "f_{i0,i1} (delta_{i1,i2} - f_{i0,i2}) w2 v_{j1,j0}: " + DELTA,
    ),
    formula(
        "Lemma D.9, Part 1",
        "d2 c/dx_{i1,j1} dx_{i2,j2}, i0 != i1 = i2 (blank in our text): the proof ends on D.6 + D.7 + D.8",
        lambda: compare(points(both_other_equal), second_derivative, lambda t: _d6(t) + _d7(t) + _d8(t), _dc),
        True,
        "attention.d.6",
        EMPTY + H4,
    ),
    formula(
        "Lemma D.9, Part 2",
        "d2 c/dx_{i1,j1} dx_{i2,j2}, i0, i1, i2 all different (blank in our text): the proof ends on D.6 + D.7 + D.8",
        lambda: compare(points(all_different), second_derivative, lambda t: _d6(t) + _d7(t) + _d8(t), _dc),
        True,
        "attention.d.1",
        EMPTY + H4,
    ),
)
