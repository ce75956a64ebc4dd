"""Attention paper, Section C: derivatives of the factors of dc_{i0,j0}/dx, and Part 2 (i0 = i1 != i2) of C_1..C_5."""

from __future__ import annotations

from experiments.paper_audit.attention.terms import all_same, derivative_lemma, same_then_other
from experiments.paper_audit.formula import Formula

BASIC: tuple[Formula, ...] = (
    derivative_lemma(
        "Lemma C.1, Part 1", "d w_{i0,j1}/dx_{i2,j2} = w_{j1,j2}", lambda t: t.w1, all_same, lambda t: t.w12
    ),
    derivative_lemma(
        "Lemma C.1, Part 2", "d w_{i0,j1}/dx_{i2,j2} = 0", lambda t: t.w1, same_then_other, lambda t: 0 * t.w12
    ),
    derivative_lemma(
        "Lemma C.2, Part 1",
        "d X^T W_{*,j1}/dx_{i2,j2} = e_{i0} w_{j2,j1}",
        lambda t: t.x1,
        all_same,
        lambda t: t.e0 * t.w21,
    ),
    derivative_lemma(
        "Lemma C.2, Part 2",
        "d X^T W_{*,j1}/dx_{i2,j2} = e_{i2} w_{j2,j1}",
        lambda t: t.x1,
        same_then_other,
        lambda t: t.e2 * t.w21,
    ),
    derivative_lemma(
        "Lemma C.3, Part 1",
        "d f_{i0,i0}/dx_{i2,j2} = -f_{i0,i0} (f_{i0,i0} w2 + z2) + f_{i0,i0} <W_{j2,*} + W_{*,j2}, X_{*,i0}>",
        lambda t: t.f00,
        all_same,
        lambda t: -t.f00 * (t.f00 * t.w2 + t.z2) + t.f00 * (t.w2 + t.y20),
    ),
    derivative_lemma(
        "Lemma C.3, Part 2",
        "d f_{i0,i0}/dx_{i2,j2} = -f_{i0,i0} f_{i0,i2} w2",
        lambda t: t.f00,
        same_then_other,
        lambda t: -t.f00 * t.f02 * t.w2,
    ),
    derivative_lemma(
        "Lemma C.4, Part 1", "d h_{j0,i0}/dx_{i2,j2} = v_{j2,j0}", lambda t: t.h0, all_same, lambda t: t.v2
    ),
    derivative_lemma(
        "Lemma C.4, Part 2", "d h_{j0,i0}/dx_{i2,j2} = 0", lambda t: t.h0, same_then_other, lambda t: 0 * t.v2
    ),
    derivative_lemma(
        "Lemma C.5, Part 1",
        "d z1/dx_{i2,j2} = -z1 f_{i0,i0} w2 - z1 z2 + f_{i0,i0} <W_{*,j1}, X_{*,i0}> w2 + <f o x2, x1> "
        "+ f_{i0,i0} w_{j2,j1}",
        lambda t: t.z1,
        all_same,
        lambda t: -t.z1 * t.f00 * t.w2 - t.z1 * t.z2 + t.f00 * t.y10 * t.w2 + (t.f * t.x2) @ t.x1 + t.f00 * t.w21,
    ),
    derivative_lemma(
        "Lemma C.5, Part 2",
        "d z1/dx_{i2,j2} = -z1 f_{i0,i0} w2 + f_{i0,i0} w2 <W_{*,j1}, X_{*,i0}> + f_{i0,i0} w_{j2,j1}",
        lambda t: t.z1,
        same_then_other,
        lambda t: -t.z1 * t.f00 * t.w2 + t.f00 * t.w2 * t.y10 + t.f00 * t.w21,
        lambda t: -t.z1 * t.f02 * t.w2 + t.f02 * t.w2 * t.y12 + t.f02 * t.w21,
        "attention.c.5.2",
        "f_{i0,i2} for f_{i0,i0} in all three terms and X_{*,i2} for X_{*,i0}: the proof applies Part 1 of Lemma B.14, "
        "which is for i2 = i0",
    ),
    derivative_lemma(
        "Lemma C.6, Part 1",
        "d (f_{i0,i0} h_{j0,i0})/dx_{i2,j2} = (-f_{i0,i0} (f_{i0,i0} w2 + z2) "
        "+ f_{i0,i0} <W_{j2,*} + W_{*,j2}, X_{*,i0}>) h_{j0,i0} + f_{i0,i0} v_{j2,j0}, the comma read as +",
        lambda t: t.f00 * t.h0,
        all_same,
        lambda t: (-t.f00 * (t.f00 * t.w2 + t.z2) + t.f00 * (t.w2 + t.y20)) * t.h0 + t.f00 * t.v2,
        root="attention.comma",
    ),
    derivative_lemma(
        "Lemma C.6, Part 2",
        "d (f_{i0,i0} h_{j0,i0})/dx_{i2,j2} = -f_{i0,i0} f_{i0,i2} w2 h_{j0,i0}",
        lambda t: t.f00 * t.h0,
        same_then_other,
        lambda t: -t.f00 * t.f02 * t.w2 * t.h0,
    ),
    derivative_lemma(
        "Lemma C.7, Part 1",
        "d (f_{i0,i0} w1)/dx_{i2,j2} = (f_{i0,i0} (f_{i0,i0} w2 + z2) + f_{i0,i0} <W_{j2,*} + W_{*,j2}, X_{*,i0}>) w1 "
        "+ f_{i0,i0} w_{j1,j2}, the comma read as +",
        lambda t: t.f00 * t.w1,
        all_same,
        lambda t: (t.f00 * (t.f00 * t.w2 + t.z2) + t.f00 * (t.w2 + t.y20)) * t.w1 + t.f00 * t.w12,
        lambda t: (-t.f00 * (t.f00 * t.w2 + t.z2) + t.f00 * (t.w2 + t.y20)) * t.w1 + t.f00 * t.w12,
        "attention.c.7.1",
        "a minus sign before the first term",
    ),
    derivative_lemma(
        "Lemma C.7, Part 2",
        "d (f_{i0,i0} w1)/dx_{i2,j2} = -f_{i0,i0} f_{i0,i2} w2 w1",
        lambda t: t.f00 * t.w1,
        same_then_other,
        lambda t: -t.f00 * t.f02 * t.w2 * t.w1,
    ),
    derivative_lemma(
        "Lemma C.8, Part 1",
        "d (f o x1)/dx_{i2,j2} = (-f (f_{i0,i0} w2 + z2) + f o (e_{i0} w2 + x2)) o x1 + f o (e_{i0} w_{j2,j1})",
        lambda t: t.f * t.x1,
        all_same,
        lambda t: (-t.f * (t.f00 * t.w2 + t.z2) + t.f * (t.e0 * t.w2 + t.x2)) * t.x1 + t.f * t.e0 * t.w21,
    ),
    derivative_lemma(
        "Lemma C.8, Part 2",
        "d (f o x1)/dx_{i2,j2} = (-f f_{i0,i2} w2 + f o (e_{i2} w2)) o x1 + f o (e_{i2} w_{j2,j1})",
        lambda t: t.f * t.x1,
        same_then_other,
        lambda t: (-t.f * t.f02 * t.w2 + t.f * t.e2 * t.w2) * t.x1 + t.f * t.e2 * t.w21,
    ),
)


REMAINING: tuple[Formula, ...] = (
    derivative_lemma(
        "Lemma C.9, Part 2",
        "dC_1/dx_{i2,j2} = f_{i0,i2} f_{i0,i0} w1 (2 s w2 - h_{j0,i2} w2 - v_{j2,j0}), printed as four terms",
        lambda t: -t.s * t.f00 * t.w1,
        same_then_other,
        lambda t: (
            t.s * t.f02 * t.w2 * t.f00 * t.w1
            - t.f02 * t.h2 * t.w2 * t.f00 * t.w1
            - t.f02 * t.v2 * t.f00 * t.w1
            + t.s * t.f00 * t.f02 * t.w2 * t.w1
        ),
    ),
    derivative_lemma(
        "Lemma C.10, Part 2",
        "dC_2/dx_{i2,j2}: six terms, the last three with f_{i0,i0} and X_{*,i0}",
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
        "attention.c.5.2",
        "f_{i0,i2} for f_{i0,i0} and X_{*,i2} for X_{*,i0} in the last three terms (inherited from Lemma C.5, Part 2)",
    ),
    derivative_lemma(
        "Lemma C.11, Part 2",
        "dC_3/dx_{i2,j2} = -f_{i0,i0} f_{i0,i2} w2 h_{j0,i0} w1",
        lambda t: t.f00 * t.h0 * t.w1,
        same_then_other,
        lambda t: -t.f00 * t.f02 * t.w2 * t.h0 * t.w1,
    ),
    derivative_lemma(
        "Lemma C.12, Part 2",
        "dC_4/dx_{i2,j2} = -m1 f_{i0,i2} w2 + f_{i0,i2} (h_{j0,i2} (<W_{*,j1}, X_{*,i2}> w2 + w_{j2,j1}) "
        "+ <W_{*,j1}, X_{*,i2}> v_{j2,j0})",
        lambda t: t.m1,
        same_then_other,
        lambda t: -t.m1 * t.f02 * t.w2 + t.f02 * (t.h2 * (t.y12 * t.w2 + t.w21) + t.y12 * t.v2),
    ),
    derivative_lemma(
        "Lemma C.13, Part 2",
        "dC_5/dx_{i2,j2} = -f_{i0,i0} f_{i0,i2} w2 v_{j1,j0}",
        lambda t: t.f00 * t.v1,
        same_then_other,
        lambda t: -t.f00 * t.f02 * t.w2 * t.v1,
    ),
)
