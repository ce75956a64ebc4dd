"""One module or package an experiment, named by `_target_` in conf/experiment/<name>.yaml; reference/ holds the papers' numbers."""
