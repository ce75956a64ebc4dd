"""DAG paper, Section 5 and Appendix N: ranges and sizes in sentences against tables and results."""

from __future__ import annotations

import csv
import itertools
import math
from statistics import linear_regression, median

from experiments.paper_audit.checks import Checks, Outcome, worked
from experiments.printed import FOLDER, printed_number
from runner.report.reference import unrounded

CHECKS = Checks()
UNROUNDED = FOLDER.parent / "unrounded"
RESULTS = UNROUNDED / "results.csv"
CHECKPOINTS = ("init", "mid", "final")


def authors_means(file: str, place: str, quantity: str) -> list[float]:
    """Means of one quantity below a place of the authors' results, in their order there."""
    start = f"{file}:{place}/"
    found = []
    numbers = unrounded(RESULTS).items()
    for name, (mean, _) in numbers:
        if name.startswith(start) and name.endswith(f"/{quantity}"):
            found.append(mean)
    return found


def slope(arch: str, depth: int, checkpoint: str, file: str = "exp1") -> float:
    """b of log R(d) = a − b d, least squares over the authors' means."""
    values = authors_means(file, f"{depth}/{arch}/{checkpoint}/distances", "R")
    logarithms = [math.log(value) for value in values]
    return -linear_regression(range(len(values)), logarithms).slope


def outside(value: float, low: float, high: float) -> float:
    """How far a value lies outside an interval, relative to its nearer end; <= 0 inside."""
    return max(low / value, value / high) - 1


@CHECKS.clause("dag.s51.slope")
def slope_and_orders() -> Outcome:
    """Section 5.1 (b): residual networks have b ≈ 0.02 and are two orders slower than plain ones,
    at one depth and checkpoint at least; corrected: two orders and b <= 0.002 before training, b
    between 0.02 and 0.04 and half an order after."""
    printed = []
    right = []
    shown = {}
    settings = itertools.product((8, 10, 12), CHECKPOINTS)
    for depth, checkpoint in settings:
        b = slope("residual", depth, checkpoint)
        orders = math.log10(slope("plain", depth, checkpoint) / b)
        shown[depth, checkpoint] = f"{b:.2g} and {orders:.1f}"
        of_slope = outside(b, 0.015, 0.025)
        of_orders = outside(orders, 1.5, 2.5)
        printed.append(max(of_slope, of_orders))
        if checkpoint == "init":
            slope_before = outside(b, 0.001, 0.002)
            orders_before = outside(orders, 1.5, 2.5)
            right.append(max(slope_before, orders_before))
        elif checkpoint == "final":
            slope_after = outside(b, 0.02, 0.04)
            orders_after = outside(orders, 0.45, 0.75)
            right.append(max(slope_after, orders_after))
    witness = worked(
        "authors' results, L = 8, before and after training: b, and orders below plain",
        "0.02 and 2",
        "0.001 and 2 before, 0.03 to 0.04 and 0.6 after training",
        f"{shown[8, 'init']}; {shown[8, 'final']}",
    )
    corrected = max(right)
    return Outcome(min(printed), corrected, len(printed), witness)


def neighbours() -> list[float]:
    """C(1) of every network and checkpoint in the authors' results."""
    names = unrounded(RESULTS).items()
    return [mean for name, (mean, _) in names if name.endswith("/distances/1/C")]


@CHECKS.clause("dag.remark52")
def coupling_of_neighbours() -> Outcome:
    """Remark 52: C in (0.3, 0.7) is typical of adjacent layers, at least half of them; corrected: C
    > 0.9 is."""
    values = neighbours()
    inside = [value for value in values if 0.3 < value < 0.7]
    near_one = [value for value in values if value > 0.9]
    witness = worked(
        f"authors' results, {len(values)} networks and checkpoints: C(1) between 0.3 and 0.7",
        "typical",
        f"median {median(values):.2f}",
        f"{len(inside)} of {len(values)}",
    )
    missing = 0.5 - len(inside) / len(values)
    not_near_one = 0.5 - len(near_one) / len(values)
    return Outcome(missing, not_near_one, len(values), witness)


def separation(depth: int, checkpoint: str, flat: str) -> float:
    """Orders between the gap of cat + SiLU and that of a network without tensor part, Exp. 4."""
    gaps = []
    for network in ("cat_silu", flat):
        gaps += authors_means("exp4", f"{depth}/{network}/{checkpoint}/merge_gn_gap", "gap")
    return math.log10(gaps[0] / gaps[1])


@CHECKS.clause("dag.s54.separation")
def orders_of_separation() -> Outcome:
    """Section 5.4 (H4.3), Fig. 6: about 7 orders of magnitude, 2·10⁷; corrected: before training;
    6 after."""
    before = []
    after = []
    flat_merges = ("sum_relu", "sum_silu", "cat_relu")
    for depth, flat in itertools.product((1, 2, 3), flat_merges):
        before.append(separation(depth, "init", flat))
        after.append(separation(depth, "final", flat))
    witness = worked(
        "authors' results, cat + SiLU over sum + ReLU, k = 2, before and after training: orders",
        "7",
        "7 before training, 6 after",
        f"{separation(2, 'init', 'sum_relu'):.1f}, {separation(2, 'final', 'sum_relu'):.1f}",
    )
    right = [abs(value - 7.25) - 0.25 for value in before]
    right += [abs(v - 6) - 0.25 for v in after]
    printed = max(6.5 - value for value in after)
    return Outcome(printed, max(right), 18, witness)


def largest_rho(depth: str, arch: str, checkpoint: str) -> float:
    """ρ_max of Table 2."""
    return printed_number(
        "exp1_resonance", metric="rho_max", depth=depth, arch=arch, checkpoint=checkpoint
    )


def normalised(metric: str, depth: str, checkpoint: str) -> float:
    """An entry of Table N.2, plain networks with spectral normalisation."""
    return printed_number(
        "exp1b_spectral_norm", metric=metric, depth=depth, arch="plain_sn", checkpoint=checkpoint
    )


@CHECKS.clause("dag.n1.rho")
def norms_after_training() -> Outcome:
    """Appendix N.1 (a): ρ_max ≈ 1.0 after training at L = 8, 12, 16; corrected: at L = 8; it falls
    at 12 and 16."""
    after = {depth: normalised("rho_max", depth, "final") for depth in ("8", "12", "16")}
    before = {depth: normalised("rho_max", depth, "init") for depth in after}
    rises = [after[depth] - before[depth] for depth in ("12", "16")]
    shown = ", ".join(f"{value:g}" for value in after.values())
    witness = worked(
        "Table N.2, spectral normalisation, L = 8, 12, 16: ρ_max after training (before: 0.91)",
        "1.0, 1.0, 1.0",
        "1.0 at L = 8, at most its start at 12 and 16",
        shown,
    )
    farthest = max(abs(value - 1) for value in after.values())
    from_one = abs(after["8"] - 1)
    right = max(*rises, from_one - 0.05)
    return Outcome(farthest - 0.05, right, 3, witness)


def silu_gap(distance: str, checkpoint: str) -> float:
    """An entry of Table N.8, plain network with SiLU."""
    return printed_number(
        "exp6_resnet18",
        metric="gap",
        activation="silu",
        arch="plain_resnet18",
        distance=distance,
        checkpoint=checkpoint,
    )


@CHECKS.clause("dag.n8.decline")
def decline_of_the_gap() -> Outcome:
    """Appendix N.8: the gap of plain SiLU networks slightly declines at d = 2, 3 (by a quarter at
    most); corrected: by 27 and 59 %, to the rounding of the table."""
    falls = [1 - silu_gap(d, "final") / silu_gap(d, "init") for d in ("2", "3")]
    witness = worked(
        "Table N.8, plain, SiLU, d = 2 and 3, from init to final: relative fall of the gap",
        "slight",
        "27 % and 59 %",
        f"{falls[0]:.1%}, {falls[1]:.1%}",
    )
    of_second = abs(falls[0] - 0.275)
    of_third = abs(falls[1] - 0.591)
    right = max(of_second, of_third) - 0.01
    return Outcome(max(falls) - 0.25, right, 2, witness)


def by_training(network: str, quantity: str) -> list[float]:
    """One quantity of Exp. 5 in the authors' results, by checkpoint."""
    return [authors_means("exp5", f"{network}/{c}", quantity)[0] for c in CHECKPOINTS]


@CHECKS.clause("dag.s55.share")
def share_of_the_tensor_part() -> Outcome:
    """Section 5.5 (H5.2): ‖H^T‖_F / ‖H‖_F < 10⁻⁷ of the ReLU network at all checkpoints."""
    tensor, full = (by_training("relu_mlp", f"frob_{part}") for part in ("tensor", "full"))
    largest = max(a / b for a, b in zip(tensor, full, strict=True))
    return Outcome(largest / 1e-7 - 1, instances=3)


@CHECKS.clause("dag.s55.separation")
def separation_of_table_7() -> Outcome:
    """Section 5.5 (H5.2): the quotient of the gaps of Table 7 exceeds that of Table 6."""
    attention = by_training("attention", "gap")[-1]
    relu = by_training("relu_mlp", "gap")[-1]
    largest = max(separation(2, c, "sum_relu") for c in ("init", "final"))
    orders = math.log10(attention / relu)
    return Outcome(largest / orders - 1, instances=2)


@CHECKS.clause("dag.s57.width")
def largest_width() -> Outcome:
    """Section 5.7: width <= 256; corrected: <= 512, the control run of Table 3."""
    file = FOLDER.parent / "exp2_bottleneck.csv"
    with open(file, newline="", encoding="utf-8") as stream:
        rows = csv.DictReader(stream)
        widths = {int(row["d_u"]) for row in rows}
    witness = worked(
        "Tables 3 and N.1: largest d_u, that of the control run",
        "at most 256",
        "at most 512",
        f"{max(widths)}",
    )
    largest = max(widths)
    printed = largest / 256 - 1
    corrected = largest / 512 - 1
    return Outcome(printed, corrected, len(widths), witness)
