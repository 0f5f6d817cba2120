# What can be done with a checkout. Needs Python 3.11 or newer, make, and a package index that pip can reach.

PYTHON ?= $(firstword $(foreach name,python3.11 python3 python3.14 python3.13 python3.12,$(shell \
	$(name) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && command -v $(name))))
ARGUMENTS ?=
NAME ?= session_pump
UPGRADE ?=

bin := .venv/bin
pip_install := $(bin)/python -m pip install --quiet --disable-pip-version-check --no-deps
compile := $(bin)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes \
	--custom-compile-command 'make lock' $(UPGRADE) pyproject.toml

.DEFAULT_GOAL := help
.NOTPARALLEL:
# The tests start hundreds of processes, and each would compile all modules anew.
export PYTHONDONTWRITEBYTECODE =

.PHONY: help demo demo-servers example test test-quick check walk soak format bench bench-chains bench-web bench-peers bench-own lock clean

help: ## print what can be done
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' Makefile

demo: .venv/runtime ## a tour of five systems on SQLite, in a temporary folder; ends by itself
	$(bin)/windlass demo

demo-servers: .venv/development ## the same tour on an embedded PostgreSQL, and on an embedded MongoDB
	$(bin)/windlass demo --postgres
	$(bin)/windlass demo --mongodb

example: .venv/development ## one of examples/, by its name: make example NAME=session_pump
	$(bin)/python -m examples.$(NAME) $(ARGUMENTS)

test: .venv/development ## all tests, on real servers; ARGUMENTS="-k name" chooses among them
	@tests/packages
	$(bin)/python -m tests.servers --in-memory -- $(bin)/python -m pytest -n 5 --dist worksteal $(ARGUMENTS)

test-quick: .venv/development ## the tests that need no server, in a minute: values, the pure parts of the worker, SQLite
	TMPDIR=$(firstword $(wildcard /dev/shm) /tmp) $(bin)/python -m pytest -q -n 2 -o tmp_path_retention_policy=none \
		tests/values tests/worker/test_buffer.py tests/conformance/test_sqlite.py $(ARGUMENTS)

check: .venv/development ## format, lint, types, layers, length of files, tests
	$(bin)/ruff format --check .
	$(bin)/ruff check .
	$(bin)/mypy
	$(bin)/lint-imports
	@find src examples -type f \( -name '*.py' -o -name '*.sql' \) -exec wc -l {} \; \
		| awk '$$1 > 400 { print $$2 ": " $$1 " lines, more than 400"; long = 1 } END { exit long }'
	@$(MAKE) --no-print-directory test

walk: .venv/development ## the files that one job passes through; writes them into docs/architecture.md
	$(bin)/python -m tests.servers --in-memory -- $(bin)/python -m tests.walk

soak: .venv/development ## faults of all kinds for a long time: make soak ARGUMENTS="--store postgres --minutes 20"
	$(bin)/python -m tests.faults.soak $(ARGUMENTS)

format: .venv/development ## put the code in its form, and mend what can be mended
	$(bin)/ruff check --fix .
	$(bin)/ruff format .

bench: .venv/development ## measure; prints a table and JSON
	$(bin)/python -m tests.servers -- $(bin)/python -m benchmarks $(ARGUMENTS)

bench-chains: .venv/development ## chains, fan-in and order keys; writes benchmarks/results/chains.json
	$(bin)/python -m benchmarks.chains $(ARGUMENTS)

bench-web: .venv/development ## the HTTP API beside a million finished jobs; writes benchmarks/results/web.json
	$(bin)/python -m benchmarks.web $(ARGUMENTS)

bench-peers: .venv/development ## measure beside other job queues; wants npm; writes benchmarks/results/peers.*
	$(bin)/python -m benchmarks.peers $(ARGUMENTS)

bench-own: .venv/development ## the worker beside much else, idle, over a million jobs; writes benchmarks/results/own.*
	$(bin)/python -m benchmarks.peers.own $(ARGUMENTS)

lock: .venv/development ## pin what pyproject.toml names; UPGRADE=--upgrade takes the newest of all
	$(compile) --all-extras --group dev --output-file requirements.lock
	$(compile) --group build --constraint requirements.lock --output-file requirements-runtime.lock

clean: ## remove the environment and all caches
	rm -rf .venv .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache build dist
	find src tests examples -name __pycache__ -prune -exec rm -rf {} +

# The demo asks for little, so that a newcomer does not wait for two database servers.
.venv/runtime: requirements-runtime.lock pyproject.toml
	@test -n "$(PYTHON)" && $(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
		|| { echo 'Windlass needs Python 3.11 or newer: install it, or say make PYTHON=/path/to/python' >&2; exit 1; }
	@echo 'Preparing .venv …'
	@test -x $(bin)/python || $(PYTHON) -m venv .venv
	@$(pip_install) --require-hashes --requirement requirements-runtime.lock
	@$(pip_install) --no-build-isolation --editable .
	@touch $@

.venv/development: .venv/runtime requirements.lock
	@echo 'Preparing .venv for development …'
	@$(pip_install) --require-hashes --requirement requirements.lock
	@touch $@
