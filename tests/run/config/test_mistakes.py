"""Whatever is typed or stands in a file: exit 0, 2 or 130, one line that names what is wrong,
nothing written on 2.

HESS_CASES=1000 runs that many generated command lines, and 0.3 times as many mutated files; a few
by default.
"""

import contextlib
import io
import os
import random
import shutil

import pytest

from runner import cli
from runner.run import command, launch
from runner.run.config import files
from tests.run.conftest import forget

CASES, SEED = int(os.environ.get("HESS_CASES", "12")), int(os.environ.get("HESS_SEED", "0"))
SOME_KEYS = """seed threads device outputs jobs force profile experiment dataset model metric
training nokey a.b.c experiment.width width samples experiment.scale shape dataset.train
dataset.test dataset.mean dataset.kind dataset._target_ experiment._target_ hydra.job.chdir
hydra/launcher hydra.launcher.n_jobs hydra.callbacks.x._target_ profiles.quick @dataset"""
SOME_VALUES = """1 -1 0 2.5 1e3 nan inf true null ??? abc toy tyo gaussian quick [1,2] []
[[1,2],[3]] {a:1} [{}] 1,2 1, a=b range(0,3) range(0,100000000) glob(*) choice(1,2) interval(0,1)
range(1,3),nan [1.5],choice(1,2) ${seed} ${nokey} ${oc.env:HOME} ${oc.decode:1}
${hydra:runtime.cwd} 'a " ( ] { \\ é☃ os.system 99999999999999999999 /dev/null/x
tests.run.toy.Toy joblib basic nowhere cuda"""
SOME_FLAGS = "-m --multirun --foo -x --cfg --cfg=job --info=nope --config-dir=nowhere"
KEYS = [*SOME_KEYS.split(), "", " "]
VALUES = [*SOME_VALUES.split(), "", "a\nb", "x" * 3000, "9" * 400]
FLAGS = [*SOME_FLAGS.split(), "--config-name=x"]

PREFIXES = [""] * 4 + ["+", "++", "~", "+~"]
VERBS = [[], ["list"], ["list"], ["report"], ["list"]]
STARTS = [["experiment=toy"]] * 6 + [["-m", "experiment=toy"]] * 2 + [[]]


def word(chance):
    """A setting, its key or value cut or drawn; or a flag, a key or a value alone."""
    if chance.random() < 0.3:
        return chance.choice([*FLAGS, *KEYS, *VALUES])
    key, value, at = chance.choice(KEYS), chance.choice(VALUES), chance.randrange(9)
    if chance.random() < 0.5:
        key = key[:at] + key[at + 1 :]
    if chance.random() < 0.5:
        value = "".join(map(chr, chance.choices(range(1, 0x3000), k=at)))
    return f"{chance.choice(PREFIXES)}{key}={value}"


@pytest.fixture
def empty(toy_conf, tmp_path, monkeypatch):
    """An empty folder to work in, and no run behind a command line that is right."""
    folder = tmp_path / "empty"
    folder.mkdir()
    monkeypatch.chdir(folder)
    for name in ("run_jobs", "report_status"):
        monkeypatch.setattr(command, name, lambda jobs: 0)
    monkeypatch.setattr(launch, "application", lambda words: None)
    return folder


def call(argv):
    """Exit status, and what stands on standard error."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            cli.main(argv)
        except SystemExit as ending:
            return int(ending.code or 0), err.getvalue()
    raise AssertionError("the command did not end")


def clear(folder):
    """Empty a folder; returns what was in it."""
    left = [path.name for path in folder.iterdir()]
    for path in folder.iterdir():
        shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
    return left


def wrong(status, err, left):
    """What is not as promised about an ending, "" when all is."""
    if status not in (0, 2):
        return f"status {status}: {err}"
    if status == 0:
        return ""
    if not err.startswith("hess-run: ") or err.count("\n") != 1 or len(err) >= 700:
        return f"not one short line: {err}"
    return f"written: {left}" if left else ""


def unnamed(argv, status, err):
    """The message, where it names nothing of the command line."""
    settings = [word.partition("=")[0].lstrip("+~-@").partition("@")[0] for word in argv]
    keys = [setting.strip(" .").rpartition(".")[2] for setting in settings]
    named = [key for key in (*filter(None, keys), "key=value", "experiment=NAME") if key in err]
    return "" if status != 2 or named else f"no key is named: {err}"


def test_generated_command_lines(empty):
    for number in range(CASES):
        chance = random.Random(1000 * SEED + number)
        words = [word(chance) for _ in range(chance.randint(1, 3))]
        argv = [*chance.choice(VERBS), *chance.choice(STARTS), *words]
        files.forget_added()
        status, err = call(argv)
        problem = wrong(status, err, clear(empty)) or unnamed(argv, status, err)
        assert not problem, (number, argv, problem)


@pytest.mark.parametrize("value", ["???", "{a:1}", "[x]", "null"])
@pytest.mark.parametrize("key", ["width", "seconds", "x", "width.x", "seconds.x"])
def test_a_value_of_another_form_is_named(empty, key, value):
    status, err = call(["list", "experiment=toy", f"++experiment.{key}={value}"])
    assert not wrong(status, err, clear(empty)) and status == 2 and key.split(".")[0] in err


def test_a_list_over_keys_and_values_is_named(toy_conf, empty):
    path = toy_conf / "experiment" / "toy.yaml"
    path.write_text(path.read_text().replace("\ndataset:\n  train: 8\n", "\ndataset: [1]\n"))
    status, err = call(["list", "experiment=toy"])
    assert not wrong(status, err, clear(empty)) and status == 2 and "toy.yaml: dataset" in err


@pytest.mark.parametrize("listed", ["3", "[1]", "{quick: 3}", "{quick: [1]}"])
def test_profiles_of_another_form_are_named(toy_conf, empty, listed):
    path = toy_conf / "experiment" / "toy.yaml"
    text, _, _ = path.read_text().partition("profiles:")
    path.write_text(f"{text}profiles: {listed}\n")
    for words in ("list toy", "list toy profile=quick"):
        status, err = call(words.split())
        assert not wrong(status, err, clear(empty)) and "toy.yaml" in err and "profiles" in err


def test_a_mistake_in_the_settings_of_the_paper_ends_a_quick_run_before_it_measures(
    toy_conf, empty
):
    path = toy_conf / "experiment" / "toy.yaml"
    path.write_text(path.read_text().replace("samples: 20", "samples: 0"))
    status, err = call(["experiment=toy", "profile=quick"])
    assert not wrong(status, err, clear(empty)) and status == 2 and "samples" in err


WRONG_VALUES = ["'", "{", "[1", "1", "null", "[]", "{a:1}", "${x}", "???"]
WRONG_ROWS = """\
1
- 1
defaults: x
defaults: [{a: b}]
? [a]
a: &x *x
!!python/name:os.system""".splitlines()
FILES = ["config", "experiment/toy", "dataset/gaussian", "profile/quick", "profile/paper"]


def mutated(text, chance):
    """A file with one thing wrong, as slips of the hand make it."""
    rows = text.splitlines()
    at, how = chance.randrange(len(rows)), chance.randrange(9)
    if how < 7:
        place, typo = chance.randint(0, len(rows[at])), chance.choice("\t:{}[]'\"&*!%@#-x0\x01")
        value = chance.choice(WRONG_VALUES)
        instead = [
            [],
            [rows[chance.randrange(len(rows))], rows[at]],
            [" " * chance.randint(1, 3) + rows[at]],
            [rows[at].strip()],
            [f"{rows[at].partition(':')[0]}: {value}"],
            [rows[at][:place] + typo + rows[at][place + 1 :]],
            [chance.choice(WRONG_ROWS)],
        ]
        rows[at : at + 1] = instead[how]
    if how == 7:
        rows = rows[:at]
    return "\n".join(rows).encode() + (b"\xff\xfe\n" if how == 8 else b"\n")


def test_mutated_files(empty, toy_conf):
    places = {name: toy_conf / f"{name}.yaml" for name in FILES}
    originals = {name: path.read_text() for name, path in places.items()}
    for number in range(max(8, int(CASES * 0.3))):
        chance = random.Random(1000 * SEED + number)
        name = chance.choice(FILES)
        places[name].write_bytes(mutated(originals[name], chance))
        for words in ("list toy", "experiment=toy profile=quick", "list", "report"):
            forget()
            problem = wrong(*call(words.split()), clear(empty))
            assert not problem, (number, name, words, problem)
        places[name].write_text(originals[name])
    places["config"].unlink()
    assert "HESS_CONF: expected a whole configuration folder" in call(["list"])[1]
