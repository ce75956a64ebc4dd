"""A parsed command line, and what a verb takes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import import_module

from runner.run.config import overrides


@dataclass(frozen=True)
class Call:
    """A parsed command line. words: positional words behind the verb; keys: key=value words that belong to the verb;
    settings: all other key=value words; shows: one of Hydra's options that show something instead of running."""

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

    def arguments(self) -> overrides.Arguments:
        """The part that describes jobs. Raises SettingError for words that no job has."""
        return overrides.arguments(self.settings, self.multirun, self.shows, self.config_dir)


@dataclass(frozen=True)
class Verb:
    """A verb. function: module:name of what it does with a Call; words: its positional words, optional ones in
    brackets; keys: its own key=value words; settings: whether it takes settings of a run as well; json: whether it has
    JSON output."""

    function: str
    help: str = ""
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
        settings = ["experiment=NAME", "[key=value ...]"] if self.settings else []
        return " ".join([name, *self.words.split(), *settings, *keys])

    def __call__(self, call: Call) -> int:
        """Do it; the exit status."""
        module, _, name = self.function.partition(":")
        return int(getattr(import_module(module), name)(call))
