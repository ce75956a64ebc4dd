# Everything sets itself up: a virtual environment in .venv, made with Python 3.11 or newer.
PYTHON ?= $(firstword $(foreach p,python3.11 python3.12 python3.13 python3,$(if $(shell command -v $(p) 2>/dev/null),$(p))))
JOBS ?= 2
RUN_JOBS ?= 1
SEEDS ?= 42,43,44,45,46
DEVICE ?= cpu
OUT ?= outputs/run
BIN := .venv/bin
READY := .venv/.ready
EXPERIMENTS = $(basename $(notdir $(wildcard conf/experiment/*.yaml)))

.DEFAULT_GOAL := help
.PHONY: help setup run test lint types bench quick reproduce checkpoints figures report errata clean

help: ## this list
	@grep -hE '^[a-z]+:.*## ' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 12

setup: $(READY) ## the virtual environment, with everything in it

$(READY): pyproject.toml
	@test -n "$(PYTHON)" || { echo "expected Python 3.11 or newer on PATH, found none" >&2; exit 2; }
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --editable '.[dev]'
	@touch $@

run: $(READY) ## measure ws_bound at one seed into $(OUT) and draw its figures (RUN_JOBS=2: faster, twice the memory)
	$(BIN)/hess-run experiment=ws_bound outputs=$(OUT) jobs=$(RUN_JOBS)

test: $(READY) lint types ## lint, types and all tests
	$(BIN)/python -m pytest -n $(JOBS)

lint: $(READY) ## ruff: rules and format
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(READY) ## mypy
	$(BIN)/mypy

bench: $(READY) ## every benchmark: two ways in one run, printed as ratios
	@for b in $(basename $(notdir $(wildcard tests/bench/bench_*.py))); do \
	  echo "== $$b"; $(BIN)/python -m tests.bench.$$b || exit 1; done

quick: $(READY) ## every experiment at profile=quick (no download), into outputs
	@for e in $(EXPERIMENTS); do $(BIN)/hess-run experiment=$$e profile=quick jobs=$(JOBS) || exit 1; done

reproduce: $(READY) ## every experiment at profile=paper, seeds $(SEEDS); resumes
	@for e in $(EXPERIMENTS); do $(BIN)/hess-run -m experiment=$$e seed=$(SEEDS) jobs=$(JOBS) || exit 1; done

checkpoints: $(READY) ## train and measure the ResNets that are missing, seeds $(SEEDS) (DEVICE=cuda where there is one; resumes)
	$(BIN)/hess-run -m experiment=exp6_resnet18 seed=$(SEEDS) device=$(DEVICE)

figures: report ## figures of everything that is stored

report: $(READY) ## tables, figures, statistics, claims and scorecards of everything that is stored
	$(BIN)/hess-run report

errata: $(READY) ## check every formula of the papers and write docs/errata.md
	$(BIN)/hess-run experiment=paper_audit
	cp outputs/paper_audit/errata.md docs/errata.md

clean: ## caches and the virtual environment; results stay
	rm -rf .venv .pytest_cache .mypy_cache .ruff_cache .hypothesis build *.egg-info
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
