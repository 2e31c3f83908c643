"""The PostgreSQL connector, as it is built, by its operations: values, bounds and errors, at a real server behind a login."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from aileron.logins.protocols.postgres import PostgresLogin
from aileron.model.login import LoginDetails, LoginTarget
from aileron.registry.connector_build import build
from aileron_sandbox.frames import GrantedHost, TcpOpen
from tests.support.logins import LoginAt, trusting
from tests.support.plain_host import ROOT, PlainHost, RefusedStream, Report
from tests.support.postgresql import ADMIN, ADMIN_PASSWORD, PostgreSQL
from tests.support.upstream import Authority

SOURCE: Final = ROOT / "connectors" / "postgres"


class Database:
    """The connector behind logins as the database's owner: permissions are not what is tested here."""

    def __init__(self, server: PostgreSQL, program: Path, ca_pem: str) -> None:
        self._tls = trusting(ca_pem)
        self._undo = contextlib.ExitStack()
        self._refusal: dict[str, Any] | None = None
        self._host = PlainHost(program, hosts=[GrantedHost("localhost", server.port, False)], streams=self._connect)

    def call(self, op: str, **args: Any) -> Report:
        """Run one operation."""
        with self._undo:
            return self._host.call(op, **args)

    def refused(self, details: dict[str, Any]) -> Report:
        """Run a query whose stream the host refuses to open."""
        self._refusal = details
        try:
            return self.call("query", sql="SELECT 1")
        finally:
            self._refusal = None

    def _connect(self, asked: TcpOpen) -> socket.socket:
        if self._refusal is not None:
            raise RefusedStream("nobody there", self._refusal)
        target = f"postgres://localhost:{asked.port}"
        details = LoginDetails(database="postgres")
        login = LoginAt(PostgresLogin, target, ADMIN, ADMIN_PASSWORD.encode(), tls=self._tls, details=details)
        return self._undo.enter_context(login).client.dup()


@pytest.fixture(scope="module")
def database(authority: Authority, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Database]:
    """Return a server of these tests' own, with the connector."""
    program = tmp_path_factory.mktemp("connector") / "connector.zip"
    with PostgreSQL(authority) as server:
        program.write_bytes(build(SOURCE, logins=[LoginTarget.parse(f"postgres://localhost:{server.port}")]).connector)
        yield Database(server, program, authority.ca_pem)


@pytest.mark.parametrize(
    ("expression", "found"),
    [
        ("7::int8", 7),
        ("9007199254740993::int8", "9007199254740993"),
        ("1.10::numeric", "1.10"),
        ("0.5::float8", 0.5),
        ("'NaN'::float8", "NaN"),
        ("true", True),
        ("""'{"a": [1, null]}'::jsonb""", {"a": [1, None]}),
        ("""'{"units":100000000000000000000}'::jsonb""", {"units": "100000000000000000000"}),
        ("""'[9007199254740993, -9007199254740992, 1e3]'::jsonb""", ["9007199254740993", -9007199254740992, 1000]),
        ("""'{"x":1e400}'::json""", {"x": "1e400"}),
        ("""'{"x":-1e400}'::json""", {"x": "-1e400"}),
        ("""'[1e-400, 0.0e9, -0.30000000000000004]'::json""", ["1e-400", 0.0, -0.30000000000000004]),
        ("""'[12345678901234567890.5]'::jsonb""", ["12345678901234567890.5"]),
        (r"""'{"x":"\ud83d"}'::json""", {"x": "\ufffd"}),
        (r"""'{"x":"\ud83d\ude00","\ude00":["\\ud83d"]}'::json""", {"x": "\U0001f600", "\ufffd": [r"\ud83d"]}),
        (r"""'{"\ud83d":1,"\ude00":2}'::json""", r'{"\ud83d":1,"\ude00":2}'),
        (r"""'"\u0000"'::json""", "\0"),
        ("repeat('[', 60)::text || repeat(']', 60)", "[" * 60 + "]" * 60),
        ("(repeat('[', 60) || repeat(']', 60))::json", "[" * 60 + "]" * 60),
        ("(repeat('[', 5000) || repeat(']', 5000))::json", "[" * 5000 + "]" * 5000),
        ("repeat('9', 5000)::json", "9" * 5000),
        ("NULL::int", None),
        ("'2026-02-03'::date", "2026-02-03"),
        ("ARRAY[1, 2]", "{1,2}"),
        ("'Zoë'", "Zoë"),
        ("''", ""),
    ],
)
def test_a_database_value_becomes_json_without_losing_digits(database: Database, expression: str, found: Any) -> None:
    """A value that would lose digits as a number becomes text."""
    [row] = database.call("query", sql=f"SELECT {expression} AS a").output["rows"]
    assert row == {"a": found}


def test_the_values_of_a_statement_are_sent_as_parameters_and_not_read_as_sql(database: Database) -> None:
    """The values are of each kind, and none is read as SQL."""
    values = ["'; DROP TABLE x; --", 7, 0.5, True, None]
    sql = "SELECT $1::text AS a, $2::int AS b, $3::float8 AS c, $4::bool AS d, $5::int AS e, $1::text AS a"
    [row] = database.call("query", sql=sql, values=values).output["rows"]
    assert row == dict(zip("abcde", values, strict=True)) | {"a_2": values[0]}


def test_rows_are_returned_up_to_the_limit_and_up_to_what_fits_a_frame(database: Database) -> None:
    """The output says whether there are more."""
    two = database.call("query", sql="SELECT * FROM generate_series(1, 3) AS n", limit=2).output
    assert (two["rows"], two["row_count"], two["more"]) == ([{"n": 1}, {"n": 2}], 2, True)
    all_of_it = database.call("query", sql="SELECT * FROM generate_series(1, 3) AS n", limit=3).output
    assert (all_of_it["row_count"], all_of_it["more"]) == (3, False)
    large = database.call("query", sql="SELECT repeat('x', 300000) FROM generate_series(1, 9)").output
    assert (large["row_count"], large["more"]) == (2, True)
    wide = ", ".join(f'n AS "{"x" * 58}{column:04}"' for column in range(100))
    named = database.call("query", sql=f"SELECT {wide} FROM generate_series(1, 1000) AS n", limit=1000).output
    assert named["more"] is True
    assert 100 < named["row_count"] < 200


@pytest.mark.parametrize("mib", [3, 17])
def test_a_row_that_does_not_fit_is_reported_as_too_large(database: Database, mib: int) -> None:
    """The error says what to select instead; a large row after rows that fit counts as more to come."""
    failed = database.call("query", sql=f"SELECT repeat('x', {mib << 20})").failure
    assert failed.failure_class == "bad_input"
    assert f"row has {(mib << 10) + 1} KiB" in failed.message
    assert "left(body, 10000)" in failed.message
    second = f"SELECT repeat('x', n * {3 << 20}) FROM generate_series(0, 1) AS n"
    assert (found := database.call("query", sql=second).output)["row_count"] == 1
    assert found["more"] is True


def test_the_reason_of_a_login_refused_by_the_host_is_passed_on(database: Database) -> None:
    """The class, message and details are unchanged."""
    told = {"phase": "connect", "reason": "refused"}
    failed = database.refused(told).failure
    assert (failed.failure_class, failed.message, failed.details) == ("network_error", "nobody there", told)


@pytest.mark.parametrize(
    ("sql", "failure", "words"),
    [
        ("SELEC 1", "bad_input", "syntax error"),
        ("SELECT * FROM nothing", "bad_input", "does not exist"),
        ("SELECT 1; SELECT 2", "bad_input", "multiple commands"),
        ("SELECT 1 / 0", "bad_input", "division by zero"),
        ("SELECT pg_terminate_backend(pg_backend_pid())", "external_api_error", "terminating connection"),
    ],
)
def test_a_server_error_has_the_class_of_its_cause(database: Database, sql: str, failure: str, words: str) -> None:
    """The message has the server's words."""
    failed = database.call("query", sql=sql).failure
    assert failed.failure_class == failure, failed
    assert words in failed.message


def test_a_missing_table_is_reported(database: Database) -> None:
    """An existing table is described; this is the positive control."""
    told = database.call("describe_table", table="pg_catalog.pg_class").output
    assert told["columns"][0] == {
        "name": "oid",
        "type": "oid",
        "nullable": False,
        "default": None,
        "comment": None,
    }
    assert "no table 'nothing'" in database.call("describe_table", table="nothing").failure.message


def test_a_statement_with_a_nul_is_refused(database: Database) -> None:
    """A server would end the statement at the NUL, and the statement must not run without it either."""
    failed = database.call("query", sql="SELECT 1\0").failure
    assert (failed.failure_class, "NUL" in failed.message) == ("bad_input", True)
    assert database.call("query", sql="SELECT 1").output["rows"]
