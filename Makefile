# Every verb sets up what it needs: a virtual environment in .venv from the hash-pinned locks.
PYTHON ?= $(shell for p in python3 python3.12 python3.11; do \
	$$p -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 12))' 2>/dev/null && echo $$p && break; done)
VENV := .venv
BIN := $(VENV)/bin
UV := $(BIN)/uv
UV_VERSION := 0.13.9
PYTEST := $(BIN)/python -m pytest

.DEFAULT_GOAL := help
.PHONY: help up down demo test test-unit test-e2e test-export check format lint types layers generated sdk rules dashboards pictures integrations lock bench soak kills schemas clean

help: ## list the verbs
	@grep -hE '^[a-z0-9-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-10s %s\n", $$1, $$2}'

up: $(VENV)/.platform ## set up, fetch weights, start everything in the foreground; Ctrl-C stops it all
	@$(BIN)/zooserve up

down: $(VENV)/.platform ## stop what runs, reap what a killed one left
	@$(BIN)/zooserve down

demo: $(VENV)/.platform ## the RAG round trip against a running platform
	@$(BIN)/zooserve demo

test: test-unit test-e2e ## every test; the end-to-end ones start the real servers

test-unit: $(VENV)/.dev ## the tests that need no server, in parallel
	@$(BIN)/zooserve fetch --models all
	@$(PYTEST) -n 2 -m 'not e2e'

test-e2e: $(VENV)/.dev integrations ## the tests against the real servers, one after the other: they share one platform
	@$(BIN)/zooserve fetch --models all
	@# A shared machine can starve a server past a test's patience: what failed runs once more, alone, and then counts.
	@$(PYTEST) -m e2e || $(PYTEST) -m e2e --last-failed --last-failed-no-failures none

check: lint types layers generated ## what CI checks before the tests

lint: $(VENV)/.dev
	@$(BIN)/ruff format --check . && $(BIN)/ruff check .

types: $(VENV)/.dev
	@$(BIN)/mypy
	@# Tests for wrong calls, not for whole types.
	@$(BIN)/mypy --config-file tests/mypy.ini

layers: $(VENV)/.dev
	@$(BIN)/lint-imports

generated: $(VENV)/.dev
	@$(BIN)/python platform/generation/blocking_sdk.py --check
	@$(BIN)/python docs/reference.py --check
	@$(BIN)/python -m zooserve_observability.dashboards --check
	@$(BIN)/python -m zooserve_observability.rules --check
	@$(BIN)/python -m zooserve_observability.metrics_page --check
	@$(BIN)/zooserve ensembles render --check
	@$(BIN)/zooserve ensembles check
	@$(BIN)/zooserve leaf check model_repository
	@$(BIN)/zooserve stack check --env-file .env.example

sdk: $(VENV)/.dev ## write the SDK's blocking half from its asynchronous one, and the reference from its docstrings
	@$(BIN)/python platform/generation/blocking_sdk.py
	@$(BIN)/python docs/reference.py

rules: $(VENV)/.dev ## write Prometheus' recording and alert rules as the code says
	@$(BIN)/python -m zooserve_observability.rules

dashboards: $(VENV)/.dev ## write Grafana's dashboards as the code says
	@$(BIN)/python -m zooserve_observability.dashboards

pictures: $(VENV)/.uv ## draw the dashboards for the docs: make pictures PROMETHEUS=http://127.0.0.1:9090 MINUTES=5
	@test -n "$(PROMETHEUS)" || { echo "say which Prometheus: make pictures PROMETHEUS=http://127.0.0.1:9090"; exit 1; }
	@test -d .venv-docs || $(PYTHON) -m venv .venv-docs
	@$(UV) pip install -q --python .venv-docs/bin/python --require-hashes -r requirements/docs.lock
	@PYTHONPATH=observability .venv-docs/bin/python docs/pictures/draw.py $(PROMETHEUS) --minutes $(or $(MINUTES),5)

format: $(VENV)/.dev ## format and fix what can be fixed
	@$(BIN)/ruff check --fix . ; $(BIN)/ruff format .

bench: $(VENV)/.dev ## the benchmarks of benchmarks/README.md against a platform of their own
	@$(BIN)/python benchmarks/run.py

soak: $(VENV)/.dev ## a thousand chats that are left, 200 deadlines: does all come to rest, do counts add up, does a process grow
	@$(BIN)/python benchmarks/run.py --only chat_hangups

kills: $(VENV)/.dev ## kill a re-embedding ten times at points drawn by chance, resume it: is the collection an undisturbed run's
	@$(BIN)/python benchmarks/run.py --only reembed_kills

schemas: $(VENV)/.dev ## two hundred JSON schemas made by chance: does the real engine's answer break one
	@ZOOSERVE_TEST_SCHEMAS=200 $(PYTEST) -m e2e tests/e2e/chat/test_json_schemas.py -k schema

test-export: ## the tests of `zooserve export`, in an environment of their own with torch (a GB or more)
	@test -d .venv-export || $(PYTHON) -m venv .venv-export
	@.venv-export/bin/python -m pip install -q --disable-pip-version-check torch==2.13.0
	@.venv-export/bin/python -m pip install -q --disable-pip-version-check -e '.[platform,export,dev]'
	@.venv-export/bin/python -m pytest -m export

integrations: .venv-integrations/.made ## LangChain, LlamaIndex and Jupyter, which docs/integrations.md and the notebook are run with

lock: $(VENV)/.uv ## recompile the hash-pinned requirement files
	@for target in sdk: platform:platform gpu:gpu export:platform,export dev:platform,dev,bench docs:docs integrations:integrations; do \
	$(UV) pip compile -q --universal --generate-hashes --no-emit-index-url --no-header --python-version 3.11 \
	$$(echo $${target#*:} | tr ',' '\n' | sed 's/^/--extra /;/^--extra $$/d') pyproject.toml -o requirements/$${target%%:*}.lock || exit 1; done
	@# The platform's lock holds the versions: a stage is served with what it was tested with.
	@$(UV) pip compile -q --universal --generate-hashes --no-emit-index-url --no-header --python-version 3.11 \
	--no-deps --group stages -c requirements/platform.lock -o requirements/stages.lock
	@printf 'editables\nhatchling>=1.27,<2\nuv==$(UV_VERSION)\n' | $(UV) pip compile -q --universal --generate-hashes \
	--no-emit-index-url --no-header --python-version 3.11 - -o requirements/bootstrap.lock

clean: ## remove the virtual environment and caches of this checkout
	@rm -rf $(VENV) .venv-integrations .mypy_cache .ruff_cache .pytest_cache

$(VENV)/.uv:
	@test -n "$(PYTHON)" || { echo "zooserve needs Python 3.11 or 3.12: install one, or run 'make PYTHON=/path/to/python3.12 up'"; exit 1; }
	@sh platform/deploy/prerequisites.sh $(PYTHON)
	@echo "Making a virtual environment with $$($(PYTHON) --version)"
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install -q --disable-pip-version-check --require-hashes -r requirements/bootstrap.lock
	@touch $@

$(VENV)/.platform: $(VENV)/.uv requirements/platform.lock pyproject.toml
	@echo "Installing the platform from requirements/platform.lock"
	@$(UV) pip install -q --python $(BIN)/python --require-hashes -r requirements/platform.lock
	@$(UV) pip install -q --python $(BIN)/python --no-deps --no-build-isolation -e .
	@touch $@

$(VENV)/.dev: $(VENV)/.platform requirements/dev.lock
	@echo "Installing the test tools from requirements/dev.lock"
	@$(UV) pip install -q --python $(BIN)/python --require-hashes -r requirements/dev.lock
	@touch $@

.venv-integrations/.made: $(VENV)/.uv requirements/integrations.lock
	@echo "Installing LangChain, LlamaIndex and Jupyter from requirements/integrations.lock"
	@$(PYTHON) -m venv .venv-integrations
	@$(UV) pip install -q --python .venv-integrations/bin/python --require-hashes -r requirements/integrations.lock
	@touch $@
