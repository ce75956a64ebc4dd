"""Peak memory of ParameterOperator, checks and two products, against the memory_budget it was
given.

Each row is measured in processes of their own: the growth of the resident set over what it was
before the operator was built, with everything loaded that the first use of a part loads. Goal: at
most 1.2 times the budget; a budget that one example does not fit is said to be exceeded
(RuntimeWarning), and the peak is held against what the warning says.

Run: python -m tests.bench memory [--quick]
"""

from collections.abc import Iterator
from typing import NamedTuple

from tests.bench.machine import alone
from tests.bench.table import Row

GOAL = 1.2
PARTS = ("hessian", "gauss_newton")


class Case(NamedTuple):
    """One operator: its network, part, budget in MiB, and how many batches its data come in."""

    network: str
    part: str
    budget: int
    batches: int = 1


CASES = (
    *(Case("mlp", part, budget) for budget in (32, 128) for part in PARTS),
    *(Case("convnet", part, budget) for budget in (32, 64) for part in PARTS),
    *(Case("convnet", part, 64, 4) for part in PARTS),
    *(Case("resnet", part, 640) for part in PARTS),
    Case("resnet", "hessian", 2048),
)


CODE = """
from runner.curvature import ParameterOperator
from runner.models.resnet import resnet18

kind, part, budget, batches = sys.argv[1], sys.argv[2], int(sys.argv[3]) << 20, int(sys.argv[4])

def layers(inputs, outputs):
    return nn.Linear(inputs, outputs), nn.LayerNorm(outputs), nn.SiLU()

if kind == "mlp":
    hidden = [m for _ in range(4) for m in layers(256, 256)]
    net = nn.Sequential(*layers(128, 256), *hidden, nn.Linear(256, 10))
    x = torch.randn(2048, 128)
elif kind == "convnet":
    net = nn.Sequential(
        nn.Conv2d(3, 16, 3, 1, 1), nn.BatchNorm2d(16), nn.SiLU(),
        nn.Conv2d(16, 32, 3, 2, 1), nn.BatchNorm2d(32), nn.SiLU(),
        nn.Conv2d(32, 32, 3, 1, 1), nn.SiLU(),
        nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.Linear(512, 10),
    ).eval()
    x = torch.randn(128, 3, 32, 32)
else:
    net, x = resnet18(activation="silu").eval(), torch.randn(32, 3, 32, 32)
y = torch.randint(10, (len(x),))

def measured(examples, budget, batches=1):
    data = list(zip(x[:examples].chunk(batches), y[:examples].chunk(batches)))
    loss = nn.CrossEntropyLoss()
    operator = ParameterOperator(net, loss, data, part=part, memory_budget=budget)
    first = operator @ torch.ones(operator.shape[0])
    operator @ first
    return operator

warnings.simplefilter("ignore")
measured(3, 1 << 34), measured(3, 1)
before = forget_the_peak()
with warnings.catch_warnings(record=True) as said:
    warnings.simplefilter("always")
    operator = measured(len(x), budget, batches)
needed = operator.planned.bytes / 2**20 if any("is exceeded" in str(w.message) for w in said) else 0
chunk = operator.planned.chunk or len(x) // batches
print(status("VmHWM") - before, needed, chunk, "kept" if operator.planned.keep else "not kept")
"""


def peak_of(case: Case) -> tuple[float, float, str]:
    """MiB at the peak of a process of its own; MiB that a warning says are needed (0: no warning);
    what was planned."""
    found, needed, chunk, *kept = alone(CODE, *case)
    return float(found), float(needed), f"{chunk} examples at once, graphs {' '.join(kept)}"


def peak(network: str, part: str, budget: int) -> tuple[float, str]:
    """(peak over the budget in MiB, what was planned)."""
    found, _, how = peak_of(Case(network, part, budget))
    return found / budget, how


def rows(quick: bool = False, word: str = "") -> Iterator[Row]:
    """One for each case; the smallest convnets, whose peaks differ from process to process, from
    three processes."""
    for case in [c for c in CASES if c.network != "resnet"][::2] if quick else CASES:
        part, plural = case.part.replace("_", " "), "es" * (case.batches > 1)
        name = f"{case.network}, {part}, {case.batches} batch{plural}"
        name = f"peak of a parameter operator of {case.budget} MiB: {name}"
        if word.lower() not in name.lower():
            continue
        found = [
            peak_of(case)
            for _ in range(3 if case[0] == "convnet" and case.budget == 32 and not quick else 1)
        ]
        _, needed, how = found[0]
        note = how + (f"; a warning says that one example takes {needed:.0f} MiB" if needed else "")
        peaks = tuple(one[0] for one in found)
        held = max(needed, case.budget)
        yield Row("memory", name, peaks, (held,), GOAL, at_least=False, unit="MiB", note=note)
