"""What accounts for each number of the summaries of reports."""

import numpy as np

import tests.experiments.page_values as v
from tests.experiments.page_accounts import plain, reached
from tests.experiments.page_numbers import Says
from tests.experiments.stored import chosen, rows, table


def exact(name, **keys):
    """(exact matches, tests, reproduced) of an experiment."""
    found = v.of_verdicts(name, **keys)
    return found[0], sum(found), found[1]


def described(name):
    """Of the numbers with He initialisation."""
    found = v.of_verdicts(name, initial="he")
    return Says("as the text says, {} of {} numbers are not reproduced", (found[2], sum(found)))


def exp1_resonance():
    matched, tests, near = exact("exp1_resonance", initial="published")
    he = chosen(table("exp1_resonance", "networks", initial="he"), arch="residual", depth=8)
    where = {"depth": 12, "arch": "plain", "checkpoint": "init"}
    rho = {"metric": "rho_max", "depth": 8, "arch": "residual", "initial": "published"}
    far = v.curve("exp1_resonance", "C", **where).iloc[:, -1]
    without = v.fall("exp1_resonance", depth=12, arch="plain", model={"norm": False})
    assert 3 <= without <= 4
    return [
        Says(
            "decays exponentially (R² > {})",
            (v.said("exp1_resonance", "plain R² of log R", "low"),),
        ),
        Says(
            "{} of {} published numbers match every printed digit on the published networks, "
            "and {} more are reproduced",
            (matched, tests, near),
        ),
        Says(
            "have ρ_max {} at L = 8 (published: {})",
            (
                float(chosen(he, images=0, checkpoint="init").rho.mean()),
                v.paper("exp1_resonance", checkpoint="init", **rho),
            ),
        ),
        Says("R decays at least {} orders", (float(v.slower_decay().min()),)),
        Says(
            "L = 12 is {} (published: {})",
            (
                float(far.mean()),
                v.said("exp1_resonance", "plain C at the largest distance"),
            ),
        ),
        Says("R falls by {} orders at", (v.fall("exp1_resonance", **where),)),
        Says("{} statements do not hold", (v.failing("exp1_resonance"),)),
        *plain("not by 3 to 4 as without LayerNorm"),
    ]


def exp1_deep():
    end = v.curve("exp1_deep", depth=32, arch="plain", checkpoint="init").iloc[:, -1]
    return [
        described("exp1_deep"),
        Says("L = 32 are of order {}, not 10^−14", (10.0 ** round(np.log10(end).mean()),)),
        Says("has on average {} of the self", (v.near_output(),)),
        *plain("estimates from 100 probes"),
    ]


def exp1b_spectral_norm():
    matched, tests, _ = exact("exp1b_spectral_norm", initial="published")
    start = {"arch": "plain_sn", "checkpoint": "init"}
    exponent = v.mean("exp1b_spectral_norm", "networks", "lyapunov_1", depth=8, images=0, **start)
    return [
        described("exp1b_spectral_norm"),
        Says("and {} of {} published numbers match", (matched, tests)),
        Says(
            "is {} at L = 8 (published: about {})",
            (exponent, v.said("exp1b_spectral_norm", "exponent at init")),
        ),
        Says(
            "falls by {} orders of magnitude at L = 16 (published: {})",
            (
                v.fall("exp1b_spectral_norm", depth=16, **start),
                v.said("exp1b_spectral_norm", "decay in orders"),
            ),
        ),
    ]


def exp2_bottleneck():
    as_configured = v.of_verdicts("exp2_bottleneck", base_width=512)
    start, end = (
        v.of_verdicts("exp2_bottleneck", base_width=256, checkpoint=at) for at in ("init", "final")
    )
    ranks = rows("exp2_bottleneck", "ranks", block="mean", part="gauss_newton", d_u=4)
    return [
        Says("512, {} of {} numbers are reproduced", (as_configured[1], sum(as_configured))),
        Says(
            "With 256, as the text has it, {} of {} are reproduced before training and {} of {} "
            "after it",
            (start[1], sum(start), end[1], sum(end)),
        ),
        Says("whose rank reaches {} at d_u = 4", (int(ranks["rank"].max()),)),
        *plain("With five seeds"),
    ]


def exp3_gn_gap():
    matched, tests, near = exact("exp3_gn_gap")
    return [
        Says(
            "of {} published numbers that count, {} match every printed digit and {} more",
            (tests, matched, near),
        ),
        Says(
            "over five activations has R² = {} (published: {})",
            (v.fit_of_the_gap(), v.said("exp3_gn_gap", "linear fit of the gap")),
        ),
        Says("the exponent is {}, not 1", (v.power_of_the_gap(),)),
        Says("p < {} by an", (v.said("exp3_gn_gap", "p of the ranking", "high"),)),
        Says("the smallest two-sided p of the rank correlation is {}", (v.p_of_the_ranking(),)),
        Says("{} statements do not hold", (v.failing("exp3_gn_gap"),)),
        *plain("Five activations cannot"),
    ]


def exp3b_layernorm():
    matched, tests, near = exact("exp3b_layernorm")
    end = {"checkpoint": "final"}
    gaps = [
        float(v.gap("exp3b_layernorm", activation=a, **end).mean()) for a in ("relu", "leaky_relu")
    ]
    accuracy = rows("exp3b_layernorm", "networks", images=0, **end)
    accuracy = 100 * accuracy.groupby("activation").test_accuracy.mean().min()
    return [
        Says(
            "it is {} for ReLU and {} for leaky ReLU (published: about {})",
            (*gaps, v.said("exp3b_layernorm", "gap of piecewise linear networks")),
        ),
        Says(
            "{} of {} published numbers match every printed digit, and {} more are",
            (matched, tests, near),
        ),
        Says("reaches at least {} % test", (v.fixed(accuracy, 1),)),
    ]


def exp3_stochastic():
    return [
        Says("training as m^{} with", (v.fixed(v.rate_of_the_error("init"), 2),)),
        Says("(expected: m^{}; mean", (v.said("exp3_stochastic", "rate of the error"),)),
        Says("after training by {} % on average", (v.discrepancy("final"),)),
        Says('"at most {} %" (Section', (v.said("exp3_stochastic", "below 1 %", "high"),)),
        *plain("With the 100 probes", "with the 30 that the text", "statement of 5 to 10 %"),
    ]


def exp4_diamond():
    matched, *_ = exact("exp4_diamond")
    curved = rows("exp4_diamond", "merge", merge="cat", activation="silu", images=0)
    curved = curved.groupby(["checkpoint", "branch_depth"]).gap.mean()
    steps = v.span(v.steps_without_norm())
    low, high = v.said_range("exp4_diamond", "H4.2a ratio")
    assert abs(steps[0] - float(low)) < 0.02 and abs(steps[1] - float(high)) < 0.02
    ratios = v.across()
    falling = ratios[ratios < 1]
    assert {key[1:] for key in ratios.index[ratios >= 1]} == {("cat", "silu")}
    return [
        Says("All {} published numbers that count", (matched,)),
        Says(
            "({} to {} before training, {} to {} after it, for concatenation with SiLU)",
            v.span(curved["init"]) + v.span(curved["final"]),
        ),
        Says(
            "decays in {} of {} configurations, but more slowly than printed (R(4)/R(2), a ratio "
            "of means, is {} to {}, where the paper has {} to {})",
            (
                *(len(falling), len(ratios), *v.span(falling)),
                *(low, high),
            ),
        ),
        Says("it does not ({} to {})", v.span(ratios[ratios >= 1])),
        *plain("at d + 1 in place of d + 2"),
    ]


def exp5_attention():
    matched, *_ = exact("exp5_attention")
    sizes = rows("exp5_attention", "networks", network="flat_mlp").parameters
    assert set(sizes) == {(128 + 1) * 6 + 2 * (6 + 1) * 6 + 6 + 1}  # three layers, and the head
    return [
        Says("All {} published numbers match", (matched,)),
        Says(
            "stays high: {}, {} and {} before, halfway and after",
            tuple(v.attention_gap("recovered", at) for at in ("init", "mid", "final")),
        ),
        Says("the gap falls to {}:", (v.attention_gap("described", "final"),)),
        *plain("has three layers of width 6"),
    ]


def exp6_resnet18():
    start = v.of_verdicts("exp6_resnet18", checkpoint="init")
    trained = [v.of_verdicts("exp6_resnet18", checkpoint=at) for at in ("mid", "final")]
    _, near, wrong, unclear = map(sum, zip(*trained, strict=True))
    constructed = v.tests("exp6_resnet18", verdict="true by construction")
    first, second = v.printed_decays()
    ours = v.decays("plain_resnet18")
    ends = [v.fixed(d, 1) for arch in ("plain_resnet18", "resnet18") for d in ends_of(arch)]
    coupling = [
        v.fixed(v.resnet("C", activation, arch, 4, "final"), 2)
        for activation in ("relu", "silu")
        for arch in v.ARCHS
    ]
    return [
        Says("reproduced: {} of {} published numbers;", (start[1], sum(start))),
        Says(
            "R(0)/R(4) is {} for the plain ReLU network (published: {}) and {} for the plain SiLU "
            "network (published: {})",
            (ours[0], first, ours[1], second),
        ),
        Says(
            "the ratios are {} and {}.",
            tuple(v.fixed(d, 1) for d in v.decays("plain_resnet18", **v.IMAGES)),
        ),
        Says(
            "Of {} tests of numbers of trained networks, {} are reproduced, {} inconclusive and "
            f"{wrong or 'none'} contradicted; {{}} more follow",
            (sum(map(sum, trained)), near, unclear, constructed),
        ),
        Says(
            "R(0)/R(4) is {} in plain and {} in residual networks (ReLU); {} in plain and {} in "
            "residual networks (SiLU)",
            (ends[0], ends[2], ends[1], ends[3]),
        ),
        Says(
            "C at distance 4 is {} with and {} without skip connections (ReLU); {} with and {} "
            "without skip connections (SiLU)",
            tuple(coupling),
        ),
    ]


def ends_of(arch):
    return v.decays(arch, **v.TRAINED)


def ws_bound():
    draws = len(v.gains("stopped", 10))
    return [Says("*draws*, {} further draws", (draws,))]


def hsr_gradient():
    agreement = table("hsr_gradient", "difference_norms")
    agreement = agreement.assign(ratio=agreement.difference_norm / agreement.gradient_norm)
    worst = agreement.groupby("seed").ratio.max().median()
    return [
        Says("finite differences to {} relative", (float(worst),)),
        Says("It is {} times faster", (v.fixed(v.gain(), 0),)),
    ]


def hsr_regularization():
    points = table("hsr_regularization", "critical_points")
    wide, radius = (v.setting_of_hsr(key) for key in ("wide_radius", "radius"))
    return [
        Says("The bound is {} times λ₁", (v.median_of_data_sets(v.tightness, points),)),
        Says("A-SAM at {} times the printed", (round(wide / radius),)),
        *plain("second half"),
    ]


def attention_hessian():
    ratio = rows("attention_hessian", "bounds", bound="H.10", status="ok").ratio.max()
    convexity = table("attention_hessian", "convexity")
    return [
        Says("by a factor of {} at least", (float(1 / ratio),)),
        Says(
            "asks for is {} to {} times what",
            v.span(convexity.admissible_gamma / convexity.needed_gamma),
        ),
    ]


def attention_newton():
    theorem = table("attention_newton", "theorem")
    orders = table("attention_newton", "orders")
    blind = rows("attention_newton", "recovery", origin="blind")
    assert reached(orders)[0] > 0
    return [
        Says("of the minimiser from X is {} (", (float(theorem.recovery_error.max()),)),
        Says("has order {} (", (float(orders.order.median()),)),
        Says(
            "of {} exact solutions that blind starts reach, {} are not",
            (int(blind.exact.sum()), int(blind.wrong.sum())),
        ),
        *plain("recovers at least half of the problems"),
    ]


def scalar_spectrum():
    apart = v.statements("scalar_spectrum", verdict="not comparable")
    widest = max(v.setting("experiment/scalar_spectrum", "experiment.width"))
    return [
        Says(
            "agree, to {} of the largest",
            (float(table("scalar_spectrum", "pairs").dense_error.max()),),
        ),
        Says("{} statements are not", (apart,)),
        Says("networks with {} neurons", (widest,)),
        Says("sharpness · rate / 2 is at most 1 (largest: {})", (v.sharpest_settled(),)),
        *plain("order if θ* > 0;"),
    ]


def phi_block_diagonal():
    neurons = {"partition": "neuron", "classes": 100}
    own = {"partition": "output neuron", "classes": 100}
    return [
        Says("is at least {} in every network", (float(v.phi("layer").min()),)),
        Says("the least Φ is {}.", (float(v.phi("layer", last=True).min()),)),
        Says(
            "with {} classes: Φ reaches {} before and {} after",
            (100, *(float(v.phi(last=end, **neurons).max()) for end in (False, True))),
        ),
        Says(
            "Φ is at most {} before training, and up to {} at the end",
            tuple(float(v.phi(last=end, **own).max()) for end in (False, True)),
        ),
        *plain("Φ = 1 − Σ_v ‖H_vv‖_F² / ‖H‖_F²"),
    ]
