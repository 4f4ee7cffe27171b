# `make quickstart` and `make test` set up what is missing first. CONTRIBUTING.md says what the others are for.
SHELL := /bin/bash
PY := .venv/bin/python
CORE := platform/tuneyard/federation/_core.abi3.so

.PHONY: setup quickstart lint check test test-long cluster-up cluster-down bench docs pictures charts format lock

setup: .venv/.ready $(CORE)

$(CORE): hatch_build.py $(wildcard platform/tuneyard/federation/core/*) | .venv/.ready
	@$(PY) hatch_build.py

.venv/.ready: requirements/cpu.txt requirements/gpu.txt scripts/setup.sh pyproject.toml
	bash scripts/setup.sh

quickstart: setup
	rm -rf runs/quickstart
	.venv/bin/tuneyard run jobspecs/quickstart.yaml --out runs/quickstart $(ARGS)
	@command -v tuneyard >/dev/null || echo 'next: the command is .venv/bin/tuneyard; as plain `tuneyard`: export PATH="$(CURDIR)/.venv/bin:$$PATH"' >&2

lint: setup
	.venv/bin/ruff check .
	.venv/bin/ruff format --check .
	.venv/bin/mypy
	.venv/bin/lint-imports
	$(PY) scripts/prose.py

check: lint
	$(PY) -m pytest tests/unit -q

# Everything: parts side by side, their logs as they end, and the sum last. `make test ARGS="hub client"` runs some of tests/suite/parts.py,
# and `make test SINCE=main` lint, the unit tests and the parts that a change since then can touch.
test: setup
	@$(PY) -m tests.suite $(if $(SINCE),--since $(SINCE)) $(ARGS)

# Repetition that only adds confidence, and property tests with all their examples, in the same parts; docs/testing.md has the last result.
test-long: setup
	@$(PY) -m tests.suite --long $(if $(SINCE),--since $(SINCE)) $(ARGS)

cluster-up: setup
	@$(PY) -m tests.testcluster up $(ARGS)

cluster-down: setup
	$(PY) -m tests.testcluster down $(ARGS)

bench: setup
	for script in benchmarks/*.py; do $(PY) "$$script" || exit 1; done

docs: setup
	$(PY) -m tuneyard.api.docs docs/reference
	$(PY) -m tuneyard.data.forms.page docs/reference

pictures: setup
	$(PY) -m scripts.pictures $(ARGS)

charts: setup
	$(PY) -m scripts.charts

format: setup
	.venv/bin/ruff check --fix .
	.venv/bin/ruff format .

lock: setup
	bash scripts/lock.sh
