"""What users change, import and load in a target: nothing stale is shown, and the target runs as it
does alone."""

import math
import re
import runpy
import sys

import pytest
import torch
from torch.utils.data import BatchSampler, DataLoader, RandomSampler, TensorDataset

from runner.diagnose.target import own_randomness
from tests.diagnose.conftest import diagnose, made, table
from tests.draws import seeded
from tests.run.conftest import command_environment, forked

LOADED = """
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

class Own(Dataset):
    def __len__(self):
        return 12

    def __getitem__(self, i):
        return torch.full((4,), float(i)).double() / 12, i % 3

def train():
    from beside import network

    torch.manual_seed(3)
    net = network()
    loader = DataLoader(Own(), 4, shuffle=True, num_workers=WORKERS, collate_fn=lambda rows: (
        torch.stack([x for x, _ in rows]), torch.tensor([y for _, y in rows])))
    loss, step = nn.CrossEntropyLoss(), torch.optim.SGD(net.parameters(), 0.5)
    for epoch in range(2):
        yield epoch, net, loss, loader
        for x, y in loader:
            step.zero_grad()
            loss(net(x), y).backward()
            step.step()
    print("FINAL", sum(p.sum() for p in net.parameters()).item())

if __name__ == "__main__":
    for _ in train():
        pass
"""


@pytest.mark.parametrize(
    "kind", ["shuffled", "own generator", "sampler", "batch sampler", "workers that stay"]
)
def test_reading_a_loader_leaves_its_order_as_it_was(kind):
    data = TensorDataset(torch.arange(12.0).view(12, 1), torch.arange(12))
    own = seeded(5)
    sampler = RandomSampler(data, generator=own)
    options = {
        "shuffled": {"shuffle": True},
        "own generator": {"shuffle": True, "generator": own},
        "sampler": {"sampler": sampler},
        "batch sampler": {"batch_sampler": BatchSampler(sampler, 1, drop_last=False)},
        "workers that stay": {"shuffle": True, "num_workers": 1, "persistent_workers": True},
    }[kind]

    def order(read):
        own.manual_seed(5)
        torch.manual_seed(7)
        loader = DataLoader(data, **options)
        if read:
            with own_randomness(loader):
                list(loader)
        return [int(i) for _, y in loader for i in y]

    assert order(read=True) == order(read=False)


@pytest.mark.parametrize("workers", [0, pytest.param(2, marks=pytest.mark.slow)])
def test_a_training_with_a_shuffled_loader_is_the_same_with_and_without_a_diagnosis(
    tmp_path, workers, monkeypatch, capsys
):
    (tmp_path / "loaded.py").write_text(LOADED.replace("WORKERS", str(workers)))
    (tmp_path / "beside.py").write_text(
        "from torch import nn\ndef network():\n"
        "    return nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 3)).double()\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    runpy.run_path(str(tmp_path / "loaded.py"), run_name="__main__")
    del sys.modules["beside"]
    alone = capsys.readouterr().out
    words = ["diagnose", "target=loaded.py:train", "outputs=out", "parts=trace,noise", "name=it"]
    ended = forked(words, tmp_path, command_environment())
    assert ended.returncode == 0, ended
    first, second = re.findall("^FINAL.*$", alone + ended.stderr, re.M)
    assert first == second
    manifest = (tmp_path / "out/it/manifest.json").read_text(encoding="utf-8")
    assert all(word in manifest for word in words)


def test_groups_of_a_loss_without_gauss_newton_matrix_keep_what_the_hessian_gives(tmp_path):
    _, folder = made("penalised", tmp_path, "parts=groups")
    groups = table(folder, "groups")
    assert groups["R"].notna().all()
    assert groups["gap"].isna().all()
    assert groups["status"].str.contains("a penalty").all()
    assert not math.isnan(float(table(folder, "scalars")["value"].iloc[0]))


def test_a_module_that_returns_its_loss_is_measured_as_with_a_loss_of_its_outputs(tmp_path):
    def values(target, *words):
        _, folder = made(target, tmp_path / target, "parts=trace,noise", *words)
        return list(table(folder, "scalars")["value"])

    assert values("own_loss", "output=loss") == pytest.approx(values("loader"))


def test_the_memory_of_a_measurement_reaches_operators_and_density(tmp_path, monkeypatch):
    from runner.diagnose import parts, problem

    seen = []
    for module, name in (
        (problem, "ParameterOperator"),
        (problem, "LayerOperator"),
        (parts, "spectral_density"),
    ):
        measure = getattr(module, name)

        def spied(*args, measure=measure, **options):
            seen.append(options["memory_budget"])
            return measure(*args, **options)

        monkeypatch.setattr(module, name, spied)
    diagnose("batch", tmp_path, "parts=layers,density", "memory=0.5")
    assert seen == [1 << 29] * 3


def test_the_folder_of_results_is_that_of_the_command(tmp_path):
    (tmp_path / "moved").mkdir()
    (tmp_path / "moving.py").write_text(
        "import os\nfrom tests.diagnose.targets import batch\n"
        "def f():\n    os.chdir('moved')\n    return batch()\n"
    )
    words = ["diagnose", "target=moving.py:f", "outputs=out", "parts=trace", "name=it"]
    ended = forked(words, tmp_path, command_environment())
    assert ended.returncode == 0, ended
    assert (tmp_path / "out/it/index.html").exists()
