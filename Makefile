# `make help` lists the targets; each does its own set-up.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
export PATH := $(CURDIR)/.venv/bin:$(PATH)
export PYTHONPATH := $(CURDIR)/tests
# The targets start hundreds of processes; a shared bytecode cache saves each from compiling again.
unexport PYTHONDONTWRITEBYTECODE
# A cache by content, so that a clean checkout is not checked from scratch.
export MYPY_CACHE_DIR := $(or $(TEST_CACHE),$(HOME)/.cache/trimtab)/mypy

# Four processes, each with its own cluster, because most tests wait; the tests of a file stay together, as do those of the node.
SIDE_BY_SIDE := --numprocesses 4 --dist loadscope --no-loadscope-reorder
# Real processes on shared cores: an integration test that fails is tried once more, and the summary names it. The others depend
# on nothing outside their process; tests/conftest.py gives them no second try.
SECOND_TRY := --reruns 1 -raR
# Programs in Go, above all the control planes, use a third less CPU with one core.
ONE_CORE_EACH := GOMAXPROCS=1
# They use less again with rare garbage collection: kubectl a fifth, an API server a tenth, for 200 MiB that this one takes more.
FEW_COLLECTIONS := GOGC=800 GOMEMLIMIT=700MiB

.PHONY: help setup lint format test all-tests fresh-faults simulate-faults coverage-simulation compiled test-fast coverage test-lowest test-deps recordings fuzz prometheus-versions soak soak-operator bench audit field-effects demo docs reference cluster cluster-down crds lock clean

help: ## Show this list
	@awk -F':.*## ' '/^[a-z-]+:.*## /{printf "  \033[1mmake %-19s\033[0m %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: .venv/.ready ## Make .venv with every extra that the tests use

# uv comes out of the lock itself, hash and all, and then installs the rest of it: at first the package alone, at the
# versions and hashes of the lock, which is all that a newcomer has to wait for.
.venv/.installed: requirements.lock pyproject.toml
	@echo "==> Python packages into .venv"
	[ -x .venv/bin/pip ] || python3 -m venv .venv || { apt-get install -y python3-venv && python3 -m venv --clear .venv; }
	sed -n '/^uv==/,/^[a-z]/{/^uv==/p;/^    --hash/p}' requirements.lock > .venv/uv.txt
	.venv/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes -r .venv/uv.txt
	uv pip install --quiet --constraint requirements.lock --requirement pyproject.toml hatchling editables
	uv pip install --quiet --no-deps --no-build-isolation --editable .
	@touch $@

.venv/.ready: .venv/.installed
	@echo "==> Python packages of the tests into .venv"
	uv pip sync --quiet --require-hashes requirements.lock
	uv pip install --quiet --no-deps --no-build-isolation --editable .
	@touch $@

lint: setup ## Check style, types and layers
	ruff check .
	ruff format --check .
	mypy
	lint-imports --no-cache
	python -m tools.commits

# The linters run beside the builds and the tests, which leave them a part of a core. A failure of one does not stop the
# other: both are reported.
test: compiled ## Run all checks and tests, on a real cluster too
	@$(MAKE) --no-print-directory --jobs=3 lint all-tests fresh-faults

all-tests: test-deps
	$(ONE_CORE_EACH) $(FEW_COLLECTIONS) pytest $(SIDE_BY_SIDE) $(SECOND_TRY)
	python -m harness keep-compiled

# New seeds of the fault simulation, for a minute beside the tests. They do not fail the run; the fixed seeds of the tests do.
fresh-faults: setup
	@nice python -m trimtab.lab.faults run $$(date +%s) --hours 0.017 --processes 1 --save $(FINDINGS) \
	  || echo "A fresh seed of the fault simulation failed: its case is in $(FINDINGS)/. This does not fail the tests."

# Beside the linters, one process compiles the tests of a new checkout; otherwise each of the four would compile all.
compiled: setup
	[ -d tests/__pycache__ ] || pytest --collect-only --quiet > /dev/null 2>&1 &

FAST := tests --ignore tests/integration -m "not long" --hypothesis-profile fast --numprocesses auto --dist worksteal -o tmp_path_retention_policy=failed
test-fast: setup ## Run the tests that need no other process, cluster or root
	pytest $(FAST)

coverage: setup ## Measure the branch coverage of the fast tests, and check each package's floor
	rm -rf .coverage
	coverage run -m pytest $(FAST)
	coverage combine --quiet
	python -m tools.coverage_floors

SEEDS := 100
coverage-simulation: setup ## Measure the coverage of SEEDS (100) of the fault simulation alone
	rm -rf .coverage
	coverage run -m trimtab.lab.faults run 0 $(SEEDS) || true # violations are no matter here
	coverage run -m trimtab.lab.faults run 0 $(SEEDS) --subject node || true
	coverage combine --quiet
	python -m tools.coverage_simulation

# Its own environment, from pyproject.toml alone: a lower bound that is too low fails here, not on a user's machine.
LOWEST := .venv/lowest
test-lowest: setup ## Run fast tests with the lowest versions that pyproject.toml allows
	uv venv --quiet --clear $(LOWEST)
	uv pip compile --quiet --python-version 3.11 --resolution lowest-direct --extra lab --extra postgres --extra test \
	  pyproject.toml --output-file $(LOWEST)/requirements.txt
	uv pip install --quiet --python $(LOWEST) --only-binary :all: --requirement $(LOWEST)/requirements.txt
	uv pip install --quiet --python $(LOWEST) --no-deps --editable .
	$(LOWEST)/bin/python -m pytest -q -m "not cluster and not postgres and not long" --hypothesis-profile fast \
	  --numprocesses auto --dist worksteal --ignore tests/cli/test_train.py \
	  tests/api tests/sizing tests/kube tests/usage tests/store tests/cli

# KRR is recorded where KRR names its command, such as "python /opt/krr/krr.py".
recordings: test-deps ## Record the answers of the real peers again, for the fast tests
	TEST_RECORD=1 pytest --numprocesses 0 tests/sizing/strategies/test_vpa.py tests/sizing/strategies/test_vpa_checkpoint.py \
	  tests/usage/prometheus $(if $(KRR),tests/integration/scan/test_krr.py)

test-deps: setup ## Install and build what the tests run against (once: about 15 minutes)
	python -m harness deps

# Its table goes into docs/research/security-2026-11.md. Failing inputs are left in fuzz-findings/.
FUZZ_INPUTS := 10000
fuzz: setup ## Feed hostile inputs to all parsers: FUZZ_INPUTS (10000) to each target
	python -m security.fuzz --inputs $(FUZZ_INPUTS)

field-effects: setup ## Prove by docs/research/fields.md that each field of the kinds has an effect
	python -m tools.field_effects

# With RAY=HOST:PORT on the machines of that cluster.
HOURS := 1
FINDINGS := fault-findings
simulate-faults: setup ## Simulate faults for HOURS (1) with new seeds, save what fails, and append to the ledger
	python -m trimtab.lab.faults run $$(date +%s) --hours $(HOURS) --save $(FINDINGS) \
	  --ledger docs/research/fault-ledger.csv $(if $(RAY),--ray-address $(RAY))

prometheus-versions: test-deps ## Run tests against the three newest minor versions of Prometheus, which are built first
	python -m harness.prometheus_versions

soak: test-deps ## Ten minutes of random faults between an informer and the API server
	TEST_SOAK_SECONDS=600 pytest -s --timeout=900 tests/integration/kube/cache/test_soak.py

soak-operator: test-deps ## Kill 100 leaders of the operator, with long outages of Prometheus and the API server
	TEST_KILLS=100 pytest -v -s tests/integration/operator/test_soak.py
	TEST_KILLS=100 pytest -v -s tests/integration/e2e/test_operator.py -k killed_at_random_moments

# These two benchmarks need recordings: each file names them.
BY_HAND := bench/effects.py bench/fit_workloads.py
bench: test-deps ## Compare ourselves with our peers: all of bench/, or one with BENCH=informer; TRACES=FOLDER has recordings
	@for file in $(if $(BENCH),bench/$(BENCH).py,$(filter-out $(BY_HAND),$(sort $(wildcard bench/*.py)))); do echo "==> $$file"; python "$$file"; done

# Fails if the advisories of a package are unavailable, as behind a mirror without them.
audit: setup ## Compare the locked packages of the image with the known vulnerabilities
	uv tool run --from 'pip-audit>=2.9,<3' pip-audit --strict --require-hashes --disable-pip --requirement requirements-runtime.lock

demo: .venv/.installed ## See what Trimtab does, in a minute: a simulated week under the real operator, in the browser
	@trimtab demo

docs: setup ## Build the documentation into site/
	NO_MKDOCS_2_WARNING=1 mkdocs build --strict # --quiet would hide warnings from --strict
	@echo "open site/index.html, or run: mkdocs serve"

reference: setup ## Generate docs/reference from the code
	python -m trimtab.cli.docsgen docs/reference

format: setup ## Format the code and fix what the linter can
	ruff check --fix .
	ruff format .

crds: setup ## Generate deploy/crds and the schema of the chart's values from the models
	trimtab crds --directory deploy/crds
	python -m tools.chart_schema

# requirements.lock has all that a checkout uses; the other two are parts of it, at the same versions: what the image runs,
# and what builds it.
COMPILE := uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header
lock: setup ## Renew the locks from pyproject.toml
	$(COMPILE) --all-extras --upgrade pyproject.toml --output-file requirements.lock
	$(COMPILE) --extra postgres --constraint requirements.lock pyproject.toml --output-file requirements-runtime.lock
	echo hatchling | $(COMPILE) --constraint requirements.lock - --output-file requirements-build.lock

cluster: setup ## Start a real Kubernetes here, in the background, and say how to use it
	@python -m harness up --node

cluster-down: setup ## Stop that Kubernetes
	@python -m harness down

clean: ## Remove what was built here (~/.cache/trimtab stays)
	rm -rf .venv site build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis
