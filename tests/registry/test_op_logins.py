"""The login of an operation, stated once in the code: it is in the built manifest, or the build fails."""

from __future__ import annotations

from pathlib import Path

import pytest

from aileron.model.failure import AileronError, FailureClass
from aileron.registry.connector_build import build
from aileron.registry.manifest import parse_connector_manifest

MANIFEST = """\
[connector]
name = "github://acme/db"
version = "1.0.0"

[capabilities.network]
hosts = ["db.example.com:5432"]

[capabilities.credential]
kind = "login"
scope = "Query a database"
logins = ["postgres://db.example.com:5432"]

[capabilities.runtime]
imports = ["tcp"]
"""
HEAD = "import functools\nimport aileron_connector as sdk\nfrom aileron_connector import op, op as declared\n"
QUERY = '@op(login="read_only")\ndef query(sql: str): pass\n'
WRITTEN = '\n[[operations]]\nname = "query"\n'


def built(folder: Path, source: str, manifest: str = MANIFEST, **others: str) -> dict[str, object]:
    """Build the connector and return the login of each operation in its manifest."""
    (folder / "manifest.toml").write_text(manifest)
    for name, text in {"__main__": HEAD + source, **others}.items():
        (folder / f"{name}.py").write_text(text)
    operations = parse_connector_manifest(build(folder).manifest, file="m").operations
    return {operation.name: operation.login or None for operation in operations or ()}


def test_a_login_declared_in_a_decorator_is_in_the_built_manifest(tmp_path: Path) -> None:
    """The decorator may have any name, and another decorator may stand between. Parameters come from the signature."""
    source = (
        f"{QUERY}@sdk.op(login='previewed')\ndef execute(sql: str): pass\n"
        "@declared(login='previewed')\n@functools.cache\ndef preview(sql): pass\n"
        "@op\ndef other(): pass\n"
    )
    logins = built(tmp_path, source)
    again = parse_connector_manifest(build(tmp_path).manifest, file="m")

    assert logins == {"execute": "previewed", "other": None, "preview": "previewed", "query": "read_only"}
    assert again.operation("query").parameters[0].types == ("string",)


def test_operations_written_in_the_manifest_can_state_the_same_login_as_the_code(tmp_path: Path) -> None:
    """They may also state a login that the code does not, as a compiled program cannot."""
    by_hand = f'{MANIFEST}{WRITTEN}login = "read_only"\n'
    assert built(tmp_path, QUERY, by_hand) == {"query": "read_only"}
    assert built(tmp_path, "@op\ndef query(sql: str): pass\n", by_hand) == {"query": "read_only"}


DOUBTFUL = "the login of an operation is read off the code; write @op(login=WORD)"
REFUSED = {
    "the manifest says nothing": (QUERY, f"{MANIFEST}{WRITTEN}", {}, "and [[operations]] does not; say it in both"),
    "the manifest says another": (QUERY, f'{MANIFEST}{WRITTEN}login = "previewed"\n', {}, "say it in both, or leave"),
    "the manifest has another operation": (QUERY, MANIFEST + WRITTEN.replace("query", "x"), {}, "say it in both"),
    "operations that cannot be read off": (QUERY + "register = op\n", MANIFEST, {}, "write [[operations]]"),
    "no such login": (QUERY, MANIFEST.replace("postgres:", "redis:"), {}, "login"),
    "no credential": (QUERY, MANIFEST.replace("[capabilities.credential]", "[x]"), {}, "x"),
    "a word from elsewhere": ("WORD = 'read_only'\n@op(login=WORD)\ndef query(): pass\n", MANIFEST, {}, DOUBTFUL),
    "a word that is none": ("@op(login='readonly')\ndef query(): pass\n", MANIFEST, {}, DOUBTFUL),
    "more than a word": ("@op(login='read_only', x=1)\ndef query(): pass\n", MANIFEST, {}, DOUBTFUL),
    "names that are not spelled": ("X = {}\n@op(**X)\ndef query(): pass\n", MANIFEST, {}, DOUBTFUL),
    "a decorator of their own": (
        "reads = op(login='read_only')\n@reads\ndef query(): pass\n",
        MANIFEST,
        {},
        DOUBTFUL,
    ),
    "a partial": ("reads = functools.partial(op, login=1)\n@reads\ndef query(): pass\n", MANIFEST, {}, DOUBTFUL),
    "a class": ("@op(login='read_only')\nclass query: pass\n", MANIFEST, {}, DOUBTFUL),
    "by way of another file": (
        "from base import reading\n@reading(login='read_only')\ndef query(): pass\n",
        MANIFEST,
        {"base": "from aileron_connector import op as reading\n"},
        DOUBTFUL,
    ),
    "two of one name": (QUERY + QUERY.replace("read_only", "previewed"), MANIFEST, {}, "two logins"),
    "a file that cannot be parsed": ("", MANIFEST, {"more": f"{HEAD}{QUERY}def ("}, "cannot be parsed"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_login_that_cannot_be_read_from_the_code_fails_the_build(tmp_path: Path, case: str) -> None:
    """Otherwise an operation that its author believes to be read-only would run with the role that writes."""
    source, manifest, others, words = REFUSED[case]
    with pytest.raises(AileronError) as refused:
        built(tmp_path, source, manifest, **others)
    assert refused.value.failure.failure_class is FailureClass.INVALID_REQUEST
    assert words in str(refused.value)


@pytest.mark.parametrize(
    "text",
    ["client.login(user='me', login=True)", "connect(login='me')", "run(op, **options)", "login = 'read_only'"],
)
def test_login_calls_in_the_code_of_a_packed_library_declare_no_login_of_an_operation(
    tmp_path: Path, text: str
) -> None:
    """Code packed with a connector may call anything `login`, and an argument `op`."""
    assert built(tmp_path, QUERY, library=f"def go(client, connect, run, op, options):\n    {text}\n") == {
        "query": "read_only"
    }
