"""Trees and comparison of tensors: see function/trees.py."""

from runner.curvature.function.trees import (
    alike,
    copy_of_object,
    deep_copy,
    in_dtype,
    slices_of,
    tolerance,
    tree_flatten,
    tree_flatten_with_path,
    tree_leaves,
    tree_map,
    tree_unflatten,
)

__all__ = [
    "TreeSpec", "alike", "copy_of_object", "deep_copy", "in_dtype", "slices_of", "tolerance", "tree_flatten",
    "tree_flatten_with_path", "tree_leaves", "tree_map", "tree_unflatten",
]  # fmt: skip
from torch.utils._pytree import TreeSpec
