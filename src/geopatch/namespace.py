"""Code for numpy arrays and torch tensors alike: the module whose functions take an array."""

from __future__ import annotations

import sys
from typing import Any, TypeAlias

Array: TypeAlias = Any  # a numpy array or a torch tensor; what comes out is what went in


def namespace(array: Array) -> Any:
    """The module whose functions take this array: numpy, or torch, which then is loaded already."""
    return sys.modules["numpy" if is_numpy(array) else "torch"]


def is_numpy(array: Array) -> bool:
    numpy = sys.modules.get("numpy")
    return numpy is not None and isinstance(array, numpy.ndarray)


def like(array: Array, other: Array) -> Array:
    """As the type of number that the other has: numpy divides whole numbers into float64."""
    return array.astype(other.dtype, copy=False) if is_numpy(array) else array


def largest(array: Array, axis: int) -> Array:
    """The maximum along one axis."""
    return array.max(axis) if is_numpy(array) else array.amax(axis)
