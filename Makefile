# SPDX-License-Identifier: Apache-2.0
# Needs Python 3.10 or newer with venv, make, and a way to the Python package index. Nothing else.

.DELETE_ON_ERROR:
.DEFAULT_GOAL := help
.PHONY: help setup run test bench lint docs lock clean

# The first interpreter that is new enough; `make PYTHON=/path/to/python3` overrides it.
PYTHON ?= $(shell for p in python3 python3.14 python3.13 python3.12 python3.11 python3.10; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 10))' 2>/dev/null && echo $$p && break; done)
# pip reads the lock in this form; `make lock` writes both from the same resolution.
CONSTRAINTS := .ci/constraints.txt
BIN := .venv/bin
INSTALLED := .venv/.installed
# Errors only: an index that lacks a package which another one has is no news.
PIP := $(BIN)/python -m pip install -qq
ARGS ?=
WORKERS ?= auto

help:  ## Show this help
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-8s %s\n", $$1, $$2 }' Makefile

setup: $(INSTALLED)  ## Make .venv with everything needed to run and develop

$(INSTALLED): pyproject.toml $(CONSTRAINTS)
	@test -n "$(PYTHON)" || { echo 'gpuaudit needs Python 3.10 or newer: make PYTHON=/path/to/python3' >&2; exit 1; }
	@$(BIN)/python -c '' 2>/dev/null || $(PYTHON) -m venv --clear .venv
	@$(BIN)/python -m pip --version >/dev/null 2>&1 || $(BIN)/python -m ensurepip >/dev/null
	@echo 'Installing gpuaudit and its tools into .venv'
	@$(PIP) --upgrade 'pip>=25.1'
	@$(PIP) --constraint $(CONSTRAINTS) --editable . --group dev
	@$(BIN)/python -m compileall -q gpuaudit checks reports
	@touch $@

run: setup  ## Audit this machine (ARGS='--profile bringup -v' passes options on)
	@code=0; $(BIN)/gpuaudit run $(ARGS) || code=$$?; \
	echo "gpuaudit run ended with exit code $$code"; \
	case $$code in 0|1|3) ;; *) exit 1 ;; esac

test: setup  ## Run every test (ARGS='-k numa' passes options on)
	$(BIN)/python -m pytest -n $(WORKERS) --ignore tests/bench $(ARGS)

bench: setup  ## Measure start-up and a whole pre-flight, as ratios to an empty Python
	$(BIN)/python tests/bench/bench_preflight.py
	$(BIN)/python tests/bench/bench_evidence.py

lint: setup  ## Format check, lint, types, import arrows, shell scripts
	$(BIN)/ruff format --check
	$(BIN)/ruff check
	$(BIN)/mypy
	PYTHONPATH=. $(BIN)/lint-imports --no-logo --no-cache
	@git ls-files -z --cached --others --exclude-standard '*.sh' .ci/run \
		| xargs -0 --no-run-if-empty $(BIN)/shellcheck --external-sources

docs: setup  ## Write the generated parts of README.md and docs/
	$(BIN)/gpuaudit docs --write

lock:  ## Resolve the dependencies anew (needs uv)
	uv lock --upgrade
	uv export --quiet --all-extras --group dev --no-emit-project \
		--no-hashes --no-header --no-annotate --output-file $(CONSTRAINTS)

clean:  ## Remove .venv and everything that was built
	rm -rf .venv build dist *.egg-info .*_cache .benchmarks .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
