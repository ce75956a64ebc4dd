"""The one configuration loader: conf/, overrides, typed experiments and jobs. Only `overrides` and `compose` know Hydra
and OmegaConf."""

from runner.run.config.compose import build_job as build_job
from runner.run.config.compose import build_jobs as build_jobs
from runner.run.config.compose import composition as composition
from runner.run.config.compose import distinct as distinct
from runner.run.config.compose import preview as preview
from runner.run.config.compose import protocol as protocol
from runner.run.config.files import experiment_class as experiment_class
from runner.run.config.files import experiment_names as experiment_names
from runner.run.config.files import mirrors as mirrors
from runner.run.config.overrides import arguments as arguments
