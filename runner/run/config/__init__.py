"""The configuration of jobs: conf/, overrides, typed experiments. Only `compose` and `overrides`
know Hydra."""

from runner.run.config.compose import experiment_class, experiment_fields
from runner.run.config.experiment import composition, preview
from runner.run.config.files import experiment_names, mirrors
from runner.run.config.jobs import build_job, build_jobs, distinct, protocol
from runner.run.config.overrides import arguments
