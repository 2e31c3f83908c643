"""The documentation against the code: what exists has an entry, what has an entry exists, and no link is dead.

Tables are compared whole where the page has a table of exactly these things, and by presence where it has prose about them.
The pages of names, manifests, egress and frames have tests of their own beside the code they describe.
"""

from __future__ import annotations

import ast
import functools
import inspect
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_type_hints

import pytest

from aileron.actions.manifest import SCHEMA as ACTION_SCHEMA
from aileron.api.routes import ROUTES
from aileron.api.runs import RunRequest
from aileron.audit.events import EVENT_TYPES
from aileron.audit.query import event_filter
from aileron.config import SETTINGS, Settings
from aileron.daemon.http.api.actions import DEFAULT_WAIT_S
from aileron.daemon.http.api.requests import MAX_WAIT_S
from aileron.daemon.http.api.routes import Handlers
from aileron.daemon.runner import MAX_RUNS
from aileron.egress import Reason
from aileron.home import Home
from aileron.ingress import server
from aileron.model.document import Field
from aileron.model.failure import AileronError, Boundary, FailureClass
from aileron.model.invocation import Scope
from aileron.model.outcome import RunStatus
from aileron.model.plan import Budget
from aileron.registry.manifest import SCHEMA as CONNECTOR_SCHEMA
from aileron.trial.cases import SCHEMA as CASES_SCHEMA
from aileron_sandbox.frames import FromJail, ToJail
from aileron_sandbox.policy import Policy

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
REFERENCE = DOCS / "reference"
UNWRITTEN = {".git", ".venv", ".pytest_cache", ".mypy_cache", ".ruff_cache", ".hypothesis", "node_modules"}
"""Directories of tools, not of ours."""


def page(name: str) -> str:
    """A page of the reference."""
    return (REFERENCE / name).read_text(encoding="utf-8")


def table(text: str, heading: str) -> list[list[str]]:
    """The rows of the first table below a heading, as cells; its own header and rule left out."""
    section = re.split(r"^#+ ", text, flags=re.MULTILINE)
    (body,) = [part for part in section if part.startswith(f"{heading}\n")]
    block = re.search(r"(?:^\|.*\n?)+", body, re.MULTILINE)
    assert block, f"{heading}: no table"
    lines = block[0].splitlines()[2:]
    return [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines]


def bare(cell: str) -> str:
    """A cell without its code marks."""
    return cell.strip("`")


def keys_of(schema: dict[str, Field]) -> Iterator[str]:
    """Every key of a schema at any depth."""
    for name, field in schema.items():
        yield name
        if field.fields:
            yield from keys_of(dict(field.fields))


def commands(command: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, Any]]:
    """Every command of the command line that does something, by the words it is typed with."""
    below = getattr(command, "commands", None)
    if below is None:
        yield " ".join(path), command
        return
    for name, inner in below.items():
        if not inner.hidden:
            yield from commands(inner, (*path, name))


@functools.cache
def command_line() -> list[tuple[str, Any]]:
    """The same, from the application itself."""
    from typer.main import get_command

    from aileron.cli.typer_app import app

    return list(commands(get_command(app)))


def messages() -> list[str]:
    """The `type` of every frame."""
    return [message.__struct_config__.tag for union in (ToJail, FromJail) for message in union.__args__]


NAMED = [
    ("frame", "frames.md", messages()),
    ("event", "audit-events.md", list(EVENT_TYPES)),
    ("refusal", "egress.md", [reason.value for reason in Reason]),
    ("key of a manifest", "connector-manifest.md", list(keys_of(CONNECTOR_SCHEMA))),
    ("key of a case", "connector-cases.md", list(keys_of(CASES_SCHEMA))),
    ("key of an action", "action-file.md", list(keys_of(ACTION_SCHEMA))),
    ("state", "http-api.md", [status.value for status in RunStatus]),
    ("scope", "http-api.md", [scope.value for scope in Scope]),
    ("exit code", "exit-codes.md", sorted({str(kind.exit_code) for kind in FailureClass} | {"0", "69", "75", "130"})),
]


def has_entry(name: str, text: str) -> bool:
    """Whether a name stands in a text as code, or as a cell of its own."""
    word = re.escape(name)
    return bool(re.search(rf"`\[*{word}[^`\w]*`|`[^`]*\b{word}\b[^`]*`|^\| {word} \|", text, re.MULTILINE))


def test_what_exists_has_an_entry() -> None:
    """Each name is on the page that has such names."""
    missing = [f"{file}: {name}" for _, file, names in NAMED for name in names if not has_entry(name, page(file))]

    assert all(names for _, _, names in NAMED)
    assert missing == []


# The command line


def _spellings(parameter: Any) -> list[str]:
    """All of them, with what switches it off (`--no-…`)."""
    return [*parameter.opts, *parameter.secondary_opts]


def test_every_command_and_option_has_an_entry() -> None:
    """`aileron WORDS` stands in cli.md, and each of its long options in the same section."""
    parts = re.split(r"^##+ ", page("cli.md"), flags=re.MULTILINE)
    missing = []
    for words, command in command_line():
        sections = [part for part in parts if f"`aileron {words}" in part]
        options = {name for parameter in command.params for name in _spellings(parameter) if name.startswith("--")}
        missing += [] if sections else [words]
        missing += [f"{words} {name}" for name in options - {"--help"} if not any(name in part for part in sections)]

    assert len(command_line()) > 50
    assert missing == []


# Configuration


def test_the_settings_are_the_ones_in_force() -> None:
    """Neither a key more nor one less, in the order of the code; and each key has its field."""
    made_of = {"forges": ("forges.", "hub."), **{name: (f"{name}.",) for name in ("gateway", "launch", "mcp")}}
    named = {"vault_lock_after_s": "vault.lock_after"}
    fields = [
        key
        for name in Settings.__struct_fields__
        if not name.endswith("_pem")  # the content of a file that has its setting
        for key in (
            [setting for setting in SETTINGS if setting.startswith(made_of[name])]
            if name in made_of
            else [named.get(name, name.replace("_", ".", 1))]
        )
    ]

    assert [bare(row[0]) for row in table(page("configuration.md"), "The file")] == list(SETTINGS) == fields


def test_the_paths_of_the_home_are_the_ones_in_use() -> None:
    """Every path that config.py knows is on the page, and every path on the page is one of these or inside of it."""
    home = Home(Path("/home/you/.aileron"))
    used = {
        str(getattr(home, name).relative_to(home.path))
        for name, member in vars(Home).items()
        if isinstance(member, property)
    }
    shown = {bare(row[0]).rstrip("/") for row in table(page("configuration.md"), "The home")}

    assert used == shown


# Failures


def test_the_exit_codes_are_those_of_the_failures() -> None:
    """Each code has exactly the classes that end with it."""
    shown = {row[0]: set(re.findall(r"`(\w+)`", row[2])) for row in table(page("exit-codes.md"), "Exit codes")}
    ends: dict[str, set[str]] = {"0": set(), "69": set(), "75": set(), "130": set()}
    for kind in FailureClass:
        ends.setdefault(str(kind.exit_code), set()).add(kind.value)

    assert shown == ends


def test_the_fixed_limits_are_those_of_the_code() -> None:
    """Numbers people plan with."""
    shown = {bare(row[0]): row[1] for row in table(page("failures.md"), "Limits")}
    policy, budget = Policy(), Budget()

    assert f"{policy.processes}" in shown["processes"]
    assert f"{policy.open_files}" in shown["files"]
    assert f"{policy.file_bytes >> 20} MiB" in shown["file_size"]
    assert f"{policy.scratch_bytes >> 20} MiB" in shown["scratch"]
    assert f"{budget.requests} requests" in shown["requests"]
    assert f"{budget.bytes_up >> 20} MiB" in shown["bytes_up"]
    assert f"{budget.bytes_down >> 20} MiB" in shown["bytes_down"]


def test_the_failure_classes_are_those_of_the_table() -> None:
    """Class, HTTP status and exit code, in the order of the code."""
    shown = [(bare(row[0]), int(row[1]), int(row[2])) for row in table(page("failures.md"), "Classes")]

    assert shown == [(kind.value, kind.http_status, kind.exit_code) for kind in FailureClass]


def test_the_boundaries_are_those_of_the_code() -> None:
    """In the order of the code."""
    assert [bare(row[0]) for row in table(page("failures.md"), "Boundaries")] == [line.value for line in Boundary]


def boundaries_in_code() -> Iterator[tuple[str, str, str]]:
    """(class, boundary, where) of every failure that names its boundary in so many words, or takes the default."""
    for path in sorted((ROOT / "aileron").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.Call) or not ast.unparse(node.func).endswith("AileronError"):
                continue
            kinds = [ast.unparse(argument) for argument in node.args[:1]]
            named = [ast.unparse(keyword.value) for keyword in node.keywords if keyword.arg == "boundary"]
            if kinds and kinds[0].startswith("FailureClass.") and (not named or named[0].startswith("Boundary.")):
                kind = FailureClass[kinds[0].removeprefix("FailureClass.")]
                line = Boundary[named[0].removeprefix("Boundary.")] if named else Boundary.RUNTIME
                yield kind.value, line.value, f"{path.relative_to(ROOT)}:{node.lineno}"


def test_the_boundary_of_each_class_is_the_one_it_is_raised_with() -> None:
    """Whoever reads that a class is the user's line must not meet it as the connector's."""
    shown = {bare(row[0]): row[3] for row in table(page("failures.md"), "Classes")}
    wrong = [
        (kind, line, where)
        for kind, line, where in boundaries_in_code()
        if shown[kind] != "any" and f"`{line}`" not in shown[kind]
    ]

    assert wrong == []


# The HTTP API


def test_the_routes_are_those_of_the_daemon() -> None:
    """Method, path and scopes, in the order of the code."""
    shown = [(bare(row[0]), set(row[1].split(", "))) for row in table(page("http-api.md"), "Routes")]

    assert shown == [(f"{route.method} {route.path}", {scope.value for scope in route.scopes}) for route in ROUTES]


def test_the_bodies_are_those_that_are_decoded() -> None:
    """Each key of a route's body is in its row, and those of a run in the table of its own."""
    shown = {bare(row[0]): row[2] for row in table(page("http-api.md"), "Routes")}
    for route in ROUTES:
        if route.body is RunRequest:
            assert {bare(row[0]) for row in table(page("http-api.md"), "Running")} == set(route.body.__struct_fields__)
        elif route.body is not None:
            row = shown[f"{route.method} {route.path}"]
            assert [key for key in route.body.__struct_fields__ if f"`{key}`" not in row] == []


def test_a_handler_decodes_the_body_that_its_route_declares() -> None:
    """The table of routes and the code that answers them say the same; and a handler is there for each route."""
    groups = get_type_hints(Handlers)
    for route in ROUTES:
        group, _, handler = route.handler.partition(".")
        decoded = re.findall(r"body_of\(request, (\w+)\)", inspect.getsource(getattr(groups[group], handler)))
        assert decoded == ([] if route.body is None else [route.body.__name__]), route


def test_the_waits_are_those_of_the_daemon() -> None:
    """How long a caller may wait, how many may, and how much may be said."""
    text = " ".join(page("http-api.md").split())

    assert f"`wait` from 0 to {MAX_WAIT_S:.0f}, default {DEFAULT_WAIT_S:.0f}" in text
    assert f"At most {MAX_RUNS} runs are under way" in text
    assert f"at most {server.MAX_BODY_BYTES >> 20} MiB" in text


def test_the_filters_of_the_audit_are_those_understood() -> None:
    """The daemon lists what it knows when it is asked for something else."""
    with pytest.raises(AileronError) as refused:
        event_filter({"q" * 20: "x"}, 0)
    known = re.findall(r"[a-z]+", str(refused.value).partition("known are ")[2])
    shown = [name for row in table(page("http-api.md"), "Filters") for name in re.findall(r"`(\w+)`", row[0])]

    assert sorted(shown) == known


# Pages


@functools.cache
def pages() -> list[Path]:
    """Every Markdown file of ours."""
    return [path for path in sorted(ROOT.rglob("*.md")) if UNWRITTEN.isdisjoint(path.relative_to(ROOT).parts)]


def prose(text: str) -> str:
    """A page without what is code: links there are not links."""
    return re.sub(r"`[^`\n]+`", "", re.sub(r"^ *(```+)[^\n]*\n.*?^ *\1 *$", "", text, flags=re.DOTALL | re.MULTILINE))


def anchors(text: str) -> set[str]:
    """The names of a page's headings, as GitHub makes them."""
    fenced = re.sub(r"^ *(```+)[^\n]*\n.*?^ *\1 *$", "", text, flags=re.DOTALL | re.MULTILINE)
    headings = re.findall(r"^#{1,6} (.+)$", fenced, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-") for heading in headings}


@functools.cache
def anchors_in(path: Path) -> set[str]:
    """The same, of a file."""
    return anchors(path.read_text(encoding="utf-8"))


def dead_links(path: Path) -> Iterator[str]:
    """Those of a page that lead nowhere, or out of the tree."""
    for link in re.findall(r"\]\(([^)\s]+)\)", prose(path.read_text(encoding="utf-8"))):
        target, _, anchor = link.partition("#")
        if re.match(r"[a-z]+:", target):
            continue
        found = (path.parent / target).resolve() if target else path
        if not found.is_relative_to(ROOT) or not found.exists() or (anchor and anchor not in anchors_in(found)):
            yield f"{path.relative_to(ROOT)}: {link}"


def test_no_link_is_dead() -> None:
    """A relative link leads to a file of ours, and its anchor to a heading there."""
    assert [link for path in pages() for link in dead_links(path)] == []


def test_every_page_can_be_reached() -> None:
    """A page that nothing links to is one that nobody finds; a link to a folder reaches what is directly in it."""
    reached: set[Path] = set()
    for path in pages():
        for link in re.findall(r"\]\(([^)#\s]+)", path.read_text(encoding="utf-8")):
            found = (path.parent / link).resolve()
            if found != path:
                reached |= {found, *(found.glob("*.md") if found.is_dir() else ())}

    assert [str(path.relative_to(ROOT)) for path in sorted(DOCS.rglob("*.md")) if path not in reached] == [
        "docs/README.md"
    ]


def test_the_glossary_is_in_order() -> None:
    """Each word once, where a reader looks for it."""
    words = [row[0].lower() for row in table(page("glossary.md"), "Glossary")]

    assert words == sorted(set(words))


# Decisions


def decisions() -> list[Path]:
    """The pages of docs/adr."""
    return sorted(path for path in (DOCS / "adr").glob("*.md") if path.name != "README.md")


def test_decisions_are_numbered_without_gaps() -> None:
    """Each number once, the heading says the same, and the list of them has all."""
    numbers = [int(path.name.partition("-")[0]) for path in decisions()]
    headings = [int(path.read_text(encoding="utf-8").split(".", 1)[0].removeprefix("# ")) for path in decisions()]
    shown = (DOCS / "adr" / "README.md").read_text(encoding="utf-8")
    listed = re.findall(r"^\| \[(\d+)\]\(([\w.-]+)\) \| (.+) \|$", shown, re.MULTILINE)
    titles = [re.match(r"# \d+\. (.+)", path.read_text(encoding="utf-8")) for path in decisions()]

    assert numbers == headings == list(range(1, len(numbers) + 1))
    assert listed == [
        (str(number), path.name, title and title[1])
        for number, (path, title) in enumerate(zip(decisions(), titles, strict=True), start=1)
    ]


PARTS = (
    *(r"^Status: \w", "^## Question$", "^## Drivers$", "^## Options$", "^## Outcome$"),
    *("^## What would reopen it$", r"\bGood[,:]", r"\bBad[,:]"),
)


def test_a_decision_has_its_parts() -> None:
    """Status, question, drivers, options weighed both ways, outcome, and what would reopen it."""
    missing = [
        f"{path.name}: {part}"
        for path in decisions()
        for part in PARTS
        if not re.search(part, path.read_text(encoding="utf-8"), re.MULTILINE)
    ]

    assert missing == []


def dependencies() -> list[str]:
    """Every package that pyproject.toml asks for, extras too, by name."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    asked = [*project["dependencies"], *(line for extra in project["optional-dependencies"].values() for line in extra)]
    names = {re.match(r"[A-Za-z0-9._-]+", line)[0].lower() for line in asked}  # type: ignore[index]
    return sorted(names - {project["name"]})


def test_every_dependency_has_its_reason() -> None:
    """A row in the decision on dependencies, and no row for what is not one."""
    text = (DOCS / "adr" / "0011-dependencies.md").read_text(encoding="utf-8")

    assert sorted(re.findall(r"^\| `([\w.-]+)` \| \w", text, re.MULTILINE)) == dependencies()


# Commands that pages tell a reader to type


def told(text: str) -> Iterator[str]:
    """Every `aileron …` in code: in a span, or typed in a console block, where a backslash goes on in the next line."""
    for block in re.findall(r"^ *```console\n(.*?)^ *```$", text, re.DOTALL | re.MULTILINE):
        yield from re.findall(r"^\s*[$#] (?:.*[|&] )?(aileron [^|&;#<>\n]*)", block.replace("\\\n", " "), re.MULTILINE)
    outside = re.sub(r"^ *(```+)[^\n]*\n.*?^ *\1 *$", "", text, flags=re.DOTALL | re.MULTILINE)
    yield from re.findall(r"`(aileron [^`]+)`", outside)


def problem_with(typed: str) -> str | None:
    """What the command line would not understand of it: a command that is not there, or an option it does not have."""
    known, words = dict(command_line()), typed.split()[1:]
    groups = {name.split()[0] for name in known if " " in name}
    if words[0].startswith("-") or words[0].isupper():
        return None  # `aileron --version`, `aileron COMMAND`
    in_group = words[0] in groups and len(words) > 1 and re.fullmatch("[a-z-]+", words[1]) is not None
    name = " ".join(words[: 1 + in_group])
    if name in groups:
        return None  # all of them are meant
    if name not in known:
        return f"there is no `aileron {name}`"
    options = {option for parameter in known[name].params for option in _spellings(parameter)} | {"-h", "--help"}
    ours = typed.partition(" -- ")[0]  # what follows is the word of the program that is started
    asked = re.findall(r"(?<!\S)\[?(--?[a-z][a-z-]*)", ours)
    return next((f"`aileron {name}` has no {option}" for option in asked if option not in options), None)


def test_every_command_that_is_told_exists() -> None:
    """A reader can type what stands on a page."""
    typed = [(path, line) for path in pages() for line in told(path.read_text(encoding="utf-8"))]
    problems = [f"{path.relative_to(ROOT)}: {problem}" for path, line in typed if (problem := problem_with(line))]

    assert len(typed) > 100
    assert problems == []


def cures(path: Path) -> Iterator[str]:
    """Every command that a message of this module names, as code or after a colon; what is filled in is NAME."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    docstrings = {
        node.body[0].value
        for node in ast.walk(tree)
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        and isinstance(node.body[0], ast.Expr)
    }
    parts = {part for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in node.values}
    for node in ast.walk(tree):
        if node in docstrings or node in parts:
            continue
        match node:
            case ast.Constant(value=str(text)):
                pass
            case ast.JoinedStr(values=values):
                text = "".join(str(part.value) if isinstance(part, ast.Constant) else "NAME" for part in values)
            case _:
                continue
        yield from re.findall(r"`(aileron [a-z][^`]*)`", text)
        yield from re.findall(r"(?:: |, or )(aileron [a-z]+(?: [a-z-]+)?(?: --[a-z-]+)*)", text)


def test_every_cure_that_a_message_names_exists() -> None:
    """Somebody is told to type it when something has just gone wrong."""
    found = {
        f"{path.relative_to(ROOT)}: {problem}"
        for path in sorted((ROOT / "aileron").rglob("*.py"))
        for typed in cures(path)
        if (problem := problem_with(typed))
    }

    assert found == set()


def test_the_way_to_a_jail_is_the_one_the_jail_names() -> None:
    """What the page says one sees is in the messages, and what it says to do is what they say."""
    page_of_it = (DOCS / "how-to" / "when-user-namespaces-are-blocked.md").read_text(encoding="utf-8")
    sources = [
        ROOT / "sandbox" / "aileron_sandbox" / name for name in ("jail.py", "ending.py", "unavailable.py", "fixes.py")
    ]
    messages = " ".join(path.read_text(encoding="utf-8") for path in sources)

    for seen, _why, cure in table(page_of_it, "When user namespaces are blocked"):
        assert seen.removesuffix(" landlock") in messages
        assert [setting for setting in re.findall(r"[a-z_.]+=\d+", cure) if setting not in messages] == []


OTHERS = {
    "trusted_metadata_set.py",
    # what Python's own tools run: aileron/cell/executes.py
    *(
        "dodo.py",
        "tasks.py",
        "manage.py",
        "setup.py",
        "noxfile.py",
        "fabfile.py",
        "conf.py",
        "sitecustomize.py",
        "usercustomize.py",
    ),
}
"""Files of other projects that ours cite."""


def test_no_command_puts_the_current_folder_first_in_the_path() -> None:
    """`PATH="$(command):$PATH"` does where the command fails: an empty part of PATH is the current folder."""
    wrong = re.compile(r"PATH=\"?(\$\(|`|:)")
    assert wrong.search('export PATH="$(python -m x):$PATH"')
    assert not wrong.search('found=$(python -m x) && export PATH="$found:$PATH"')

    pages = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted(DOCS.rglob("*.md"))]
    assert [str(page) for page in pages if wrong.search(page.read_text(encoding="utf-8"))] == []


def test_every_file_that_a_docstring_names_exists() -> None:
    """By its name, or by as much of its path as is written: where a reader is sent, there is something."""
    ours = [path for room in ("aileron", "sandbox", "connectors", "tests") for path in (ROOT / room).rglob("*.py")]
    there = {"/" + path.relative_to(ROOT).as_posix() for path in ours}
    ends = {path[at:] for path in there for at, letter in enumerate(path) if letter == "/"}
    named = [
        (path.relative_to(ROOT).as_posix(), name)
        for path in ours
        if path.is_relative_to(ROOT / "aileron") and "templates" not in path.parts
        for name in re.findall(r"(?<![\w/.-])(?:[a-z_]+/)*[a-z_]+\.py\b", path.read_text(encoding="utf-8"))
        if name not in OTHERS
    ]

    assert len(named) > 500
    assert [(path, name) for path, name in named if f"/{name}" not in ends] == []
