"""The configuration of jobs: conf/, overrides, typed experiments. Only `compose` and `overrides`
know Hydra."""
