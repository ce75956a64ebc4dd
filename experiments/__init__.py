"""One module or package an experiment, named in conf/experiment/<name>.yaml; reference/ holds the
papers' numbers."""
