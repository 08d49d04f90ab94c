# Everything runs in .venv, which the first target that needs it sets up.

PYTHON ?= python3
ARGS ?=
BIN := .venv/bin
READY := .venv/.ready
VERIFIERS := .cache/verifiers
PEERS := .cache/peers
PEERS_READY := $(PEERS)/node_modules/.package-lock.json
NPM_CI = npm ci --ignore-scripts --no-audit --no-fund --loglevel=error --prefix
# Three workers, each with a PostgreSQL and a Valkey of its own: tests wait often enough that two leave two cores idle.
PYTEST = $(BIN)/pytest -n 3 --dist worksteal $(ARGS)

# A .venv can't be moved: its scripts name the folder they were made in, and would run that folder's code.
ifneq ($(shell cat $(READY) 2>/dev/null),$(CURDIR))
$(shell rm -f $(READY))
endif

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help demo bench test test-all quick model machines orders mutants chaos audit verifiers examples lint format clean

help: ## shows this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-9s %s\n", $$1, $$2 }' Makefile

demo: $(READY) ## runs the main job on real processes and prints what happened
	@$(BIN)/duehook demo

bench: $(READY) $(if $(shell command -v npm),$(PEERS_READY)) ## duehook beside Celery, BullMQ and others (ARGS="--only NAME --rounds N --quick")
	@$(BIN)/python -m pip install -qq --disable-pip-version-check -c constraints.txt -e '.[bench,peers]'
	@$(BIN)/duehook bench peers $(ARGS)

chaos: $(READY) ## breaks everything at random under load (ARGS="--seed N --deliveries M --faults K --minutes T")
	@$(BIN)/python -m tests.chaos $(ARGS)

test: lint ## lint, then the whole test suite (ARGS="-k name" picks)
	@$(PYTEST)

test-all: verifiers test ## the same, and what needs Node.js: the examples, the published verifiers of npm, and svix's

verifiers: $(READY) examples ## installs those verifiers, and what the examples need
	@$(BIN)/python -m pip install -qq --disable-pip-version-check -c constraints.txt -e '.[verifiers]'
	@mkdir -p $(VERIFIERS)
	@cp tests/contract/verifiers/package*.json $(VERIFIERS)
	@$(NPM_CI) $(VERIFIERS)

examples: ## installs what the examples in Node.js need
	@command -v npm >/dev/null || { echo "npm is missing, run: apt-get install nodejs npm" >&2; exit 1; }
	@for lock in examples/*/package-lock.json; do $(NPM_CI) "$${lock%/*}" || exit 1; done

model: $(READY) ## explores every order of the protocol's steps with spin, and what breaks without each guard
	@command -v spin >/dev/null && command -v gcc >/dev/null || { echo "spin or gcc is missing, run: apt-get install spin gcc" >&2; exit 1; }
	@$(BIN)/pytest tests/model -s $(ARGS)

quick: $(READY) ## the tests that take no more than moments
	@$(PYTEST) -m "not slow"

machines: $(READY) ## the state machines, each for SECONDS=300 from a new seed on; SEED=n repeats one of them
	@$(if $(SEED),MACHINES_SEED=$(SEED),MACHINES_SECONDS=$(or $(SECONDS),300)) $(BIN)/pytest tests/machines $(ARGS)

mutants: $(READY) ## removes each guard in turn and shows which test dies of it (ARGS="-k token")
	@$(BIN)/python -m tests.mutants $(ARGS)

orders: $(READY) ## every order of every two and three who may meet, for hours, with a table (ARGS="-k name" picks)
	@EVERY_ORDER=1 $(PYTEST) tests/races/test_orders.py

lint: $(READY) ## style, types and the direction of imports
	@$(BIN)/ruff check
	@$(BIN)/ruff format --check
	@$(BIN)/mypy
	@$(BIN)/lint-imports

audit: $(READY) ## whether a pinned dependency has a known vulnerability
	@$(BIN)/python .ci/audit.py

format: $(READY) ## brings the code into the house's format
	@$(BIN)/ruff check --fix
	@$(BIN)/ruff format

clean: ## removes .venv and caches; the services' own .duehook stays
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	rm -rf $(VERIFIERS) $(PEERS) .cache/audit examples/*/node_modules *.egg-info
	find . -name __pycache__ -prune -exec rm -rf {} +

# npm writes it last.
$(PEERS_READY): bench/peers/node/package.json bench/peers/node/package-lock.json
	@mkdir -p $(PEERS)
	@cp $^ $(PEERS)
	@$(NPM_CI) $(PEERS)
	@touch $@

# Written last: without it a .venv is half made, by a run that was interrupted, and is made anew.
$(READY): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
	  echo "$(PYTHON) is not Python 3.11 or newer, run: apt-get install python3-venv make" \
	    "(or name another, as in: make PYTHON=python3.12)" >&2; \
	  exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { \
	  echo "$(PYTHON) can't make a virtual environment, run: apt-get install python3-venv make" >&2; \
	  exit 1; }
	@echo "Setting up .venv, once: about half a minute."
	@if [ -e $@ ]; then rm $@; else $(PYTHON) -m venv --clear .venv; fi
	@$(BIN)/python -m pip install -qq --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@echo "$(CURDIR)" > $@
