"""hess-run: experiments of five papers on the Hessian, with a verdict for each published number.

  hess-run demo                             one published formula checked now: verdict, figure
  hess-run experiment=NAME [key=value ...]  measure what is not stored yet, then report
  hess-run -m experiment=NAME seed=42,43    sweep over seeds or any key (also seed=range(42,47))
  hess-run list                             experiments, paper, cells, stored cells, predicted cost
  hess-run list NAME [key=value ...]        settings, kinds; what would run, what is stored; cost
  hess-run report [experiment=NAME ...]     tables, figures, claims and scorecard from the store
  hess-run why FILE | "Fig. 3 of WS" | ROW  cells, commits, CPU and command behind a figure or a row
  hess-run data list|fetch|verify [NAME]    what is there; download an official archive; check it
  hess-run store check                      is everything that is stored whole
  hess-run verify experiment=NAME           measure a sample of the stored cells again and compare
  hess-run audit PLACE                      one formula of a paper: printed, right, reference
  hess-run diagnose target=FILE.py:FUNCTION the same engine on a network of your own
  hess-run publish NAME                     for maintainers: merge finished cells into the published
  hess-run VERB --help                      more on each of them

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
scale out: -m hydra/launcher=joblib (this machine), submitit_slurm, ray; one store, every cell once.
stop with Ctrl-C and run the same command again: finished cells are kept.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from inspect import getdoc
from pathlib import Path
from typing import Any

from runner.contract import SettingError, short
from runner.run.config import overrides
from runner.run.nearest import did_you_mean, nearest
from runner.run.options import read_options, shown_option
from runner.store.job import OUTPUTS, read_folder


@dataclass(frozen=True)
class Call:
    """A parsed command line. words: positional words behind the verb; keys: key=value words that
    belong to the verb; settings: all other key=value words; shows: one of Hydra's options that show
    something instead of running."""

    verb: str
    words: tuple[str, ...] = ()
    keys: Mapping[str, str] = field(default_factory=dict)
    settings: tuple[str, ...] = ()
    multirun: bool = False
    config_dir: str = ""
    shows: tuple[str, ...] = ()
    json: bool = False
    quiet: bool = False
    help: bool = False
    version: bool = False

    @property
    def outputs(self) -> Path:
        """The output folder that is read. Raises SettingError for one that is named and not there:
        published results would be shown in its place."""
        return read_folder(self.keys.get("outputs", OUTPUTS))

    def arguments(self) -> overrides.Arguments:
        """The part that describes jobs. Raises SettingError for words that no job has."""
        return overrides.arguments(self.settings, self.multirun, self.shows, self.config_dir)


@dataclass(frozen=True)
class Verb:
    """A verb. function: module:name of what it does with a Call; words: its positional words,
    optional ones in brackets; keys: its own key=value words; settings: whether it takes settings of
    a run as well; json: whether it has JSON output."""

    function: str
    words: str = ""
    keys: tuple[str, ...] = ()
    settings: bool = False
    json: bool = False

    @property
    def required(self) -> list[str]:
        """Positional words that must be given."""
        return [word for word in self.words.split() if not word.startswith("[")]

    def usage(self, name: str) -> str:
        """The words of the verb in one line."""
        keys = [f"[{key}=VALUE]" for key in self.keys]
        named = [] if self.words else ["experiment=NAME"]
        settings = [*named, "[key=value ...]"] if self.settings else []
        return " ".join([name, *self.words.split(), *settings, *keys])

    @property
    def command(self) -> Any:
        """What the verb does with a Call. Its docstring is the help of the verb."""
        module, _, name = self.function.partition(":")
        return getattr(import_module(module), name)

    def __call__(self, call: Call) -> int:
        """Do it; the exit status."""
        return int(self.command(call))


VERBS: Mapping[str, Verb] = {
    "": Verb("runner.run.command:run_command", settings=True),
    "demo": Verb("runner.run.demo:demo_command", keys=("outputs",)),
    "list": Verb(
        "runner.run.listing:list_command", "[NAME]", keys=("outputs",), settings=True, json=True
    ),
    "report": Verb(
        "runner.run.reports:report_command",
        keys=("figure", "figures", "figure_width", "figure_height"),
        settings=True,
    ),
    "why": Verb(
        "runner.run.why:why_command", "FILE|FIGURE|TABLE|ROW", keys=("outputs",), json=True
    ),
    "data": Verb("runner.run.data:data_command", "list|fetch|verify [NAME]"),
    "store": Verb("runner.run.checks:store_command", "check", keys=("outputs", "repair")),
    "verify": Verb("runner.run.verify:verify_command", keys=("sample", "tolerance"), settings=True),
    "diagnose": Verb("runner.diagnose.command:diagnose_command", settings=True),
    "audit": Verb("runner.run.command_line:audit_command", "PLACE"),
    "publish": Verb(
        "runner.run.publish:publish_command", "EXPERIMENT", keys=("outputs",), settings=True
    ),
}
"""Verb -> what it is; "" is a run."""
REMOVED = {
    "show": "hess-run list NAME, or hess-run list GROUP=NAME",
    "plan": "hess-run list NAME [key=value ...]; hess-run list sums up all experiments",
    "results": 'in Python: from runner import results; print(results.load("NAME"))',
    "site": "hess-run report fills the output folder with all pages, beginning at index.html",
    "open": "a run and hess-run report print where the page is: outputs/NAME/index.html",
}
"""Verbs of earlier versions, and what to write instead."""


def parse(argv: Sequence[str]) -> Call:
    """Raises SettingError for options, verbs and words that do not exist or do not go together."""
    keys_of_verbs = {key for verb in VERBS.values() for key in verb.keys}
    options = read_options(argv, {*keys_of_verbs, *overrides.KNOWN_KEYS})
    words = list(options.words)
    if options.version:
        return Call("", version=True)
    first = words[0] if words else ""
    name = ""
    if first in (*VERBS, "help") and first:
        name = words.pop(0)
    folder = options.config_dir or ""
    if name == "help" or options.help or not argv:
        named = name
        if name == "help":
            named = next((word for word in words if word in VERBS), "")
        return Call(named, settings=tuple(words), config_dir=folder, help=True)
    shows = shown_option(options)
    if shows and name:
        raise SettingError(f"{shows[0]} goes with a run, not with {name}")
    verb = VERBS[name]
    positional = [word for word in words if name and _is_positional(word, verb)]
    _check_positional(name, positional)
    others = [word for word in words if word not in positional]
    keys = {}
    settings = []
    for word in others:
        key, _, value = word.partition("=")
        if key in verb.keys:
            quoted = value.startswith(("'", '"'))
            keys[key] = str(overrides.read(word).value) if quoted else value
        else:
            settings.append(word)
    _check_settings(name, settings)
    if options.json and not verb.json:
        with_json = ", ".join(other for other in VERBS if VERBS[other].json)
        raise SettingError(f"--json: {name or 'a run'} has no JSON output; {with_json} have")
    return Call(
        name,
        tuple(positional),
        keys,
        tuple(settings),
        multirun=options.multirun,
        config_dir=folder,
        shows=tuple(shows),
        json=options.json,
        quiet=options.quiet,
    )


def _is_positional(word: str, verb: Verb) -> bool:
    key, equals, _ = word.partition("=")
    if verb.settings or not verb.words:
        return not equals and not word.startswith("~")
    # else model=mlp, or a file with = in its name
    return not equals or not (key in verb.keys or nearest(key, verb.keys))


def _check_positional(name: str, words: Sequence[str]) -> None:
    """Refuse too few and too many positional words."""
    verb = VERBS[name]
    if len(verb.required) <= len(words) <= len(verb.words.split()):
        return
    wanted = verb.usage(name)
    hint = ""
    if verb.settings and not verb.words:
        wanted = "key=value"
        hint = _meant(name, words[0])
    found = short(" ".join(words)) or "nothing"
    raise SettingError(f"{name}: expected {wanted}, found {found}{hint}")


def _check_settings(name: str, words: Sequence[str]) -> None:
    """Refuse settings of a verb that takes none, and a verb that does not exist."""
    if not name:
        _check_first(words)
    elif words and not VERBS[name].settings:
        hint = did_you_mean(words[0].partition("=")[0], VERBS[name].keys)
        raise SettingError(
            f"{name}: expected {VERBS[name].usage(name)}, found {short(words[0])}{hint}"
        )


def _meant(verb: str, word: str) -> str:
    """The key that a word without one was meant for."""
    from runner.run.config import experiment_names

    if verb == "diagnose":
        return f"; did you mean target={short(word)}?"
    return f"; did you mean experiment={word}?" if word in experiment_names() else ""


def _check_first(words: Sequence[str]) -> None:
    """Refuse a verb that does not exist, with the did_you_mean."""
    from runner.run.config import experiment_names

    first = words[0] if words else ""
    if "=" in first or first.startswith("~") or not first:
        return
    names = experiment_names()
    near = nearest(first, [*filter(None, VERBS), *names])
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
    """Help of a verb; of an experiment, where one is named; of the command otherwise."""
    from runner.run.config import experiment_names, preview
    from runner.run.settings import experiment_lines

    if call.verb:
        return str(getdoc(VERBS[call.verb].command))
    names = [word.partition("=")[2] for word in call.settings if word.startswith("experiment=")]
    if names:
        return "\n".join(experiment_lines(names[0], preview(names[0])))
    return f"{__doc__}\nexperiments: {', '.join(experiment_names())}"


def audit_command(call: Call) -> int:
    """hess-run audit PLACE

    One clause of a paper in five lines: its place and class, an instance, the printed formula, the
    correct one, and the reference it was compared with. PLACE is the id of a clause or of a root
    cause; a paper's name lists its places.

      hess-run audit attention.d.1
      hess-run audit hsr
    """
    from runner.run.config import experiment_class

    audit = getattr(experiment_class("paper_audit"), "audit", None)
    if audit is None:
        raise SettingError(
            "audit: expected conf/experiment/paper_audit.yaml to name an experiment that "
            "audits papers"
        )
    return int(audit(call.words))
