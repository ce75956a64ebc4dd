"""Descent of all starts together against the same descent start by start in torch (autograd).

Processor time of one thread, which a busy machine does not stretch.

Operation count of one step for S starts, I samples, N hidden units, M inputs: S I (N + 1) logistic functions and
S I (2 N M + 4 N) multiply-adds. At S = 500, I = 50, N = 3: 1e5 logistic functions and 6e5 multiply-adds, about 0.3 ms,
of which a third are the logistic functions.

The opponent takes about 100 microseconds per start and step whatever the size, so it is timed on a few starts and
steps and scaled to the whole; the print says how many.
"""

import time

import torch

from runner.curvature.closed_form import three_layer as tl
from runner.training.descent.descent import LossGradient, descend

STARTS, STEPS, SAMPLES, INPUTS, RATE = 500, 10_000, 50, 2, 0.01
OPPONENT_STARTS, OPPONENT_STEPS = 3, 500


def problem(width):
    generator = torch.Generator().manual_seed(42)
    q = (torch.arange(SAMPLES) % 2).double()
    noise = torch.randn(SAMPLES, INPUTS, generator=generator, dtype=torch.float64)
    x = 2**0.5 * noise + (1 - 2 * q)[:, None]
    size = (STARTS, tl.parameter_count(INPUTS, width))
    return torch.rand(*size, generator=generator, dtype=torch.float64) * 20 - 10, x, q


def start_by_start(theta0, x, q, width, steps):
    """The loop one writes in torch: parameters, forward, loss, backward, stop rule, update."""
    for start in theta0:
        W, V = (part.clone().requires_grad_() for part in tl.split(start, INPUTS))
        initial = None
        for _ in range(steps):
            z = V[0] + torch.sigmoid(x @ W[:, 1:].T + W[:, 0]) @ V[1:]
            loss = torch.nn.functional.binary_cross_entropy_with_logits(z, q, reduction="sum")
            slopes = torch.autograd.grad(loss, (W, V))
            norm = float(sum(slope.square().sum() for slope in slopes))
            initial = norm if initial is None else initial
            if norm <= 1e-6 * initial:
                break
            with torch.no_grad():
                W -= RATE * slopes[0]
                V -= RATE * slopes[1]


def main():
    torch.set_num_threads(1)
    for width in (3, 10):
        theta0, x, q = problem(width)
        begin = time.process_time()
        descend(theta0, LossGradient(x, q), rate=RATE, max_steps=STEPS, stop_ratios=(0.005, 0.001))
        ours = time.process_time() - begin
        begin = time.process_time()
        start_by_start(theta0[:OPPONENT_STARTS], x, q, width, OPPONENT_STEPS)
        each = (time.process_time() - begin) / (OPPONENT_STARTS * OPPONENT_STEPS)
        opponent = each * STARTS * STEPS
        print(
            f"descent N={width}, {STARTS} starts x {STEPS} steps: ours {ours * 1e3:.0f} ms, "
            f"opponent {opponent * 1e3:.0f} ms, ratio {opponent / ours:.0f} "
            f"(opponent: start by start, {OPPONENT_STARTS} starts x {OPPONENT_STEPS} steps timed, scaled)"
        )


if __name__ == "__main__":
    main()
