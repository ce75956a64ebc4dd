"""The one configuration loader: conf/, overrides, typed experiments and jobs. Only `overrides` and
`compose` know Hydra and OmegaConf."""

from runner.run.config.compose import (
    build_job,
    build_jobs,
    composition,
    distinct,
    preview,
    protocol,
)
from runner.run.config.files import experiment_class, experiment_names, mirrors
from runner.run.config.overrides import arguments
