"""The recipe of several processes gives the numbers of one process with all data."""

import importlib

import pytest
import torch
from sklearn.datasets import load_digits
from torch import nn

from runner.curvature import (
    ParameterOperator,
    batch_errors,
    spectral_density,
    top_eigenpairs,
    trace_estimate,
    upper_bound_estimate,
)

recipes = importlib.import_module("docs.recipes.__main__")


def of_one_process():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(64, 16), nn.Tanh(), nn.Linear(16, 10)).eval()
    digits = load_digits()
    x, y = torch.tensor(digits.data, dtype=torch.float32) / 16, torch.tensor(digits.target)

    def hessian(start, stop):
        batch = x[start:stop], y[start:stop]
        return ParameterOperator(net, nn.CrossEntropyLoss(), batch)

    whole = hessian(0, 1001)
    batches = [hessian(250 * batch, 250 * batch + 250) for batch in range(4)]
    return [
        *top_eigenpairs(whole, 3).values.tolist(),
        trace_estimate(whole).value,
        upper_bound_estimate(whole).value,
        float(spectral_density(whole, 2, 20).nodes.max()),
        batch_errors(batches)["lambda_1"].error,
    ]


@pytest.mark.slow
def test_several_processes_give_the_numbers_of_one(tmp_path):
    """Shares of 501 and 500 examples."""
    (script,) = (path for path in recipes.scripts() if path.stem == "several_processes")
    lines = recipes.run(script, tmp_path).splitlines()
    found = [float(number) for line in lines for number in line.partition(": ")[2].split(", ")]
    assert found == pytest.approx(of_one_process(), abs=2e-4)
