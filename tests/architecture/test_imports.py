"""Who may import whom: the rules that keep the spine the only road, checked on every module."""

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

# What is outside of the daemon and may be used in all of it; and what all of its rooms stand on.
DAEMON = (
    *BASE,
    "aileron.__version__",
    "aileron.actions",
    "aileron.approvals",
    "aileron.approver",
    "aileron.audit",
    "aileron.connections",
    "aileron.egress",
    "aileron.elsewhere",
    "aileron.executor",
    "aileron.gateway",
    "aileron.hidden",
    "aileron.ingress",
    "aileron.ledger",
    "aileron.logins",
    "aileron.mcp",
    "aileron.oauth",
    "aileron.registry",
    "aileron.review.decision_flow",
    "aileron.review.listed",
    "aileron.runs",
    "aileron.vault",
    "aileron.web",
    "aileron_sandbox",
)
STANDS_ON = ("aileron.daemon.foundation", "aileron.daemon.views")

# Package or module → what of ours it may import besides itself. The longest matching prefix rules.
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
    # What a login is told and says: its process is the daemon's to start, and comes in as a Protocol.
    "aileron.egress": (*BASE, "aileron.tls", "aileron.logins.messages"),
    "aileron.vault": (*BASE, "aileron.passphrase"),
    # Sign-in and renewal: what it sends leaves through egress, and what it keeps goes through a Protocol.
    "aileron.oauth": (*BASE, "aileron.connections", "aileron.egress"),
    # Secrets that are kept elsewhere: what is asked of a server leaves through egress.
    "aileron.elsewhere": (*BASE, "aileron.egress"),
    # The kernel's prctl: the process in which a key is open is not dumpable.
    "aileron.approver": (*BASE, "aileron.passphrase", "aileron_sandbox.kernel"),
    # What a person is shown: the same on every surface.
    "aileron.review": (
        "aileron.model",
        "aileron.api",
        "aileron.actions.manifest",
        "aileron.actions.references",
        "aileron.actions.summary",
        "aileron.approvals.difference",
    ),
    "aileron.registry": (*BASE, "aileron.extras"),
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
    "aileron.trial": (
        *BASE,
        "aileron.egress",
        "aileron.executor",
        "aileron.registry",
        "aileron_sandbox.ending",
        "aileron_sandbox.unavailable",
        "aileron_sandbox.runtime",
    ),
    # A document of a service, made into a connector's repository, on the author's machine: docs/adr/0054-openapi-documents.md.
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
        # where to sign in for an MCP server: asked through the one way out, and signed in by the one machinery
        "aileron.egress",
        "aileron.oauth",
        # what a packed document is, and what a call of it sends
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
    # The rooms of the daemon, each above those that it may import: no two know each other.
    "aileron.daemon": DAEMON,
    "aileron.daemon.foundation": DAEMON,
    "aileron.daemon.rendezvous": DAEMON,
    "aileron.daemon.runner": DAEMON,
    "aileron.daemon.views": DAEMON,
    "aileron.daemon.installed": (*DAEMON, *STANDS_ON),
    "aileron.daemon.notify": (*DAEMON, *STANDS_ON),
    "aileron.daemon.decisions": (*DAEMON, *STANDS_ON, "aileron.daemon.installed"),
    "aileron.daemon.secrets": (*DAEMON, *STANDS_ON, "aileron.daemon.installed", "aileron.daemon.decisions"),
    "aileron.daemon.packages": (
        *DAEMON,
        *STANDS_ON,
        "aileron.daemon.installed",
        "aileron.daemon.decisions",
        "aileron.daemon.secrets",
    ),
    "aileron.daemon.http": (
        *DAEMON,
        *STANDS_ON,
        "aileron.daemon.decisions",
        "aileron.daemon.packages",
        "aileron.daemon.runner",
        "aileron.daemon.secrets",
    ),
    "aileron.unix_http": (),
    "aileron.client": ("aileron.model", "aileron.api", "aileron.config", "aileron.unix_http"),
    "aileron.tui": ("aileron.model", "aileron.api", "aileron.client", "aileron.approver", "aileron.review"),
    # Front doors in the daemon: what they may ask of it comes in as a Protocol.
    "aileron.mcp": ("aileron.model", "aileron.api", "aileron.config"),
    # The process that speaks the protocol: what agents send is parsed where no key is.
    "aileron.mcp.__main__": ("aileron.mcp", "aileron.hidden.process"),
    "aileron.mcp.process": (
        "aileron.mcp",
        "aileron.hidden",
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
    "aileron.web": ("aileron.model", "aileron.api", "aileron.config", "aileron.review", "aileron.ingress.known"),
    "aileron.gateway": ("aileron.model", "aileron.api", "aileron.config", "aileron.tls", "aileron.ingress.known"),
    # The process that logs in: what parses a service's words has one secret, and no room of the daemon.
    "aileron.logins": (
        "aileron.hidden",
        "aileron.model",
        "aileron.tls",
        "aileron_sandbox.filters",
        "aileron_sandbox.kernel",
    ),
    # Processes that nobody can look into: the program, and the daemon's side of it.
    "aileron.hidden": ("aileron.model.failure", "aileron_sandbox.kernel", "aileron_sandbox.template.landlock"),
    # The process that faces TCP: no room of the daemon, so that what strangers send is parsed where no key is.
    "aileron.ingress": (
        "aileron.api",
        "aileron.hidden",
        "aileron.model",
        "aileron_sandbox.filters",
        "aileron_sandbox.kernel",
    ),
    # The person's side of an agent's jail; what starts agents says what they need to see.
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
        "aileron.approver",
        "aileron.cell",
        "aileron.client",
        "aileron.extras",
        "aileron.launch",
        "aileron.registry",
        "aileron.review",
        "aileron.actions.fitting",
        "aileron.actions.manifest",
        "aileron.actions.operation_names",
        "aileron.importing",
        "aileron.trial",
        "aileron.audit.verify",
        "aileron_sandbox.cell.stub",
        "aileron_sandbox.cell.support",
        "aileron_sandbox.unavailable",
        "aileron_sandbox.support",
    ),
    # The one command that begins the console.
    "aileron.cli.console": ("aileron.cli", "aileron.approver", "aileron.tui"),
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
            if {"demo_parts", "templates"} & set(path.parts):  # an author's, not ours
                continue
            parts = path.relative_to(folder).with_suffix("").parts
            name = ".".join((package, *parts)).removesuffix(".__init__")
            found.append((name, path))
    return found


def _imports(path: Path) -> set[str]:
    return _imports_of(ast.parse(path.read_text(encoding="utf-8")))


def _imports_of(tree: ast.AST) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            names.update(f"{node.module}.{alias.name}" for alias in node.names)
    return {name for name in names if name.split(".")[0] in OURS}


def _is_below(name: str, prefix: str) -> bool:
    return name == prefix or name.startswith(prefix + ".")


def _rule(module: str) -> str:
    return max((prefix for prefix in ALLOWED if _is_below(module, prefix)), key=len)


@pytest.mark.parametrize(("module", "path"), _modules(), ids=lambda value: value if isinstance(value, str) else "")
def test_a_module_imports_only_what_its_room_may(module: str, path: Path) -> None:
    """Data flows one way: the table above is the map of the house."""
    rule = _rule(module)
    own = module if rule == "aileron" else rule  # the top of the house is no room of its own
    allowed = (own, *ALLOWED[rule])
    wrong = sorted(name for name in _imports(path) if not any(_is_below(name, prefix) for prefix in allowed))

    assert wrong == [], f"{module} may import {ALLOWED[rule]}"


def _imported_modules(module: str, path: Path, known: Collection[str]) -> set[str]:
    """The modules of ours that run when this one does, or one of its functions; what only types need is not among them."""
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
    """The modules that import themselves by way of others, with the way back."""

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


def test_no_module_imports_itself_by_way_of_others() -> None:
    """Neither when it is imported nor when one of its functions runs: each can be read without those that need it."""
    modules = dict(_modules())

    assert _cycles({module: _imported_modules(module, path, modules) for module, path in modules.items()}) == []


def test_a_cycle_is_found_wherever_the_import_stands(tmp_path: Path) -> None:
    """The control of the test above: in a function as well as at the top; what only types need is no part of one."""
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


def test_the_table_names_every_package() -> None:
    """A new package must say what it may import."""
    unnamed = [module for module, _ in _modules() if module.count(".") >= 1 and _rule(module) in OURS[:1]]

    assert unnamed == []


def test_only_the_gate_makes_an_approved_plan() -> None:
    """One grep finds every maker of an ApprovedPlan, and there is one."""
    makers = [module for module, path in _modules() if "ApprovedPlan._create" in path.read_text(encoding="utf-8")]

    assert makers == ["aileron.approvals.gate"]


def test_only_the_spine_calls_the_executor() -> None:
    """`Executor.execute` is called in runs/carry_out.py and nowhere else."""
    callers = [
        module
        for module, path in _modules()
        if "_executor.execute(" in path.read_text(encoding="utf-8")
        or "executor.execute(" in path.read_text(encoding="utf-8")
    ]

    assert callers == ["aileron.runs.carry_out"]


def test_only_the_readings_have_a_preview_read() -> None:
    """`Spine.preview` is called in daemon/decisions/previews.py and nowhere else: what another read would not be known as the
    newest.
    """
    callers = [module for module, path in _modules() if "spine.preview(" in path.read_text(encoding="utf-8")]

    assert callers == ["aileron.daemon.decisions.previews"]


def test_only_the_ledger_speaks_sql() -> None:
    """sqlite3 is imported in aileron/ledger and nowhere else."""
    wrong = [
        module
        for module, path in _modules()
        if "import sqlite3" in path.read_text(encoding="utf-8") and not _is_below(module, "aileron.ledger")
    ]

    assert wrong == []


def test_background_tasks_get_their_threads_from_one_place() -> None:
    """A thread that cannot be had is an OSError there; the RuntimeError that anyio passes on would end the daemon."""
    rooms = ("executor", "hidden", "ledger", "runs")
    tasks = ("http.mcp", "http.sessions", "decisions.settings", "packages.fetch", "secrets.logins")
    ours = [*(f"aileron.{room}" for room in rooms), *(f"aileron.daemon.{module}" for module in tasks)]
    wrong = [
        module
        for module, path in _modules()
        if any(_is_below(module, room) for room in ours) and "to_thread" in path.read_text(encoding="utf-8")
    ]

    assert wrong == []
