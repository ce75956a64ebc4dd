"""Numbers of parameters of two common networks for 224 x 224 images and 1,000 classes (Section II-B)."""

from __future__ import annotations

from itertools import pairwise

CLASSES = 1000


def vgg16() -> int:
    """13 convolutions of 3 x 3 with biases, three full layers, after Simonyan and Zisserman.

    >>> vgg16()
    138357544
    """
    channels = (3, 64, 64, 128, 128, 256, 256, 256, 512, 512, 512, 512, 512, 512)
    convolutions = sum((9 * a + 1) * b for a, b in pairwise(channels))
    full = (512 * 7 * 7, 4096, 4096, CLASSES)
    return convolutions + sum((a + 1) * b for a, b in pairwise(full))


def resnet18() -> int:
    """Stem, eight blocks of two 3 x 3 convolutions with batch norm, projections where the width changes, a head.

    >>> resnet18()
    11689512
    """

    def convolution(a: int, b: int, size: int) -> int:
        return size**2 * a * b + 2 * b  # no bias, but scale and shift of its batch norm

    count, width = convolution(3, 64, 7), 64
    for wider in (64, 128, 256, 512):
        for _ in range(2):
            count += convolution(width, wider, 3) + convolution(wider, wider, 3)
            count += convolution(width, wider, 1) if width != wider else 0
            width = wider
    return count + (width + 1) * CLASSES
