"""The search that chose the settings of the contest: `python -m ...hsr_flat_training.tuning FILE`.

All settings of a method with the same number of probes train at once, from the same network and on
the same batches. The choice reads validation data at seeds that the contest does not use. FILE gets
one row for each data set, budget, method and setting: means over the seeds. The methods
that act throughout the training were searched earlier, one network at a time, with the same rules.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator, Sequence
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from experiments.three_layer.hsr_flat_training.measure import (
    accuracies,
    epochs_of,
    load,
    losses,
    network,
    train_epoch,
)
from experiments.three_layer.hsr_flat_training.methods import (
    Settings,
    Stepper,
    trial,
)
from experiments.three_layer.hsr_flat_training.settings import BUDGETS, METHODS, FlatContest
from experiments.three_layer.lanczos import largest_after
from experiments.three_layer.stochastic_bound import ParameterHessian
from runner.contract import Context
from runner.files import write_bytes

TRIED = 16
SEEDS = (142, 143, 144)
CONTESTS = ("hsr_flat_training", "hsr_flat_cifar10")
LANCZOS_STEPS = 20
"""Of λ₁: an eigenvalue that stands apart converges in fewer."""
KEYS = ["contest", "budget", "method", "trial"]
Numbered = tuple[int, Settings]


def searched(method: str) -> list[Numbered]:
    """Number and settings of all that are tried."""
    return [(number, trial(method, number)) for number in range(TRIED)]


def together(method: str) -> list[list[Numbered]]:
    """The settings that can train at once."""
    by_probes: dict[int, list[Numbered]] = {}
    for number, settings in searched(method):
        by_probes.setdefault(settings.probes, []).append((number, settings))
    return [by_probes[probes] for probes in sorted(by_probes)]


def measured(
    experiment: FlatContest, group: Sequence[Numbered], budget: str, seed: int
) -> Iterator[dict[str, Any]]:
    """Validation accuracy, mean over the last epochs, and λ₁ of every setting of a group."""
    ctx = Context(seed)
    data = load(experiment, ctx)
    inputs = data.train[0].shape[1]
    parameters = []
    for p in network(experiment, inputs, ctx):
        copies = p.detach().repeat(len(group), *[1] * (p.ndim - 1))
        parameters.append(copies.requires_grad_())
    settings = [one for _, one in group]
    stepper = Stepper(settings, parameters, ctx.torch_generator("probes"), experiment.memory)
    batches = ctx.torch_generator("batches")
    total = epochs_of(experiment, settings[0], budget)
    shares = []
    for epoch in range(total):
        train_epoch(experiment, stepper, data.train, batches, epoch / total)
        if total - epoch <= experiment.last_epochs:
            shares.append(accuracies(parameters, data.validation).numpy())
    for i, (number, _) in enumerate(group):
        one = [p.detach()[i : i + 1].clone().requires_grad_() for p in parameters]
        loss = losses(one, data.train)[0]
        largest = math.nan
        if math.isfinite(float(loss.detach())):
            operator = ParameterHessian(loss, one)
            generator = ctx.torch_generator("end")
            largest = largest_after(operator, LANCZOS_STEPS, generator)
        accuracy = float(np.mean([share[i] for share in shares]))
        yield {"trial": number, "validation_accuracy": accuracy, "lambda_max": largest}


def averaged(rows: list[dict[str, Any]]) -> pd.DataFrame:
    """Means over the seeds; NaN where a training diverged at one of them."""
    table = pd.DataFrame(rows).groupby(KEYS, sort=False)
    means = table[["validation_accuracy", "lambda_max"]].agg(
        lambda values: values.mean(skipna=False)
    )
    return means.reset_index()


def main(path: Path) -> None:
    """Search for both contests; what is in the file already is kept."""
    from runner.run.config import build_job

    rows = []
    done = pd.read_csv(path) if path.exists() else pd.DataFrame(columns=KEYS)
    known = set(zip(done["contest"], done["budget"], done["method"], strict=True))
    for contest, budget, method in product(CONTESTS, BUDGETS, METHODS):
        if (contest, budget, method) in known:
            continue
        experiment: Any = build_job([f"experiment={contest}"]).experiment
        for seed, group in product(SEEDS, together(method)):
            keys = {"contest": contest, "budget": budget, "method": method, "seed": seed}
            for row in measured(experiment, group, budget, seed):
                rows.append(keys | row)
        done = pd.concat([done, averaged(rows)], ignore_index=True)
        rows.clear()
        write_bytes(path, done.to_csv(index=False, float_format="%.6g").encode())
        print(contest, budget, method, len(done), flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
