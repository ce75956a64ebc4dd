"""CIFAR-10 and CIFAR-100 from the official binary archives; no pickle is ever read.

A record is its labels (CIFAR-10: one byte; CIFAR-100: coarse, then fine) and 3072 pixel bytes, red,
green, blue planes row by row. `locate` says where the files are looked for.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from runner.contract import typed_path
from runner.data.images import DataError, ImageData, Split
from runner.kinds.dataset import CifarData

if TYPE_CHECKING:
    import numpy as np
    from torch import Tensor

    from runner.contract import Context

PIXELS = 3 * 32 * 32


@dataclass(frozen=True)
class Archive:
    """An official binary archive: where it is, its MD5, and the files that a run needs from it.

    train, test: file -> number of records, in order; label_bytes: label bytes per record, the last
    one is the class; limits: number of classes of each label byte; names: small text files with the
    classes' names; records: the record_sum of the training records and of the test records;
    torchvision: folder of the same data in torchvision.
    """

    name: str
    file: str
    md5: str
    folder: str
    train: dict[str, int]
    test: dict[str, int]
    limits: tuple[int, ...]
    names: tuple[str, ...]
    records: tuple[str, ...] = ()
    torchvision: str = ""

    @property
    def url(self) -> str:
        return f"https://www.cs.toronto.edu/~kriz/{self.file}"

    @property
    def record(self) -> int:
        """Bytes per record."""
        return len(self.limits) + PIXELS

    @property
    def sizes(self) -> dict[str, int]:
        """Bytes of every binary file."""
        return {file: count * self.record for file, count in {**self.train, **self.test}.items()}


ARCHIVES = {
    "cifar10": Archive(
        name="cifar10",
        file="cifar-10-binary.tar.gz",
        md5="c32a1d4ab5d03f1284b67883e8d87530",
        folder="cifar-10-batches-bin",
        train={f"data_batch_{k}.bin": 10_000 for k in range(1, 6)},
        test={"test_batch.bin": 10_000},
        limits=(10,),
        names=("batches.meta.txt",),
        records=("1b15cbf5376a64e556c870e6fb6066d3", "2b8fedb328dd5315bc7fa51b5ab965c0"),
        torchvision="cifar-10-batches-py",
    ),
    "cifar100": Archive(
        name="cifar100",
        file="cifar-100-binary.tar.gz",
        md5="03b5dce01913d631647c71ecec9e9cb8",
        folder="cifar-100-binary",
        train={"train.bin": 50_000},
        test={"test.bin": 10_000},
        limits=(20, 100),
        names=("coarse_label_names.txt", "fine_label_names.txt"),
        records=("e2b231efc135c5a49c46ceb4c92b1b33", "0b39f658a11decaf8ff5d13fba8201bd"),
        torchvision="cifar-100-python",
    ),
}


KNOWN_FIRST = 32
"""How many of the first test records of CIFAR-10 are known in the official order: the DAG paper
measures on these."""
ORDERS = {
    "a0181da372c0d63a5920fdbea2ec3f83": "official",
    "31070191a6d65dba8aed2640e8356d3a": f"official in the first {KNOWN_FIRST} records",
    "f1e0b6396f4afd68c7c173dfc37269c2": f"official in the first {KNOWN_FIRST} records",
    "e8a1e9db879796462c25df2a16b33ef0": "shuffled",
    "e11b6aaaa6bc35cb7dfbd37803b76fa2": "shuffled",
}
"""First half of a SHA-256 -> order. CIFAR-10: training files, first test records; CIFAR-100:
shuffled copies."""


def archive(name: str) -> Archive:
    """The archive of a data set. Raises DataError for an unknown name."""
    if name not in ARCHIVES:
        raise DataError(f"data set: expected one of {', '.join(ARCHIVES)}, found {name!r}")
    return ARCHIVES[name]


def data_root() -> Path:
    """$HESS_DATA, else data/ in the current folder."""
    return typed_path("HESS_DATA", os.environ.get("HESS_DATA") or "data")


def places(spec: Archive) -> list[Path]:
    """Folders where the files are looked for: the official one below $HESS_DATA and data/, then
    torchvision's there."""
    roots = dict.fromkeys((data_root(), Path("data")))
    return [root / folder for folder in (spec.folder, spec.torchvision) if folder for root in roots]


def locate(spec: Archive) -> Path:
    """The first of `places` with every binary file; where there is none, the first one, where
    `fetch` writes."""
    found = places(spec)
    return next((folder for folder in found if complete(spec, folder)), found[0])


def complete(spec: Archive, folder: Path) -> bool:
    """Whether every binary file is in `folder` with its exact size."""
    try:
        check_files(spec, folder)
    except DataError:
        return False
    return True


def pickled(spec: Archive) -> str:
    """A note on torchvision's folder where it is there without the binary files; "" otherwise."""
    found = [place for place in places(spec) if place.name == spec.torchvision and place.is_dir()]
    lacking = [str(place) for place in found if not complete(spec, place)]
    return f"{', '.join(lacking)} holds pickled files, which are never read" if lacking else ""


def missing(name: str) -> str:
    """The first file of an archive that is missing or of the wrong size, and how to get it; ""
    where all are there."""
    spec = archive(name)
    try:
        check_files(spec, locate(spec))
    except DataError as error:
        return "; ".join(filter(None, (str(error), pickled(spec))))
    return ""


def remedy(name: str) -> str:
    """What to do about missing or broken files."""
    return (
        f"get it with `hess-run data fetch {name}` (folder: $HESS_DATA, else data/), or run with "
        "profile=quick"
    )


def load(settings: CifarData, ctx: Context | None = None) -> ImageData:
    """Read the binary files: uint8 images (N, 3, 32, 32) and int64 labels, both parts in the order
    of the files.

    The seed changes nothing here. CIFAR-100 labels are the fine ones. Raises DataError for files
    that are missing or have the wrong size, and for labels out of range.
    """
    spec = archive(settings.kind)
    return read(
        spec,
        locate(spec),
        train=settings.train,
        test=settings.test,
        mean=settings.mean,
        std=settings.std,
    )


def read(
    spec: Archive,
    folder: Path,
    *,
    train: int | None = None,
    test: int | None = None,
    mean: Sequence[float] = (0.5, 0.5, 0.5),
    std: Sequence[float] = (0.5, 0.5, 0.5),
) -> ImageData:
    """load() for any archive of this format. train, test: that many of the first records."""
    check_files(spec, folder)
    digest = hashlib.sha256()
    splits = []
    orders = []
    for part, (files, keep) in enumerate(((spec.train, train), (spec.test, test))):
        images, labels = _read_part(spec, folder, files, digest)
        check_records(spec, folder, part, digest.hexdigest())
        orders.append(record_order(digest.hexdigest(), images[:KNOWN_FIRST], labels[:KNOWN_FIRST]))
        if keep is not None and not 0 < keep <= len(labels):
            raise DataError(f"{spec.name}: expected 1 to {len(labels)} examples, found {keep}")
        splits.append(Split(images[:keep], labels[:keep], tuple(mean), tuple(std)))
    return ImageData(
        splits[0], splits[1], spec.limits[-1], spec.name, digest.hexdigest()[:16], *orders
    )


def record_order(sha256: str, images: Tensor, labels: Tensor) -> str:
    """In what order records are: by the SHA-256 of the files read so far (train; train and test),
    or of the first ones.

    images, labels: the first KNOWN_FIRST records of the part. What no known sum fits has the order
    "not known".
    """
    import numpy as np

    content = labels.numpy().astype(np.uint8).tobytes() + images.numpy().tobytes()
    first = hashlib.sha256(content).hexdigest()
    return ORDERS.get(sha256[:32]) or ORDERS.get(first[:32]) or "not known"


def check_records(spec: Archive, folder: Path, part: int, sha256: str) -> None:
    """Raises DataError unless the training (part 0) or test records (1) are the published ones, in
    whatever order.

    sha256: of the files up to this part; a known one needs no second look.
    """
    if not spec.records or sha256[:32] in ORDERS:
        return
    files = (spec.train, spec.test)[part]
    if record_sum(spec, [folder / file for file in files]) != spec.records[part]:
        raise DataError(
            f"{spec.name}: expected the published records in {', '.join(files)} of {folder}, found "
            f"others; remove {folder}, then {remedy(spec.name)}"
        )


def record_sum(spec: Archive, paths: Sequence[Path]) -> str:
    """Sum of the SHA-256 of all records (class and pixels) modulo 2^128: the same in every order of
    the records."""
    total = 0
    skip = len(spec.limits) - 1
    for path in paths:
        content = path.read_bytes()
        for start in range(0, len(content), spec.record):
            pixels = content[start + skip : start + spec.record]
            total += int.from_bytes(hashlib.sha256(pixels).digest(), "big")
    return f"{total % 2**128:032x}"


def check_files(spec: Archive, folder: Path) -> None:
    """Raises DataError unless every binary file is in `folder` with its exact size."""
    for file, size in spec.sizes.items():
        path = folder / file
        try:
            found = None
            if path.is_file():
                found = path.stat().st_size
        except OSError as error:
            raise DataError(
                f"{spec.name}: expected a readable file {path}, found: {error}"
            ) from error
        if found is None:
            raise DataError(
                f"{spec.name}: expected {path}, found no such file; {remedy(spec.name)}"
            )
        if found != size:
            raise DataError(
                f"{spec.name}: expected {size} bytes in {path}, found {found}; {remedy(spec.name)}"
            )


def check_labels(spec: Archive, path: Path, labels: np.ndarray) -> None:
    """Raises DataError for a label, column by column, at or above its limit."""
    import numpy as np

    for column, limit in enumerate(spec.limits):
        if labels[:, column].max(initial=0) >= limit:
            at = int(np.argmax(labels[:, column] >= limit))
            raise DataError(
                f"{spec.name}: expected labels 0 to {limit - 1} in {path}, found "
                f"{labels[at, column]} in record {at}; {remedy(spec.name)}"
            )


def _read_part(
    spec: Archive, folder: Path, files: dict[str, int], digest: hashlib._Hash
) -> tuple[Tensor, Tensor]:
    import numpy as np
    import torch

    count = sum(files.values())
    width = len(spec.limits)
    images = np.empty((count, PIXELS), np.uint8)
    labels = np.empty(count, np.int64)
    start = 0
    for file, rows in files.items():
        records = np.fromfile(folder / file, np.uint8).reshape(rows, spec.record)
        check_labels(spec, folder / file, records[:, :width])
        digest.update(records.data)
        images[start : start + rows] = records[:, width:]
        labels[start : start + rows] = records[:, width - 1]
        start += rows
    return torch.from_numpy(images).view(count, 3, 32, 32), torch.from_numpy(labels)
