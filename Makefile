# Everything sets itself up: a virtual environment in .venv, made with Python 3.11 or newer.
PYTHON ?= $(firstword $(foreach p,python3.11 python3.12 python3.13 python3.14 python3,$(if $(shell command -v $(p) 2>/dev/null),$(p))))
JOBS ?= 2
RUN_JOBS ?= 2
SEEDS ?= 42,43,44,45,46
DEVICE ?= cpu
SEED ?= 0
LOCK ?=
OUT ?= outputs/run
BIN := .venv/bin
READY := .venv/.ready
EXPERIMENT ?=
ONLY ?=
EXPERIMENTS = $(or $(EXPERIMENT),$(basename $(notdir $(wildcard conf/experiment/*.yaml))))

# $(call each,COMMAND of experiment $$e): all of them, whatever fails; then status 1 with the names, 130 at Ctrl-C.
each = @failed=; for e in $(EXPERIMENTS); do $(1) || { s=$$?; [ $$s -ne 130 ] || exit 130; failed="$$failed $$e"; }; \
  done; [ -z "$$failed" ] || { echo "failed:$$failed" >&2; exit 1; }

.DEFAULT_GOAL := help
.PHONY: recipes readme docs help setup lock demo run test test-slow lint types bench models quick reproduce checkpoints figures report errata clean

help: ## this list
	@grep -hE '^[a-z%-]+:.*## ' $(MAKEFILE_LIST) | sed 's/%/NAME/; s/:.*## /\t/' | expand -t 17
	@echo; echo "EXPERIMENT='a b' restricts quick, reproduce and report; OUT, JOBS, RUN_JOBS, SEEDS: see the top of Makefile"

setup: $(READY) ## the virtual environment, with everything in it (LOCK=1: the versions of requirements-cpu.lock)

$(READY): pyproject.toml
	@test -n "$(PYTHON)" || { echo "expected Python 3.11 or newer on PATH, found none" >&2; exit 2; }
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --upgrade pip
ifneq ($(LOCK),)
	$(BIN)/python -m pip install --quiet --requirement requirements-cpu.lock
endif
	$(BIN)/python -m pip install --quiet --editable '.[dev]'
	@touch $@

lock: $(READY) ## requirements-cpu.lock, from the versions that are installed in .venv
	$(BIN)/python -m pip install --quiet uv
	$(BIN)/python -m pip freeze --exclude-editable | grep == > .venv/versions.txt
	sed -n '/^#/p' requirements-cpu.lock > .venv/lock.txt
	$(BIN)/uv pip compile --quiet --universal --python-version 3.11 --extra dev --no-header --no-annotate \
	  --constraints .venv/versions.txt pyproject.toml | sed 's/+cpu$$//' >> .venv/lock.txt
	mv .venv/lock.txt requirements-cpu.lock

demo: $(READY) ## one published formula checked now: claim, published and our values, verdict, figure
	$(BIN)/hess-run demo

run: $(READY) ## measure one experiment again, as published, at one seed, and compare it with the published values (a minute)
	$(BIN)/hess-run experiment=attention_hessian outputs=$(OUT) jobs=$(RUN_JOBS) force=true

test: $(READY) lint types ## lint, types and the tests of every day
	$(BIN)/python -m pytest -n $(JOBS) --dist loadfile -m "not slow"

test-slow: $(READY) ## the other tests: injected errors, long runs, and attacks (SEED=0; a table of their counts at the end)
	$(BIN)/python -m pytest -n $(JOBS) --dist loadfile -m slow tests --ignore=tests/attack --ignore=tests/run/test_limits.py --ignore=tests/run/test_damage_around.py
	$(BIN)/python -m tests.attack --seed $(SEED) $(ONLY)

lint: $(READY) ## ruff: rules and format
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(READY) ## mypy
	$(BIN)/mypy

bench: $(READY) ## two ways in one run against the goals of speed, into docs/benchmarks.md (ONLY='epoch memory:convnet': some)
	$(BIN)/python -m tests.bench --page docs/benchmarks.json $(ONLY)

models: $(READY) ## products of models of other packages against double backward, and refusals over seeds, into docs/other-libraries.md (downloads the packages)
	$(BIN)/python -m pip install --quiet --editable '.[models]'
	HF_HUB_OFFLINE=1 $(BIN)/python -m tests.curvature.models_table --page docs/other-libraries.md $(ONLY)
	HF_HUB_OFFLINE=1 $(BIN)/python -m tests.curvature.checks_table --page docs/other-libraries.md

quick: $(READY) ## every experiment at profile=quick (no download), into outputs
	$(call each,$(BIN)/hess-run experiment=$$e profile=quick jobs=$(JOBS))

reproduce: $(READY) ## every experiment at profile=paper, seeds $(SEEDS); resumes
	$(call each,$(BIN)/hess-run -m experiment=$$e seed=$(SEEDS) jobs=$(JOBS))

experiment-%: $(READY) ## one experiment at profile=paper, seeds $(SEEDS); resumes
	$(BIN)/hess-run -m experiment=$* seed=$(SEEDS) jobs=$(JOBS)

checkpoints: $(READY) ## train and measure the ResNets that are missing, seeds $(SEEDS) (DEVICE=cuda where there is one; resumes)
	$(BIN)/hess-run -m experiment=exp6_resnet18 seed=$(SEEDS) device=$(DEVICE)

figures: report ## figures of everything that is stored

report: $(READY) ## tables, figures, statistics, claims and scorecards of everything that is stored
ifeq ($(EXPERIMENT),)
	$(BIN)/hess-run report
else
	$(call each,$(BIN)/hess-run report experiment=$$e)
endif

figure-%: $(READY) ## one figure drawn again, by its file name below outputs/ (EXPERIMENT=: of that experiment only)
	@found=; for f in outputs/published/$(or $(EXPERIMENT),*)/figures/$*.png; do [ -f "$$f" ] || continue; found=1; \
	  e=$${f#outputs/published/}; $(BIN)/hess-run report experiment=$${e%%/*} figure=$* || exit 1; done; \
	  [ -n "$$found" ] || { echo "no outputs/published/*/figures/$*.png; ls shows the names" >&2; exit 2; }

errata: $(READY) ## check every clause of the papers and write docs/errata.md and docs/errata/
	$(BIN)/hess-run experiment=paper_audit
	$(BIN)/python -m tests.mutations.audit
	sed 's#(errata_#(errata/#' outputs/paper_audit/errata.md > docs/errata.md
	mkdir -p docs/errata
	for page in outputs/paper_audit/errata_*.md; do cp $$page docs/errata/$$(basename $$page | sed s/errata_//); done

readme: $(READY) ## numbers of README and docs/reproduction/, and docs/experiments.md, from the published results
	$(BIN)/python -m docs.render
	$(BIN)/python -m docs.verdict_table

recipes: $(READY) ## the pages of docs/recipes, by running each script
	$(BIN)/python -m docs.recipes

docs: $(READY) ## the documentation with a page for each published report, into docs/_build/html
	$(BIN)/python -m pip install --quiet --editable '.[docs]'
	rm -rf docs/generated docs/results docs/_build
	$(BIN)/python -m sphinx -q -W --keep-going -b html docs docs/_build/html

clean: ## caches and the virtual environment; results stay
	rm -rf .venv .pytest_cache .mypy_cache .ruff_cache build *.egg-info
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
