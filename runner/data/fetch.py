"""Download, check and unpack the official CIFAR archives.

A download goes to .<file>.hess-run.part and is continued from there with an HTTP range request.
Only an archive with the published MD5 is opened; only the expected members are unpacked, into a
temporary folder that is renamed when every file has its exact size: a data folder is whole or
absent. An archive or a folder that was there before is never removed: a folder in the way is moved
to a name of its own.
"""

from __future__ import annotations

import hashlib
import http.client
import logging
import os
import shutil
import tarfile
import urllib.error
import urllib.request
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path, PurePosixPath
from typing import IO

import numpy as np

from runner.data.cifar import (
    Archive,
    archive,
    check_files,
    check_labels,
    check_records,
    complete,
    data_root,
    locate,
    remedy,
)
from runner.data.images import DataError
from runner.files import locked, move, remove, set_aside, sha256

Progress = Callable[[int, int | None], None]

LOGGER = logging.getLogger("hess_run")
NAMED_AFTER = 5.0
"""Seconds of waiting for another process after which that is said."""
CHUNK = 1 << 16
ATTEMPTS = 3
"""Tries per address; each goes on where the last one stopped."""
TIMEOUT = 30.0
"""Seconds without an answer."""
SLACK = 1 << 20
"""What an archive may be larger than its files: the uncompressed ones bound the packed one."""
PART = ".hess-run.part"
SUMS = "SHA256SUMS"
"""Checksums of the unpacked files, in the format of sha256sum, for verify()."""


def fetch(name: str, *, mirrors: Sequence[str] = (), progress: Progress | None = None) -> Path:
    """Folder of the complete data set `name` ("cifar10", "cifar100"), downloaded if it is not
    there.

    mirrors: addresses (http, https or file) tried in order; the official one is added at the end
    unless listed. progress(done, total): bytes so far and bytes in all (None while unknown).
    Raises DataError when no address gives the archive with the published checksum, or its content
    is not as expected.
    """
    spec = archive(name)
    found = locate(spec)
    if complete(spec, found):
        return found
    return fetch_archive(spec, data_root(), mirrors=mirrors, progress=progress)


def fetch_archive(
    spec: Archive,
    root: Path,
    *,
    mirrors: Sequence[str] = (),
    progress: Progress | None = None,
) -> Path:
    """fetch() for any archive of this format."""
    folder = root / spec.folder
    try:
        root.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise DataError(
            f"{spec.name}: expected a folder to write to at {root}, found: {error}; set $HESS_DATA"
        ) from error
    lock = root / f".{spec.name}.lock"
    with ExitStack() as held:
        if not held.enter_context(locked(lock, NAMED_AFTER)):
            LOGGER.warning("%s: another process fetches it and holds %s; waiting", spec.name, lock)
            held.enter_context(locked(lock, timeout=-1))
        if not complete(spec, folder):
            packed = root / spec.file
            part = root / f".{spec.file}{PART}"
            if packed.is_file() and md5(packed) == spec.md5:
                unpack(spec, packed, root)
            else:
                if packed.is_file():
                    LOGGER.warning(
                        "%s: expected MD5 %s, found another: the file is cut or changed and is not "
                        "used; the archive is downloaded",
                        *(packed, spec.md5),
                    )
                urls = list(mirrors) if spec.url in mirrors else [*mirrors, spec.url]
                _download(spec, part, urls, progress)
                unpack(spec, part, root)
            remove(part, is_part)
    return folder


def is_part(path: Path) -> bool:
    """Whether a file is a download of this program."""
    return path.name.startswith(".") and path.name.endswith(PART)


def verify(spec: Archive, folder: Path) -> None:
    """Check every file of an archive: size, labels, and the checksums noted when it was fetched.

    Raises DataError for the first file that is not as it should be. Files that came another way
    have no checksums noted; their sizes, their labels and the sum of their records are checked.
    """
    check_files(spec, folder)
    for file in spec.sizes:
        records = np.memmap(folder / file, np.uint8, "r").reshape(-1, spec.record)
        check_labels(spec, folder / file, records[:, : len(spec.limits)])
    digest = hashlib.sha256()
    for part, files in enumerate((spec.train, spec.test)):
        for file in files:
            digest.update((folder / file).read_bytes())
        check_records(spec, folder, part, digest.hexdigest())
    noted = folder / SUMS
    for line in noted.read_text(encoding="utf-8").splitlines() if noted.is_file() else []:
        expected, _, file = line.partition("  ")
        if PurePosixPath(file).name != file or not (folder / file).is_file():
            raise DataError(
                f"{spec.name}: expected a file named in {noted}, found none at {file!r}; "
                f"{remedy(spec.name)}"
            )
        found = sha256(folder / file)
        if found != expected:
            raise DataError(
                f"{spec.name}: expected SHA-256 {expected} of {folder / file}, found {found}: the "
                f"file has changed; remove {folder}, then {remedy(spec.name)}"
            )


def md5(path: Path) -> str:
    """MD5 of a file in hexadecimal, the checksum that the publisher gives."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "md5").hexdigest()


def unpack(spec: Archive, packed: Path, root: Path) -> Path:
    """Unpack the expected members of an archive, whose MD5 is the published one, into
    root/<folder>, all or nothing; an older folder is moved aside. Raises DataError where one is
    missing."""
    fresh = root / f".{spec.folder}.hess-run"  # one that a killed process left is filled again
    fresh.mkdir(exist_ok=True)
    try:
        _extract(spec, packed, fresh)
        check_files(spec, fresh)
        sums = [f"{sha256(fresh / file)}  {file}\n" for file in spec.sizes]
        (fresh / SUMS).write_text("".join(sums), encoding="utf-8")
        folder = root / spec.folder
        if os.path.lexists(folder):
            place = set_aside(folder, folder.with_name(f"{folder.name}.before"))
            LOGGER.warning("%s was incomplete; it was moved to %s", folder, place)
        move(fresh, folder)
        return folder
    finally:
        for file in fresh.glob("*"):
            remove(file, lambda file: True)
        with suppress(OSError):  # it has become the data folder
            fresh.rmdir()


def _extract(spec: Archive, packed: Path, target: Path) -> None:
    """Copy the expected members of an archive into `target`."""
    names = {f"{spec.folder}/{file}" for file in (*spec.sizes, *spec.names)}
    with tarfile.open(packed, "r:gz") as archive:
        for member in archive:
            path = PurePosixPath(member.name)
            source = None
            if str(path) in names:
                source = archive.extractfile(member)
            if source is not None:
                with source, (target / path.name).open("wb") as sink:
                    shutil.copyfileobj(source, sink, CHUNK)


def _download(spec: Archive, part: Path, urls: Sequence[str], progress: Progress | None) -> None:
    """Bring the archive with the published MD5 to `part`, trying the addresses in order."""
    reasons = []
    limit = sum(spec.sizes.values()) + SLACK
    for url in urls:
        for _ in range(ATTEMPTS):
            resumed = 0
            if part.is_file():
                resumed = part.stat().st_size
            try:
                complete = _continue(url, part, progress, limit)
            except (
                urllib.error.URLError,
                http.client.HTTPException,
                TimeoutError,
                ConnectionError,
                ValueError,
            ) as error:
                reasons.append(f"{url}: {error}")
                refused = isinstance(error, urllib.error.HTTPError) and error.code < 500
                if refused or isinstance(error, ValueError):
                    break  # asking again will not help
                continue
            if not complete:
                reasons.append(f"{url}: the connection ended early")
                continue
            found = md5(part)
            if found == spec.md5:
                return
            remove(part, is_part)
            reasons.append(f"{url}: expected MD5 {spec.md5}, found {found}")
            if (
                not resumed
            ):  # a whole file with the wrong content; a resumed one may mix two: start again
                break
    raise DataError(
        f"{spec.name}: expected {spec.file} from one of {len(urls)} addresses, found none usable "
        f"({'; '.join(dict.fromkeys(reasons))}); {remedy(spec.name)}; other addresses can be "
        f"listed as mirrors in conf/dataset/{spec.name}.yaml"
    )


def _continue(url: str, part: Path, progress: Progress | None, limit: int) -> bool:
    """Append to `part` what is missing of `url`; True when it has all the bytes that the server
    announced."""
    if url.split(":", 1)[0] not in ("http", "https", "file"):
        raise ValueError("expected an address that starts with http:, https: or file:")
    done = 0
    if part.is_file():
        done = part.stat().st_size
    request = urllib.request.Request(url, headers={"User-Agent": "hess-run"})
    if done:
        request.add_header("Range", f"bytes={done}-")
    try:
        with urllib.request.urlopen(request, timeout=TIMEOUT) as reply:
            status = getattr(reply, "status", None)
            if done and not (
                status == 206
                and reply.headers.get("Content-Range", "").startswith(f"bytes {done}-")
            ):
                done = 0  # the server sends the whole file
            length = reply.headers.get("Content-Length")
            total = done + int(length) if length is not None else None
            return _copy(reply, part, done, total, progress, limit)
    except urllib.error.HTTPError as error:
        if error.code == 416 and done:  # nothing beyond what is there: the checksum decides
            return True
        raise


def _copy(
    reply: IO[bytes],
    part: Path,
    done: int,
    total: int | None,
    progress: Progress | None,
    limit: int,
) -> bool:
    """Raises ValueError, and keeps nothing, when more comes than the archive can hold."""
    read = getattr(
        reply, "read1", reply.read
    )  # what has come, not a whole chunk: progress from the first byte
    with part.open("ab" if done else "wb") as sink:
        while chunk := read(CHUNK):
            sink.write(chunk)
            done += len(chunk)
            if done > limit:
                remove(part, is_part)
                raise ValueError(f"expected at most {limit} bytes, found more")
            if progress:
                progress(done, total)
        sink.flush()
        os.fsync(sink.fileno())
    return total is None or done == total
