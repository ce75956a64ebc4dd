"""hess-run: experiments of five papers on the Hessian, with a verdict for each published number."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from inspect import getdoc
from typing import Any

from runner.contract import SettingError, nearest, short
from runner.run.config import overrides
from runner.run.keys import names_of, read_keys
from runner.run.options import read_options, shown_option

MORE = """
keys of every run (= default)
  seed=42  profile=paper|quick  outputs=outputs  jobs=1 (processes)  threads=1  device=cpu
  force=false
keys of an experiment: the fields of conf/experiment/NAME.yaml, by name (hidden=3, 'depth=[8,10]'),
  and of its groups by path (training.steps=5000); another kind: dataset=surrogate

Hydra's options: -m, --config-dir DIR (experiments and kinds of your own), --hydra-help,
  --info plugins; with experiment=NAME: --cfg job|hydra|all, --info;
  'experiment=glob(attention_*)' sweeps over names.
completion in this shell: eval "$(hess-run --shell-completion install=bash)"
of this program: -q (no output but errors), --json (list, why)
scale out: -m hydra/launcher=processes (this machine), slurm, ray_cluster; each cell once.
stop with Ctrl-C and run the same command again: finished cells are kept.
"""
"""What the help of the program says below its commands."""


@dataclass(frozen=True)
class Call:
    """A parsed command line. name: of the command, "" for a run; words: its positional words; keys:
    its own key=value words; settings: all other key=value words, which describe jobs; shows: one of
    Hydra's options that show something instead of running."""

    name: str
    words: tuple[str, ...] = ()
    keys: Any = None
    settings: tuple[str, ...] = ()
    multirun: bool = False
    config_dir: str = ""
    shows: tuple[str, ...] = ()
    json: bool = False
    quiet: bool = False
    help: bool = False
    version: bool = False

    def arguments(self) -> overrides.Arguments:
        """The part that describes jobs. Raises SettingError for words that no job has."""
        return overrides.arguments(self.settings, self.multirun)

    def argv(self, words: Sequence[str]) -> list[str]:
        """The command line for Hydra with these words."""
        folder = ["--config-dir", self.config_dir] if self.config_dir else []
        sweep = ["--multirun"] if self.multirun and not self.shows else []
        return [*folder, *self.shows, *sweep, *words]


@dataclass(frozen=True)
class Command:
    """A command. about: what it does, in a line; function: module:name of what does it with a Call,
    whose docstring is the help; words: positional ones, in brackets where they are optional, with
    dots where there may be several; settings: its key=value words as help shows them; keys:
    module:name of the class of its own keys; jobs: whether it takes settings of jobs as well; json:
    whether it has JSON output."""

    about: str
    function: str
    words: str = ""
    settings: str = ""
    keys: str = "runner.run.keys:Keys"
    jobs: bool = False
    json: bool = False

    @property
    def required(self) -> list[str]:
        """Positional words that must be given."""
        return [word for word in self.words.split() if not word.startswith("[")]

    @property
    def most(self) -> float:
        """How many positional words there may be."""
        return float("inf") if "..." in self.words else len(self.words.split())

    def usage(self, name: str) -> str:
        """The command in one line."""
        keys = [f"[{key}=VALUE]" for key in names_of(self.own)]
        return " ".join(filter(None, [name, self.words, self.settings, *keys]))

    @property
    def run(self) -> Any:
        """What does it with a Call."""
        return _named(self.function)

    @property
    def own(self) -> Any:
        """The class of its own keys."""
        return _named(self.keys)


def _named(place: str) -> Any:
    """What a module calls by this name: module:name."""
    module, _, name = place.partition(":")
    return getattr(import_module(module), name)


OF_A_JOB = "experiment=NAME [key=value ...]"
COMMANDS: Mapping[str, Command] = {
    "": Command(
        "measure what is not stored yet, then report",
        "runner.run.command:run_command",
        settings=OF_A_JOB,
        jobs=True,
    ),
    "demo": Command(
        "one published formula checked now: verdict, figure",
        "runner.run.demo:demo_command",
        keys="runner.run.demo:Demo",
    ),
    "list": Command(
        "experiments; of one: settings, cells, what is stored, cost",
        "runner.run.listing:list_command",
        "[NAME]",
        settings="[key=value ...]",
        keys="runner.run.keys:Outputs",
        jobs=True,
        json=True,
    ),
    "report": Command(
        "tables, figures, claims and scorecard from the store",
        "runner.run.reports:report_command",
        settings="[experiment=NAME] [key=value ...]",
        keys="runner.run.reports:Drawing",
        jobs=True,
    ),
    "why": Command(
        "what a figure, a table, a row or a file rests on",
        "runner.run.why:why_command",
        "FILE|PLACE|NAME",
        keys="runner.run.keys:Outputs",
        json=True,
    ),
    "data": Command(
        "what is there; download an official archive; check it",
        "runner.run.data:data_command",
        "list|fetch|verify [NAME]",
    ),
    "store": Command(
        "is everything that is stored whole",
        "runner.run.checks:store_command",
        "check",
        keys="runner.run.checks:Checked",
    ),
    "verify": Command(
        "measure a sample of the stored cells again and compare",
        "runner.run.verify:verify_command",
        settings=OF_A_JOB,
        keys="runner.run.verify:Sample",
        jobs=True,
    ),
    "audit": Command(
        "one formula of a paper: printed, right, reference",
        "runner.run.audit:audit_command",
        "PLACE",
    ),
    "judge": Command(
        "any paper's statements and numbers, decided from tables",
        "runner.run.judge:judge_command",
        "ROWS... TABLES",
        keys="runner.run.judge:Judging",
    ),
    "diagnose": Command(
        "the same engine on a network of your own",
        "runner.diagnose.command:diagnose_command",
        settings="target=FILE.py:FUNCTION",
        keys="runner.diagnose.settings:Request",
    ),
    "publish": Command(
        "for maintainers: merge finished cells into the published",
        "runner.run.publish:publish_command",
        "EXPERIMENT",
        settings="[key=value ...]",
        keys="runner.run.keys:Outputs",
        jobs=True,
    ),
}
"""Command -> what it is; "" is a run."""
REMOVED = {
    "show": "hess-run list NAME, or hess-run list GROUP=NAME",
    "plan": "hess-run list NAME [key=value ...]; hess-run list sums up all experiments",
    "results": 'in Python: from runner import results; print(results.load("NAME"))',
    "site": "hess-run report fills the output folder with all pages, beginning at index.html",
    "open": "a run and hess-run report print where the page is: outputs/NAME/index.html",
}
"""Commands of earlier versions, and what to write instead."""


def parse(argv: Sequence[str]) -> Call:
    """Raises SettingError for options, commands and words that do not exist or do not go
    together."""
    options = read_options(argv, [*overrides.KNOWN_KEYS, *_keys_of(argv)])
    words = list(options.words)
    if options.version:
        return Call("", version=True)
    name = ""
    if words and words[0] in (*COMMANDS, "help") and words[0]:
        name = words.pop(0)
    folder = options.config_dir or ""
    if name == "help" or options.help or not argv:
        named = name
        if name == "help":
            named = next((word for word in words if word in COMMANDS), "")
        return Call(named, settings=tuple(words), config_dir=folder, help=True)
    shows = shown_option(options)
    if shows and name:
        raise SettingError(f"{shows[0]} goes with a run, not with {name}")
    command = COMMANDS[name]
    positional = [word for word in words if name and _is_positional(word, command)]
    _check_positional(name, positional)
    others = [word for word in words if word not in positional]
    own = [word for word in others if not command.jobs or _key(word) in names_of(command.own)]
    settings = [word for word in others if word not in own]
    if not name:
        _check_first(settings)
    if options.json and not command.json:
        with_json = ", ".join(other for other in COMMANDS if COMMANDS[other].json)
        raise SettingError(f"--json: {name or 'a run'} has no JSON output; {with_json} have")
    return Call(
        name,
        tuple(positional),
        read_keys(command.own, own),
        tuple(settings),
        multirun=options.multirun,
        config_dir=folder,
        shows=tuple(shows),
        json=options.json,
        quiet=options.quiet,
    )


def _key(word: str) -> str:
    return word.partition("=")[0]


def _keys_of(argv: Sequence[str]) -> list[str]:
    """The keys of the command that a command line names."""
    named = [COMMANDS[word] for word in argv if word in COMMANDS and word]
    return names_of(named[0].own) if named else []


def _is_positional(word: str, command: Command) -> bool:
    if command.jobs or not command.words:
        return "=" not in word and not word.startswith("~")
    # else model=mlp, or a file with = in its name
    keys = names_of(command.own)
    return "=" not in word or not (_key(word) in keys or nearest(_key(word), keys))


def _check_positional(name: str, words: Sequence[str]) -> None:
    """Refuse too few and too many positional words."""
    command = COMMANDS[name]
    if len(command.required) <= len(words) <= command.most:
        return
    wanted = command.usage(name)
    hint = ""
    if not command.words:
        wanted = "key=value"
        hint = _meant(name, words[0])
    found = short(" ".join(words)) or "nothing"
    raise SettingError(f"{name}: expected {wanted}, found {found}{hint}")


def _meant(name: str, word: str) -> str:
    """The key that a word without one was meant for."""
    from runner.run.config.files import experiment_names

    if name == "diagnose":
        return f"; did you mean target={short(word)}?"
    return f"; did you mean experiment={word}?" if word in experiment_names() else ""


def _check_first(words: Sequence[str]) -> None:
    """Refuse a command that does not exist, with the nearest one."""
    from runner.run.config.files import experiment_names

    first = words[0] if words else ""
    if "=" in first or first.startswith("~") or not first:
        return
    names = experiment_names()
    near = nearest(first, [*filter(None, COMMANDS), *names])
    if first == "run":
        hint = f"a run needs no verb: hess-run {' '.join(words[1:]) or 'experiment=NAME'}"
    elif first in REMOVED:
        hint = REMOVED[first]
    elif near in names:
        hint = f"did you mean experiment={near}?"
    else:
        hint = f"did you mean {near}?" if near else "see hess-run --help"
    raise SettingError(f"expected key=value, found {short(repr(first))}; {short(hint, 160)}")


def help_text(call: Call) -> str:
    """Help of a command; of an experiment, where one is named; of the program otherwise."""
    from runner.run.config.experiment import preview
    from runner.run.config.files import experiment_names
    from runner.run.settings import experiment_lines, key_lines

    if call.name:
        command = COMMANDS[call.name]
        keys = key_lines(command.own)
        head = ["", "keys (= default)"] if keys else []
        return "\n".join([str(getdoc(command.run)), *head, *keys])
    names = [word.partition("=")[2] for word in call.settings if word.startswith("experiment=")]
    if names:
        return "\n".join(experiment_lines(names[0], preview(names[0])))
    lines = [f"{__doc__}\n"]
    for name, command in COMMANDS.items():
        words = " ".join(filter(None, [name, command.words, command.settings]))
        lines.append(f"  hess-run {words:43} {command.about}")
    lines.append(f"  hess-run {'COMMAND --help':43} more on each of them")
    return "\n".join([*lines, MORE, f"experiments: {', '.join(experiment_names())}"])
