"""What accounts for each number of the pages: sentences with their values, and phrases that state
no result (definitions, settings, what a paper says of itself)."""

import math

import numpy as np
from scipy.stats import mannwhitneyu, wilcoxon

import tests.experiments.page_values as v
from runner.contract import Statement
from tests.experiments.page_numbers import Says
from tests.experiments.stored import SEEDS, manifest, rows, table


def plain(*phrases):
    return [Says(phrase) for phrase in phrases]


def table_of_ways(*names):
    return [
        Says(f"| {way} | {{}} | {{}} | {{}} | {{}} |", v.of_verdicts(*names, way=way))
        for way in v.WAYS
        if v.tests(*names, way=way)
    ]


def tested(*names):
    exact, *_ = v.of_verdicts(*names)
    return v.tests(*names), v.printed(*names), v.agreeing(*names), exact, v.one_digit(*names)


def cost(*names):
    return Says("*Cost:* {} processor hours", (v.hours(*names),))


SEED_RANGE = Says("({} to {})", (SEEDS[0], SEEDS[-1]))


def readme():
    return [
        Says("most searches run to infinity. | {} / {} / {} |", v.formulas("WS bound")),
        Says("from sharp starting points. | {} / {} / {} |", v.formulas("HSR")),
        Says(
            "In {} tests of {} numbers {} agree, {} in every printed digit ({} one-digit); {} are "
            "inconclusive. Several explanations are wrong. | {} / {} / {} |",
            (*tested(*v.DAG), v.of_verdicts(*v.DAG)[-1], *v.formulas("DAG")),
        ),
        Says("are right to rounding error. | {} / {} / {} |", v.formulas("Scalar spectrum")),
        Says("the input is not recovered. | {} / {} / {} |", v.formulas("Attention")),
        Says("is false; {} clauses, {} errors", (v.clauses(verdict="refuted"), v.major_errors())),
        *table_of_ways(*v.DAG),
        Says("Python {} or newer", (v.oldest_python(),)),
        Says("the 90 % interval of the difference is inside, or outside, ±{} %", (v.margin(),)),
        *plain(
            *("experiment of five papers", "and the five papers", "`0`, `2`, `4`: outputs"),
            *("H between two layers", "its criterion at 95 %"),
        ),
    ]


def overview():
    waiting = v.tests("exp2_bottleneck", verdict="inconclusive", base_width=256, checkpoint="final")
    missing, trainings = v.trained_as_described()
    not_run = v.tests(*v.EXP1, verdict="not run")
    gaps = []
    if missing:
        words = "{} of {} trainings of Experiment 2 as described ({} numbers are inconclusive"
        gaps.append(Says(words, (missing, trainings, waiting)))
    if not_run:
        gaps.append(Says("{} numbers of Experiment 1 as described", (not_run,)))
    unclear = {name: v.tests(name, verdict="inconclusive") for name in v.PAPERS}
    six, two = unclear["exp6_resnet18"], unclear["exp2_bottleneck"]
    exact, *others = v.of_verdicts()
    apart = [["hsr_gradient", "hsr_regularization"], ["ws_bound"], ["scalar_spectrum"], v.DAG]
    blocks = v.phi("layer")
    return [
        Says(
            "right; {} statements are refuted and {} distinct errors in formulas or conclusions "
            "are major** ({} of {} clauses",
            (
                v.statements(*v.PAPERS, verdict="refuted"),
                *(v.major_errors(), v.clauses(verdict="refuted"), v.clauses()),
            ),
        ),
        Says(
            "In {} tests of {} published numbers, {} match in every printed digit ({} have only "
            "one), {} are reproduced within a margin, {} are not, and {} are inconclusive",
            (v.tests(), v.printed(), exact, v.one_digit(), *others),
        ),
        *table_of_ways(),
        Says(
            "Not reproduced: {} numbers of Experiment 5 as described; by the recovered protocol "
            "they match; {} of Experiment 1",
            (v.of_verdicts("exp5_attention")[2], v.of_verdicts(*v.EXP1)[2]),
        ),
        Says(
            "Inconclusive: {} of Experiment 6; {} of Experiment 2; {} elsewhere",
            (six, two, sum(unclear.values()) - six - two),
        ),
        Says("of ours would not decide {}:", (v.beyond_seeds(),)),
        Says("decays by factors of {} and {} (DAG paper)", v.printed_decays()),
        Says("here by {} and {} (ratios of means)", v.decays("plain_resnet18")),
        Says(
            "the factors are {} (ReLU) and {} (SiLU), still larger than with skips ({} and {})",
            v.decays("plain_resnet18", **v.IMAGES) + v.decays("resnet18", **v.IMAGES),
        ),
        Says(
            "Gauss–Newton gap falls from {} to {}, and most",
            (v.attention_gap("described", "init"), v.attention_gap("described", "final")),
        ),
        Says(
            "{} % to {} % of ‖H‖² lies between layers of {} networks (medians of five seeds); "
            "after training {} % to {} %; of the Gauss–Newton matrix at initialisation {} % to "
            "{} %",
            (
                *(*v.span(100 * blocks), len(blocks), *v.span(100 * v.phi("layer", last=True))),
                *v.span(100 * v.phi("layer", of="gauss_newton")),
            ),
        ),
        *gaps,
        Says(
            "| [report] | {} / {} / {}, others calibrated | {} / {} / {} | {} |",
            (*v.reproduced("ws_bound"), *v.judged("ws_bound"), v.hours("ws_bound")),
        ),
        Says("| calibrated only | {} / {} / {} | {} |", (*v.judged(*v.HSR), v.hours(*v.HSR))),
        Says(
            "| DAG | [report] | {} / {} / {} | {} / {} / {} | {} |",
            (*v.reproduced(*v.DAG), *v.judged(*v.DAG), v.hours(*v.DAG)),
        ),
        Says(
            "| true by construction | {} / {} / {} | {} |",
            (*v.judged("scalar_spectrum"), v.hours("scalar_spectrum")),
        ),
        Says(
            "| none printed | {} / {} / {} | {} |",
            (*v.judged(*v.ATTENTION), v.hours(*v.ATTENTION)),
        ),
        Says(
            "Not comparable are {} further statements of HSR, most of them because the learning "
            "rate or the normalisation of A-SAM is not printed, {} of WS bound, {} of scalar "
            "spectrum and {} of DAG",
            tuple(v.statements(*names, verdict="not comparable") for names in apart),
        ),
        *plain(
            *("# What five papers", "main closed forms of three papers"),
            *("gradient for five activations", "B.17 lacks a factor 2", "with two kinds of"),
            "+ 0.1 ξ, which a search",
        ),
    ]


def attention():
    theorem, orders = table("attention_newton", "theorem"), table("attention_newton", "orders")
    solutions = table("attention_newton", "solutions")
    blind = rows("attention_newton", "recovery", origin="blind")
    found = (blind.recovered > 0).groupby(blind["size"]).sum()
    ten = blind.groupby("size").size().iloc[0]
    limit = v.setting("experiment/attention_newton", "experiment.recovered")
    near = v.setting("experiment/attention_newton", "experiment.order_distance")
    right, minor, major = v.formulas("Attention")
    ratio = rows("attention_hessian", "bounds", bound="H.10", status="ok").ratio.max()
    error = table("attention_hessian", "accuracy").hessian_error.max()
    smallest = (theorem.convexity / theorem.admissible_gamma / 2).min()
    return [
        Says("{} of {} clauses, most", (major, v.clauses("Attention"))),
        Says("| right | {} right, {} minor errors, {} major", (right, minor, major)),
        Says("the criterion {} for", (limit,)),
        cost(*v.ATTENTION),
        SEED_RANGE,
        Says("autodiff, relative error | exact | {} |", (float(error),)),
        Says("that no search violates | {} | {} |", (v.bounds(), v.bounds(holding=True))),
        Says("| no value is printed | {} |", (float(1 / ratio),)),
        Says("| positive, no value is printed | {} |", (float(smallest),)),
        Says(
            '(criterion: ≤ {}) | "recover the initial data", no distance is printed | {} |',
            (limit, float(theorem.recovery_error.max())),
        ),
        Says("needs γ between {} and {} on our", v.span(theorem.admissible_gamma)),
        Says("X = 0 (at most {} of the norm", (float(theorem.norm_share.max()),)),
        Says(
            "finds {} distinct solutions of the equations (to 10⁻¹⁰ of ‖B‖); {} of them",
            (int(solutions.distinct.sum()), int(solutions.wrong.sum())),
        ),
        Says(
            "find the data in {}, {} and {} of {} problems with n × d = 2 × 2, 4 × 3 and 8 × 4",
            (*(int(found[size]) for size in ("2x2", "4x3", "8x4")), int(ten)),
        ),
        Says(
            "from {} of {} starts at {} ‖X‖ from them, with order {} (",
            (*reached(orders), near, float(orders.order.median())),
        ),
        Says("the proofs of {} lemmas", (v.lemmas_with_another_step(),)),
        *plain(
            *('Weights", 2023 (appendix)', "‖D(X)⁻¹ exp", "O(n d R⁸) the", "For claim 4"),
            *("Five seeds", "γ = 42 n d R⁸ (smallest", "over 2γ) |", "A value of 1 means"),
            *("far below 1, only", "V Bᵀ1 / (nγ)", "loses a factor 2."),
        ),
    ]


def reached(orders):
    return int(orders.converged.sum()), int(orders.starts.sum())


def dag():
    exp1 = {"depth": 12, "arch": "plain", "checkpoint": "init"}
    untrained = {**exp1, "depth": 8, "images": 0}
    far = rows("exp2_bottleneck", "far", phase="init", images=0, depth=6, d_u=32, checkpoint="init")
    curved = rows("exp4_diamond", "merge", merge="cat", activation="silu", images=0)
    curved = curved[(curved.branch_depth == 1) & (curved.checkpoint == "init")]
    gelu = v.gap("exp3_gn_gap", activation="gelu", checkpoint="init").mean()
    three = {"activation": "gelu", "checkpoint": "init", "metric": "gap_global"}
    two = {"depth": 6, "d_u": 32, "base_width": 512, "checkpoint": "init", "metric": "D_far"}
    five = {"network": "attention", "protocol": "recovered", "checkpoint": "mid", "metric": "gap"}
    four = {"branch_depth": 1, "merge": "cat", "activation": "silu", "metric": "gap_merge"}
    one = {"metric": "rho_max", "depth": 8, "arch": "plain", "checkpoint": "init"}
    middle = [v.paper("exp5_attention", column, **five) for column in ("mean", "std")]
    recovered = [v.attention_gap("recovered", at) for at in ("init", "mid", "final")]
    total, numbers, agree, exact, digit = tested(*v.DAG)
    _, _, other, unclear = v.of_verdicts(*v.DAG)
    rebuilt = v.of_verdicts(*v.REBUILT, way=v.WAYS[1])
    return [
        Says(
            "**In {} tests of {} published numbers {} agree, {} of them in every printed digit "
            "({} have only one), {} are inconclusive. From the authors' configuration or the "
            "recovered protocol none fails; read from the text alone {} do",
            (total, numbers, agree, exact, digit, unclear, other),
        ),
        Says(
            "Experiments 1, 1b, 3, 3b and 4 (with appendices) give {} of {} testable numbers "
            "exactly; {} more are reproduced, {} inconclusive",
            (rebuilt[0], v.tests(*v.REBUILT, way=v.WAYS[1]), rebuilt[1], rebuilt[3]),
        ),
        Says('the margin of ± {} % for "reproduced" (90 % interval', (v.margin(),)),
        cost(*v.DAG),
        Says(
            "depth L = 8, plain, untrained | {} | {} |",
            (
                v.paper("exp1_resonance", initial="published", **one),
                v.mean("exp1_resonance", "networks", "rho", **untrained),
            ),
        ),
        Says(
            "magnitude at L = 12 | 3 to 4 orders | {} orders (mean of",
            (v.fall("exp1_resonance", **exp1),),
        ),
        Says(
            "(ratio of means) | {} | {} |",
            (v.printed_decays()[0], v.decay("relu", "plain_resnet18")),
        ),
        Says(
            "gap of GELU before training | {} ± {} | {} |",
            (*(v.paper("exp3_gn_gap", c, **three) for c in ("mean", "std")), float(gelu)),
        ),
        Says(
            "against E[σ''²], means | {} | {} |",
            (v.said("exp3_gn_gap", "linear fit of the gap"), v.fit_of_the_gap()),
        ),
        Says("these means | 1, by that scaling | {} |", (v.power_of_the_gap(),)),
        Says(
            "a bottleneck of width 32, L = 6, untrained | {} ± {} | {} |",
            (
                *(v.paper("exp2_bottleneck", c, **two) for c in ("mean", "std")),
                float(far.D_estimate.mean()),
            ),
        ),
        Says(
            "SiLU, one block, untrained | {} | {} |",
            (v.paper("exp4_diamond", checkpoint="init", **four), float(curved.gap.mean())),
        ),
        Says("mid-training, recovered targets | {} ± {} | {} |", (*middle, recovered[1])),
        Says("| right | {}, {}, {}, {} | [errata]", v.with_notation("DAG")),
        Says('("%" read as "×"); the authors\' results give up to {}.', (v.largest_growth(),)),
        Says("{} statements are refuted", (v.statements(*v.DAG, verdict="refuted"),)),
        Says("in residual networks by {} (L", (v.shift_of_coupling(),)),
        Says("log₁₀ R has the slope {}, C a step of {}.", (v.slope_beyond(), v.rise_of_coupling())),
        Says("last third over others {}.", (v.near_output(),)),
        Says("(attention: {} times)", (v.over_a_constant(),)),
        Says(
            "R(4)/R(2) is {} (cat + SiLU, branches of three), and {} at least. Without LayerNorm "
            "R(d+1)/R(d) is {} to {}.",
            (
                float(v.across()[3, "cat", "silu"]),
                float(v.across().min()),
                *(v.fixed(step, 2) for step in v.span(v.steps_without_norm())),
            ),
        ),
        Says(
            "stays at {} to {}; with the teacher it falls from {} to {}, still above 1",
            (
                *v.span(recovered),
                *(v.attention_gap("described", at) for at in ("init", "final")),
            ),
        ),
        Says(
            "falls by factors of {} and {} (published); with those of training images by {} and {}",
            v.printed_decays() + v.decays("plain_resnet18", **v.IMAGES),
        ),
        *(
            Says(f"{name} | {{}} % ({{}} %) | {{}} ({{}}) | {{}} | {{}} | {end} |", trained)
            for name, end, trained in trained_networks()
        ),
        Says(
            "with the initial ones {} and {}, from",
            tuple(v.gap_of_resnet(arch, "init") for arch in v.ARCHS),
        ),
        SEED_RANGE,
        *plain(
            *('Architectures", 2026', "measures four quantities", "between two layers at"),
            *("Five claims:", "merge of two branches", "(CIFAR-10; CIFAR-100 in Experiment 2, "),
            *("synthetic in 5)", "falls by 3 to 4 orders of magnitude at"),
            *('not "below 2 %" of', "(H4.2a, Section", "Table 7 converge* (H5.3)", "zero (H5.1)"),
            *("R(d+2)/R(d) ≈ 0.28–0.39", "L = 16 and 32 (", "d > L/2", "+ 0.1 ξ (S tokens"),
            "means over five seeds (pub",
            "H^T ∼ σ''²: log",
        ),
    ]


def trained_networks():
    """(name, the form of the last column, values) of the table of trained networks."""
    for activation, label in (("relu", "ReLU"), ("silu", "SiLU")):
        for arch, kind in zip(v.ARCHS, ("skips", "plain"), strict=True):
            keys = {"activation": activation, "arch": arch}
            accuracy = v.paper(
                "exp6_resnet18", metric="test_acc_percent", checkpoint="final", **keys
            )
            half = v.decay(activation, arch, **{**v.TRAINED, "checkpoint": "mid"})
            values = [v.accuracy(activation, arch), accuracy, half, v.printed_half(**keys)]
            values += [v.decay(activation, arch, **v.TRAINED)]
            values += [v.resnet("C", activation, arch, 4, "final")]
            end = "0"
            if activation == "silu":
                end = "{}, {} ({})"
                values += [v.gap_of_resnet(arch, "init", "calibrated")]
                values += [v.gap_of_resnet(arch, "final"), v.printed_gap(**keys)]
            yield f"{label}, {kind}", end, tuple(values)


def hsr():
    limit = v.said("hsr_gradient", "largest eigenvalue falls", "low")
    agreement = table("hsr_gradient", "difference_norms")
    agreement = agreement.assign(ratio=agreement.difference_norm / agreement.gradient_norm)
    descent = table("hsr_gradient", "bound_descent").sort_values("step")
    descent = descent.groupby(["seed", "start"]).lambda_1.agg(["first", "last"])
    falling = (descent["last"] < descent["first"]).groupby("seed").mean()
    by_asam = [-value for value in v.shift("asam", np.log)]
    fastest = v.fastest_gradients()
    return [
        Says("radius {} and its authors'", (v.setting_of_hsr("radius"),)),
        Says("The criteria 10⁻⁶ and {} are ours", (limit,)),
        cost(*v.HSR),
        Says("| right | {}, {}, {}, {} | [errata]", v.with_notation("HSR")),
        Says(
            "(largest, median of five data sets) | consistent (criterion: ≤ 10⁻⁶) | {} |",
            (float(agreement.groupby("seed").ratio.max().median()),),
        ),
        Says("(smallest ratio, median of five data sets) | faster | {} times", (v.gain(),)),
        Says(
            "(median of five data sets, criterion: ≥ {}) | all shown | {} |",
            (limit, float(falling.median())),
        ),
        Says("range of five data sets) | lower | {} to {} |", v.span(v.shift("gd"))),
        Says(
            "Hessian-trace regularisation, sharp starts | lower | {} to {} |",
            v.span(v.shift("trace", np.log)),
        ),
        Says(
            "Hessian-trace regularisation, sharp starts | lower, not lower | {} to {}; {} to {} |",
            (*v.span(v.ablated("square")), *v.span(v.ablated("mean"))),
        ),
        Says("HSR − plain descent, sharp starts | smaller | {} to {} |", v.span(v.overfitting())),
        Says("give about {} sharp and {} flat", v.starting_points()),
        Says("log λ₁ of HSR lower by {} to {} |", v.span(by_asam)),
        Says(
            "up to {} parameters, by our form (linear in the samples), at {} and {} by the "
            "printed double sum in matrix form, above that by automatic",
            (v.last(fastest, "own"), *v.between(fastest, "matrix")),
        ),
        Says(
            "HSR and A-SAM change log λ₁ by at most {} (inside our margin)",
            (max(abs(x) for m in ("hsr", "asam") for x in v.shift_of_flat(m)),),
        ),
        Says("regularisation raises it by {} to {} at", v.span(v.shift_of_flat("trace"))),
        *plain(
            *('Neural Networks", 2026', "Five data sets (seeds"),
            "than three-point differences",
        ),
    ]


def scalar_spectrum():
    runs = table("scalar_spectrum", "edge_runs")
    trained = rows("scalar_spectrum", "certificate", part="pairs")
    fast = v.chosen(runs, start="large", factor=2.2)
    bias = rows("scalar_spectrum", "bias", mix=0)
    pairs = table("scalar_spectrum", "pairs")
    right, minor, major = v.formulas("Scalar spectrum")
    widths = v.setting("experiment/scalar_spectrum", "experiment.width")
    scales = v.setting("experiment/scalar_spectrum", "experiment.wedge_scales")
    low = pairs[(pairs.rate == pairs.rate.min()) & (pairs.cell != "-")].sort_values("step")
    first = low.groupby(["network", "left", "seed"]).second.first()
    return [
        Says("{} errors are minor", (v.errors("scalar", "B"),)),
        Says(
            "tenth step of {} training runs. A further {} runs study the edge of stability, beyond "
            "the paper, by the largest eigenvalue alone. Five seeds ({} to {}). Clauses of "
            "formulas: {} right, {} with a minor error, {} with a major one",
            (len(trained), len(runs), SEEDS[0], SEEDS[-1], right, minor, major),
        ),
        Says("({} scales tried); the criterion of 10⁻¹⁰", (len(scales),)),
        cost("scalar_spectrum"),
        Says(
            "along training, relative error (criterion: ≤ 10⁻¹⁰) | exact | {} |",
            (float(pairs.dense_error.max()),),
        ),
        Says(
            "cells' spectra, relative error (criterion: ≤ 10⁻¹⁰) | exact | {} |",
            (v.error_of_the_union(),),
        ),
        Says(
            "(share of runs at the lower rate; of ReLU the cell x > 0) | all | {} |",
            (float((first < 0).mean()),),
        ),
        Says(
            "of Theorem 6, relative error (criterion: ≤ 10⁻¹⁰) | exact | {} |",
            (float(bias.gap.max()),),
        ),
        Says(
            "up to one million neurons: at the rate {}/λ₁ of the start {} of {} runs diverge, and "
            "no run settles at a point sharper than 2/η (largest λ₁η/2 of settled runs: {})",
            (4.4, int((fast.status == "diverged").sum()), len(fast), v.sharpest_settled()),
        ),
        Says("In units of 2/η, for networks of {} to {} neurons", (widths[0], widths[-1])),
        *plain(
            *("have two outliers and m − 1", "its two cells, x > 0 and x < 0", "A 5 × 5 problem"),
            *("five eigenvalues leave the bulk", "*The two outliers"),
        ),
    ]


def ws_bound():
    starts = v.setting("training/descent", "starts")
    train, (few, many) = (v.setting("dataset/gaussian", key) for key in ("train", "test"))
    of = {key: v.setting("experiment/ws_bound", f"experiment.{key}") for key in WS_SETTINGS}
    tight = v.said("ws_bound", "tightness", "high")
    least = v.said("ws_bound", "critical points", "low")
    search = table("ws_bound", "search")
    stops = search.groupby(search.activation == "sigmoid")[["beyond_limit", "converged"]].sum()
    led = v.led(hidden=3)
    wide = v.led(hidden=10)
    critical = ["degenerate", "saddle", "minimum"]
    gains = {stage: v.gains(stage, many) for stage in ("stopped", "polished")}
    ends = v.ends(**v.CALIBRATED)
    share = (led.kind.isin(critical) | led.nearest_kind.isin(critical)).groupby(led.seed).mean()
    endless = (led.kind == "infinity") & (led.nearest_kind == "infinity")
    open_ = (~endless).groupby(led.seed).mean()
    weak = v.correlations("W_norm_sq", **v.CALIBRATED)
    effects = []
    for seed in SEEDS:
        narrow, broad = (
            v.ends(**v.CALIBRATED | {"hidden": n, "seed": seed}).lambda_sup for n in (3, 10)
        )
        u = mannwhitneyu(broad, narrow).statistic
        effects.append(2 * u / len(narrow) / len(broad) - 1)
    return [
        Says(
            "({} training, {} test points) and starts gradient descent from {} random points for "
            "each width N = {} and N = {}, for five data sets (seeds {} to {})",
            (train, few, starts, *of["hidden"], SEEDS[0], SEEDS[-1]),
        ),
        Says("norm below {} of its first value)", (of["printed_ratio"],)),
        Says("run at {} rates and shown at 0.1", (len(of["rate"]),)),
        Says("(tr H to {}, tr H² to {})", (of["trace_axis"], of["square_axis"])),
        Says(
            "{} % and {} % of the starts converge (published: {} %)",
            (v.converged(0.01), v.converged(0.02), v.printed_share()),
        ),
        Says(
            'The criteria {} ("tight") and {} ("critical points") are ours',
            (tight, least),
        ),
        cost("ws_bound"),
        Says(
            'N = 3, median (criterion: ≤ {}) | "close" | {} |',
            (tight, v.median_of_data_sets(v.tightness, ends)),
        ),
        Says("| right | {}, {}, {}, {} | [errata]", v.with_notation("WS bound")),
        Says(
            "with ‖V‖² | positive | {} |", (v.middle(v.correlations("V_norm_sq", **v.CALIBRATED)),)
        ),
        Says("at N = 10 (effect size) | larger | {} |", (float(np.median(effects)),)),
        Says(
            "(weights {}, {}, {} are ours) lowers the {} % quantile of the bound, to a share of | "
            "lower | {}, {}, {}; at 1 most",
            (*of["penalty"][1:], 90, *v.shares_with_a_penalty(0.9)),
        ),
        Says(
            'with ‖W‖² | "no clear relationship" | {} (data sets: {} to {}) |',
            (v.middle(weak), *v.span([float(test.statistic) for test in weak])),
        ),
        Says(
            "mean of {} draws | positive | {} |",
            (
                len(v.gains("stopped", few)),
                float(v.gains("stopped", few).mean()),
            ),
        ),
        Says("(also with {} seeds)", (len(manifest("ws_bound")["seeds"]),)),
        Says("largest of {} paths | λ_sup → 0 | {} |", (10, v.left_of_the_bound())),
        Says(
            "(criterion: ≥ {}) | all, up to a small threshold (Appendix C) | {} |",
            (least, float(share.median())),
        ),
        Says(
            "{} of {} searches run to infinity while the loss",
            (v.count(led.kind, "infinity"), len(led)),
        ),
        Says("with the unfinished, the share is at most {} in", (float(open_.max()),)),
        Says(
            "We tested the {} stopping points of the printed rule at rate 0.1 (sigmoid, N = 3, "
            "duplicates removed) twice",
            (len(led),),
        ),
        Says(
            "Downhill, {} run to infinity (beyond {} times the largest start, or along a valley), "
            "{} end at degenerate critical points, {} did not finish. (At N = 10, {} of {} end "
            "with all samples classified correctly",
            (
                v.count(led.kind, "infinity"),
                int(of["far"]),
                *(v.count(led.kind, kind) for kind in ("degenerate", "unfinished")),
                *(int((wide.loss < math.log(2)).sum()), len(wide)),
            ),
        ),
        Says(
            "of the gradient, {} run to infinity, {} reach a critical point, {} did not finish",
            (
                v.count(led.nearest_kind, "infinity"),
                v.count(led.nearest_kind, *critical),
                v.count(led.nearest_kind, "unfinished"),
            ),
        ),
        Says(
            "{} of five data sets shows a significant correlation with ‖V‖² ({} at 0.02)",
            tuple(v.related("V_norm_sq", rate) for rate in (0.1, 0.02)),
        ),
        Says(
            "With {} test samples, over {} draws, the F1 score of flat points "
            "is higher by {} (p = {}, Wilcoxon; the paper's level is {}), and at the points "
            "continued downhill by {} (p = {})",
            (
                *(many, len(gains["stopped"]), float(gains["stopped"].mean())),
                v.rounded(wilcoxon(gains["stopped"]).pvalue, 2),
                *(Statement.level, float(gains["polished"].mean())),
                v.rounded(wilcoxon(gains["polished"]).pvalue, 2),
            ),
        ),
        Says(
            "stop there: {} of all {} stops of our searches do, {} of {} with the paper's sigmoid",
            (*map(int, stops.sum()), *map(int, stops.loc[True])),
        ),
        Says(
            "at {} and {} ‖W‖² has no relation in {} and {} data sets",
            (0.2, 0.3, *(v.unrelated("W_norm_sq", rate) for rate in (0.2, 0.3))),
        ),
        *plain(
            *('Smooth Neural Networks", 2026', "for five activations. ## Scope", "a three-layer"),
            *(
                "draws two-dimensional data",
                "Claims 1 and 2, and the last row: medians over five data sets",
            ),
            "rule at rate 0.1, whose traces end below half of",
            "Continued downhill (N = 3, printed rule at rate 0.1)",
            *("ten test samples a data set", "λ₁ > 2/η unst"),
            "share of search results (printed rule, rate 0.1, N = 3) with ∂L/∂θ = 0, strictly",
            "which one bar decides",
        ),
    ]


WS_SETTINGS = (
    *("hidden", "printed_ratio", "rate", "trace_axis", "square_axis"),
    "penalty",
    "far",
)


def questions():
    without = {"model": {"norm": False}, "arch": "plain"}
    deep = v.curve("exp1_resonance", depth=32, **without).iloc[:, -1]
    steps = v.span(v.steps_without_norm())
    printed = v.paper("exp1_deep", **v.table_n3(32, "init", "R_dLminus1"))
    found = {"metric": ("converged", "unique"), "protocol": "fitted"}
    of_hsr = [v.paper("hsr_regularization", metric=m, protocol="fitted") for m in found["metric"]]
    few = v.setting("dataset/gaussian", "test")
    ratio, fitted, rate = (
        v.setting("experiment/ws_bound", f"experiment.{key}")
        for key in ("printed_ratio", "fitted_ratio", "fitted_rate")
    )
    return [
        Says(
            'Do "3 to 4 orders", "10⁻¹⁴" (Section 5.1; {} in Table N.3) and "0.28–0.39" (Section '
            "5.4) belong to networks without LayerNorm (here {}, {}, {}–{} for",
            (
                *(printed, v.rounded(v.fall("exp1_resonance", depth=12, **without), 2)),
                10.0 ** round(np.log10(deep).mean()),
                *(v.fixed(step, 2) for step in steps),
            ),
        ),
        Says("gave {} of 48", (v.said("exp4_diamond", "H4.1"),)),
        Says("base width {} and {} probes, and Experiment 6 with {} power", (512, 100, 20)),
        Says("search for {} and {} points", tuple(of_hsr)),
        Says("in the first {} steps", (v.setting_of_hsr("switch"),)),
        Says("with {} test samples? With {}, the", (few[1], few[0])),
        Says(
            "a rate of {} with a ratio of {} is closest on average. Is the ratio of {} taken",
            (rate, fitted, ratio),
        ),
        *plain(
            *("R(d+1)/R(d)", "ρ⁷ in", "with η = 0.01.)", "|Ṽ 1_N|", "have (1 + M)²"),
            *("two bold letters in Eq. 16, two symbols in", "With its 5R⁴ (H.7)"),
            "do not give 320R⁶",
        ),
    ]
