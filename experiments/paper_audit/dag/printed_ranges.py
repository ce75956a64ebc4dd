"""DAG paper, Section 5 and Appendix N: ranges and sizes in sentences against tables and results."""

from __future__ import annotations

import math
from statistics import linear_regression, median

from experiments.paper_audit.checks import Checks, Outcome, worked
from experiments.printed import printed_number, printed_rows
from runner.report.answers.reference import REFERENCE
from runner.stats.numbers import unrounded

CHECKS = Checks()
UNROUNDED = REFERENCE / "unrounded"
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
    """Appendix N.1 (a): ρ_max ≈ 1.0 after training at L = 8, 12, 16, to the quarter that printed
    numbers have, as the exponent −1.0 of the same table."""
    after = [normalised("rho_max", depth, "final") for depth in ("8", "12", "16")]
    return Outcome(max(abs(value - 1) for value in after) - 0.25, instances=3)


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
    widths = {int(row["d_u"]) for row in printed_rows("exp2_bottleneck")}
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
