"""Removing and replacing: one place does it, it removes only what this program wrote, and commands
in a folder with other people's files change none of them."""

import ast
import os
import threading

import pytest

from runner.files import (
    is_listed,
    remove,
    scratch_path,
    set_aside,
    sha256,
    sweep,
    write_bytes,
)
from tests import ROOT, contents
from tests.sources import files, nodes, relative

# --- the rule, in the code

REMOVES = {
    "rmtree",
    "unlink",
    "rmdir",
    "removedirs",
    "truncate",
    "copytree",
    "copyfile",
    "copy2",
    "savefig",
}
"""Functions and methods that remove or replace files, whatever they are called with."""
OS_REMOVES = {
    "os.remove",
    "os.rename",
    "os.replace",
    "os.renames",
    "shutil.move",
    "shutil.copy",
    "torch.save",
}
ALLOWED = {
    (
        "runner/data/fetch.py",
        "open",
    ): "members of an archive into a scratch folder, and the download of its own name",
    ("runner/data/fetch.py", "write_text"): "checksums into the scratch folder",
    ("runner/data/fetch.py", "rmdir"): "the scratch folder, which is empty",
    ("runner/report/output/draw.py", "savefig"): "into memory",
    ("runner/curvature/basics/plots.py", "savefig"): "into memory, for notebooks",
    ("docs/render.py", "write_text"): "numbers in the tracked pages",
    ("docs/columns.py", "write_text"): "a tracked page",
    ("docs/verdict_table.py", "write_text"): "a tracked page",
    ("experiments/dag/exp4/values.py", "rename"): "a column of pandas",
    ("experiments/dag/exp3/report.py", "rename"): "a column of pandas",
    ("experiments/three_layer/hsr_gradient/values.py", "rename"): "a column of pandas",
}


def removals(path):
    """Names of the calls in a file that can remove or replace a file."""
    found = set()
    for node in (node for node in nodes(path) if isinstance(node, ast.Call)):
        called = ast.unparse(node.func)
        name = called.rpartition(".")[2]
        method = isinstance(node.func, ast.Attribute)
        one = len(node.args) == 1 and not node.keywords
        mode = [
            a.value for a in node.args if isinstance(a, ast.Constant) and isinstance(a.value, str)
        ]
        mode += [
            k.value.value
            for k in node.keywords
            if k.arg == "mode" and isinstance(k.value, ast.Constant)
        ]
        rules = {
            "removes": name in REMOVES or called in OS_REMOVES,
            "renames": method and name in ("rename", "replace") and one,
            "writes": (method and name == "write_text")
            or (called.endswith(".write_bytes") and "tables" not in called),
            "opens": name == "open"
            and any(set("wa+") & set(text) and len(text) < 4 for text in mode),
            "table": name == "to_csv" and bool(node.args) and called != "table.to_csv",
        }
        found |= {name} if any(rules.values()) else set()
    return found


def test_one_module_and_the_store_remove_and_replace_files():
    code = [*files("runner", "experiments"), *(ROOT / "docs").glob("*.py")]
    found = {(relative(path), name) for path in code for name in removals(path)}
    own = {pair for pair in found if pair[0].startswith(("runner/files.py", "runner/store/"))}
    assert found - own == set(ALLOWED)
    assert ("runner/files.py", "unlink") in own and not [pair for pair in own if "rmtree" in pair]


# --- what is removed, and what is left


@pytest.fixture
def folder(tmp_path):
    place = tmp_path / "folder"
    (place / "deep").mkdir(parents=True)
    for name in ("ours", "theirs", "deep/ours"):
        (place / name).write_text(name)
    return place


def ours(path):
    return path.name == "ours"


def test_only_recognised_files_go_and_no_folder_or_link(folder, tmp_path):
    (tmp_path / "elsewhere").write_text("theirs")
    (folder / "deep" / "link").symlink_to(tmp_path / "elsewhere")
    (folder / "nowhere").symlink_to("nowhere")
    for path in (folder, folder / "deep" / "link", folder / "nowhere", folder / "missing"):
        remove(path, lambda path: True)
    for name in ("ours", "theirs"):
        remove(folder / name, ours)
    left = sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))
    assert left == ["deep", "deep/link", "deep/ours", "nowhere", "theirs"]
    assert (tmp_path / "elsewhere").read_text() == "theirs"


def test_a_file_that_was_changed_is_not_the_listed_one(folder):
    sums = {"ours": sha256(folder / "ours"), "theirs": "0" * 64}
    for name in ("ours", "theirs", "deep/ours"):
        remove(folder / name, is_listed(folder, sums))
    assert contents(folder) == {"theirs": b"theirs", "deep/ours": b"deep/ours"}


def test_what_is_set_aside_gets_a_name_that_nothing_has(tmp_path):
    """Also where an earlier one was taken away by hand, and from many threads at once."""
    for text in "abc":
        (tmp_path / "x").write_text(text)
        set_aside(tmp_path / "x", tmp_path / "kept")
    for text in "de":
        (tmp_path / "x").mkdir()
        (tmp_path / "x" / text).touch()
        set_aside(tmp_path / "x", tmp_path / "kept")
    names = ["kept", "kept-1", "kept-2", "kept-3", "kept-4"]
    assert sorted(path.name for path in tmp_path.iterdir()) == names
    assert (tmp_path / "kept-2").read_text() == "c" and (tmp_path / "kept-4" / "e").exists()
    places = [tmp_path / f"thread {i}" for i in range(20)]
    for place in places:
        place.write_text(place.name)
    threads = [
        threading.Thread(target=set_aside, args=(place, tmp_path / "many")) for place in places
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    kept = tmp_path.glob("many*")
    assert sorted(p.read_text() for p in kept) == sorted(p.name for p in places)


def test_half_written_files_of_dead_writers_go_and_no_others(tmp_path):
    dead = scratch_path(tmp_path / "a.csv").name.replace(f".{os.getpid()}@", ".999999@")
    others = [
        ".a.csv.999999.tmp",
        ".b.999999@elsewhere.hess-run",
        scratch_path(tmp_path / "c").name,
        "a.hess-run",
    ]
    for name in (dead, *others):
        (tmp_path / name).touch()
    (tmp_path / "below").mkdir()
    (tmp_path / "below" / dead).touch()
    sweep(tmp_path)
    assert not (tmp_path / dead).exists() and not (tmp_path / "below" / dead).exists()
    assert all((tmp_path / name).exists() for name in others)


def test_a_failed_write_leaves_the_earlier_file(tmp_path, monkeypatch):
    write_bytes(tmp_path / "a", b"one")
    monkeypatch.setattr(os, "replace", lambda *paths: (_ for _ in ()).throw(OSError("full")))
    with pytest.raises(OSError, match="full"):
        write_bytes(tmp_path / "a", b"two")
    assert contents(tmp_path) == {"a": b"one"}
