# `make help` lists the verbs. Everything lands in this folder: .venv, .bench-venv and build.

SHELL := /bin/sh
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

VENV := .venv
BIN := $(VENV)/bin
BENCH := .bench-venv
# At most two test processes unless told otherwise: a test may start a server, a worker and a trainer of its own.
TEST_PROCESSES ?= 2
# Which tests: those marked "full" take minutes each, and only `make full` runs them.
MARKS ?= not full
PIP_INSTALL := -m pip install --disable-pip-version-check --quiet --quiet
EXTRAS := api,worker,torch,tensorflow,dev

# An environment that was copied or moved points into its old folder, and one whose Python went away starts nothing:
# both are made again.
MADE_IN := $(shell $(BIN)/python -c '' 2>/dev/null && cat $(VENV)/made-in)
ifneq ($(MADE_IN),$(CURDIR))
$(VENV)/made-in: remake
endif
.PHONY: remake
remake:

$(VENV)/made-in: pyproject.toml constraints.txt
	@if [ "$(MADE_IN)" = "$(CURDIR)" ]; then echo "Bringing $(VENV) up to date."; rm -f $@; else \
	python=$$(PYTHON='$(PYTHON)' sh scripts/find_python.sh) \
	&& echo "Installing into $(VENV) with $$python; the first time this takes some minutes." \
	&& "$$python" -m venv --clear $(VENV); fi
	@$(BIN)/python $(PIP_INSTALL) --upgrade --constraint constraints.txt pip
	@$(BIN)/python $(PIP_INSTALL) --constraint constraints.txt --editable '.[$(EXTRAS)]'
	@printf '%s\n' "$(CURDIR)" > $@

.PHONY: help
help: ## List these verbs.
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-15s %s\n", $$1, $$2 }' Makefile

.PHONY: setup
setup: $(VENV)/made-in ## Make .venv with everything in it; PYTHON=... chooses the interpreter.

.PHONY: demo
demo: setup ## Start the service, train on both frameworks, kill a trainer, predict, show all, and stop.
	@$(BIN)/trainshed demo

.PHONY: up
up: setup ## Start the service on this machine until Ctrl-C.
	@$(BIN)/trainshed up

.PHONY: test
test: setup ## Run the tests; TEST_ARGS="-k journal" narrows it.
	@$(BIN)/python -m pytest -n $(TEST_PROCESSES) --dist loadfile -m '$(MARKS)' $(TEST_ARGS)

.PHONY: check
check: setup ## Check style, types, import law, house rules, schema and container files.
	@$(BIN)/python scripts/checks.py

.PHONY: full
full: MARKS :=
full: check test bench ## Run everything: check, every test, also the long ones, and bench.

.PHONY: compose-test
compose-test: setup ## Build the images, run the whole stack on a Docker engine with faults; prints a table.
	@$(BIN)/python -m scripts.compose_test $(COMPOSE_TEST_ARGS)

.PHONY: monitoring-test
monitoring-test: setup ## Let a Prometheus scrape a running service; checks every alert rule and dashboard.
	@$(BIN)/python -m scripts.monitoring_test

.PHONY: gpu-test
gpu-test: setup ## Try on a real card what only a real card shows; says SKIPPED where there is none.
	@$(BIN)/python scripts/gpu_test.py $(TEST_ARGS)

.PHONY: bench
bench: $(BENCH)/made-in setup ## Measure us beside our peers; tables here, rows in build/bench.
	@$(BIN)/python scripts/run_benchmarks.py --peer-python $(BENCH)/bin/python --output build/bench $(BENCH_ARGS)

$(BENCH)/made-in: constraints-bench.txt $(VENV)/made-in
	@$(BIN)/python -m venv --clear $(BENCH)
	@$(BENCH)/bin/python $(PIP_INSTALL) --upgrade --constraint constraints-bench.txt pip
	@$(BENCH)/bin/python $(PIP_INSTALL) --constraint constraints-bench.txt 'ray[default]' mlflow
	@printf '%s\n' "$(CURDIR)" > $@

.PHONY: format
format: setup ## Rewrite the code in the house's format, and mend what the linter can mend.
	@$(BIN)/ruff check --fix --quiet . ; $(BIN)/ruff format .

.PHONY: clean
clean: ## Delete what make made: environments, caches and build; never your jobs.
	rm -rf $(VENV) $(BENCH) build dist .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis
	find app workers tests benchmarks scripts alembic -name __pycache__ -type d -prune -exec rm -rf {} +
