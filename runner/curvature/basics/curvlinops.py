"""An operator for curvlinops, where K-FAC, inverses and diagonals are. Needs the package
`curvlinops-for-pytorch`."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from runner.curvature.basics.adapters import Matrix, Symmetric


def as_curvlinops(operator: Matrix) -> Any:
    """The operator as a linear operator of curvlinops (version 3), in its own dtype and on its own
    device.

    Parameters
    ----------
    operator
        A `ParameterOperator`, whose tensors have the shapes of `operator.layout.parameters`, in
        this order; or what `top_eigenpairs` takes, as one vector.

    Returns
    -------
    curvlinops.PyTorchLinearOperator
        For `curvlinops.CGInverseLinearOperator` and the like, and for sums with other operators of
        curvlinops, which must be built on the same parameters in the same order.

    Raises
    ------
    ImportError
        Where curvlinops 3 is not installed.

    Notes
    -----
    The way back needs no adapter: the estimators of `runner.curvature` take symmetric operators of
    curvlinops.
    """
    try:
        from curvlinops._torch_base import PyTorchLinearOperator
    except ImportError as error:
        raise ImportError(
            "expected curvlinops 3, found none: pip install 'curvlinops-for-pytorch>=3,<4'"
        ) from error
    symmetric = Symmetric(operator)
    layout = getattr(operator, "layout", None)
    shapes = [(symmetric.size,)]
    if layout is not None:
        shapes = [tuple(p.shape) for p in layout.parameters.values()]

    class CurvlinopsOperator(PyTorchLinearOperator):
        SELF_ADJOINT = True
        device = symmetric.device
        dtype = symmetric.dtype

        def _matmat(self, columns: list[Tensor]) -> list[Tensor]:
            flat = torch.cat([c.flatten(0, -2) for c in columns])
            images = torch.stack([symmetric.matvec(c).to(flat.dtype) for c in flat.mT], 1)
            return [
                piece.reshape(c.shape)
                for piece, c in zip(images.split(self._in_shape_flat), columns, strict=True)
            ]

        def _adjoint(self) -> CurvlinopsOperator:
            return self

    return CurvlinopsOperator(shapes, shapes)
