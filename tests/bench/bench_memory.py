"""Peak memory of ParameterOperator, checks and two products, against the memory_budget it was given.

Each row is measured in a process of its own: the growth of the resident set over what it was before the operator was
built, with everything loaded that the first use of a part loads. Goal: at most 1.2 times the budget wherever one
example fits; a row that cannot be met says what it takes (RuntimeWarning).

Run: python -m tests.bench.bench_memory [--quick]
"""

from __future__ import annotations

import subprocess
import sys

GOAL = 1.2
ROWS = [
    (network, part, budget)
    for network, budgets in (("mlp", (32, 128)), ("convnet", (64, 256)), ("resnet", (640, 2048)))
    for budget in budgets
    for part in ("hessian", "gauss_newton", "fisher")
]

ALONE = """
import sys, warnings
import torch
from torch import nn
from runner.curvature import ParameterOperator
from runner.models.resnet import resnet18

torch.set_num_threads(1)
torch.manual_seed(0)
kind, part, budget = sys.argv[1], sys.argv[2], int(sys.argv[3]) << 20

def status(name):
    return next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith(name)) / 1024

def layers(inputs, outputs):
    return nn.Linear(inputs, outputs), nn.LayerNorm(outputs), nn.SiLU()

if kind == "mlp":
    net = nn.Sequential(*layers(128, 256), *(m for _ in range(4) for m in layers(256, 256)), nn.Linear(256, 10))
    x = torch.randn(2048, 128)
elif kind == "convnet":
    net = nn.Sequential(
        nn.Conv2d(3, 16, 3, 1, 1), nn.BatchNorm2d(16), nn.SiLU(), nn.Conv2d(16, 32, 3, 2, 1), nn.BatchNorm2d(32),
        nn.SiLU(), nn.Conv2d(32, 32, 3, 1, 1), nn.SiLU(), nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.Linear(512, 10),
    ).eval()
    x = torch.randn(128, 3, 32, 32)
else:
    net, x = resnet18(activation="silu").eval(), torch.randn(32, 3, 32, 32)
y = torch.randint(10, (len(x),))

def measured(examples, budget):
    data = [(x[:examples], y[:examples])]
    operator = ParameterOperator(net, nn.CrossEntropyLoss(), data, part=part, memory_budget=budget)
    first = operator @ torch.ones(operator.shape[0])
    operator @ first
    return operator

warnings.simplefilter("ignore")
measured(3, 1 << 34), measured(3, 1)
open("/proc/self/clear_refs", "w").write("5")
before = status("VmRSS")
operator = measured(len(x), budget)
chunk = operator.planned.chunk or len(x)
print((status("VmHWM") - before) / (budget >> 20), chunk, "kept" if operator.planned.keep else "not kept")
"""


def peak(network: str, part: str, budget: int) -> tuple[float, str]:
    """(peak over the budget in MiB, what was planned)."""
    run = subprocess.run(
        [sys.executable, "-c", ALONE, network, part, str(budget)], capture_output=True, text=True, check=True
    )
    ratio, chunk, kept = run.stdout.split(maxsplit=2)
    return float(ratio), f"{chunk} examples at once, graphs {kept.strip()}"


def main() -> None:
    rows = [r for r in ROWS if r[0] != "resnet"][::2] if "--quick" in sys.argv else ROWS
    for network, part, budget in rows:
        ratio, how = peak(network, part, budget)
        print(f"{network} {part}: budget {budget} MiB, peak {ratio:.2f} of it (goal {GOAL}), {how}", flush=True)


if __name__ == "__main__":
    main()
