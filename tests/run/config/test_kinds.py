"""What an experiment takes, how kinds keep their identity, and what configuration may import."""

import dataclasses

import pytest

from runner.contract import GROUPS, SettingError, kind
from runner.contract.schema import identifying
from runner.kinds.dataset import SurrogateData
from runner.kinds.metric import InterLayerMetric
from runner.models import builder
from runner.report.answers.judged import scope_of
from runner.run.config import files
from runner.run.config.compose import experiment_class, experiment_fields
from runner.run.config.experiment import preview
from runner.run.config.files import experiment_names
from runner.run.config.jobs import build_job
from runner.run.config.types import Mismatch, convert, load_class, may_import, takes
from runner.run.settings import experiment_lines, kind_lines
from tests.errors import refusal
from tests.run.conftest import TOY

CHOICES = [(group, choice) for group in GROUPS for choice in files.choices(group)]


@pytest.mark.parametrize("group, choice", CHOICES)
def test_every_choice_is_a_kind_of_its_name_and_says_what_its_fields_mean(group, choice):
    node = files.load(files.find(group, choice))
    cls = files.kind_class(group, choice)
    assert node["kind"] == choice
    helps = {f.name: f.metadata.get("help") for f in dataclasses.fields(cls)}
    assert set(node) - {"_target_"} <= set(helps)
    assert group not in ("model", "metric") or all(
        text for name, text in helps.items() if name != "kind"
    )
    assert kind_lines(group, choice)[0] == f"{group}={choice}"


def test_a_kind_that_fits_runs_and_is_not_comparable(monkeypatch, tmp_path):
    monkeypatch.setenv("HESS_DATA", str(tmp_path))
    words = ["experiment=exp1_resonance", "model=residual_mlp", "dataset=cifar100", "profile=quick"]
    experiment = build_job(words).experiment
    assert experiment.dataset == SurrogateData(classes=100)
    assert {cell.params["arch"] for cell in experiment.cells()} == {"residual"}
    assert all(experiment.network_settings(cell)["outputs"] == 100 for cell in experiment.cells())
    scope = scope_of(experiment, preview("exp1_resonance"), "paper")
    assert "cifar10" in scope.stand_in and "residual_mlp" in scope.reason
    with refusal(r"experiment\.arch of model=residual_mlp", SettingError):
        build_job([*words, "experiment.arch=plain"])


def test_what_an_experiment_adapts_in_its_own_model_is_left_out_where_another_lacks_it():
    experiment = build_job(["experiment=exp3_gn_gap", "model=bottleneck_mlp"]).experiment
    # width from the experiment, norm: no field
    assert (experiment.model.width, experiment.model.narrow) == (64, 64)
    with refusal(r"^model\.norm is not a setting", SettingError):
        build_job(["experiment=exp3_gn_gap", "model=bottleneck_mlp", "model.norm=false"])


def test_a_renamed_kind_keeps_its_identity():
    @dataclasses.dataclass(frozen=True)
    class Renamed:
        kind: str = kind("now", stored="then")
        width: int = 3

    assert identifying(Renamed()) == {"kind": "then", "width": 3}
    assert identifying(Renamed(kind="other")) == {"kind": "other", "width": 3}


@pytest.mark.parametrize("name", experiment_names())
def test_a_page_names_every_field_and_kind(name):
    page = "\n".join(experiment_lines(name, preview(name)))
    for field in experiment_fields(name):
        assert f"  {field} " in page
    for group in takes(experiment_class(name)):
        assert f"\n{group} = " in page
    assert "\n  " in page and "devices: " in page


def test_a_page_has_choices_limits_and_meanings_from_the_fields():
    page = "\n".join(experiment_lines("exp1_resonance", preview("exp1_resonance")))
    assert "# one of plain, residual, plain_sn" in page and "# > 0; L: blocks between" in page
    users = kind_lines("model", "bottleneck_mlp")[-1].removeprefix("taken by: ").split(", ")
    assert {"exp1_resonance", "exp1b_spectral_norm"} <= set(users)


NOT_ALLOWED = ["os.system", "evil.Thing", "tests.run.toy.Toy", "runnerx.A", "", "Thing", "a..b", 3]


def test_only_modules_of_the_project_and_those_that_the_user_names_are_imported(monkeypatch):
    monkeypatch.delenv("HESS_MODULES", raising=False)
    for target in NOT_ALLOWED:
        with pytest.raises(SettingError):
            load_class(target, "file.yaml")
    assert not may_import("experimentsx.b")
    assert may_import("experiments.three_layer.ws_bound.WsBound")
    monkeypatch.setenv("HESS_MODULES", "other, tests.run")
    assert load_class("tests.run.toy.Toy", "").__name__ == "Toy"
    assert not may_import("tests.other.X")


def test_builders_are_of_this_package_or_loaded_already():
    assert builder("mlp").__name__ == "mlp"
    for name in ("nope", "os.nope", "not_loaded.f", "sys"):
        with refusal("builder"):
            builder(name)


CONVERTED = [
    *[(1, float, 1.0), ("1e-3", float, 1e-3), ("7", int, 7), (7, str, "7")],
    ([1, 2], list[float], [1.0, 2.0]),
]
REFUSED = [
    *[(True, int), (1.5, int), (1, bool), ("x", float)],
    *[("1,2", list[int]), ({}, list[int]), (None, str)],
]


def test_values_are_converted_as_yaml_means_them_and_others_refused():
    for value, wanted, expected in CONVERTED:
        found = convert(value, wanted)
        assert found == expected and type(found) is type(expected)
    for value, wanted in REFUSED:
        with pytest.raises(Mismatch):
            convert(value, wanted)


def test_a_device_that_is_not_there_is_refused(monkeypatch):
    import torch

    from runner.run.config.jobs import check_device

    experiment = preview("ws_bound")
    monkeypatch.setattr(type(experiment), "devices", ("cpu", "cuda", "mps"))
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    for device in ("cuda", "cuda:7", "mps"):
        with refusal(f"device={device}: this machine has no", SettingError):
            check_device(device, "ws_bound", experiment)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    check_device("cuda:1", "ws_bound", experiment)
    with refusal("expected cuda:0 to cuda:1, found cuda:7", SettingError):
        check_device("cuda:7", "ws_bound", experiment)


def test_yaml_files_are_read_as_hydra_reads_them(tmp_path):
    path = tmp_path / "own.yaml"
    text = "k: [true, 10, -3, 1e-3, .5, ~, 2024-01-02, '${seed}']"
    path.write_bytes(b"\xef\xbb\xbf" + text.encode())  # as some editors begin a file
    read = files.load.__wrapped__(path)["k"]
    assert read == [True, 10, -3, 1e-3, 0.5, None, "2024-01-02", "${seed}"]
    path.write_text("k: 1\nk: 2\n")
    with refusal("own.yaml: cannot be read as YAML", SettingError):
        files.load.__wrapped__(path)


@pytest.mark.parametrize("name", ["published", "diagnose", "demo", "index.html", "a b"])
def test_an_experiment_has_a_name_that_a_folder_of_results_can_have(name, toy_conf):
    (toy_conf / "experiment" / f"{name}.yaml").write_text(TOY)
    with refusal("expected a name of letters, digits, _ and -, and none of published"):
        build_job([f"experiment={name}"])


def test_a_metric_of_ones_own_that_is_one_value_short_is_named_with_its_file():
    class Short(InterLayerMetric):
        def columns(self, blocks, pairs):
            return {"mine": [1.0]}

    expected = r"metric=inter_layer \(.*test_kinds.py\): expected 2 values of 'mine'.*found 1"
    with refusal(expected):
        Short().added(None, [("0", "1"), ("0", "2")])
