"""The documentation against the code: what exists has an entry, what has an entry exists, and no link is dead.

A table is compared as a whole if the page has a table of exactly these things; if it has prose about them, each must occur.
The pages of names, manifests, egress and frames have tests of their own beside the code they describe.
"""

from __future__ import annotations

import ast
import functools
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
from aileron.connector_tests.cases import SCHEMA as CASES_SCHEMA
from aileron.daemon.http.api.actions import DEFAULT_WAIT_S
from aileron.daemon.http.api.requests import MAX_WAIT_S
from aileron.daemon.http.api.routes import Handlers
from aileron.daemon.runner import MAX_RUNS
from aileron.egress import Reason
from aileron.home import Home
from aileron.ingress import server
from aileron.model.credential_kind import CREDENTIAL_KINDS
from aileron.model.document import Field
from aileron.model.effect import Effect
from aileron.model.failure import AileronError, Boundary, FailureClass
from aileron.model.invocation import Scope
from aileron.model.outcome import RunStatus
from aileron.model.plan import Budget
from aileron.model.username import has_username
from aileron.registry.manifest import SCHEMA as CONNECTOR_SCHEMA
from aileron_sandbox.frames import FromJail, ToJail
from aileron_sandbox.policy import Policy

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
REFERENCE = DOCS / "reference"
UNWRITTEN = {".git", ".venv", ".pytest_cache", ".mypy_cache", ".ruff_cache", ".hypothesis", "node_modules"}
"""Directories of tools, whose files we did not write."""


def page(name: str) -> str:
    """Return the text of a page of the reference."""
    return (REFERENCE / name).read_text(encoding="utf-8")


def table(text: str, heading: str) -> list[list[str]]:
    """Return the rows of the first table below a heading, as cells, without its header and rule."""
    section = re.split(r"^#+ ", text, flags=re.MULTILINE)
    (body,) = [part for part in section if part.startswith(f"{heading}\n")]
    block = re.search(r"(?:^\|.*\n?)+", body, re.MULTILINE)
    assert block, f"{heading}: no table"
    lines = block[0].splitlines()[2:]
    return [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines]


def bare(cell: str) -> str:
    """Return a cell without its code marks."""
    return cell.strip("`")


def keys_of(schema: dict[str, Field]) -> Iterator[str]:
    """Yield every key of a schema at any depth."""
    for name, field in schema.items():
        yield name
        if field.fields:
            yield from keys_of(dict(field.fields))


def commands(command: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, Any]]:
    """Yield every command of the command line that is not a group, with the words it is typed with."""
    below = getattr(command, "commands", None)
    if below is None:
        yield " ".join(path), command
        return
    for name, inner in below.items():
        if not inner.hidden:
            yield from commands(inner, (*path, name))


@functools.cache
def command_line() -> list[tuple[str, Any]]:
    """Return all commands of the application, with the words they are typed with."""
    from typer.main import get_command

    from aileron.cli.typer_app import app

    return list(commands(get_command(app)))


def messages() -> list[str]:
    """Return the `type` of every frame."""
    return [message.__struct_config__.tag for union in (ToJail, FromJail) for message in union.__args__]


NAMED: list[tuple[str, str, list[str]]] = [
    ("frame", "frames.md", messages()),
    ("effect", "action-file.md", [effect.value for effect in Effect]),
    ("event", "audit-events.md", list(EVENT_TYPES)),
    ("refusal", "egress.md", [reason.value for reason in Reason]),
    ("kind of credential", "egress.md", list(CREDENTIAL_KINDS)),
    ("key of a manifest", "connector-manifest.md", list(keys_of(CONNECTOR_SCHEMA))),
    ("key of a case", "connector-cases.md", list(keys_of(CASES_SCHEMA))),
    ("key of an action", "action-file.md", list(keys_of(ACTION_SCHEMA))),
    ("state", "http-api.md", [status.value for status in RunStatus]),
    ("scope", "http-api.md", [scope.value for scope in Scope]),
    ("exit code", "exit-codes.md", sorted({str(kind.exit_code) for kind in FailureClass} | {"0", "69", "75", "130"})),
]


def has_entry(name: str, text: str) -> bool:
    """Return whether a name is in a text as code, or as a cell of its own."""
    word = re.escape(name)
    return bool(re.search(rf"`\[*{word}[^`\w]*`|`[^`]*\b{word}\b[^`]*`|^\| {word} \|", text, re.MULTILINE))


def test_every_name_of_a_documented_kind_has_an_entry_on_its_page() -> None:
    """NAMED lists the names of each kind, such as frames and events, and the page that must have them."""
    missing = [f"{file}: {name}" for _, file, names in NAMED for name in names if not has_entry(name, page(file))]

    assert all(names for _, _, names in NAMED)
    assert missing == []


# Kinds of credential


def test_the_page_about_bindings_has_a_row_for_each_kind_of_credential() -> None:
    """A person sees there what is sent, and what to bind."""
    assert sorted(bare(row[0]) for row in table(page("bindings.md"), "Kinds")) == sorted(CREDENTIAL_KINDS)


def test_the_reference_pages_name_every_credential_kind_that_has_a_user_name() -> None:
    """A sign-in has a user name only if it logs in, so `oauth2` may stand there too."""
    (row,) = [line for line in page("cli.md").splitlines() if line.startswith("| `aileron binding setup ")]
    ((_, of_file),) = [row for row in table(page("vault-format.md"), "Bindings") if bare(row[0]) == "username"]
    for text in (row.partition("`--username USER` (")[2].partition("`--secret")[0], of_file):
        named = {kind for kind in CREDENTIAL_KINDS if f"`{kind}`" in text}
        assert named - {"oauth2"} == set(filter(has_username, CREDENTIAL_KINDS)), text


# The command line


def _spellings(parameter: Any) -> list[str]:
    """Return all spellings of an option, the ones that switch it off (`--no-…`) too."""
    return [*parameter.opts, *parameter.secondary_opts]


def entries_of(words: str) -> list[str]:
    """Return the text of cli.md about a command: its sections, without the rows of other commands."""
    sections = [part for part in re.split(r"^##+ ", page("cli.md"), flags=re.MULTILINE) if f"`aileron {words}" in part]
    others = re.compile(rf"^\| `aileron (?!{re.escape(words)}(?![\w-]| [a-z])).*$", re.MULTILINE)
    return [others.sub("", part) for part in sections]


def test_every_command_and_option_has_an_entry_in_the_command_reference() -> None:
    """Each command is in cli.md as `aileron WORDS`, and each of its long options in its row, or in its section."""
    missing = []
    for words, command in command_line():
        entries = entries_of(words)
        options = {name for parameter in command.params for name in _spellings(parameter) if name.startswith("--")}
        missing += [] if entries else [words]
        missing += [
            f"{words} {name}"
            for name in sorted(options - {"--help"})
            if not any(re.search(rf"{re.escape(name)}(?![\w-])", entry) for entry in entries)
        ]

    assert len(command_line()) > 50
    assert missing == []


# Configuration


def test_the_configuration_page_lists_exactly_the_settings_of_the_code() -> None:
    """The page has the same keys as the code, in the order of the code, and each key has its field in `Settings`."""
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


def test_the_configuration_page_lists_exactly_the_paths_in_ailerons_home() -> None:
    """The page and the properties of `Home` name the same paths."""
    home = Home(Path("/home/you/.aileron"))
    used = {
        str(getattr(home, name).relative_to(home.path))
        for name, member in vars(Home).items()
        if isinstance(member, property)
    }
    shown = {bare(row[0]).rstrip("/") for row in table(page("configuration.md"), "The home")}

    assert used == shown


# Failures


def test_the_page_of_exit_codes_lists_each_exit_code_with_its_failure_classes() -> None:
    """Each code has exactly the classes that end with it; 0, 69, 75 and 130 need no class."""
    shown = {row[0]: set(re.findall(r"`(\w+)`", row[2])) for row in table(page("exit-codes.md"), "Exit codes")}
    ends: dict[str, set[str]] = {"0": set(), "69": set(), "75": set(), "130": set()}
    for kind in FailureClass:
        ends.setdefault(str(kind.exit_code), set()).add(kind.value)

    assert shown == ends


def test_the_fixed_limits_on_the_failures_page_match_the_code() -> None:
    """Users plan with these numbers."""
    shown = {bare(row[0]): row[1] for row in table(page("failures.md"), "Limits")}
    policy, budget = Policy(), Budget()

    assert f"{policy.processes}" in shown["processes"]
    assert f"{policy.open_files}" in shown["files"]
    assert f"{policy.file_bytes >> 20} MiB" in shown["file_size"]
    assert f"{policy.scratch_bytes >> 20} MiB" in shown["scratch"]
    assert f"{budget.requests} requests" in shown["requests"]
    assert f"{budget.bytes_up >> 20} MiB" in shown["bytes_up"]
    assert f"{budget.bytes_down >> 20} MiB" in shown["bytes_down"]


def test_the_failures_page_lists_the_failure_classes_of_the_code() -> None:
    """The table has each class with its HTTP status and exit code, in the order of the code."""
    shown = [(bare(row[0]), int(row[1]), int(row[2])) for row in table(page("failures.md"), "Classes")]

    assert shown == [(kind.value, kind.http_status, kind.exit_code) for kind in FailureClass]


def test_the_failures_page_lists_the_boundaries_of_the_code() -> None:
    """The order is that of the code."""
    assert [bare(row[0]) for row in table(page("failures.md"), "Boundaries")] == [line.value for line in Boundary]


def boundaries_in_code() -> Iterator[tuple[str, str, str]]:
    """Yield (class, boundary, line) of every failure that names its boundary literally, or takes the default."""
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


def test_each_failure_class_is_raised_with_a_boundary_that_the_failures_page_lists() -> None:
    """The page says who set the limit that was crossed; the code must not blame another party."""
    shown = {bare(row[0]): row[3] for row in table(page("failures.md"), "Classes")}
    wrong = [
        (kind, line, where)
        for kind, line, where in boundaries_in_code()
        if shown[kind] != "any" and f"`{line}`" not in shown[kind]
    ]

    assert wrong == []


# The HTTP API


def test_the_http_api_page_lists_the_routes_of_the_daemon() -> None:
    """The table has method, path and scopes, in the order of the code."""
    shown = [(bare(row[0]), set(row[1].split(", "))) for row in table(page("http-api.md"), "Routes")]

    assert shown == [(f"{route.method} {route.path}", {scope.value for scope in route.scopes}) for route in ROUTES]


def test_the_http_api_page_lists_the_keys_of_each_request_body() -> None:
    """The keys of a run's body have a table of their own."""
    shown = {bare(row[0]): row[2] for row in table(page("http-api.md"), "Routes")}
    for route in ROUTES:
        if route.body is RunRequest:
            assert {bare(row[0]) for row in table(page("http-api.md"), "Running")} == set(route.body.__struct_fields__)
        elif route.body is not None:
            row = shown[f"{route.method} {route.path}"]
            assert [key for key in route.body.__struct_fields__ if f"`{key}`" not in row] == []


def test_a_handler_gets_the_body_that_its_route_declares() -> None:
    """The table of routes and the handlers agree, and each route has a handler."""
    groups = get_type_hints(Handlers)
    for route in ROUTES:
        group, _, handler = route.handler.partition(".")
        types = get_type_hints(getattr(groups[group], handler))
        taken = [kind for name, kind in types.items() if name not in ("return", "request", "_request")]
        assert taken == ([] if route.body is None else [route.body]), route


def test_the_http_api_page_states_the_daemons_limits_on_waits_runs_and_bodies() -> None:
    """The limits are how long a caller may wait, how many runs may be in progress, and how large a body may be."""
    text = " ".join(page("http-api.md").split())

    assert f"`wait` from 0 to {MAX_WAIT_S:.0f}, default {DEFAULT_WAIT_S:.0f}" in text
    assert f"At most {MAX_RUNS} runs are under way" in text
    assert f"at most {server.MAX_BODY_BYTES >> 20} MiB" in text


def test_the_http_api_page_lists_the_filters_of_the_audit_trail() -> None:
    """The known filters come from the daemon's error about an unknown one, which lists them."""
    with pytest.raises(AileronError) as refused:
        event_filter({"q" * 20: "x"}, 0)
    known = re.findall(r"[a-z]+", str(refused.value).partition("known are ")[2])
    shown = [name for row in table(page("http-api.md"), "Filters") for name in re.findall(r"`(\w+)`", row[0])]

    assert sorted(shown) == known


# Pages


@functools.cache
def pages() -> list[Path]:
    """Return every Markdown file of ours."""
    return [path for path in sorted(ROOT.rglob("*.md")) if UNWRITTEN.isdisjoint(path.relative_to(ROOT).parts)]


def prose(text: str) -> str:
    """Return a page without its code: a link in code is not a link."""
    return re.sub(r"`[^`\n]+`", "", re.sub(r"^ *(```+)[^\n]*\n.*?^ *\1 *$", "", text, flags=re.DOTALL | re.MULTILINE))


def anchors(text: str) -> set[str]:
    """Return the anchors of a page's headings, as GitHub makes them."""
    fenced = re.sub(r"^ *(```+)[^\n]*\n.*?^ *\1 *$", "", text, flags=re.DOTALL | re.MULTILINE)
    headings = re.findall(r"^#{1,6} (.+)$", fenced, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-") for heading in headings}


@functools.cache
def anchors_in(path: Path) -> set[str]:
    """Return the anchors in a file."""
    return anchors(path.read_text(encoding="utf-8"))


def dead_links(path: Path) -> Iterator[str]:
    """Yield a page's links that lead to no file or heading, or out of the tree."""
    for link in re.findall(r"\]\(([^)\s]+)\)", prose(path.read_text(encoding="utf-8"))):
        target, _, anchor = link.partition("#")
        if re.match(r"[a-z]+:", target):
            continue
        found = (path.parent / target).resolve() if target else path
        if not found.is_relative_to(ROOT) or not found.exists() or (anchor and anchor not in anchors_in(found)):
            yield f"{path.relative_to(ROOT)}: {link}"


def test_no_link_is_dead() -> None:
    """Each relative link leads to a file of ours, and its anchor to a heading there."""
    assert [link for path in pages() for link in dead_links(path)] == []


def test_every_page_can_be_reached_by_links() -> None:
    """Readers do not find a page without a link to it. A link to a folder reaches the pages directly in it."""
    reached: set[Path] = set()
    for path in pages():
        for link in re.findall(r"\]\(([^)#\s]+)", path.read_text(encoding="utf-8")):
            found = (path.parent / link).resolve()
            if found != path:
                reached |= {found, *(found.glob("*.md") if found.is_dir() else ())}

    assert [str(path.relative_to(ROOT)) for path in sorted(DOCS.rglob("*.md")) if path not in reached] == [
        "docs/README.md"
    ]


def test_the_glossary_is_in_alphabetical_order_without_duplicates() -> None:
    """Each word is there once, in alphabetical order."""
    words = [row[0].lower() for row in table(page("glossary.md"), "Glossary")]

    assert words == sorted(set(words))


# Decisions


def decisions() -> list[Path]:
    """Return the decisions, which are the pages of docs/adr."""
    return sorted(path for path in (DOCS / "adr").glob("*.md") if path.name != "README.md")


def test_decision_records_are_numbered_without_gaps_and_listed() -> None:
    """Each number occurs once, the heading has the same number, and each decision is listed once, below one topic. The list names
    those that were merged into another.
    """
    numbers = [int(path.name.partition("-")[0]) for path in decisions()]
    headings = [int(path.read_text(encoding="utf-8").split(".", 1)[0].removeprefix("# ")) for path in decisions()]
    shown = (DOCS / "adr" / "README.md").read_text(encoding="utf-8")
    listed = re.findall(r"^\| \[(\d+)\]\(([\w.-]+)\) \| (.+) \|$", shown, re.MULTILINE)
    titles = [re.match(r"# \d+\. (.+)", path.read_text(encoding="utf-8")) for path in decisions()]

    merged = [int(number) for number in re.findall(r"^\| (\d+) \| merged into ", shown, re.MULTILINE)]
    assert numbers == headings
    assert sorted([*numbers, *merged]) == list(range(1, len(numbers) + len(merged) + 1))
    assert sorted(listed, key=lambda row: int(row[0])) == [
        (str(number), path.name, title and title[1])
        for number, path, title in zip(numbers, decisions(), titles, strict=True)
    ]


PARTS = (
    *(r"^Status: \w", "^## Question$", "^## Drivers$", "^## Options$", "^## Outcome$"),
    *("^## What would reopen it$", r"\bGood[,:]", r"\bBad[,:]"),
)


def test_every_decision_record_has_the_required_sections() -> None:
    """The parts are status, question, drivers, options weighed both ways, outcome, and what would reopen it."""
    missing = [
        f"{path.name}: {part}"
        for path in decisions()
        for part in PARTS
        if not re.search(part, path.read_text(encoding="utf-8"), re.MULTILINE)
    ]

    assert missing == []


def dependencies() -> list[str]:
    """Return the name of every package that pyproject.toml requires, those of extras too."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    asked = [*project["dependencies"], *(line for extra in project["optional-dependencies"].values() for line in extra)]
    names = {re.match(r"[A-Za-z0-9._-]+", line)[0].lower() for line in asked}  # type: ignore[index]
    return sorted(names - {project["name"]})


def test_every_dependency_has_a_documented_reason() -> None:
    """The decision on dependencies has a row for each, and no row for another package."""
    text = (DOCS / "adr" / "0011-dependencies.md").read_text(encoding="utf-8")

    assert sorted(re.findall(r"^\| `([\w.-]+)` \| [A-Za-z]", text, re.MULTILINE)) == dependencies()


def test_every_direct_dependency_has_its_size_in_the_decision_record() -> None:
    """The table of sizes has the dependencies that every installation has, and no others."""
    text = (DOCS / "adr" / "0011-dependencies.md").read_text(encoding="utf-8")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    direct = {re.split(r"[<>=~!\[]", line)[0] for line in project["dependencies"]}

    assert set(re.findall(r"^\| `([\w.-]+)` \| \d", text, re.MULTILINE)) == direct


# Commands that pages tell a reader to type


def told(text: str) -> Iterator[str]:
    """Yield every `aileron …` in code: in a span, or typed in a console block, in which a backslash continues the line."""
    for block in re.findall(r"^ *```console\n(.*?)^ *```$", text, re.DOTALL | re.MULTILINE):
        yield from re.findall(r"^\s*[$#] (?:.*[|&] )?(aileron [^|&;#<>\n]*)", block.replace("\\\n", " "), re.MULTILINE)
    outside = re.sub(r"^ *(```+)[^\n]*\n.*?^ *\1 *$", "", text, flags=re.DOTALL | re.MULTILINE)
    yield from re.findall(r"`(aileron [^`]+)`", outside)


def problem_with(typed: str) -> str | None:
    """Return why the command line would refuse a command, which is an unknown command or option, or None."""
    known, words = dict(command_line()), typed.split()[1:]
    groups = {name.split()[0] for name in known if " " in name}
    if words[0].startswith("-") or words[0].isupper():
        return None  # `aileron --version`, `aileron COMMAND`
    in_group = words[0] in groups and len(words) > 1 and re.fullmatch("[a-z-]+", words[1]) is not None
    name = " ".join(words[: 1 + in_group])
    if name in groups:
        return None  # the whole group is meant
    if name not in known:
        return f"there is no `aileron {name}`"
    options = {option for parameter in known[name].params for option in _spellings(parameter)} | {"-h", "--help"}
    ours = typed.partition(" -- ")[0]  # what follows is the word of the program that is started
    asked = re.findall(r"(?<!\S)\[?(--?[a-z][a-z-]*)", ours)
    return next((f"`aileron {name}` has no {option}" for option in asked if option not in options), None)


def test_every_command_on_a_page_exists() -> None:
    """A reader can type each command as the page shows it."""
    typed = [(path, line) for path in pages() for line in told(path.read_text(encoding="utf-8"))]
    problems = [f"{path.relative_to(ROOT)}: {problem}" for path, line in typed if (problem := problem_with(line))]

    assert len(typed) > 100
    assert problems == []


def fixes(path: Path) -> Iterator[str]:
    """Yield every command that a message of this module names, as code or after a colon, with NAME for filled-in values."""
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


def test_every_command_that_an_error_message_suggests_exists() -> None:
    """A person types it when a command has just failed."""
    found = {
        f"{path.relative_to(ROOT)}: {problem}"
        for path in sorted((ROOT / "aileron").rglob("*.py"))
        for typed in fixes(path)
        if (problem := problem_with(typed))
    }

    assert found == set()


def test_the_page_about_user_namespaces_matches_the_jails_messages() -> None:
    """The messages contain each symptom that the page shows, and each setting that the page suggests."""
    page_of_it = (DOCS / "how-to" / "when-user-namespaces-are-blocked.md").read_text(encoding="utf-8")
    sources = [
        ROOT / "sandbox" / "aileron_sandbox" / name for name in ("jail.py", "ending.py", "unavailable.py", "fixes.py")
    ]
    messages = " ".join(path.read_text(encoding="utf-8") for path in sources)

    for seen, _why, fix in table(page_of_it, "When user namespaces are blocked"):
        assert seen.removesuffix(" landlock") in messages
        assert [setting for setting in re.findall(r"[a-z_.]+=\d+", fix) if setting not in messages] == []


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
"""Files of other projects that our sources name."""


def test_no_command_on_a_page_can_put_the_current_folder_first_in_the_search_path() -> None:
    """The form `PATH="$(command):$PATH"` does so if the command fails: an empty part of PATH is the current folder."""
    wrong = re.compile(r"PATH=\"?(\$\(|`|:)")
    assert wrong.search('export PATH="$(python -m x):$PATH"')
    assert not wrong.search('found=$(python -m x) && export PATH="$found:$PATH"')

    pages = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted(DOCS.rglob("*.md"))]
    assert [str(page) for page in pages if wrong.search(page.read_text(encoding="utf-8"))] == []


def test_every_python_file_that_a_source_file_names_exists() -> None:
    """A file may be named by its name alone or by the end of its path."""
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
