"""DAG paper, Sections 5 and 6, Remarks 53 and 101: sentences on the structure of networks."""

from __future__ import annotations

import itertools
import math

import torch
from torch import Tensor
from torch.func import jacfwd, jacrev
from torch.nn.functional import relu

from experiments.paper_audit.checks import Checks, Outcome, digits, worked
from experiments.paper_audit.dag.bottlenecks import (
    beyond,
    bottleneck,
    gauss_newton_block,
    then_zero,
)
from experiments.paper_audit.dag.instances import (
    Instance,
    chain,
    default_weight,
    identity,
    residual_blocks,
)
from experiments.paper_audit.dag.oracle import examples
from experiments.paper_audit.tensors import gauss, seeded, spectral_norm, unit, zeros
from runner.curvature import Dag, Node
from runner.models.resnet import resnet18

CHECKS = Checks()


def copied_bottleneck() -> Instance:
    """v of width 2, u their sum, w = (u, u), three classes."""
    nodes = [
        Node("v", ("input",), identity),
        Node("u", ("v",), lambda v: v.sum(1, keepdim=True)),
        Node("w", ("u",), lambda u: u.expand(-1, 2)),
        Node("out", ("w",), then_zero),
    ]
    name = "v = (0, 0), u = v_1 + v_2, w = (u, u), logits (w, 0)"
    return Instance(name, Dag(nodes), zeros(1, 2), torch.tensor([0]))


@CHECKS.clause("dag.remark53")
def behind_the_bottleneck() -> Outcome:
    """Section 5.2, Remark 53: a narrow layer u bounds the ranks of H^GN[v,w], H^GN[v,v] and
    H^GN[w,w], v before and w behind it; corrected: not of H^GN[w,w], which has rank K − 1 at
    most."""
    by_hand = copied_bottleneck()
    random = [bottleneck(seed, 1, 2) for seed in range(3)]
    of_hand = gauss_newton_block(by_hand, "w", "w")
    printed = [beyond(of_hand, 1)]
    right = []
    for case in random:
        behind = gauss_newton_block(case, "w", "w")
        printed.append(beyond(behind, 1))
        right.append(beyond(behind, 4))
    pairs = (("v", "w"), ("v", "v"))
    for case, (v, w) in itertools.product((by_hand, *random), pairs):
        right.append(beyond(gauss_newton_block(case, v, w), 1))
    witness = worked(
        f"{by_hand}: H^GN[w,w] = {digits(of_hand)}, σ_2/σ_1",
        "0 (rank <= d_u = 1)",
        "rank <= K − 1 = 2; (v, w) and (v, v) have rank <= d_u",
        f"{printed[0]:.3g}",
    )
    return Outcome(max(printed), max(right), len(printed), witness)


def parameters_of(skips: bool) -> int:
    """Number of parameters of the measured network."""
    return sum(parameter.numel() for parameter in resnet18(skip=skips).parameters())


@CHECKS.clause("dag.s56.parameters")
def same_parameterization() -> Outcome:
    """Section 5.6, Appendix N.8: ResNet-18 and the plain network have the same parameters;
    corrected: the plain one lacks three projections, 1 × 1 convolutions with batch
    normalisation."""
    with_skips = parameters_of(True)
    without = parameters_of(False)
    widths = (64, 128, 256, 512)
    projections = sum(i * o + 2 * o for i, o in itertools.pairwise(widths))
    witness = worked(
        "parameters of ResNet-18 and of the plain network, ten classes",
        "equal",
        f"{projections:,} fewer: Σ (i o + 2 o) over (64, 128), (128, 256), (256, 512)",
        f"{with_skips:,}, {without:,}",
    )
    right = abs(with_skips - without - projections)
    printed = (with_skips - without) / with_skips
    return Outcome(printed, float(right), 2, witness)


@CHECKS.clause("dag.n7.positions")
def per_position() -> Outcome:
    """Appendix N.7: both networks process the input per position; corrected: the ReLU network does.
    ‖∂O_0/∂x_1‖ / ‖∂O_0/∂x_0‖ before the pooling."""
    generator = seeded(0)
    tokens = 4
    width = 3
    query, key, value = gauss(generator, 3, width, width) / math.sqrt(width)
    x = gauss(generator, tokens, width)

    def attention(inputs: Tensor) -> Tensor:
        scores = (inputs @ query) @ (inputs @ key).mT / math.sqrt(width)
        return torch.softmax(scores, -1) @ (inputs @ value)

    def by_position(inputs: Tensor) -> Tensor:
        first = relu(inputs @ query + 0.1)
        second = relu(first @ key + 0.1)
        return relu(second @ value + 0.1)

    mixed = jacrev(attention)(x)[0]
    single = jacrev(by_position)(x)[0]
    share = float(mixed[:, 1].norm() / mixed[:, 0].norm())
    witness = worked(
        "random attention, 4 tokens of width 3: ‖∂O_0/∂x_1‖ over ‖∂O_0/∂x_0‖",
        "0",
        "0 for the ReLU network alone",
        f"{share:.2g}",
    )
    return Outcome(share, float(single[:, 1].norm()), 2, witness)


@CHECKS.clause("dag.prop89.diagonal")
def tensor_of_a_layer() -> Outcome:
    """Proposition 89.2, Remark 101: T of elementwise activations is diagonal; share of ‖T‖ off the
    diagonal, layer σ(W h); corrected: of a node that is the activation alone."""
    generator = seeded(0)
    weight = gauss(generator, 4, 4)
    h = gauss(generator, 4)

    def off_diagonal(whole: bool) -> float:
        def node(value: Tensor) -> Tensor:
            return torch.sigmoid(weight @ value if whole else value)

        second = jacfwd(jacrev(node))(h)
        rest = second.clone()
        for i in range(4):
            rest[i, i, i] = 0
        return float(rest.norm() / second.norm())

    layer = off_diagonal(True)
    activation = off_diagonal(False)
    witness = worked(
        "sigmoid layer 4 → 4, T_ijk = σ″(z_i) W_ij W_ik: share of ‖T‖ off i = j = k",
        "0",
        "0 where the activation is a node of its own",
        f"{layer:.3g}",
    )
    return Outcome(layer, activation, 2, witness)


@CHECKS.clause("dag.s6.everywhere")
def tensor_part_everywhere() -> Outcome:
    """Sections 3.2, 6: with smooth activations H^T ≠ 0 everywhere; the printed statement fails by
    the share of the pairs of a SiLU chain with a linear head where it is 0; corrected: away from
    pairs with a linear rest."""
    case = chain(0)
    last = case.dag.order[-2:]
    pairs = []
    order = itertools.product(case.dag.order, repeat=2)
    for v, w in order:
        sizes = []
        for e in examples(case):
            sizes.append(float(e.tensor[v, w].norm() / e.blocks[v, w].norm()))
        pairs.append((v in last or w in last, max(sizes)))
    zero = [linear for linear, size in pairs if size < 1e-12]
    least = min(size for linear, size in pairs if not linear)
    right = max(size for linear, size in pairs if linear)
    witness = worked(
        "SiLU chain h1 → h2 → h3 → out, linear head: pairs of nodes with H^T = 0",
        "none",
        "those with h3 or out",
        f"{len(zero)} of {len(pairs)}",
    )
    printed = len(zero) / len(pairs)
    corrected = max(right, 1e-6 - least)
    return Outcome(printed, corrected, len(pairs), witness)


def branches(depth: int, seed: int) -> tuple[float, float]:
    """Residual MLP of Exp. 1 before training, at 32 Gaussian inputs of a layer, ten classes: the
    largest α ‖DW‖₂, and the largest (1 − α ‖DW‖₂)^L ‖∇²ℓ‖_F / R(v_0, v_L) − 1 of one example."""
    generator = seeded(seed)
    blocks, h = residual_blocks(depth, generator)
    whole = unit(64).expand(32, 64, 64)
    for block in blocks:
        whole = (unit(64) + block) @ whole
    head = default_weight(generator, 10, 64)
    p = torch.softmax(h @ head.mT, -1)
    of_loss = torch.diag_embed(p) - p[:, :, None] * p[:, None]
    curvature = head.mT @ of_loss @ head
    resonance = (whole.mT @ curvature).flatten(1).norm(dim=1)
    largest = torch.stack([spectral_norm(block) for block in blocks]).amax(0)
    bound = (1 - largest) ** depth * curvature.flatten(1).norm(dim=1)
    violations = bound / resonance - 1
    return float(largest.max()), float(violations.max())


@CHECKS.clause("dag.footnote2.scope")
def scope_of_theorem_34() -> Outcome:
    """Footnote 2: Exp. 1 lies outside Theorem 34, ρ >= 1 for its branch; corrected: its ρ_max is
    that of the block I + αDW; αρ < 1 before training, and (b′) holds with it."""
    norms = []
    excess = []
    settings = itertools.product((8, 10, 12), range(2))
    for depth, seed in settings:
        norm, violation = branches(depth, seed)
        norms.append(norm)
        excess.append(violation)
    witness = worked(
        "residual MLP, L = 8, width 64, 32 Gaussian inputs, before training: largest α ‖DW‖₂",
        ">= 1, outside (b′)",
        "< 1, and R >= (1 − α‖DW‖₂)^L ‖∇²ℓ‖_F",
        f"{norms[0]:.2f}",
    )
    largest = max(norms)
    corrected = max(*excess, largest - 1)
    return Outcome(1 - largest, corrected, len(norms), witness)
