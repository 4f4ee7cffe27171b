# `make quickstart` and `make test` set up what is missing first. CONTRIBUTING.md says what the others are for.
SHELL := /bin/bash
PY := .venv/bin/python

.PHONY: setup quickstart check test cluster-up cluster-down bench docs charts format lock

setup: .venv/.ready

.venv/.ready: requirements/cpu.txt requirements/gpu.txt scripts/setup.sh pyproject.toml
	bash scripts/setup.sh

quickstart: setup
	rm -rf runs/quickstart
	.venv/bin/tuneyard run jobspecs/quickstart.yaml --out runs/quickstart $(ARGS)

check: setup
	.venv/bin/ruff check .
	.venv/bin/ruff format --check .
	.venv/bin/mypy
	.venv/bin/lint-imports
	$(PY) -m pytest tests/unit -q

test: check
	$(PY) -m pytest tests --ignore tests/unit --durations=25

cluster-up: setup
	@$(PY) -m tests.testcluster up $(ARGS)

cluster-down: setup
	$(PY) -m tests.testcluster down $(ARGS)

bench: setup
	for script in benchmarks/*.py; do $(PY) "$$script" || exit 1; done

docs: setup
	$(PY) -m tuneyard.api.docs docs/reference

charts: setup
	$(PY) -m scripts.charts

format: setup
	.venv/bin/ruff check --fix .
	.venv/bin/ruff format .

lock: setup
	bash scripts/lock.sh
