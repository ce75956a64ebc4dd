"""Exact blocks of a deep wide network, L = 50, width 256, B = 32, float32, at the default
memory_budget of 1 GiB.

1,275 blocks of 256 x 256 are 334 MB, the matrix of all of them twice that; examples are streamed.
The peak is the growth of the resident set in a process of its own, against the budget; it can be at
most 1.2 times that.

Operations: 2 B d^3 L^2 / 2 for the tensor part, 1.3 Tflop, beside the Gauss-Newton part
2 B K d^2 L^2 / 2.

Run: python -m tests.bench deep_blocks [--quick]
"""

from collections.abc import Iterator

from tests.bench.machine import alone
from tests.bench.table import Row

BUDGET = 1024
CODE = """
from runner.curvature import Dag, exact_blocks

def node():
    return nn.Sequential(nn.Linear(256, 256), nn.LayerNorm(256), nn.SiLU())

body = [node() for _ in range(int(sys.argv[1]))]
dag = Dag.from_sequential([*body, nn.Linear(256, 10)])
x, y = torch.randn(32, 256), torch.randint(10, (32,))
exact_blocks(dag, x[:1], y[:1], dag.order[-1:])
before, start = forget_the_peak(), time.process_time()
blocks = exact_blocks(dag, x, y, dag.order[:-1])
print(status("VmHWM") - before, time.process_time() - start, len(blocks))
"""


def rows(quick: bool = False, word: str = "") -> Iterator[Row]:
    """The one row, whatever the word."""
    depth = 12 if quick else 50
    peak, seconds, blocks = map(float, alone(CODE, depth))
    name = f"exact blocks, MLP L={depth} width 256, B = 32: peak, against the default memory_budget"
    note = f"{blocks:.0f} blocks in {seconds:.0f} s of processor time"
    yield Row("deep_blocks", name, (peak,), (BUDGET,), 1.2, at_least=False, unit="MiB", note=note)
