"""Download, checksum and unpacking, on tiny archives of the same format served from this
machine."""

import hashlib
import http.server
import io
import os
import tarfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from runner.data.cifar import ARCHIVES, Archive, locate, missing, read
from runner.data.fetch import fetch_archive, unpack, verify
from runner.data.images import DataError
from runner.files import locked
from tests.errors import refusal

FOLDER = "tiny-bin"
TRAIN, TEST = {"a.bin": 3, "b.bin": 2}, {"t.bin": 2}


def records(count, seed, limits=(4,)):
    g = np.random.default_rng(seed)
    labels = np.stack([g.integers(0, limit, count) for limit in limits], 1).astype(np.uint8)
    return np.concatenate([labels, g.integers(0, 256, (count, 3072), dtype=np.uint8)], 1)


def members(**changed):
    """name -> content of the files of the archive; None: of none."""
    content = {"names.txt": b"one\ntwo\n", "readme.html": b"hello"}
    for seed, (file, n) in enumerate((TRAIN | TEST).items()):
        content[file] = records(n, seed).tobytes()
    content |= {f"{name}.bin": data for name, data in changed.items()}
    return {name: data for name, data in content.items() if data is not None}


def tar_bytes(content, folder=FOLDER):
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
        for name, data in content.items():
            info = tarfile.TarInfo(f"{folder}/{name}")
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    return buffer.getvalue()


SPEC = Archive(
    "cifar10", "tiny.tar.gz", "", FOLDER, train=TRAIN, test=TEST, limits=(4,), names=("names.txt",)
)


def spec_of(packed, **changes):
    return replace(SPEC, md5=hashlib.md5(packed).hexdigest(), **changes)


@contextmanager
def served(content, drop_after=None, ranges=True, status=200):
    """Bytes behind an address, with ranges; the connection can drop after some bytes, or ranges be
    ignored."""
    requests = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            asked = self.headers.get("Range")
            requests.append(asked)
            if status != 200:
                return self.send_error(status)
            start = int(asked.removeprefix("bytes=").removesuffix("-")) if asked and ranges else 0
            if start >= len(content):
                return self.send_error(416)
            self.send_response(206 if start else 200)
            size = len(content)
            if start:
                self.send_header("Content-Range", f"bytes {start}-{size - 1}/{size}")
            self.send_header("Content-Length", str(size - start))
            self.end_headers()
            self.wfile.write(content[start:][:drop_after])

        def log_message(self, *args):
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        serve = partial(server.serve_forever, poll_interval=0.01)
        threading.Thread(target=serve, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}/tiny.tar.gz"
        try:
            yield SimpleNamespace(url=url, requests=requests)
        finally:
            server.shutdown()


PACKED = tar_bytes(members())


def fetched(root, *mirrors):
    """The folder of the tiny archive, from the first address that answers."""
    return fetch_archive(spec_of(PACKED), root, mirrors=mirrors)


@pytest.fixture
def official(monkeypatch):
    """Sends the official address nowhere, so that only the mirrors of a test can answer."""
    monkeypatch.setattr(Archive, "url", "http://127.0.0.1:9/none")


def left(root):
    """What an attempt left behind, beside its lock and the part to go on with."""
    return sorted(p.name for p in root.iterdir() if not p.name.endswith((".lock", ".part")))


def test_fetch_then_read_then_verify(tmp_path, official):
    spec, seen = spec_of(PACKED), []
    with served(PACKED) as server:
        fetch = partial(fetch_archive, spec, tmp_path, mirrors=[server.url])
        folder = fetch(progress=lambda *told: seen.append(told))
        assert fetch() == folder  # complete: nothing is asked for
        assert len(server.requests) == 1
    assert seen[-1] == (len(PACKED), len(PACKED))
    names = sorted(path.name for path in folder.iterdir())
    assert names == ["SHA256SUMS", "a.bin", "b.bin", "names.txt", "t.bin"]
    assert left(tmp_path) == [FOLDER]
    verify(spec, folder)
    data = read(spec, folder)
    expected = np.concatenate([records(3, 0), records(2, 1)])
    assert data.train.inputs.shape == (5, 3, 32, 32) and data.test.inputs.shape == (2, 3, 32, 32)
    assert (data.train.inputs.numpy().reshape(5, 3072) == expected[:, 1:]).all()
    assert data.train.targets.tolist() == expected[:, 0].tolist()


def test_dropped_connection_goes_on_where_it_stopped(tmp_path, official):
    with served(PACKED, drop_after=len(PACKED) // 2 + 1) as server:
        fetched(tmp_path, server.url)
        assert server.requests == [None, f"bytes={len(PACKED) // 2 + 1}-"]


def test_interrupted_download_resumes_next_time(tmp_path, official):
    step = len(PACKED) // 5
    with (
        served(PACKED, drop_after=step) as server,
        refusal("connection ended early", DataError),
    ):
        fetched(tmp_path, server.url)
    part = tmp_path / ".tiny.tar.gz.hess-run.part"
    assert part.read_bytes() == PACKED[: 3 * step]  # three attempts
    with served(PACKED) as server:
        fetched(tmp_path, server.url)
        assert server.requests == [f"bytes={3 * step}-"]
    assert not part.exists()


@pytest.mark.parametrize("stale", [b"something else", PACKED + b"tail"], ids=["short", "long"])
@pytest.mark.parametrize("ranges", [True, False])
def test_stale_part_is_thrown_away(tmp_path, official, stale, ranges):
    (tmp_path / ".tiny.tar.gz.hess-run.part").write_bytes(stale)
    with served(PACKED, ranges=ranges) as server:
        folder = fetched(tmp_path, server.url)
    assert folder.is_dir()


def test_next_mirror_is_tried(tmp_path, official):
    (tmp_path / "copy.tar.gz").write_bytes(PACKED)
    with served(PACKED, status=404) as gone, served(b"x" * 1000) as wrong:
        mirrors = [gone.url, wrong.url, (tmp_path / "copy.tar.gz").as_uri()]
        assert fetched(tmp_path / "data", *mirrors).is_dir()
        assert len(gone.requests) == len(wrong.requests) == 1


def test_wrong_checksum_is_refused(tmp_path, official):
    with (
        served(PACKED[:-1] + b"?") as server,
        refusal(r"expected MD5 .* found", DataError),
    ):
        fetched(tmp_path, server.url)
    assert left(tmp_path) == []


def test_no_address_answers(tmp_path, official):
    command = r"hess-run data fetch cifar10.*profile=quick.*mirrors"
    with pytest.raises(DataError, match=command) as error:
        fetched(tmp_path, "ftp://127.0.0.1/x")
    assert "http:, https: or file:" in str(error.value)


SHORT = tar_bytes(members(a=b"x" * 3073))


@pytest.mark.parametrize(
    "content, message",
    [
        (tar_bytes(members(b=None)), r"b\.bin, found no such file"),
        (tar_bytes(members(), "other"), r"a\.bin, found no such file"),
        (SHORT, "found 3073"),
    ],
    ids=["missing member", "elsewhere", "too short"],
)
def test_archives_with_other_content_are_refused_and_leave_nothing(
    tmp_path, official, content, message
):
    root = tmp_path / "data"
    with served(content) as server, refusal(message, DataError):
        fetch_archive(spec_of(content), root, mirrors=[server.url])
    assert left(root) == []  # but the download, whose checksum was right
    assert sorted(p.name for p in tmp_path.iterdir()) == ["data"]  # nothing was written outside


@pytest.fixture
def unpacked(tmp_path):
    """(specification, packed file, folder) of an archive that is unpacked."""
    packed = tmp_path / "tiny.tar.gz"
    packed.write_bytes(PACKED)
    return spec_of(PACKED), packed, unpack(spec_of(PACKED), packed, tmp_path)


def test_broken_archive_keeps_the_older_folder(tmp_path, unpacked):
    spec, packed, folder = unpacked
    packed.write_bytes(SHORT)
    with pytest.raises(DataError):
        unpack(spec, packed, tmp_path)
    verify(spec, folder)
    packed.write_bytes(PACKED)
    unpack(spec, packed, tmp_path)
    assert left(tmp_path) == [FOLDER, f"{FOLDER}.before", "tiny.tar.gz"]


def test_incomplete_folder_is_fetched_again(tmp_path, unpacked, official):
    spec, _, folder = unpacked
    (folder / "b.bin").write_bytes(b"short")
    with refusal(r"6146 bytes in .*b\.bin, found 5", DataError):
        verify(spec, folder)
    with served(PACKED) as server:
        fetch_archive(spec, tmp_path, mirrors=[server.url])
    verify(spec, folder)


def test_verify_finds_changed_pixels_and_labels(unpacked):
    spec, _, folder = unpacked
    rows = records(3, 0)
    rows[2, 100] ^= 1
    (folder / "a.bin").write_bytes(rows.tobytes())
    with refusal("SHA-256", DataError):
        verify(spec, folder)
    (folder / "SHA256SUMS").unlink()
    verify(spec, folder)  # no checksums noted: sizes and labels only
    rows[0, 0] = 7
    (folder / "a.bin").write_bytes(rows.tobytes())
    with refusal("found 7 in record 0", DataError):
        verify(spec, folder)


def test_files_are_looked_for_in_every_place_and_pickles_are_never_read(tmp_path, monkeypatch):
    packed = tmp_path / "tiny.tar.gz"
    packed.write_bytes(PACKED)
    spec = replace(spec_of(PACKED), torchvision="tiny-batches-py")
    monkeypatch.setitem(ARCHIVES, spec.name, spec)
    monkeypatch.setenv("HESS_DATA", str(tmp_path / "own"))
    monkeypatch.chdir(tmp_path)
    assert locate(spec) == tmp_path / "own" / FOLDER and "found no such file" in missing(spec.name)
    theirs = tmp_path / "data" / "tiny-batches-py"
    theirs.mkdir(parents=True)
    (theirs / "data_batch_1").write_bytes(b"\x80\x04.")
    assert "data/tiny-batches-py holds pickled files, which are never read" in missing(spec.name)
    unpack(spec, packed, tmp_path / "data").rename(tmp_path / "kept")
    for file in spec.sizes:
        (tmp_path / "kept" / file).rename(theirs / file)
    assert locate(spec) == Path("data/tiny-batches-py") and missing(spec.name) == ""
    unpack(spec, packed, tmp_path / "data")
    assert locate(spec) == Path("data") / FOLDER
    (tmp_path / "own").mkdir()
    unpack(spec, packed, tmp_path / "own")
    assert locate(spec) == tmp_path / "own" / FOLDER


def test_nothing_that_was_there_is_lost(tmp_path, official):
    """A folder in the way, an archive and a partial download of the user's own."""
    theirs = {f"{FOLDER}/notes.txt": b"mine", "tiny.tar.gz": b"theirs", "tiny.tar.gz.part": b"half"}
    (tmp_path / FOLDER).mkdir()
    for name, content in theirs.items():
        (tmp_path / name).write_bytes(content)
    with served(PACKED) as server:
        folder = fetched(tmp_path, server.url)
    verify(spec_of(PACKED), folder)
    theirs[f"{FOLDER}.before/notes.txt"] = theirs.pop(f"{FOLDER}/notes.txt")
    for name, content in theirs.items():
        assert (tmp_path / name).read_bytes() == content
    (folder / "a.bin").unlink()
    (tmp_path / "tiny.tar.gz").write_bytes(PACKED)  # brought by the user: used, and kept
    fetched(tmp_path)
    assert (tmp_path / "tiny.tar.gz").read_bytes() == PACKED
    folders = sorted(p.name for p in tmp_path.glob(f"{FOLDER}*"))
    assert folders == [FOLDER, f"{FOLDER}.before", f"{FOLDER}.before-1"]


def test_a_download_is_on_disk_before_it_is_checked(tmp_path, official, monkeypatch):
    synced = []
    monkeypatch.setattr(os, "fsync", lambda number: synced.append(os.fstat(number).st_size))
    with served(PACKED) as server:
        fetched(tmp_path, server.url)
    assert synced == [len(PACKED)]


def test_unwritable_root(tmp_path):
    (tmp_path / "file").write_text("")
    with refusal("folder to write to", DataError):
        fetched(tmp_path / "file" / "data")


def test_a_server_that_never_ends_is_cut_off(tmp_path, official):
    with served(PACKED + b"x" * (8 << 20)) as endless, served(PACKED) as good:
        fetched(tmp_path / "a", endless.url, good.url)
        with refusal(r"expected at most .* bytes, found more", DataError):
            fetched(tmp_path / "b", endless.url)
    assert left(tmp_path / "b") == [] and not list((tmp_path / "b").glob(".*.part"))


def test_a_cut_archive_that_lies_there_is_named_and_left(tmp_path, monkeypatch, caplog):
    whole, root = tmp_path / "whole.tar.gz", tmp_path / "data"
    root.mkdir()
    whole.write_bytes(PACKED)
    monkeypatch.setattr(Archive, "url", whole.as_uri())
    (root / SPEC.file).write_bytes(PACKED[:100])
    fetch_archive(spec_of(PACKED), root)
    assert f"{root / SPEC.file}: expected MD5" in caplog.text and "cut or changed" in caplog.text
    assert (root / SPEC.file).read_bytes() == PACKED[:100]


def test_a_fetch_that_waits_for_another_says_so(tmp_path, monkeypatch, caplog):
    (tmp_path / "whole.tar.gz").write_bytes(PACKED)
    monkeypatch.setattr(Archive, "url", (tmp_path / "whole.tar.gz").as_uri())
    monkeypatch.setattr("runner.data.fetch.NAMED_AFTER", 0.2)
    with ThreadPoolExecutor() as pool:
        with locked(tmp_path / f".{SPEC.name}.lock"):
            fetched = pool.submit(fetch_archive, spec_of(PACKED), tmp_path)
            while "another process fetches it" not in caplog.text:
                assert not fetched.done()
                time.sleep(0.05)
        assert verify(spec_of(PACKED), fetched.result(60)) is None
