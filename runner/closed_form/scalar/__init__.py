"""Closed-form Hessian spectra of one-hidden-layer networks on scalar data.

The theorems of Singh and Hofmann, completed.

Mean squared error ½ mean (f(x) − y)², any width m, any number of samples n. One line per network:

    linear  f = ⟨w, v⟩ x         linear_spectrum(w, v, x, y)     θ = (v, w)
    ReLU    f = wᵀ(v x)₊         relu_spectrum(w, v, x, y)       θ = (v, w)
    bias    f = wᵀ(v x + b)      bias_spectrum(w, v, b, x, y)    θ = (w, v, b)

Each returns a `Spectrum`: eigenvalues with multiplicities in O(m), eigenvectors on request.
"""

from runner.closed_form.scalar.bias import bias_spectrum
from runner.closed_form.scalar.linear import (
    CellMoments,
    EigenGroup,
    Moments,
    PairProblem,
    Spectrum,
    blocks,
    linear_spectrum,
    relu_spectrum,
)
