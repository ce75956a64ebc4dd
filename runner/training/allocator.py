"""Memory that one training step or one measurement frees is kept for the next.

A step of ResNet-18 on 128 images frees some 100 MB at its end. By default glibc returns them to the
system and asks for fresh pages in the next step: 25,000 page faults, 15 to 20 % of the step's
processor time; of exact blocks of a small network, called again and again, it is a quarter. No
number depends on it. `hess-run` does it for trainings and cells; the engine itself leaves the
process of its caller as it is.
"""

from __future__ import annotations

import ctypes
import sys
from functools import cache

MOST = 256 << 20
LARGEST = 32 << 20
"""Of a block: glibc accepts no larger threshold."""
# of mallopt(3)
_TRIM_THRESHOLD = -1
_MMAP_THRESHOLD = -3


@cache
def keep_freed_memory() -> bool:
    """Has glibc keep up to `MOST` freed bytes of this process, and take blocks below `LARGEST` from
    them. False where the C library has no mallopt (other systems than Linux, musl): nothing
    changes."""
    if sys.platform != "linux":
        return False
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    return (
        mallopt is not None
        and bool(mallopt(_MMAP_THRESHOLD, LARGEST))
        and bool(mallopt(_TRIM_THRESHOLD, MOST))
    )
