"""What a text 'module:name' names, imported when it is asked for."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from runner.contract.schema import SettingError


def imported(text: str, where: str) -> Any:
    """The object that 'module:name' names. Raises SettingError, which begins with `where`."""
    module, _, name = text.partition(":")
    if not (module and name):
        raise SettingError(f"{where}: expected 'module:name', found {text!r}")
    try:
        return getattr(import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise SettingError(f"{where}: {text} cannot be loaded: {error}") from error
