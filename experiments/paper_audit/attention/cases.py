"""Attention paper, Sections C and D: derivatives of the factors of dc/dx, case by case of the
indices."""

from __future__ import annotations

from experiments.paper_audit.attention.terms import (
    all_different,
    all_same,
    both_other,
    both_other_equal,
    by_x2,
    e0,
    e1,
    e2,
    f,
    f00,
    f01,
    f02,
    h,
    h0,
    h1,
    h2,
    lemma,
    m1,
    s,
    same2,
    same_then_other,
    second_derivative,
    v1,
    v2,
    w1,
    w2,
    w12,
    w21,
    x1,
    x2,
    y10,
    y12,
    y20,
    z1,
    z2,
)
from experiments.paper_audit.checks import Checks

CHECKS = Checks()

# Section C, i0 = i1: Part 1 has i2 = i1, Part 2 another i2.

CHECKS["attention.c.1.part_1"] = by_x2(w1, all_same, w12)
CHECKS["attention.c.1.part_2"] = by_x2(w1, same_then_other, 0 * w12)
CHECKS["attention.c.2.part_1"] = by_x2(x1, all_same, e0 * w21)
CHECKS["attention.c.2.part_2"] = by_x2(x1, same_then_other, e2 * w21)

df00 = -f00 * (f00 * w2 + z2) + f00 * (w2 + y20)
"""d f_{i0,i0}/dx_{i2,j2} of Lemma C.3, Part 1."""
df00_other = -f00 * f02 * w2
"""The same of Part 2."""
CHECKS["attention.c.3.part_1"] = by_x2(f00, all_same, df00)
CHECKS["attention.c.3.part_2"] = by_x2(f00, same_then_other, df00_other)
CHECKS["attention.c.4.part_1"] = by_x2(h0, all_same, v2)
CHECKS["attention.c.4.part_2"] = by_x2(h0, same_then_other, 0 * v2)

c5_of_f = -z1 * f00 * w2 - z1 * z2 + f00 * y10 * w2
c5_part_1 = c5_of_f + (f * x2) @ x1 + f00 * w21
c5_part_2 = -z1 * f00 * w2 + f00 * w2 * y10 + f00 * w21
right_c5_part_2 = -z1 * f02 * w2 + f02 * w2 * y12 + f02 * w21
CHECKS["attention.c.5.part_1"] = by_x2(z1, all_same, c5_part_1)
CHECKS["attention.c.5.part_2"] = by_x2(z1, same_then_other, c5_part_2, right_c5_part_2)

CHECKS["attention.c.6.part_1"] = by_x2(f00 * h0, all_same, df00 * h0 + f00 * v2)
CHECKS["attention.c.6.part_2"] = by_x2(f00 * h0, same_then_other, df00_other * h0)

c7_df00 = f00 * (f00 * w2 + z2) + f00 * (w2 + y20)
c7_part_1 = c7_df00 * w1 + f00 * w12
right_c7_part_1 = df00 * w1 + f00 * w12
CHECKS["attention.c.7.part_1"] = by_x2(f00 * w1, all_same, c7_part_1, right_c7_part_1)
CHECKS["attention.c.7.part_2"] = by_x2(f00 * w1, same_then_other, df00_other * w1)

c8_df_part_1 = -f * (f00 * w2 + z2) + f * (e0 * w2 + x2)
c8_part_1 = c8_df_part_1 * x1 + f * e0 * w21
c8_df_part_2 = -f * f02 * w2 + f * e2 * w2
c8_part_2 = c8_df_part_2 * x1 + f * e2 * w21
CHECKS["attention.c.8.part_1"] = by_x2(f * x1, all_same, c8_part_1)
CHECKS["attention.c.8.part_2"] = by_x2(f * x1, same_then_other, c8_part_2)

c9_of_s = s * f02 * w2 * f00 * w1 - f02 * h2 * w2 * f00 * w1
c9_part_2 = c9_of_s - f02 * v2 * f00 * w1 + s * f00 * f02 * w2 * w1
CHECKS["attention.c.9.part_2"] = by_x2(-s * f00 * w1, same_then_other, c9_part_2)

c10_of_s = s * f02 * w2 * z1 - f02 * h2 * w2 * z1 - f02 * v2 * z1
c10_of_z = s * z1 * f00 * w2 - s * f00 * y10 * w2 - s * f00 * w21
c10_part_2 = c10_of_s + c10_of_z
right_c10_of_s = 2 * s * f02 * w2 * z1 - f02 * h2 * w2 * z1 - f02 * v2 * z1
right_c10_part_2 = right_c10_of_s - s * f02 * y12 * w2 - s * f02 * w21
CHECKS["attention.c.10.part_2"] = by_x2(-s * z1, same_then_other, c10_part_2, right_c10_part_2)

c11_part_2 = df00_other * h0 * w1
CHECKS["attention.c.11.part_2"] = by_x2(f00 * h0 * w1, same_then_other, c11_part_2)

c12_spread = h2 * (y12 * w2 + w21) + y12 * v2
c12_part_2 = -m1 * f02 * w2 + f02 * c12_spread
CHECKS["attention.c.12.part_2"] = by_x2(m1, same_then_other, c12_part_2)
CHECKS["attention.c.13.part_2"] = by_x2(f00 * v1, same_then_other, df00_other * v1)

# Section D, i0 is neither i1 nor i2: Part 1 has i1 = i2, Part 2 has not.

df01 = f01 * (same2 - f02) * w2
"""d f_{i0,i1}/dx_{i2,j2} for i2 != i0, corrected: f_{i0,i1} (delta_{i1,i2} - f_{i0,i2}) w2."""
ds = f02 * ((h2 - s) * w2 + v2)
"""d <f, h>/dx_{i2,j2} for i2 != i0, corrected: f_{i0,i2} ((h_{j0,i2} - s) w2 + v_{j2,j0})."""
d1 = -f01 * f02 * w2 + f01 * w2
CHECKS["attention.d.1"] = by_x2(f01, both_other, d1, df01)
CHECKS["attention.d.2.part_1"] = by_x2(h1, both_other_equal, v2)
CHECKS["attention.d.2.part_2"] = by_x2(h1, all_different, 0 * v2)

df_h = (-f * f02 * w2 + f * e1 * w2) @ h
"""<df, h> of Lemma D.3."""
d3 = df_h + f02 * v2
CHECKS["attention.d.3"] = by_x2(s, both_other, d3, ds)

df01_of_d4 = (-f02 * f01 + f01) * w2
d4 = df01_of_d4 * w1
CHECKS["attention.d.4"] = by_x2(f01 * w1, both_other, d4, df01 * w1)

d5_part_1 = (-f02 + 1 + v2) * f01 * w2 * h1
d5_part_2 = df01_of_d4 * h1
right_d5 = df01 * h1 + same2 * f01 * v2
"""Both parts."""
CHECKS["attention.d.5.part_1"] = by_x2(f01 * h1, both_other_equal, d5_part_1, right_d5)
CHECKS["attention.d.5.part_2"] = by_x2(f01 * h1, all_different, d5_part_2, right_d5)

d6_of_s = df_h + f02 * v2 * f01 * w1
d6 = d6_of_s - s * (-f02 * f01 + f01) * w2 * w1
right_d6 = -ds * f01 * w1 - s * df01 * w1
CHECKS["attention.d.6"] = by_x2(-s * f01 * w1, both_other, d6, right_d6)

d7_part_1 = d5_part_1 * w1
d7_part_2 = d5_part_2 * w1
right_d7 = right_d5 * w1
CHECKS["attention.d.7.part_1"] = by_x2(f01 * h1 * w1, both_other_equal, d7_part_1, right_d7)
CHECKS["attention.d.7.part_2"] = by_x2(f01 * h1 * w1, all_different, d7_part_2, right_d7)

d8 = df01_of_d4 * v1
CHECKS["attention.d.8"] = by_x2(f01 * v1, both_other, d8, df01 * v1)

d9_part_1 = d6 + d7_part_1 + d8
d9_part_2 = d6 + d7_part_2 + d8
d9_by_weight = df01 * (w1 * (h1 - s) + v1)
right_d9 = d9_by_weight + f01 * w1 * (same2 * v2 - ds)
"""The corrected second derivative of c, both cases."""
CHECKS["attention.d.9.part_1"] = lemma(both_other_equal, second_derivative, d9_part_1, right_d9)
CHECKS["attention.d.9.part_2"] = lemma(all_different, second_derivative, d9_part_2, right_d9)
