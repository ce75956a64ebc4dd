"""checkpoints=...: one row for each saved state."""

import pytest
import torch

from runner.contract import SettingError
from runner.curvature.uses.checkpoints import checkpoint_files
from tests.diagnose import targets
from tests.diagnose.conftest import diagnose, made, table, took
from tests.errors import refusal


def saved(folder, steps):
    losses = {}
    module, loss, (x, y) = targets.batch()
    for step in steps:
        with torch.no_grad():
            for p in module.parameters():
                p.mul_(1.1)
        torch.save({"state_dict": module.state_dict()}, folder / f"step{step}.pt")
        losses[step] = loss(module(x), y).item()
    return losses


def test_a_row_for_each_state(tmp_path):
    losses = saved(tmp_path, (2, 10))
    words = (f"checkpoints={tmp_path}/step*.pt", "parts=network")
    _, folder = made("batch", tmp_path / "out", *words)
    rows = table(folder, "scalars").query("quantity == 'loss'")
    assert rows["step"].tolist() == [2, 10]
    assert rows["value"].tolist() == pytest.approx(list(losses.values()), rel=1e-12)
    notes = table(folder, "notes")["note"].tolist()
    assert [note.split("/")[-1] for note in notes] == ["step2.pt", "step10.pt"]
    assert took(made("batch", tmp_path / "out", *words, "steps=10")[0]) == []


def test_a_file_that_is_no_state_is_one_line(tmp_path):
    (tmp_path / "step3.pt").write_text("nothing")
    with refusal(r"checkpoints: expected a state of Sequential in .*step3.pt", SettingError):
        diagnose("batch", tmp_path / "out", f"checkpoints={tmp_path}/step3.pt")
    assert not (tmp_path / "out").exists()


def test_steps_of_files_are_their_numbers_or_their_places(tmp_path):
    for name in ("a/step5.pt", "b/step5.pt", "b/step40.pt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    assert [step for step, _ in checkpoint_files(f"{tmp_path}/b/*.pt")] == [5, 40]
    both = (f"{tmp_path}/a/*.pt", tmp_path / "b/step5.pt")
    assert [step for step, _ in checkpoint_files(both)] == [0, 1]
    with refusal("expected files that match"):
        checkpoint_files(f"{tmp_path}/c*.pt")
