"""Devices: which an experiment can use, and which this machine has."""

from __future__ import annotations

from runner.contract import Experiment, SettingError


def check_device(device: str, name: str, experiment: Experiment) -> None:
    """Raise SettingError for a device that the experiment has no use for, or that this machine lacks."""
    kind, _, number = device.partition(":")
    if kind == "cpu":
        return
    if kind not in experiment.devices:
        known = ", ".join(experiment.devices)
        raise SettingError(f"device={device}: {name} runs on {known} only; leave device out")
    import torch

    if kind == "mps":
        there = 1 if torch.backends.mps.is_available() else 0
    else:
        there = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if there == 0:
        raise SettingError(f"device={device}: this machine has no {kind} device that torch can use; found cpu")
    if number and int(number) >= there:
        raise SettingError(f"device={device}: expected {kind}:0 to {kind}:{there - 1}, found {kind}:{number}")
