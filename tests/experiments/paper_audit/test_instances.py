"""Instances that errata print, computed again without the formulas of the audit; each next to the
words that its entry must still have."""

import json
import math
from functools import cache

import pytest
import torch
from torch.func import grad, hessian, jacrev

from experiments.paper_audit.papers import clauses, errata
from tests import PUBLISHED
from tests.experiments.page_values import bounds_and_saddles, longer_steps
from tests.experiments.stored import rows

INSTANCES = []


def entry(name, *words):
    """Registers the instance of these words of the entry of a root cause."""

    def register(function):
        INSTANCES.append((name, words, function))
        return function

    return register


def real(*values):
    return torch.tensor(values, dtype=torch.float64)


def close(value, expected, digits=3):
    assert float(value) == pytest.approx(expected, abs=0.51 * 10**-digits)


def weights(x, i):
    """f(X)_i of tokens of one number, W = 1."""
    return torch.softmax(x * x[i], 0)


@entry("attention.b.17", "X = (1.0, 0.0), W = V = 1, B = 0: [1.0719, 0.42788], [2.1438, 0.85575]")
def gradient_of_the_loss():
    def residuals(x):
        return torch.stack([weights(x, i) @ x for i in (0, 1)])

    x = real(1, 0)
    loss = grad(lambda t: residuals(t).square().sum())(x)
    printed = residuals(x) @ jacrev(residuals)(x)
    for right, half, k in ((2.1438, 1.0719, 0), (0.85575, 0.42788, 1)):
        close(loss[k], right, 4)
        close(printed[k], half, 4)


@entry("attention.d.1", "X = (1.0, 0.0, -1.0)", "(1,3,2,1,1,1): 0.067998, -0.022033")
def derivative_of_the_weights():
    x = real(1, 0, -1)
    f = weights(x, 0)
    close(jacrev(lambda t: weights(t, 0))(x)[2, 1], -0.022033, 6)
    close(-f[2] * f[1] + f[2], 0.067998, 6)


@entry("attention.c.5.2", "X = (1.0, 0.0)", "(1,1,2,1,1,1): 0.92767, 0.072329")
def derivative_of_the_mean():
    x = real(1, 0)
    f = weights(x, 0)
    close(grad(lambda t: weights(t, 0) @ t)(x)[1], 0.072)
    close(f[0] * (-f @ x + x[0] + 1), 0.928)


@entry("attention.c.10.1", "X = (1.0, 0.0)", "(2,2,2,1,1,1): -0.8125, -0.75")
def derivative_of_c2():
    def square(t):
        return -((weights(t, 1) @ t) ** 2)

    right = grad(square)(real(1, 0))[1]
    f, s = 1 / 2, 1 / 2
    close(right, -3 / 4, 12)
    close(right - s**3 + s * s * f * s, -13 / 16, 12)


@entry("attention.d.5.1", "X = (1.0, 0.0)", "(2,1,1,1,1,1): 0, 0.5")
def derivative_of_f_h():
    x = real(1, 0)
    f = weights(x, 1)
    close(grad(lambda t: weights(t, 1)[0] * t[0])(x)[0], 1 / 2, 12)
    close((-f[0] + 1 + 1) * f[0] * x[1] * x[0], 0, 12)


@entry("attention.d.6", "X = (1.0, 0.0)", "(1,2,2,1,1,1): -0.26802, -0.16319")
def derivative_of_c6():
    x = real(1, 0)
    a, b = weights(x, 0)
    close(grad(lambda t: -(weights(t, 0) @ t) * weights(t, 0)[1] * t[0])(x)[1], -0.163)
    close(-a * b + b * b - a * (b - b * b), -0.268)


@entry("attention.j.1", "n = 1, d = 1, R = 2, γ = 42 n d R⁸, B exact", "|X*| = 3.7e-04 |X_true|")
def minimiser():
    gamma = 42 * 2**8
    point = real(1 / 2689)
    gradient = grad(lambda x: ((2 * x - 2) ** 2 + gamma * x**2).sum())(point)
    assert abs(float(gradient)) < 1e-12


def bounds(theta, x):
    """μ, λ_inf and λ_sup of one sigmoid unit with the labels 0, as functions of θ."""

    def loss(t):
        b, w, c, v = t
        logits = c + v * torch.sigmoid(w * x + b)
        return torch.nn.functional.softplus(logits).sum()

    h = hessian(loss)(theta)
    mean = h.trace() / 4
    spread = (3 * (h.square().sum() / 4 - mean**2)).sqrt()
    return torch.stack([mean, mean - spread, mean + spread])


@entry(
    "hsr.section5e",
    "(−0.447, 1.737, 2.01, 2.772), x = 0.361, 0.295, q = 0, 0, step 0.01",
    "λ_inf -0.6537 → -0.6541",
)
def lower_bound_falls():
    before, after = stepped(real(-0.447, 1.737, 2.01, 2.772), real(0.361, 0.295))
    close(before[1], -0.6537, 4)
    close(after[1], -0.6541, 4)


@entry("hsr.section4a", "(−0.7, −1.4, 1.2, 5.3), x = 0.6, −2.5", "step 0.01", "μ -0.2624 → -0.2458")
def mean_rises():
    before, after = stepped(real(-0.7, -1.4, 1.2, 5.3), real(0.6, -2.5))
    close(before[0], -0.262)
    close(after[0], -0.246)


def stepped(theta, x):
    """The bounds before and after a step of 0.01 against ∇λ_sup."""
    step = 0.01 * grad(lambda t: bounds(t, x)[2])(theta)
    return bounds(theta, x), bounds(theta - step, x)


@entry(
    "ws.theorem7",
    "linear, x = ±1, q = 1, 0, hidden weights 1, Ṽ = (K, −K, log K)",
    "max|δ| = 0.0099, 1e-08; λ_sup = 550, 5.6e+08 at K = 1e2, 1e8",
)
def sharp_and_fitted():
    largest = []
    for k in (1e2, 1e4, 1e8):

        def logits(t):
            hidden = real(1, -1)[:, None] * t[3:6] + t[:3]
            return hidden @ t[7:] + t[6]

        def loss(t):
            return torch.nn.functional.softplus(real(-1, 1) * logits(t)).sum()

        theta = real(0, 0, 0, 1, 1, 1, 0, k, -k, math.log(k))
        errors = torch.sigmoid(logits(theta)) - real(1, 0)
        assert errors.abs().max() < 1.001 / k
        largest.append(float(torch.linalg.eigvalsh(hessian(loss)(theta))[-1]))
    assert largest[0] > 300 and largest[1] > 50 * largest[0] and largest[2] > 5000 * largest[1]


@entry(
    "scalar.eq64",
    "m = 1, w = 2, v = 1, x = (1, −1), y = (6, 0): λ = 5/2, printed z = (1, −11/2)",
    "the eigenvector is (2, −1)",
)
def vectors_of_the_cell():
    x, y = real(1, -1), real(6, 0)
    v, w, value, mean = 1, 2, 5 / 2, 1 * (2 - 6)
    h = hessian(lambda t: ((t[1] * torch.relu(t[0] * x) - y) ** 2).sum() / 4)(real(v, w))
    printed = real(value * w + mean * v, mean * w + value * v)
    assert printed.tolist() == [1, -11 / 2]
    assert (h @ printed - value * printed).abs().max() > 1
    assert (h @ real(2, -1) - value * real(2, -1)).abs().max() < 1e-12


@entry("scalar.eq12", "w=(1, 2), v=(1, -1), x=(1), y=(1): [1, 2, -1, 2, ...], [1, 2, -1, -1, ...]")
def transposed_block():
    block = torch.outer(real(1, -1), real(1, 2))
    assert not torch.equal(block, block.T)


@entry("attention.h.8", "56R^8+48R^5+6R^2", "548\\,nd\\,R^{10}", "n d takes the place of n³d³")
def smaller_constants():
    found = rows("attention_hessian", "bounds", status="ok")
    n, d, r = found.tokens, found.width, found.radius
    shorter = {"H.9": 56 * r**8 + 48 * r**5 + 6 * r**2, "H.10": 548 * n * d * r**10}
    for bound, own in shorter.items():
        assert (found.largest <= own)[found.bound == bound].all()
        assert (found.largest > 0.001 * own)[found.bound == bound].any()
    for bound, printed in {"H.9": 2688 * r**8, "H.10": 9193 * (n * d) ** 3 * r**10}.items():
        assert (found.constant / printed)[found.bound == bound].between(1 - 1e-9, 1 + 1e-9).all()


@entry("dag.eq2", "v = x, u = v, out = u², loss = out, at x = 1: block (v, u): [0], [2]")
def ancestor_pair():
    def loss(e):
        return (1 + e[0] + e[1]) ** 2

    close(hessian(loss)(real(0, 0))[0, 1], 2, 12)
    # the loss is linear in out, and u is a child of v without curvature of its own
    close(hessian(lambda out: out.sum())(real(1))[0, 0], 0, 12)


@entry("dag.eq5", "h = a x, out = b h, loss = out, at x = a = b = 1: block (h, out): [0], [1]")
def adjacent_layers():
    close(hessian(lambda t: t[1] * t[0])(real(3, 2))[0, 1], 1, 12)


@entry("dag.thm33", "v = x, u = v, out = u, loss = out²/2, at x = 1: H[v,v]: 2, 1")
def repeated_descendants():
    def block(nodes):  # e at the node, nodes before out
        return float(hessian(lambda e: (1 + e.sum()) ** 2 / 2)(real(*[0] * nodes))[0, 0])

    # one pair of paths from v to each common descendant, u and out, with H[c,c] = 1 at both
    assert (block(1), block(1) + block(1)) == (1, 2)


@entry("dag.prop75.uniform", "L = 8, skips (0, 4), (4, 8), or (0, 5), (2, 8)", "4, 3")
def placements_of_skips():
    def farthest(*skips):
        near = torch.full((9, 9), 99)
        for v, w in [*zip(range(8), range(1, 9), strict=True), *skips]:
            near[v, w] = near[w, v] = 1
        near.fill_diagonal_(0)
        for k in range(9):
            near = torch.minimum(near, near[:, k : k + 1] + near[k : k + 1])
        return int(near.max())

    assert (farthest((0, 4), (4, 8)), farthest((0, 5), (2, 8))) == (4, 3)


@entry("dag.necessary", "J = diag(2, 1/2), 20 layers, two classes", "+0.69, 9.5e-07")
def decay_with_a_positive_exponent():
    jacobian, bend = torch.diag(real(2, 1 / 2)), torch.diag(real(0, 1))
    for depth in (4, 9):
        product = torch.linalg.matrix_power(jacobian, depth)
        assert float(torch.linalg.matrix_norm(product, 2)) == 2**depth
        assert float((bend @ product).norm()) == 2**-depth


@entry("dag.thm34b", "f(h) = h + h/2, 20 times", "C (1 + rho)^20 = 3325 C")
def skips_of_one_layer():
    close(1.5**20, 3325, 0)


@entry("dag.lambda1", "ln(5)/8 = 0.2012, with the 5 of Section 5.1; printed −0.02")
def exponent_of_the_chain():
    where = {"arch": "plain", "depth": 8, "checkpoint": "init", "images": 0}
    means = rows("exp1_resonance", "networks", **where)[["lyapunov_log_norm", "lyapunov_1"]].mean()
    assert 4.5 < math.exp(8 * means.lyapunov_log_norm) < 5.5
    close(math.log(5) / 8, 0.20, 2)
    close(means.lyapunov_1, -0.02, 2)


@entry("dag.thm34b", "Untrained, Exp. 1 is inside (b′): αρ < 1")
def default_weights():
    generator = torch.Generator().manual_seed(42)
    for depth in (8, 10, 12):
        for _ in range(depth):
            weight = (2 * torch.rand(64, 64, generator=generator) - 1) / 8  # PyTorch's default
            # D is diagonal with entries of 0 and 1
            assert float(torch.linalg.matrix_norm(weight, 2)) < depth**0.5


@entry("hsr.section5c", "then each of them three times", "8.332, 8.332")
def repeated_samples():
    def ratio(x):
        mean, _, upper = jacrev(lambda t: bounds(t, x))(real(-0.7, -1.4, 1.2, 5.3))
        return float((upper - mean).norm() / mean.norm())

    x = real(0.6, -2.5, 0.3)
    assert ratio(x.repeat(3)) == pytest.approx(ratio(x))


@entry("hsr.sam", "at the printed radius 0.1 the perturbation of A-SAM is 4 to 9 times as long")
def length_of_the_perturbation():
    median, low, high = map(float, longer_steps())
    assert 3.5 < low < 4.5 < median < 8.5 < high < 9.5


@entry("hsr.saddles", "five data sets, flat and sharp starts", "−0.39 to 0.11")
def bounds_next_to_saddles():
    low, high, groups = bounds_and_saddles()
    assert (float(low), float(high), groups) == (-0.39, 0.11, 10)


@entry(
    "hsr.proposition1",
    "two equal tanh units (b = 0.3, W = 0.7), Ṽ = (K, −K), c = log K, x = (1/2, −0.3), q = (1, 0)",
    "share 5.15e+06, 5.48e+24 at K = 1e2, 1e8",
)
def share_of_a_fitted_sample():
    def trace_of_square(t, x, q):
        def loss(s):
            hidden = torch.tanh(s[:2] * x + s[2:4])
            return torch.nn.functional.softplus((1 - 2 * q) * (s[4:6] @ hidden + s[6]))

        return hessian(loss)(t).square().sum()

    shares = []
    for k in (1e2, 1e3, 1e4):
        theta = real(0.7, 0.7, 0.3, 0.3, k, -k, math.log(k))
        shares.append(float(grad(trace_of_square)(theta, 0.5, 1.0).norm()))
        assert math.exp(-float(theta[6])) < 2 / k
    assert shares[1] > 5 * shares[0] and shares[2] > 5 * shares[1]


@entry("scalar.thm3", "x = 1, y = 1", "printed z = (1, −2, 1, −2) has Hz = −2z")
def sign_of_the_bulk():
    w, v, z = real(1, 2), real(1, -1), real(1, -2, 1, -2)
    h = hessian(lambda t: (t[:2] @ t[2:] - 1) ** 2 / 2)(torch.cat([w, v]))
    assert any(abs(float(e) - 2) < 1e-12 for e in torch.linalg.eigvalsh(h))
    assert (h @ z + 2 * z).abs().max() < 1e-12


@entry("scalar.phases", "x = 1, y = −1 (θ* = −1), w = 1/2, v = −1", "so λ_2 = 1/4")
def phase_with_a_negative_slope():
    h = hessian(lambda t: (t[0] * t[1] + 1) ** 2 / 2)(real(1 / 2, -1))
    close(torch.linalg.eigvalsh(h)[0], 1 / 4, 12)


@entry("scalar.cases", "a = (1, 1), b = (1, 0), c = (2, 1), d = (0, 1)", "of none")
def pairs_of_vectors():
    a, b, c, d = real(1, 1), real(1, 0), real(2, 1), real(0, 1)
    assert a @ b == c @ d
    for one, other in ((a, c), (a, d)):
        assert abs(float(one[0] * other[1] - one[1] * other[0])) > 0  # no case: not parallel


@entry("ws.zeta1", "(it is 1.12890...)", "1.2744\\ldots")
def slope_of_gelu():
    x = real(math.sqrt(2))
    slope = float(grad(lambda t: torch.nn.functional.gelu(t).sum())(x)[0])
    close(slope, 1.12890, 5)
    assert math.floor(1e4 * slope**2) == 12744


@entry(
    "ws.alignment",
    "two unit inputs, same, orthogonal, opposite: ‖J + XᵀX‖²",
    "16, 10, 8",
    "−2 < x_iᵀx_j < 0 lowers",
)
def opposite_inputs():
    for angle, expected in ((0, 16), (math.pi / 2, 10), (math.pi, 8)):
        inner = math.cos(angle)
        close((real(1 + 1, 1 + inner, 1 + inner, 1 + 1)).square().sum(), expected, 12)
    assert (1 + -2.1) ** 2 > 1 > (1 + -1.9) ** 2  # against orthogonal inputs


@cache
def said(name):
    """Texts and worked check of an entry."""
    texts = [str(text) for text in root(name).values()]
    for listed in json.loads((PUBLISHED / "paper_audit" / "errata.json").read_text("utf-8")):
        if listed["id"] == name:
            for check in listed["worked_checks"]:
                values = [check[side] for side in ("printed", "corrected", "reference")]
                texts.append(f"{check['instance']}: {', '.join(values)}")
    return "\n".join(texts)


@pytest.mark.parametrize(
    "name, words, function", INSTANCES, ids=lambda c: getattr(c, "__name__", "")
)
def test_instances_of_the_errata(name, words, function):
    for text in words:
        assert text in said(name), name
    function()


P = 1 / (1 + math.exp(-1 / 2))
"""Softmax probability of the first of the logits (1/2, 0)."""
S = 1 / (1 + math.exp(-1))
BY_HAND = {
    "dag.prop102.source": f"{2**0.5 / 4:.4g}, {2**0.5 / 2:.4g}, 0; ",
    "dag.cor17.coupling": f"{1e4 + 1e4:.0f}",
    "dag.example37": f"0; {2**1.5 * S * (1 - S) ** 2:.4g} at ",
    "dag.remark60": f"{1 + 1 / (2 - P) ** 2:.4g}",
    "dag.remark53": f"{(1 / 9) / (3 / 9):.3g}",
    "attention.h.3.proof": "0.5",
}
"""What two lines by hand give for the reference of a worked check."""


@pytest.mark.parametrize("name", BY_HAND)
def test_worked_checks_by_hand(name):
    (clause,) = (c for c in clauses(name.partition(".")[0]) if c.id == name)
    assert clause.check().witness["reference"].startswith(BY_HAND[name])


def root(name):
    key = name.partition(".")[0]
    (found,) = (e for e in errata({"ws": "ws_bound"}.get(key, key))["erratum"] if e["id"] == name)
    return found


def text(name, key):
    return root(name)[key]


def test_norms_of_the_mean_and_means_of_norms_of_exp_1():
    where = {"arch": "plain", "depth": 8, "checkpoint": "init", "images": 0, "distance": 0}
    means = rows("exp1_resonance", "distances", **where)[["R", "R_examples"]].mean()
    shown = f"d = 0: {means.R:.3f}, as a mean of norms {means.R_examples:.3f}"
    assert shown in text("dag.remark38", "consequence")


def test_steps_within_a_branch_fall_for_every_seed():
    assert "they fall for every single seed, too" in text("dag.steps", "view")
    own = rows("exp4_diamond", "distances", images=0)
    own = own[own.relation.isin(("a", "b"))].sort_values("distance")
    groups = own.groupby(["merge", "activation", "branch_depth", "seed", "checkpoint", "relation"])
    steps = groups.R.diff().dropna()
    assert len(steps) == 5 * 72 and steps.max() < 0


@pytest.mark.parametrize("k", (1, 2, 3))
def test_limits_of_the_upper_bound_with_scaled_branches(k):
    """Theorem 34(b), α = c/L: the limits that the authors' view of its erratum names."""
    view = text("dag.thm34b", "view")
    assert "it tends to C (k >= 2) or C e^{cρ} (k = 1) with branches of norm (αρ)^k" in view
    assert "to C e^{cρ^k/k} with branches of norm αρ^k" in view
    c, rho, depth = 2.0, 0.5, 10**7
    alpha = c / depth
    limit = math.exp(c * rho) if k == 1 else 1
    assert (1 + (alpha * rho) ** k) ** (depth / k) == pytest.approx(limit, rel=1e-6)
    assert (1 + alpha * rho**k) ** (depth / k) == pytest.approx(math.exp(c * rho**k / k), rel=1e-6)
