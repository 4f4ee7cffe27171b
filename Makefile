# `make quickstart` and `make test` set up what is missing; see CONTRIBUTING.md for the others.
SHELL := /bin/bash
PY := .venv/bin/python

.PHONY: setup quickstart check test bench lock format

setup: .venv/.ready

.venv/.ready: $(wildcard requirements/*.txt) scripts/setup.sh pyproject.toml
	bash scripts/setup.sh

check: setup
	.venv/bin/ruff check . && .venv/bin/ruff format --check .
	.venv/bin/mypy
	.venv/bin/lint-imports
	$(PY) -m pytest tests/unit -q

format: setup
	.venv/bin/ruff check --fix . && .venv/bin/ruff format .

test: setup
	$(PY) -m pytest tests

lock:
	bash scripts/lock.sh
