"""The rules of imports between packages, checked on every module: they keep the spine the only path to the executor."""

from __future__ import annotations

import ast
from collections.abc import Collection, Mapping
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SOURCES = {
    "aileron": ROOT / "aileron",
    "aileron_sandbox": ROOT / "sandbox" / "aileron_sandbox",
    "aileron_connector": ROOT / "connectors" / "sdk" / "aileron_connector",
}
OURS = tuple(SOURCES)
BASE = ("aileron.model", "aileron.api", "aileron.config", "aileron.files", "aileron.home", "aileron.threads")

# Packages outside of the daemon that all of it may use; and the daemon's own packages that its upper rooms may use.
DAEMON = (
    *BASE,
    "aileron.__version__",
    "aileron.actions",
    "aileron.approvals",
    "aileron.approver_key",
    "aileron.audit",
    "aileron.catalogue",
    "aileron.connections",
    "aileron.egress",
    "aileron.secret_stores",
    "aileron.executor",
    "aileron.gateway",
    "aileron.isolated",
    "aileron.ingress",
    "aileron.ledger",
    "aileron.logins",
    "aileron.mcp",
    "aileron.oauth",
    "aileron.registry",
    "aileron.cards.decision_flow",
    "aileron.cards.listed",
    "aileron.runs",
    "aileron.vault",
    "aileron.web",
    "aileron_sandbox",
)
STANDS_ON = ("aileron.daemon.foundation", "aileron.daemon.views")

# Package or module → our packages and modules that it may import besides itself. The longest matching prefix applies.
ALLOWED: dict[str, tuple[str, ...]] = {
    "aileron": (),
    "aileron.model": (),
    # The daemon's answers as types, made there and read by its clients.
    "aileron.api": ("aileron.model",),
    "aileron.config": ("aileron.model", "aileron.files"),
    "aileron.files": ("aileron.model",),
    "aileron.home": (),
    "aileron.threads": (),
    "aileron.extras": (),
    "aileron.passphrase": ("aileron.model",),
    "aileron.tls": ("aileron.model",),
    "aileron.connections": (),
    "aileron.actions": BASE,
    "aileron.approvals": BASE,
    # The messages of a login: the daemon starts its process, which comes in as a Protocol.
    "aileron.egress": (*BASE, "aileron.tls", "aileron.logins.login_messages"),
    "aileron.vault": (*BASE, "aileron.passphrase"),
    # Sign-in and renewal: requests leave through egress, and tokens are kept through a Protocol.
    "aileron.oauth": (*BASE, "aileron.connections", "aileron.egress"),
    # Secrets that are kept elsewhere: requests to their server leave through egress.
    "aileron.secret_stores": (*BASE, "aileron.egress"),
    # The kernel's prctl: a process with an open key is not dumpable.
    "aileron.approver_key": (*BASE, "aileron.passphrase", "aileron_sandbox.kernel"),
    # The card that a person sees: the same on every surface.
    "aileron.cards": (
        "aileron.model",
        "aileron.api",
        "aileron.actions.manifest",
        "aileron.actions.references",
        "aileron.actions.summary",
        "aileron.approvals.difference",
    ),
    "aileron.registry": (*BASE, "aileron.extras"),
    # The services that come with Aileron: their files are ours, the connectors made from them are not trusted.
    "aileron.catalogue": (*BASE, "aileron.actions.manifest", "aileron.registry"),
    # Servers by a person's mail address: DNS and HTTPS of strangers, in a command, without a credential.
    "aileron.discovery": ("aileron.model", "aileron.tls", "aileron.egress.refusal", "aileron.egress.url"),
    "aileron.ledger": BASE,
    "aileron.audit": (*BASE, "aileron.ledger"),
    "aileron.executor": (
        *BASE,
        "aileron.egress",
        "aileron_sandbox.jail",
        "aileron_sandbox.frames",
        # the types that go in and out of that door
        "aileron_sandbox.policy",
        "aileron_sandbox.ending",
        "aileron_sandbox.unavailable",
        "aileron_sandbox.runtime",
        "aileron_sandbox.elf",
    ),
    # An author's own sources in the real jail, without a daemon: docs/adr/0027-author-tools.md.
    "aileron.connector_tests": (
        *BASE,
        "aileron.egress",
        "aileron.executor",
        "aileron.registry",
        "aileron_sandbox.ending",
        "aileron_sandbox.unavailable",
        "aileron_sandbox.runtime",
    ),
    # The import of a service's document as a connector's repository, on the author's machine: docs/adr/0054-openapi-documents.md.
    "aileron.importing": (
        *BASE,
        "aileron.actions.inputs",
        "aileron.actions.manifest",
        "aileron.actions.merging",
        "aileron.actions.operation_names",
        "aileron.actions.summary",
        "aileron.actions.widening",
        "aileron.registry.consent",
        "aileron.registry.manifest",
        "aileron.registry.manifest_fields",
        "aileron.registry.operations",
        "aileron.registry.placeholders",
        "aileron.tls",
        # the sign-in for an MCP server: it is discovered through egress, and done by the only sign-in code
        "aileron.egress",
        "aileron.oauth",
        # the format of a packed document, and the requests that a call of it sends
        "aileron_connector.check",
        "aileron_connector.failures",
        "aileron_connector.mcp",
        "aileron_connector.openapi",
    ),
    "aileron.runs": (
        *BASE,
        "aileron.actions",
        "aileron.approvals",
        "aileron.registry",
        "aileron.executor",
        "aileron.audit",
        "aileron.ledger",
        "aileron.egress",
    ),
    # The rooms of the daemon, each above those that it may import: no two import each other.
    "aileron.daemon": DAEMON,
    "aileron.daemon.foundation": DAEMON,
    "aileron.daemon.rendezvous": DAEMON,
    "aileron.daemon.runner": DAEMON,
    "aileron.daemon.views": DAEMON,
    "aileron.daemon.installed": (*DAEMON, *STANDS_ON),
    "aileron.daemon.notify": (*DAEMON, *STANDS_ON),
    "aileron.daemon.consent_service": (*DAEMON, *STANDS_ON, "aileron.daemon.installed"),
    "aileron.daemon.secrets": (*DAEMON, *STANDS_ON, "aileron.daemon.installed", "aileron.daemon.consent_service"),
    "aileron.daemon.packages": (
        *DAEMON,
        *STANDS_ON,
        "aileron.daemon.installed",
        "aileron.daemon.consent_service",
        "aileron.daemon.secrets",
    ),
    "aileron.daemon.http": (
        *DAEMON,
        *STANDS_ON,
        "aileron.daemon.consent_service",
        "aileron.daemon.packages",
        "aileron.daemon.runner",
        "aileron.daemon.secrets",
    ),
    "aileron.unix_http": (),
    "aileron.client": ("aileron.model", "aileron.api", "aileron.config", "aileron.unix_http"),
    "aileron.tui": ("aileron.model", "aileron.api", "aileron.client", "aileron.approver_key", "aileron.cards"),
    # Front doors in the daemon: their access to it comes in as a Protocol.
    "aileron.mcp": ("aileron.model", "aileron.api", "aileron.config"),
    # The process that speaks the protocol: it parses agents' messages and holds no key.
    "aileron.mcp.__main__": ("aileron.mcp", "aileron.isolated.process"),
    "aileron.mcp.process": (
        "aileron.mcp",
        "aileron.isolated",
        "aileron.ingress.exchange",
        "aileron_sandbox.filters",
        "aileron_sandbox.kernel",
    ),
    "aileron.mcp.relay": (
        "aileron.UNSUPPORTED",
        "aileron.mcp.relay_requests",
        "aileron.mcp.relay_early",
        "aileron.mcp.relay_start",
        "aileron.mcp.relay_http",
        "aileron.mcp.relay_process",
    ),
    "aileron.mcp.relay_process": (),
    "aileron.mcp.relay_early": ("aileron.__version__", "aileron.mcp.relay_requests"),
    "aileron.mcp.relay_start": ("aileron.client",),
    "aileron.mcp.relay_http": ("aileron.client", "aileron.mcp"),
    "aileron.web": ("aileron.model", "aileron.api", "aileron.config", "aileron.cards", "aileron.ingress.known"),
    "aileron.gateway": ("aileron.model", "aileron.api", "aileron.config", "aileron.tls", "aileron.ingress.known"),
    # The process that logs in: it parses a service's messages, holds one secret, and imports no room of the daemon.
    "aileron.logins": (
        "aileron.isolated",
        "aileron.model",
        "aileron.tls",
        "aileron_sandbox.filters",
        "aileron_sandbox.kernel",
    ),
    # Processes whose memory no other process can read: the program, and the daemon's side of it.
    "aileron.isolated": ("aileron.model.failure", "aileron_sandbox.kernel", "aileron_sandbox.template.landlock"),
    # The process that faces TCP: no room of the daemon, so that it parses strangers' bytes and holds no key.
    "aileron.ingress": (
        "aileron.api",
        "aileron.isolated",
        "aileron.model",
        "aileron_sandbox.filters",
        "aileron_sandbox.kernel",
    ),
    # The person's side of an agent's cell; aileron.launch, which starts agents, says what they need to see.
    "aileron.cell": (
        *BASE,
        "aileron_sandbox.cell",
        "aileron_sandbox.kernel",
    ),
    "aileron.launch": (
        "aileron.model",
        "aileron.api",
        "aileron.config",
        "aileron.files",
        "aileron.home",
        "aileron.client",
        "aileron.cell",
        "aileron_sandbox.cell",
        "aileron_sandbox.unavailable",
    ),
    # The author's offline tools (docs/adr/0010 and 0027), a verifier that trusts no daemon, and doctor.
    "aileron.cli": (
        "aileron.api",
        *BASE,
        "aileron.__version__",
        "aileron.approver_key",
        "aileron.catalogue",
        "aileron.cell",
        "aileron.client",
        "aileron.discovery",
        "aileron.extras",
        "aileron.launch",
        "aileron.registry",
        "aileron.cards",
        "aileron.actions.fitting",
        "aileron.actions.manifest",
        "aileron.actions.operation_names",
        "aileron.importing",
        "aileron.connector_tests",
        "aileron.audit.verify",
        "aileron_sandbox.cell.stub",
        "aileron_sandbox.cell.support",
        "aileron_sandbox.unavailable",
        "aileron_sandbox.support",
    ),
    # The one command that begins the console.
    "aileron.cli.console": ("aileron.cli", "aileron.approver_key", "aileron.tui"),
    "aileron.__main__": (
        "aileron.UNSUPPORTED",
        "aileron.__version__",
        "aileron.cli",
        "aileron.client",
        "aileron.model.visible",
    ),
    "aileron_sandbox": ("aileron_sandbox",),
    "aileron_sandbox.frames": (),
    "aileron_connector": ("aileron_sandbox.frames",),
}


def _modules() -> list[tuple[str, Path]]:
    found = []
    for package, folder in SOURCES.items():
        for path in sorted(folder.rglob("*.py")):
            if {"demo_parts", "templates"} & set(path.parts):  # authors' code, not ours
                continue
            parts = path.relative_to(folder).with_suffix("").parts
            name = ".".join((package, *parts)).removesuffix(".__init__")
            found.append((name, path))
    return found


def _imports(path: Path) -> set[str]:
    return _imports_of(ast.parse(path.read_text(encoding="utf-8")))


def _imports_of(tree: ast.AST) -> set[str]:
    return {name for name in _names_of(tree) if name.split(".")[0] in OURS}


def _names_of(tree: ast.AST) -> set[str]:
    """Return everything that is imported, ours or not."""
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            names.update(f"{node.module}.{alias.name}" for alias in node.names)
    return names


def _is_below(name: str, prefix: str) -> bool:
    return name == prefix or name.startswith(prefix + ".")


def _rule(module: str) -> str:
    return max((prefix for prefix in ALLOWED if _is_below(module, prefix)), key=len)


@pytest.mark.parametrize(("module", "path"), _modules(), ids=lambda value: value if isinstance(value, str) else "")
def test_a_module_imports_only_what_its_package_may_import(module: str, path: Path) -> None:
    """The table ALLOWED is the whole map, and data flows one way."""
    rule = _rule(module)
    own = module if rule == "aileron" else rule  # modules of the top level are not one package together
    allowed = (own, *ALLOWED[rule])
    wrong = sorted(name for name in _imports(path) if not any(_is_below(name, prefix) for prefix in allowed))

    assert wrong == [], f"{module} may import {ALLOWED[rule]}"


def _imported_modules(module: str, path: Path, known: Collection[str]) -> set[str]:
    """Return our modules that this one or one of its functions imports at run time; imports only for types do not count."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
            node.body = []
    found = set()
    for name in _imports_of(tree):
        while name not in known and "." in name:
            name = name.rpartition(".")[0]
        found.add(name)
    return (found & set(known)) - {module}


def _cycles(imports: Mapping[str, set[str]]) -> list[list[str]]:
    """Return the import cycles: for each module that imports itself through others, the shortest path back to it."""

    def way(start: str) -> list[str]:
        ways = {start: [start]}
        waiting = [start]
        while waiting:
            here = waiting.pop(0)
            for there in sorted(imports[here]):
                if there == start:
                    return [*ways[here], start]
                if there not in ways:
                    ways[there] = [*ways[here], there]
                    waiting.append(there)
        return []

    return [found for module in sorted(imports) if (found := way(module))]


def test_no_module_imports_itself_through_others() -> None:
    """Imports inside functions count too: each module can be read without the modules that need it."""
    modules = dict(_modules())

    assert _cycles({module: _imported_modules(module, path, modules) for module, path in modules.items()}) == []


def test_the_check_finds_an_import_cycle_at_module_level_and_in_functions(tmp_path: Path) -> None:
    """This is the control of the test above. An import only for types makes no cycle."""
    first, second, third = (tmp_path / f"{name}.py" for name in ("first", "second", "third"))
    first.write_text("from aileron.second import x\n")
    second.write_text("def f() -> None:\n    from aileron import third\n")
    third.write_text("if TYPE_CHECKING:\n    import aileron.first\n")
    modules = {f"aileron.{path.stem}": path for path in (first, second, third)}

    def found() -> list[list[str]]:
        return _cycles({module: _imported_modules(module, path, modules) for module, path in modules.items()})

    assert found() == []
    third.write_text("def g() -> None:\n    import aileron.first\n")
    assert found()[0] == ["aileron.first", "aileron.second", "aileron.third", "aileron.first"]


def test_the_table_of_allowed_imports_names_every_package() -> None:
    """Each new package must list what it may import."""
    unnamed = [module for module, _ in _modules() if module.count(".") >= 1 and _rule(module) in OURS[:1]]

    assert unnamed == []


def test_only_the_gate_makes_an_approved_plan() -> None:
    """A search for the constructor finds every module that creates an ApprovedPlan, and only the gate does."""
    makers = [module for module, path in _modules() if "ApprovedPlan._create" in path.read_text(encoding="utf-8")]

    assert makers == ["aileron.approvals.gate"]


def test_only_the_carry_out_module_calls_the_executors_execute_method() -> None:
    """Only runs/carry_out.py calls `Executor.execute`."""
    callers = [
        module
        for module, path in _modules()
        if "_executor.execute(" in path.read_text(encoding="utf-8")
        or "executor.execute(" in path.read_text(encoding="utf-8")
    ]

    assert callers == ["aileron.runs.carry_out"]


def test_only_the_previews_module_requests_previews() -> None:
    """Only daemon/consent_service/previews.py calls `Spine.preview`, so that it always knows the newest preview."""
    callers = [module for module, path in _modules() if "spine.preview(" in path.read_text(encoding="utf-8")]

    assert callers == ["aileron.daemon.consent_service.previews"]


def _speaks_sql(source: str) -> bool:
    return "sqlite3" in source and any(_is_below(name, "sqlite3") for name in _names_of(ast.parse(source)))


def test_only_the_ledger_package_imports_sqlite3() -> None:
    """Only aileron/ledger imports sqlite3. The control: that package does import it."""
    speakers = [module for module, path in _modules() if _speaks_sql(path.read_text(encoding="utf-8"))]

    assert "aileron.ledger.sqlite" in speakers
    assert [module for module in speakers if not _is_below(module, "aileron.ledger")] == []


def test_the_check_finds_an_import_of_sqlite3_in_any_form() -> None:
    """This is the control of the test above. A text that only names the module imports nothing."""
    forms = ["import sqlite3", "import sqlite3 as sql", "from sqlite3 import connect", "import os, sqlite3.dbapi2"]

    assert [form for form in forms if not _speaks_sql(f"def f():\n    {form}\n")] == []
    assert not _speaks_sql('"""No import sqlite3 here."""\n')


def test_modules_that_run_background_tasks_get_threads_only_from_the_threads_module() -> None:
    """The module aileron.threads raises OSError if no thread can start; anyio's RuntimeError would stop the daemon."""
    rooms = ("executor", "hidden", "ledger", "runs")
    tasks = ("http.mcp", "http.sessions", "decisions.settings", "packages.fetch", "secrets.logins")
    ours = [*(f"aileron.{room}" for room in rooms), *(f"aileron.daemon.{module}" for module in tasks)]
    wrong = [
        module
        for module, path in _modules()
        if any(_is_below(module, room) for room in ours) and "to_thread" in path.read_text(encoding="utf-8")
    ]

    assert wrong == []
