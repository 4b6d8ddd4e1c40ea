# `make help` lists the targets; each does its own set-up.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
export PATH := $(CURDIR)/.venv/bin:$(PATH)
export PYTHONPATH := $(CURDIR)/tests

.PHONY: help setup lint format test test-fast bench demo docs cluster cluster-down test-deps crds lock clean

help: ## Show this list
	@awk -F':.*## ' '/^[a-z-]+:.*## /{printf "  \033[1mmake %-12s\033[0m %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: .venv/.ready ## Make .venv with every extra that the tests use

# uv comes out of the lock itself, hash and all, and then installs the rest of it.
.venv/.ready: requirements.lock pyproject.toml
	@echo "==> Python packages into .venv"
	[ -x .venv/bin/pip ] || python3 -m venv .venv || { apt-get install -y python3-venv && python3 -m venv --clear .venv; }
	sed -n '/^uv==/,/^[a-z]/{/^uv==/p;/^    --hash/p}' requirements.lock > .venv/uv.txt
	.venv/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes -r .venv/uv.txt
	uv pip sync --quiet --require-hashes requirements.lock
	uv pip install --quiet --no-deps --no-build-isolation --editable .
	@touch $@

lint: setup ## Check style, types and layers
	ruff check .
	ruff format --check .
	mypy
	lint-imports --no-cache

format: setup ## Rewrite the code as the linter wants it
	ruff check --fix .
	ruff format .

crds: setup ## Write deploy/crds anew from the models in trimtab.api
	trimtab crds --directory deploy/crds

lock: setup ## Renew requirements.lock from pyproject.toml
	uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header --all-extras --upgrade pyproject.toml --output-file requirements.lock

test-deps: setup ## Install and build what the tests run against (once: about 12 minutes)
	python -m harness deps

cluster: setup ## Start a real Kubernetes here, in the background, and say how to use it
	@python -m harness up --node

cluster-down: setup ## End that Kubernetes
	@python -m harness down
