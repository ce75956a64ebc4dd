"""Closed forms of the three-layer network against other ways to the same numbers, processor time of one thread.

Operation counts per theta (multiply-adds), I samples, M inputs, N hidden units, D = M N + 2 N + 1:
    gradient of lambda_sup, ours           2 I D² + 2 I N (M+1)²              (H, then J G)
    the same by the paper's double sums    I² (8 N + M), with 20 passes over I × I matrices
    the same by three-point differences    2 D evaluations of tr H and tr H², I D² each
    reverse-mode autodiff of ||H||_F²      about 3 I D² and the graph
"""

import math
import time

import torch

from experiments.three_layer.hsr_gradient import cost as double_sum
from runner.curvature.closed_form import three_layer as tl


def instance(samples, inputs, hidden, seed=0):
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(samples, inputs, generator=generator, dtype=torch.float64)
    q = (torch.arange(samples) % 2).double()
    theta = torch.randn(tl.parameter_count(inputs, hidden), generator=generator, dtype=torch.float64)
    return theta, x, q


def milliseconds(function, *arguments, budget=0.5):
    """Best of repeats within the budget: the least disturbed one."""
    function(*arguments)
    best, begin = math.inf, time.process_time()
    while time.process_time() - begin < budget:
        start = time.process_time()
        function(*arguments)
        best = min(best, time.process_time() - start)
    return best * 1e3


def three_point(theta, x, q, step=1e-5):
    """∇λ_sup by central differences of the closed-form traces, all 2 D points in one batch."""
    shifts = step * torch.eye(len(theta), dtype=theta.dtype)
    return (tl.upper_bound(theta + shifts, x, q) - tl.upper_bound(theta - shifts, x, q)) / (2 * step)


def three_point_one_by_one(theta, x, q, step=1e-5):
    """The same, one evaluation after the other, as a script would."""
    found = torch.empty_like(theta)
    for d in range(len(theta)):
        shift = torch.zeros_like(theta)
        shift[d] = step
        found[d] = (tl.upper_bound(theta + shift, x, q) - tl.upper_bound(theta - shift, x, q)) / (2 * step)
    return found


def reverse_mode(theta, x, q):
    """∇||H||_F² by autograd through the closed-form Hessian."""
    leaf = theta.detach().requires_grad_()
    return torch.autograd.grad(tl.hessian(leaf, x, q).square().sum(), leaf)[0]


def show(name, ours, opponent):
    print(f"{name}: ours {ours:.3g} ms, opponent {opponent:.3g} ms, ratio {opponent / ours:.3g}")


def exponent(sizes, times):
    """Least-squares slope of log time against log size."""
    a, b = torch.tensor(sizes).double().log(), torch.tensor(times).double().log()
    a, b = a - a.mean(), b - b.mean()
    return float((a * b).sum() / (a * a).sum())


def forms_of_the_squared_trace():
    for sizes in ((50, 2, 3), (50, 2, 10), (200, 2, 3), (200, 2, 50), (50, 20, 20), (200, 20, 20), (200, 30, 50)):
        theta, x, q = instance(*sizes)
        times = {
            "double sum": milliseconds(tl.trace_of_square_double_sum, theta, x, q, budget=0.2),
            "||H||_F^2": milliseconds(tl.trace_of_square_frobenius, theta, x, q, budget=0.2),
        }
        picked = milliseconds(tl.trace_of_square, theta, x, q, budget=0.2)
        slow = max(times, key=times.__getitem__)
        show(f"tr H^2 at (I,M,N)={sizes}, picked form against {slow}", picked, times[slow])


def gradients():
    theta, x, q = instance(2000, 2, 3)
    ours = milliseconds(tl.upper_bound_gradient, theta, x, q)
    paper = milliseconds(double_sum.upper_bound_gradient, theta, x, q, budget=2)
    show("gradient of lambda_sup at (2000,2,3), against the double sums in matrix form", ours, paper)
    tiled = milliseconds(double_sum.upper_bound_gradient, theta, x, q, "sigmoid", 48, budget=2)
    show("gradient of lambda_sup at (2000,2,3), against the double sums tiled for the cache", ours, tiled)
    theta, x, q = instance(200, 2, 50)
    ours = milliseconds(tl.upper_bound_gradient, theta, x, q)
    name = "gradient of lambda_sup at (200,2,50), D=201, against three-point differences"
    show(f"{name}, one by one", ours, milliseconds(three_point_one_by_one, theta, x, q, budget=2))
    show(f"{name}, in one batch", ours, milliseconds(three_point, theta, x, q, budget=2))
    for sizes in ((50, 2, 3), (200, 2, 3), (2000, 2, 3), (200, 2, 50), (200, 20, 20)):
        theta, x, q = instance(*sizes)
        ours = milliseconds(tl.trace_of_square_gradient, theta, x, q)
        reverse = milliseconds(reverse_mode, theta, x, q)
        show(f"gradient of tr H^2 at {sizes}, against reverse mode of ||H||_F^2", ours, reverse)


def cost_against_samples():
    sizes = (2000, 4000, 8000, 16000, 32000)
    ours = [milliseconds(tl.upper_bound_gradient, *instance(size, 2, 3)) for size in sizes]
    print(f"gradient of lambda_sup, cost exponent in I over {sizes[0]}..{sizes[-1]}: {exponent(sizes, ours):.2f}")
    few = (500, 1000, 2000)
    paper = [milliseconds(double_sum.upper_bound_gradient, *instance(size, 2, 3)) for size in few]
    print(f"double sums, cost exponent in I over {few[0]}..{few[-1]}: {exponent(few, paper):.2f}")


def main():
    torch.set_num_threads(1)
    forms_of_the_squared_trace()
    gradients()
    cost_against_samples()


if __name__ == "__main__":
    main()
