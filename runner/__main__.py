"""`python -m runner` is `hess-run`."""

from runner.cli import main

main()
