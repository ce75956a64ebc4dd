"""Attention paper, Section C: derivatives of the factors of dc_{i0,j0}/dx, and Part 2 (i0 = i1 != i2) of C_1..C_5."""

from __future__ import annotations

from experiments.paper_audit.attention.terms import all_same, derivative_lemma, same_then_other
from experiments.paper_audit.formula import Entry

CHECKS: dict[str, Entry] = {
    "attention.c.1.part_1": derivative_lemma(lambda t: t.w1, all_same, lambda t: t.w12),
    "attention.c.1.part_2": derivative_lemma(lambda t: t.w1, same_then_other, lambda t: 0 * t.w12),
    "attention.c.2.part_1": derivative_lemma(lambda t: t.x1, all_same, lambda t: t.e0 * t.w21),
    "attention.c.2.part_2": derivative_lemma(lambda t: t.x1, same_then_other, lambda t: t.e2 * t.w21),
    "attention.c.3.part_1": derivative_lemma(
        lambda t: t.f00, all_same, lambda t: -t.f00 * (t.f00 * t.w2 + t.z2) + t.f00 * (t.w2 + t.y20)
    ),
    "attention.c.3.part_2": derivative_lemma(lambda t: t.f00, same_then_other, lambda t: -t.f00 * t.f02 * t.w2),
    "attention.c.4.part_1": derivative_lemma(lambda t: t.h0, all_same, lambda t: t.v2),
    "attention.c.4.part_2": derivative_lemma(lambda t: t.h0, same_then_other, lambda t: 0 * t.v2),
    "attention.c.5.part_1": derivative_lemma(
        lambda t: t.z1,
        all_same,
        lambda t: -t.z1 * t.f00 * t.w2 - t.z1 * t.z2 + t.f00 * t.y10 * t.w2 + (t.f * t.x2) @ t.x1 + t.f00 * t.w21,
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
        lambda t: (-t.f * (t.f00 * t.w2 + t.z2) + t.f * (t.e0 * t.w2 + t.x2)) * t.x1 + t.f * t.e0 * t.w21,
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
        lambda t: t.f00 * t.h0 * t.w1, same_then_other, lambda t: -t.f00 * t.f02 * t.w2 * t.h0 * t.w1
    ),
    "attention.c.12.part_2": derivative_lemma(
        lambda t: t.m1,
        same_then_other,
        lambda t: -t.m1 * t.f02 * t.w2 + t.f02 * (t.h2 * (t.y12 * t.w2 + t.w21) + t.y12 * t.v2),
    ),
    "attention.c.13.part_2": derivative_lemma(
        lambda t: t.f00 * t.v1, same_then_other, lambda t: -t.f00 * t.f02 * t.w2 * t.v1
    ),
}
