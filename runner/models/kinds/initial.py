"""Where a network's initial parameters come from: the setting that all kinds of trained networks share."""

from __future__ import annotations

INITIAL = ("named", "published")


def initial_setting(initial: str) -> dict[str, str]:
    """The entry of the network settings for published initial networks; none for named ones, whose keys are older."""
    return {} if initial == "named" else {"initial": initial}
