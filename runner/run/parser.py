"""The one argument parser: options, a verb, the words that belong to it, and key=value settings."""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence
from typing import NoReturn

from runner.contract import SettingError
from runner.run.call import Call, Verb
from runner.run.config import overrides
from runner.run.messages import nearest, short
from runner.run.verbs import VERBS

CLOSED = ("--config-path", "-cp", "--config-name", "-cn", "--experimental-rerun")
INFO = ("all", "config", "defaults", "defaults-tree", "plugins", "searchpath")
COMPLETION = 'eval "$(hess-run --shell-completion install=bash)"'


def parse(argv: Sequence[str]) -> Call:
    """Raises SettingError for options, verbs and words that do not exist or do not go together."""
    options = _options(argv)
    words = list(options.words)
    if options.version:
        return Call("", version=True)
    verb = words.pop(0) if words and words[0] in (*VERBS, "help") else ""
    if verb == "help" or options.help or not argv:
        named = next((word for word in words if word in VERBS), "") if verb == "help" else verb
        return Call(named, settings=tuple(words), config_dir=options.config_dir or "", help=True)
    shows = _shows(options)
    if not verb:
        return _call("", VERBS[""], options, (), words, shows)
    if shows:
        raise SettingError(f"{shows[0]} goes with a run, not with {verb}")
    known = VERBS[verb]
    positional = tuple(word for word in words if _is_positional(word, known))
    rest = [word for word in words if word not in positional]
    if not len(known.required) <= len(positional) <= len(known.words.split()):
        wanted = "key=value" if known.settings else known.usage(verb)
        raise SettingError(f"{verb}: expected {wanted}, found {short(' '.join(positional)) or 'nothing'}")
    return _call(verb, known, options, positional, rest, ())


def _is_positional(word: str, verb: Verb) -> bool:
    key, equals, _ = word.partition("=")
    if verb.settings or not verb.words:
        return not equals and not word.startswith("~")
    return not equals or not (key in verb.keys or nearest(key, verb.keys))  # model=mlp, a file with = in its name


def _call(
    name: str,
    verb: Verb,
    options: argparse.Namespace,
    positional: Sequence[str],
    rest: Sequence[str],
    shows: Sequence[str],
) -> Call:
    keys = {key: value for key, _, value in (word.partition("=") for word in rest) if key in verb.keys}
    settings = tuple(word for word in rest if word.partition("=")[0] not in keys)
    if settings and not verb.settings:
        key = settings[0].partition("=")[0]
        hint = nearest(key, verb.keys)
        raise SettingError(f"{name}: expected {verb.usage(name)}, found {short(settings[0])}{hint}")
    if options.json and not verb.json:
        known = ", ".join(other for other in VERBS if VERBS[other].json)
        raise SettingError(f"--json: {name or 'a run'} has no JSON output; {known} have")
    if not name:
        _check_first(settings)
    return Call(
        name,
        tuple(positional),
        keys,
        settings,
        bool(options.multirun),
        options.config_dir or "",
        tuple(shows),
        options.json,
        options.quiet,
    )


def _check_first(words: Sequence[str]) -> None:
    """Refuse a verb that does not exist, with the nearest."""
    from runner.run.config import experiment_names

    first = words[0] if words else ""
    if "=" in first or first.startswith("~") or not first:
        return
    names = experiment_names()
    if first == "run":
        hint = f"a run needs no verb: hess-run {' '.join(words[1:]) or 'experiment=NAME'}"
    elif first in names:
        hint = f"did you mean experiment={first}?"
    else:
        near = nearest(first, [verb for verb in VERBS if verb] + names).removeprefix(" (did you mean ")
        name = near.removesuffix("?)")
        hint = f"did you mean {f'experiment={name}' if name in names else name}?" if near else "see hess-run --help"
    raise SettingError(f"expected key=value, found {short(repr(first))}; {short(hint, 160)}")


def _options(argv: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="hess-run", add_help=False, allow_abbrev=False)
    for names in (("-h", "--help"), ("-m", "--multirun"), ("-r", "--run"), ("--resolve",), ("--hydra-help",)):
        parser.add_argument(*names, action="store_true")
    for names in (("--version",), ("--json",), ("-q", "--quiet")):
        parser.add_argument(*names, action="store_true")
    parser.add_argument("--cfg", "-c", choices=("job", "hydra", "all"))
    parser.add_argument("--info", "-i", choices=INFO, nargs="?", const="all")
    parser.add_argument("--shell-completion", "-sc", action="store_true")
    for names in (("--package", "-p"), ("--config-dir", "-cd")):
        parser.add_argument(*names)
    parser.add_argument("words", nargs="*")
    known = [flag for flag in parser._option_string_actions if flag.startswith("--")]

    def refuse(message: str) -> NoReturn:
        wrong = next((word for word in argv if re.match(r"--?[a-z]", word) and word.partition("=")[0] not in known), "")
        name = wrong.partition("=")[0].lstrip("-")
        closed = next((word.partition("=")[0] for word in argv if word.partition("=")[0] in CLOSED), "")
        if closed:
            raise SettingError(f"{closed} cannot be set; add a folder of your own with --config-dir DIR")
        if name in ("pdf", "svg"):
            raise SettingError(f"--{name}: write figures={name}, as in hess-run report experiment=NAME figures={name}")
        if name and any(name in (*verb.keys, *overrides.KNOWN_KEYS) for verb in VERBS.values()):
            value = wrong.partition("=")[2] or ("true" if name in ("force", "repair") else "VALUE")
            raise SettingError(f"{short(wrong)}: write {name}={short(value)}, without dashes")
        hint = nearest(wrong, known) if wrong.startswith("--") else ""
        raise SettingError(f"{short(message, 160)}{hint}; see hess-run --help")

    parser.error = refuse  # type: ignore[method-assign]
    return parser.parse_intermixed_args(list(argv))


def _shows(options: argparse.Namespace) -> list[str]:
    """One of Hydra's options that show something, as Hydra takes it."""
    asked = [name for name in ("cfg", "info", "multirun", "run") if getattr(options, name)]
    if options.resolve and not options.cfg:
        raise SettingError("--resolve goes with --cfg")
    if len(asked) > 1 and not (options.multirun and len(asked) == 2 and options.cfg):
        raise SettingError(f"expected one of {', '.join('--' + name for name in asked)}, found all of them")
    if options.shell_completion:
        if not re.match(r"(install|uninstall|query)=", (options.words or [""])[0]):
            raise SettingError(f"--shell-completion: expected install=bash, fish or zsh, as in {COMPLETION}")
        return ["--shell-completion"]
    if options.hydra_help:
        return ["--hydra-help"]
    if options.cfg:
        package = ["--package", options.package] if options.package else []
        return ["--cfg", options.cfg, *(["--resolve"] if options.resolve else []), *package]
    if options.info and options.info != "plugins" and not any(w.startswith("experiment=") for w in options.words):
        raise SettingError(
            "--info: expected experiment=NAME beside it, found none; --info plugins lists Hydra's plugins without one"
        )
    return ["--info", options.info] if options.info else []
