"""Training toward flat minima: all starts together against one start after the other; the search for starts.

Processor time of one thread. Operation count of one step for S starts, I samples, N hidden units, C = M + 1:
    gd     S I (N + 1) logistic functions, S I (2 N M + 4 N) multiply-adds
    asam   twice that
    trace  about S I 40 N elementwise
    hsr    2 S I (N² C(C+1)/2 + N (N+1) C + (N+1)²) multiply-adds in products, S I (10 N² + 40 N) elementwise
At S = 226, I = 50, N = 3, C = 3: hsr 2.5e6 multiply-adds and 2.4e6 elementwise, about 2 ms.

The yardstick is 226 starts × 4 methods × 10,000 steps with no start stopping early. STEPS of every method are timed,
before and after the flatness term is dropped, and scaled to 5,000 each; the print says so. The opponent descends one
start at a time by the closed forms of a single theta, which costs the same at every step.
"""

import time

import torch

from experiments.three_layer.flatness import METHODS, training_direction
from runner.curvature.closed_form import three_layer as tl
from runner.training.descent.descent import LossGradient, descend

STARTS, SEARCHED, SAMPLES, UNITS, RATE, HALF = 226, 3000, 50, 3, 0.01, 5000
STEPS, SEARCH_STEPS, OPPONENT_STEPS = 150, 300, 60
NEVER = (1e-12,)


def problem(starts):
    generator = torch.Generator().manual_seed(42)
    q = (torch.arange(SAMPLES) % 2).double()
    noise = torch.randn(SAMPLES, 2, generator=generator, dtype=torch.float64)
    x = 2**0.5 * noise + (1 - 2 * q)[:, None]
    size = (starts, tl.parameter_count(2, UNITS))
    return torch.rand(*size, generator=generator, dtype=torch.float64) * 20 - 10, x, q


def seconds(theta0, direction, steps):
    descend(theta0, direction, rate=RATE, max_steps=5, stop_ratios=NEVER)
    begin = time.process_time()
    descend(theta0, direction, rate=RATE, max_steps=steps, stop_ratios=NEVER)
    return time.process_time() - begin


def one_by_one(method, theta, x, q, steps):
    """Seconds of one start's steps by the closed forms of a single theta."""
    begin = time.process_time()
    for _ in range(steps):
        gradient = tl.gradient(theta, x, q)
        if method == "trace":
            gradient = gradient + tl.trace_gradient(theta, x, q)
        elif method == "hsr":
            gradient = gradient + tl.upper_bound_gradient(theta, x, q)
        elif method == "asam":
            scale = theta.abs() + 0.01
            gradient = tl.gradient(theta + 0.1 * scale**2 * gradient / (scale * gradient).norm(), x, q)
        theta = theta - RATE * gradient
    return time.process_time() - begin


def main():
    torch.set_num_threads(1)
    theta0, x, q = problem(STARTS)
    plain = seconds(theta0, LossGradient(x, q), STEPS) / STEPS
    total = 0.0
    for method in METHODS:
        each = seconds(theta0, training_direction(method, x, q), STEPS) / STEPS
        ours = HALF * (each + plain)
        total += ours
        begin = one_by_one(method, theta0[0], x, q, OPPONENT_STEPS) / OPPONENT_STEPS
        after = one_by_one("gd", theta0[0], x, q, OPPONENT_STEPS) / OPPONENT_STEPS
        opponent = STARTS * HALF * (begin + after)
        print(
            f"{method}, {STARTS} starts x 10000 steps: ours {ours * 1e3:.0f} ms, opponent {opponent * 1e3:.0f} ms, "
            f"ratio {opponent / ours:.0f} (start by start; {STEPS} and {OPPONENT_STEPS} steps timed, scaled)"
        )
    print(f"yardstick, 4 methods: {total:.0f} s on one thread ({STEPS} steps of each phase timed, scaled)")
    searched, x, q = problem(SEARCHED)
    found = seconds(searched, LossGradient(x, q), SEARCH_STEPS) * 10_000 / SEARCH_STEPS
    print(f"search, {SEARCHED} starts x 10000 steps, none stopping: {found:.0f} s on one thread (scaled)")


if __name__ == "__main__":
    main()
