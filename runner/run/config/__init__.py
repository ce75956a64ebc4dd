"""The one configuration loader: conf/, overrides, typed experiments and jobs. Only `overrides` and
`compose` know Hydra and OmegaConf."""

from runner.run.config.compose import composition, preview
from runner.run.config.files import experiment_class, experiment_names, mirrors
from runner.run.config.jobs import build_job, build_jobs, distinct, protocol
from runner.run.config.overrides import arguments
