# Everything happens in .venv; `make demo` and `make test` need nothing but Python 3.11 or newer and make.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
FUZZED := tests/frames tests/egress tests/actions tests/registry tests/model tests/sandbox/test_jail_filter.py
AGENT_TESTS := tests/agents
CONFORMANCE_TESTS := tests/conformance
BROWSER_TESTS := tests/browser
# Two halves that take about as long as each other, for two processors.
JAIL_TESTS_1 := tests/daemon tests/runs tests/cli tests/launch tests/trial
JAIL_TESTS_2 := tests/sandbox tests/attacks tests/faults tests/e2e tests/mcp
JAIL_TESTS := $(JAIL_TESTS_1) $(JAIL_TESTS_2)
OTHER_TESTS := $(JAIL_TESTS) $(AGENT_TESTS) $(CONFORMANCE_TESTS) $(BROWSER_TESTS)
FAST_TESTS_1 := tests/approver tests/tui tests/web
# On shared machines a failure is looked at twice: docs/development/running-tests.md#a-test-that-fails-once.
ONCE_MORE := --reruns 1 --max-suite-reruns 3 --rerun-exclude-path tests/attacks --rerun-show-tracebacks
PYTEST := $(BIN)/python -m pytest $(if $(CI),$(ONCE_MORE))

# Debian 13 has Python 3.13. Not sid: another Python every year, and whatever else arrived this morning.
NEWER := trixie

.PHONY: help demo test check fast-tests fast-tests-1 fast-tests-2 test-newer agents conformance browser bench fuzz pages clean jail-tests-1 jail-tests-2

help:
	@echo "make demo    set up, then show the main job on a real server (30 s after set-up)"
	@echo "make test    set up, then every check and test"
	@echo "make check   lint, types, imports, docs, and the tests that need no jail"
	@echo "make test-newer  those tests and the demo in Debian $(NEWER), with its newer Python (as root; 400 MB the first time)"
	@echo "make agents  five real coding agents against a model that follows a script (1.7 GB the first time, from npm)"
	@echo "make conformance  MCP's own conformance suite and Inspector against the daemon (350 MB the first time, from npm)"
	@echo "make browser  signing in at a real OpenID provider in a real Chromium (210 MB the first time, from npm, and Debian's chromium)"
	@echo "make bench   the measurements in benchmarks/, five minutes, then a thousand kills, twelve more, and a soak"
	@echo "make pages   the tables of keys in docs/reference, from the schemas"
	@echo "make fuzz    every property of the parsers, the session and the filters, for ten minutes (AILERON_FUZZ_S=600)"

demo: $(VENV)/.demo
	@$(BIN)/aileron demo

test: check
	@$(MAKE) --no-print-directory --jobs=2 --output-sync=target jail-tests-1 jail-tests-2

jail-tests-1 jail-tests-2: jail-tests-%: $(VENV)/.dev
	AILERON_MUST_JAIL=$${CI:+1} $(PYTEST) $(JAIL_TESTS_$*)

check: $(VENV)/.dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	@$(MAKE) --no-print-directory fast-tests

# Two halves side by side: one waits much, for terminals and daemons, and the other computes.
fast-tests:
	@$(MAKE) --no-print-directory --jobs=2 --output-sync=target fast-tests-1 fast-tests-2

fast-tests-1: $(VENV)/.dev
	$(PYTEST) $(FAST_TESTS_1)

fast-tests-2: $(VENV)/.dev
	$(PYTEST) tests $(foreach path,$(OTHER_TESTS) $(FAST_TESTS_1),--ignore=$(path))

test-newer:
	.ci/on-debian $(NEWER) sh -c 'make demo && make fast-tests'

agents: $(VENV)/.dev
	$(BIN)/python -m tests.agents.install
	$(PYTEST) $(AGENT_TESTS)

conformance: $(VENV)/.dev
	$(BIN)/python -m tests.conformance.install
	AILERON_MUST_JAIL=$${CI:+1} $(PYTEST) $(CONFORMANCE_TESTS)

browser: $(VENV)/.dev
	$(BIN)/python -m tests.browser.install
	AILERON_MUST_JAIL=$${CI:+1} $(PYTEST) $(BROWSER_TESTS)

bench: $(VENV)/.dev
	$(BIN)/python -m benchmarks
	$(BIN)/python -m tests.faults.kills 1000
	$(BIN)/python -m benchmarks.soak 10000

pages: $(VENV)/.dev
	$(BIN)/python -m tests.support.schema_pages

fuzz: $(VENV)/.dev
	HYPOTHESIS_PROFILE=fuzz $(BIN)/python -m pytest -p tests.fuzz -o timeout=0 $(FUZZED)

$(VENV)/.demo: pyproject.toml .ci/setup
	PYTHON="$(PYTHON)" .ci/setup "$(VENV)"
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[demo]'
	@touch $@

$(VENV)/.dev: pyproject.toml .ci/setup
	PYTHON="$(PYTHON)" .ci/setup "$(VENV)"
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	@touch $@ $(VENV)/.demo

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis
