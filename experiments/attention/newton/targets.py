"""Realistic targets: the trained layer of the DAG paper's Experiment 5, and a causal character transformer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from experiments.attention.newton.characters import Trained, train_characters
from experiments.attention.newton.identify import protecting_noise, rank_of, singular_values
from experiments.attention.newton.problem import distinct, ended, equations
from experiments.attention.newton.rounds import Round, followed, in_rounds
from runner.contract import Context
from runner.curvature.closed_form import attention as att
from runner.curvature.closed_form.attention.heads import Heads
from runner.training.levenberg_marquardt import levenberg_marquardt

if TYPE_CHECKING:
    from experiments.attention.newton.settings import AttentionNewton

Row = dict[str, Any]
NAN = float("nan")


def attack(setup: AttentionNewton, layer: Heads, x: Tensor, start: Tensor) -> tuple[Row, Tensor]:
    """Levenberg-Marquardt from blind starts on one input x (d, n): counts, and the polished end of least residual.

    In rounds of `target_steps` trials without a cap (`rounds.py`); late: starts given up that recover when followed.
    """
    data, b = att.vec(x), layer.outputs(x)
    least = equations(layer, b)

    def once(points: Tensor, rounds: int) -> Round:
        ends = levenberg_marquardt(least, points, max_steps=rounds * setup.target_steps)
        return Round(ends.points, ends.square, ends.steps, ends.capped)

    run = in_rounds(once, start, least.value(start).square().sum(-1), setup.progress, anew=True)
    beyond = followed(once, run, start, setup.further_rounds, anew=True)
    late = ended(least, beyond, data, b).error <= setup.recovered if len(beyond) else torch.zeros(0)
    found = ended(least, run.points, data, b)
    right = found.error <= setup.recovered
    residual = least.value(found.points).norm(dim=-1).nan_to_num(torch.inf)
    best = found.points[int(residual.argmin())]
    spectrum = singular_values(layer, x)
    solutions = distinct(found.points[found.exact])
    wrong = int(((solutions - data).norm(dim=-1) / data.norm() > setup.recovered).sum())
    row = {
        "starts": len(start),
        "recovered": int(right.sum()),
        "exact": int(found.exact.sum()),
        "wrong": int((found.exact & ~right).sum()),
        "distinct_wrong": wrong,
        "given_up": int(run.given_up.sum()),
        "late": int(late.sum()),
        "rounds": int(run.rounds.max()),
        "best_error": float((best - data).norm() / data.norm()),
        "unknowns": data.numel(),
        "equations": b.numel(),
        "rank": rank_of(spectrum),
        "sigma_min": float(spectrum[-1]) if b.numel() >= data.numel() else 0.0,
        "protecting_noise": protecting_noise(layer, x, spectrum, 1e-2),
    }
    return row, best


def layer_rows(setup: AttentionNewton, ctx: Context) -> list[Row]:
    """Rows of `targets` for Experiment 5's regression network: first validation sequences, at init and at the end."""
    from experiments.dag.protocol.training import train_regression

    settings = setup.model.network()
    trained = train_regression(settings, setup.dataset, setup.training, ctx)
    rows = []
    for checkpoint in ("init", "final"):
        stages: Any = trained.at(checkpoint).stages
        query, key, value = (stages[name].weight.detach().double() for name in "qkv")
        layer = Heads((key.mT @ query / len(query) ** 0.5).unsqueeze(0), value.mT.unsqueeze(0))
        for index in range(setup.sequences):
            x = trained.data.test.inputs[index].double().mT
            generator = ctx.torch_generator(f"attention_newton layer starts {index}")
            start = torch.randn(setup.target_starts, x.numel(), generator=generator, dtype=x.dtype)
            row, _ = attack(setup, layer, x, start)
            about = {"target": "regression layer", "view": checkpoint, "input": index, "characters": NAN, "loss": NAN}
            rows.append(about | row)
            ctx.progress(len(rows), 2 * setup.sequences)
    return rows


def views(layer: Heads) -> dict[str, Heads]:
    """What may be known of the layer's outputs: all heads, the first alone, and all heads had there been no mask."""
    return {
        "causal": layer,
        "one head": Heads(layer.w[:1], layer.v[:1], causal=True),
        "no mask": Heads(layer.w, layer.v),
    }


def transformer_rows(setup: AttentionNewton, ctx: Context) -> dict[str, list[Row]]:
    """Rows of `targets` for the character transformer, windows of the text seen in three ways, and of `reading`.

    Blind starts are embeddings of random characters at their positions: the attacker knows the weights.
    """
    about = setup.transformer
    trained = train_characters(
        int(about["tokens"]),
        int(about["width"]),
        int(about["heads"]),
        int(about["steps"]),
        float(about["rate"]),
        ctx.torch_generator("attention_newton characters"),
    )
    generator, n = ctx.torch_generator("attention_newton windows"), int(about["tokens"])
    rows, reading = [], []
    for index in range(setup.sequences):
        at = int(torch.randint(len(trained.codes) - n, (1,), generator=generator))
        codes = trained.codes[at : at + n]
        x = embedded(trained, codes)[0].mT
        guesses = torch.randint(len(trained.model.embedding.weight), (setup.target_starts, n), generator=generator)
        start = att.vec(embedded(trained, guesses).mT)
        for view, layer in views(trained.model.layer()).items():
            row, best = attack(setup, layer, x, start)
            right = float((read(trained, best) == codes).double().mean())
            key = {"target": "character transformer", "view": view, "input": index}
            rows.append(key | {"characters": right, "loss": trained.loss} | row)
            ctx.progress(len(rows), 3 * setup.sequences, view)
            if layer.causal:
                levels = reading_rows(
                    setup, trained, layer, codes, ctx.torch_generator(f"attention_newton reading {index}")
                )
                reading += [{"view": view, "input": index} | level for level in levels]
    return {"targets": rows, "reading": reading}


def reading_rows(
    setup: AttentionNewton, trained: Trained, layer: Heads, codes: Tensor, generator: torch.Generator
) -> list[Row]:
    """Share of the characters that an enumeration reads from B under rising noise, relative to the spread of B."""
    clean = layer.outputs(embedded(trained, codes)[0].mT)
    direction = torch.randn(clean.shape, generator=generator, dtype=clean.dtype)
    rows = []
    for level in [0.0, *setup.reading_noise]:
        found = enumerate_characters(trained, layer, clean + level * clean.std() * direction)
        rows.append({"noise": level, "read": float((found == codes).double().mean())})
    return rows


def enumerate_characters(trained: Trained, layer: Heads, b: Tensor) -> Tensor:
    """Characters (n,) from B (n, H k), position by position: the one whose output is nearest, those before it known.

    Row i of a causal layer depends on tokens up to i alone, so n |alphabet| evaluations are enough, and no derivative.
    """
    count = len(trained.model.embedding.weight)
    known = torch.zeros(count, len(b), dtype=torch.long)
    for i in range(len(b)):
        known[:, i] = torch.arange(count)
        rows = layer.outputs(embedded(trained, known).mT)[:, i]
        known[:, i] = (rows - b[i]).norm(dim=-1).argmin()
    return known[0]


def embedded(trained: Trained, codes: Tensor) -> Tensor:
    """(batch, n, d) in float64."""
    return trained.model.embed(torch.atleast_2d(codes)).detach().double()


def read(trained: Trained, point: Tensor) -> Tensor:
    """The characters (n,) whose embeddings lie nearest to the tokens of vec X."""
    model = trained.model
    tokens = point.unflatten(-1, (-1, model.position.shape[-1])) - model.position.detach().double()
    return torch.cdist(tokens, model.embedding.weight.detach().double()).argmin(-1)
