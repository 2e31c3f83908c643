"""PostgreSQL at a real server: the login itself, the stream that pg8000 gets, and the messages that a connector is refused."""

from __future__ import annotations

import contextlib
import io
import re
import secrets
import struct
from collections.abc import Iterator
from typing import Any, Final

import pg8000.dbapi
import pg8000.native
import pytest

from aileron.logins.login_messages import Problem
from aileron.logins.protocols import postgres_wire as wire
from aileron.logins.protocols.postgres import PostgresLogin
from aileron.model.login import LoginDetails, PasswordForm
from tests.support.logins import LoginAt, trusting
from tests.support.postgresql import ADMIN, ADMIN_PASSWORD, PostgreSQL
from tests.support.upstream import Authority

PASSWORD: Final = secrets.token_urlsafe(16)
_ROLES: Final = f"""
CREATE ROLE writer LOGIN PASSWORD '{PASSWORD}';
CREATE ROLE reader LOGIN PASSWORD '{PASSWORD}';
CREATE ROLE boss NOLOGIN;
CREATE ROLE by_password LOGIN PASSWORD '{PASSWORD}';
CREATE ROLE by_trust LOGIN;
CREATE ROLE nobody_else LOGIN PASSWORD '{PASSWORD}';
CREATE ROLE crowded LOGIN PASSWORD '{PASSWORD}' CONNECTION LIMIT 0;
SET password_encryption = 'md5';
CREATE ROLE by_md5 LOGIN PASSWORD '{PASSWORD}';
CREATE TABLE ship (name text PRIMARY KEY, masts int);
INSERT INTO ship VALUES ('Gorch Fock', 3), ('Passat', 4);
CREATE SEQUENCE number;
GRANT SELECT ON ship TO reader;
GRANT ALL ON ship TO writer;
GRANT USAGE ON SEQUENCE number TO writer;
GRANT CREATE ON SCHEMA public TO writer;
"""


@pytest.fixture(scope="module")
def server(authority: Authority) -> Iterator[PostgreSQL]:
    """Start one cluster for all of these tests."""
    with PostgreSQL(authority) as running:
        with running.admin() as admin:
            admin.run(_ROLES)
        yield running


class At:
    """A maker of logins at this server, each with a stream for a client library."""

    def __init__(self, server: PostgreSQL, ca_pem: str | None) -> None:
        self._server, self._ca_pem = server, ca_pem

    def __call__(
        self, user: str, password: str = PASSWORD, *, host: str = "localhost", encryption: str = "tls", **options: Any
    ) -> LoginAt:
        target = f"postgres+{encryption}://{host}:{self._server.port}"
        details = options.pop("details", None) or LoginDetails(database="postgres")
        return LoginAt(
            PostgresLogin, target, user, password.encode(), details=details, tls=trusting(self._ca_pem), **options
        )

    def reading(self, user: str = "reader", **options: Any) -> LoginAt:
        return self(user, details=LoginDetails(database="postgres", read_only=True), **options)


@pytest.fixture
def at(server: PostgreSQL, authority: Authority) -> At:
    """Return the maker of logins at the server."""
    return At(server, authority.ca_pem)


@contextlib.contextmanager
def connected(login: LoginAt, **options: Any) -> Iterator[pg8000.dbapi.Connection]:
    """Connect an unmodified pg8000, with a user name and a password that nobody has."""
    connection = pg8000.dbapi.Connection("placeholder", sock=login.client, password="placeholder", **options)
    try:
        yield connection
    finally:
        connection.close()


def rows(server: PostgreSQL, sql: str = "SELECT name, masts FROM ship ORDER BY name") -> list[Any]:
    """Return rows of the database, as its owner sees them."""
    with server.admin() as admin:
        return admin.run(sql) or []


SHIPS: Final = [["Gorch Fock", 3], ["Passat", 4]]


def test_an_unmodified_postgresql_library_reads_and_writes(at: At, server: PostgreSQL) -> None:
    """pg8000 uses transactions and parameters, and meets an error."""
    with at("writer") as login:
        assert login.logged_in().mechanism == "SCRAM-SHA-256-PLUS"
        with connected(login) as connection:
            cursor = connection.cursor()
            cursor.execute("INSERT INTO ship VALUES (%s, %s)", ("Alexander von Humboldt", 3))
            connection.commit()
            cursor.execute("SELECT current_user, current_database(), masts FROM ship WHERE name LIKE %s", ("Alex%",))
            assert cursor.fetchall() == (["writer", "postgres", 3],)
            with pytest.raises(pg8000.dbapi.DatabaseError, match="syntax error"):
                cursor.execute("SELEKT")
            connection.rollback()
            cursor.execute("DELETE FROM ship WHERE name LIKE 'Alex%'")
            connection.commit()
        assert login.over().problem is None
    assert rows(server) == SHIPS


def test_the_opened_database_is_that_of_the_binding_or_named_after_the_user(at: At) -> None:
    """The library's choice does not matter."""
    with (
        at("writer", details=LoginDetails(database="template1")) as login,
        connected(login, database="postgres") as connection,
    ):
        cursor = connection.cursor()
        cursor.execute("SELECT current_database()")
        assert cursor.fetchone() == ["template1"]
    with at("writer", details=LoginDetails()) as login:
        failed = login.failed()
        assert failed.problem is Problem.NO_DATABASE
        assert failed.said == 'database "writer" does not exist'


@pytest.mark.parametrize(
    ("user", "password", "problem", "words"),
    [
        ("writer", "another", Problem.REFUSED_CREDENTIAL, "does not accept"),
        ("no_such_role", None, Problem.REFUSED_CREDENTIAL, "does not accept"),
        ("nobody_else", None, Problem.REFUSED_CREDENTIAL, "does not accept"),
        ("by_md5", None, Problem.WEAK_LOGIN, "MD5"),
        ("by_password", None, Problem.WEAK_LOGIN, "in the clear"),
        ("by_trust", None, Problem.WEAK_LOGIN, "without the password"),
        ("crowded", None, Problem.CLOSED, "too many connections"),
        ("writer", "with\nline", Problem.UNUSABLE_CREDENTIAL, "control character"),
    ],
)
def test_a_failed_login_is_reported_with_its_cause(
    at: At, user: str, password: str | None, problem: Problem, words: str
) -> None:
    """`password` None stands for the right password."""
    with at(user, password or PASSWORD) as login:
        failed = login.failed()
        assert (failed.problem, words in failed.message) == (problem, True), failed


@pytest.mark.parametrize(("user", "form"), [("by_md5", "md5"), ("by_password", "cleartext")])
def test_a_postgresql_login_without_scram_needs_the_binding_s_permission(at: At, user: str, form: PasswordForm) -> None:
    """SCRAM is used whenever the server asks for it. A wrong password is refused with permission, too."""
    allowed = LoginDetails(database="postgres", weak_password=form)
    with at(user, details=allowed) as login:
        assert login.logged_in().mechanism == form
        with connected(login) as connection:
            cursor = connection.cursor()
            cursor.execute("SELECT current_user")
            assert cursor.fetchone() == [user]
    with at("writer", details=allowed) as login:
        assert login.logged_in().mechanism == "SCRAM-SHA-256-PLUS"
    with at(user, "another", details=allowed) as login:
        assert login.failed().problem is Problem.REFUSED_CREDENTIAL


def test_a_password_that_was_sent_is_masked_in_results(at: At) -> None:
    """The password is masked in the whole stream, to the byte; the positive control is a role whose password was not sent."""
    with at("by_password", details=LoginDetails(database="postgres", weak_password="cleartext")) as login:
        with connected(login) as connection:
            cursor = connection.cursor()
            cursor.execute("SELECT %s || %s", (PASSWORD[:8], PASSWORD[8:]))
            assert cursor.fetchone() == ["*" * len(PASSWORD)]
            cursor.execute("SELECT 1")
        assert login.over().scrubbed == 1
    with at("writer") as login, connected(login) as connection:
        cursor = connection.cursor()
        cursor.execute("SELECT %s || %s", (PASSWORD[:8], PASSWORD[8:]))
        assert cursor.fetchone() == [PASSWORD]


def test_a_postgresql_server_with_a_wrong_certificate_is_refused(at: At, server: PostgreSQL) -> None:
    """The certificate is another host's, or of an authority that nobody trusts."""
    with at("writer", host="db.example") as login:
        assert login.failed().problem is Problem.CERTIFICATE
    with At(server, None)("writer") as login:
        assert login.failed().problem is Problem.CERTIFICATE


def test_a_login_without_tls_needs_the_users_permission(authority: Authority) -> None:
    """The server has no TLS, which it says in one byte."""
    with PostgreSQL(authority, tls=False) as server:
        at = At(server, authority.ca_pem)
        with at(ADMIN, ADMIN_PASSWORD) as login:
            failed = login.failed()
            assert failed.problem is Problem.NOT_ENCRYPTED
            assert "ssl = on" in failed.message
        with at(ADMIN, ADMIN_PASSWORD, encryption="plain") as login:
            assert login.logged_in().mechanism == "SCRAM-SHA-256"


# The start-up of a library.


class Raw:
    """A client that sends any messages."""

    def __init__(self, login: LoginAt) -> None:
        self._sock = login.client

    def start(self, **parameters: str) -> list[tuple[bytes, bytes]]:
        words = [word for pair in parameters.items() for word in pair]
        self._sock.sendall(wire.startup(3 << 16, wire.text(*words) + b"\0"))
        return self.until_ready()

    def say(self, *messages: bytes) -> None:
        self._sock.sendall(b"".join(messages))

    def ask(self, *messages: bytes) -> list[tuple[bytes, bytes]]:
        self.say(*messages)
        return self.until_ready()

    def query(self, sql: str) -> list[tuple[bytes, bytes]]:
        return self.ask(wire.message(b"Q", wire.text(sql)))

    def exactly(self, size: int) -> bytes:
        found = b""
        while len(found) < size and (more := self._sock.recv(size - len(found))):
            found += more
        return found

    def until_ready(self) -> list[tuple[bytes, bytes]]:
        """Read up to ReadyForQuery, or the end."""
        found = []
        while len(head := self.exactly(5)) == 5:
            kind, length = struct.unpack("!ci", head)
            found.append((kind, self.exactly(length - 4)))
            if kind == b"Z":
                break
        return found


def kinds(answers: list[tuple[bytes, bytes]]) -> str:
    """Return the kinds of the messages, as one word."""
    return b"".join(kind for kind, _ in answers).decode()


def errors(answers: list[tuple[bytes, bytes]]) -> list[wire.Fields]:
    """Return the errors among the messages."""
    return [wire.parse_error(body) for kind, body in answers if kind == b"E"]


def tags(answers: list[tuple[bytes, bytes]]) -> list[bytes]:
    """Return the tags of the completed commands."""
    return [body[:-1] for kind, body in answers if kind == b"C"]


def test_allowed_start_up_parameters_are_set_and_reported(at: At) -> None:
    """A quote in a value stays a quote."""
    with at("writer") as login:
        raw = Raw(login)
        answers = raw.start(
            user="x",
            database="y",
            application_name="O'Brien",
            datestyle="German",
            TimeZone="Asia/Tokyo",
            search_path="pg_catalog",
        )
        reported = dict(body[:-1].split(b"\0") for kind, body in answers if kind == b"S")
        assert (reported[b"application_name"], reported[b"DateStyle"], reported[b"TimeZone"]) == (
            b"O'Brien",
            b"German, DMY",
            b"Asia/Tokyo",
        )
        assert answers[0] == (b"R", bytes(4))
        assert answers[-1] == (b"Z", b"I")
        assert kinds(raw.query("SELECT 1")) == "TDCZ"


@pytest.mark.parametrize(
    "name", ["options", "role", "session_authorization", "replication", "_pq_.x", "statement_timeout\0"]
)
def test_start_up_parameters_that_are_not_allowed_are_refused(at: At, name: str) -> None:
    """Only those of the test above are allowed; the library shows the reason."""
    with at("writer") as login:
        answers = Raw(login).start(**{"user": "x", name: "-c role=boss"})
        over = login.over()
        assert (over.problem is Problem.NOT_ALLOWED and errors(answers)[0].sqlstate == "28000") or "\0" in name
        assert over.problem is not None


def test_a_library_that_asks_for_encryption_is_told_that_there_is_none(at: At) -> None:
    """The library then continues without encryption."""
    with at("writer") as login:
        raw = Raw(login)
        raw.say(wire.startup(80877104))
        assert raw.exactly(1) == b"N"
        raw.say(wire.startup(80877103))
        assert raw.exactly(1) == b"N"
        assert kinds(raw.start(user="x")).endswith("KZ")


def test_a_cancel_request_does_not_reach_the_server(at: At, server: PostgreSQL) -> None:
    """The cancel key that the library gets belongs to no process of the server."""
    with at("writer") as login:
        answers = Raw(login).start(user="x")
        (key,) = [body for kind, body in answers if kind == b"K"]
        (pid,) = struct.unpack_from("!i", key)
        assert [pid] not in rows(server, "SELECT pid FROM pg_stat_activity")
    with at("writer") as login:
        Raw(login).say(wire.startup(80877102, key))
        assert login.over().problem is Problem.CLOSED


# A role that only reads: each right to write is found, and its fix is named.

RIGHTS: Final = {
    "a superuser": ("ALTER ROLE reader SUPERUSER", "SUPERUSER"),
    "creates roles": ("ALTER ROLE reader CREATEROLE", "CREATEROLE"),
    "replicates": ("ALTER ROLE reader REPLICATION", "REPLICATION"),
    "writes all": ("GRANT pg_write_all_data TO reader", "pg_write_all_data"),
    "runs programs": ("GRANT pg_execute_server_program TO reader", "pg_execute_server_program"),
    "reads files": ("GRANT pg_read_server_files TO reader", "pg_read_server_files"),
    "ends sessions": ("GRANT pg_signal_backend TO reader", "pg_signal_backend"),
    "may become a writer": ("ALTER ROLE reader NOINHERIT; GRANT writer TO reader", "writer"),
    "inserts": ("GRANT INSERT ON ship TO reader", "ship"),
    "truncates": ("GRANT TRUNCATE ON ship TO reader", "ship"),
    "updates a column": ("GRANT UPDATE (masts) ON ship TO reader", "ship"),
    "as everyone does": ("GRANT DELETE ON ship TO PUBLIC", "ship"),
    "a sequence": ("GRANT USAGE ON SEQUENCE number TO reader", "number"),
    "a schema": ("GRANT CREATE ON SCHEMA public TO reader", "public"),
    "as in PostgreSQL 14": ("GRANT CREATE ON SCHEMA public TO PUBLIC", "public"),
    "a database": ("GRANT CREATE ON DATABASE postgres TO reader", "schemas"),
    "as the owner": (
        "CREATE FUNCTION sink() RETURNS void SECURITY DEFINER LANGUAGE sql AS 'DELETE FROM ship'",
        "sink()",
    ),
    "an extension": ("CREATE EXTENSION dblink", "dblink(text)"),
    "a foreign server": (
        "CREATE EXTENSION postgres_fdw; CREATE SERVER far FOREIGN DATA WRAPPER postgres_fdw; "
        "GRANT USAGE ON FOREIGN SERVER far TO reader; "
        "REVOKE EXECUTE ON FUNCTION postgres_fdw_disconnect(text), postgres_fdw_disconnect_all() FROM PUBLIC",
        "far",
    ),
    "a function of the system's": ("GRANT EXECUTE ON FUNCTION lo_export(oid, text) TO reader", "lo_export"),
    "a large object": ("SELECT lo_create(4711); GRANT UPDATE ON LARGE OBJECT 4711 TO reader", "4711"),
    "owns": ("CREATE TABLE own (); ALTER TABLE own OWNER TO reader; REVOKE ALL ON own FROM reader", "own"),
}
_BACK: Final = """
DROP TABLE IF EXISTS own; DROP FUNCTION IF EXISTS sink(); DROP EXTENSION IF EXISTS dblink CASCADE;
DROP EXTENSION IF EXISTS postgres_fdw CASCADE; SELECT lo_unlink(oid) FROM pg_largeobject_metadata;
ALTER ROLE reader NOSUPERUSER NOCREATEROLE NOREPLICATION INHERIT;
REVOKE ALL ON ship FROM PUBLIC; REVOKE CREATE ON SCHEMA public FROM PUBLIC;
REVOKE EXECUTE ON FUNCTION lo_export(oid, text) FROM reader; REVOKE CREATE ON DATABASE postgres FROM reader
"""


@pytest.mark.parametrize("right", RIGHTS)
def test_a_role_that_can_write_is_not_accepted_as_read_only(at: At, server: PostgreSQL, right: str) -> None:
    """Each right is named with the statement that revokes it, after which the login works."""
    grant, named = RIGHTS[right]
    with server.admin() as admin:
        admin.run(grant)
    try:
        with at.reading() as login:
            failed = login.failed()
        assert failed.problem is Problem.MAY_WRITE
        found, _, fix = failed.message.partition("; as an owner: ")
        assert named in found
        with server.admin() as admin:
            admin.run(fix.strip("`").replace("another role", "boss"))
        with at.reading() as login:
            if right == "an extension":  # which has thirty of them
                assert named not in login.failed().message
            else:
                login.logged_in()
    finally:
        with server.admin() as admin:
            admin.run(_BACK)


# The frame: nothing that a connector says can write.


@pytest.fixture(params=["reader", "writer in a preview", "owner in a preview"])
def framed(request: pytest.FixtureRequest, at: At) -> Iterator[Raw]:
    """Yield a stream that may write nothing, by a role without rights and by roles with them."""
    logins = {
        "reader": lambda: at.reading(),
        "writer in a preview": lambda: at("writer", reads_only=True),
        "owner in a preview": lambda: at(ADMIN, ADMIN_PASSWORD, reads_only=True),
    }
    with logins[request.param]() as login:
        raw = Raw(login)
        raw.start(user="x")
        yield raw


WRITE: Final = "INSERT INTO ship VALUES ('Wilhelm Gustloff', 0)"
GETTING_OUT: Final = [
    "COMMIT",
    "commit;",
    " ;; COMMIT",
    "/* */COMMIT",
    "/* /* */ COMMIT; */ COMMIT",
    "-- a\nCOMMIT",
    "-- a\rCOMMIT",
    "COMMIT AND CHAIN",
    "COMMIT AND NO CHAIN",
    "END TRANSACTION",
    "\f\vCOMMIT WORK",
    "SELECT 1; COMMIT",
    "SELECT $$ $$; COMMIT",
    "SELECT $a$ $$ $a$; COMMIT; SELECT $$ $$",
    r"SELECT E'\'; COMMIT; SELECT '",
    r"SELECT '\'; COMMIT; --'",
    "SELECT U&'!' UESCAPE '!'; COMMIT",
    "SELECT U&\"d!0061t!+000061\" UESCAPE '!'; COMMIT",
    "SELECT '/*'; COMMIT --*/",
    "BEGIN; COMMIT",
    "ROLLBACK; " + WRITE,
    "ROLLBACK AND CHAIN",
    "ROLLBACK PREPARED 'x'",
    "PREPARE TRANSACTION 'x'",
    "COMMIT PREPARED 'x'",
    "START TRANSACTION ISOLATION LEVEL SERIALIZABLE",
    "ABORT; " + WRITE,
    "SET TRANSACTION READ WRITE",
    "SET SESSION CHARACTERISTICS AS TRANSACTION READ WRITE; COMMIT",
    "SET transaction_read_only = off",
    "SELECT set_config('transaction_read_only', 'off', false)",
    "SELECT set_config('default_transaction_read_only', 'off', false)",
    "RESET SESSION AUTHORIZATION",
    "DISCARD ALL",
    "DO $$ BEGIN COMMIT; END $$",
    "DO $$ BEGIN EXECUTE 'COMMIT'; END $$",
    "CREATE PROCEDURE out() LANGUAGE plpgsql AS $$ BEGIN COMMIT; END $$",
    "CALL out()",
    "EXPLAIN ANALYZE " + WRITE,
    f"WITH w AS ({WRITE} RETURNING name) SELECT * FROM w",
    "COPY ship FROM STDIN",
    "SELECT lo_from_bytea(4712, 'x')",
    "VACUUM",
    "CREATE DATABASE out",
    "CLUSTER",
    "RELEASE SAVEPOINT aileron",
    "ROLLBACK TO SAVEPOINT aileron",
    "DECLARE c CURSOR WITH HOLD FOR SELECT 1",
    "NOTIFY c",
]


def _nothing_is_written(server: PostgreSQL) -> None:
    assert rows(server) == SHIPS
    assert rows(server, "SELECT 1 FROM pg_proc WHERE proname = 'out'") == []
    assert rows(server, "SELECT 1 FROM pg_largeobject_metadata") == []
    assert rows(server, "SELECT 1 FROM pg_prepared_xacts") == []


@pytest.mark.parametrize("protocol", ["simple", "extended"])
def test_no_statement_escapes_the_read_only_transaction(framed: Raw, server: PostgreSQL, protocol: str) -> None:
    """Each attempt is preceded and followed by writes."""

    def carry_out(sql: str) -> None:
        if protocol == "simple":
            answers = framed.query(sql)
        else:
            answers = framed.ask(
                wire.message(b"P", wire.text("", sql) + bytes(2)),
                wire.message(b"B", bytes(8)),
                wire.message(b"E", bytes(5)),
                wire.message(b"S"),
            )
        assert answers[-1][0] == b"Z", (sql, answers)

    for sql in GETTING_OUT:
        carry_out(WRITE)
        if sql.startswith("COPY"):
            copy_in(framed, sql)
        else:
            carry_out(sql)
        carry_out(WRITE)
        carry_out("ROLLBACK")
    _nothing_is_written(server)


def copy_in(raw: Raw, sql: str) -> list[tuple[bytes, bytes]]:
    """Send a COPY with one row."""
    return raw.ask(
        wire.message(b"Q", wire.text(sql)),
        wire.message(b"d", b"Wilhelm Gustloff\t0\n"),
        wire.message(b"c"),
    )


def test_a_copy_statement_works_in_a_preview_and_is_rolled_back(at: At, server: PostgreSQL) -> None:
    """The COPY is a simple query, whose Sync has to come after the rows."""
    with at("writer", reads_only=True) as login:
        raw = Raw(login)
        raw.start(user="x")
        assert tags(copy_in(raw, "COPY ship FROM STDIN")) == [b"COPY 1"]
        assert tags(raw.query("COPY ship TO STDOUT")) == [b"COPY 3"]
        assert tags(raw.query("SELECT 1")) == [b"SELECT 1"]
        assert errors(raw.query("COPY nothing FROM STDIN"))[0].sqlstate == "42P01"
        assert tags(raw.query("SELECT 1")) == [b"SELECT 1"]
        raw.say(wire.message(b"Q", wire.text("COPY ship FROM STDIN")), wire.message(b"f", wire.text("no")))
        assert errors(raw.until_ready())[0].sqlstate == "57014"
        assert tags(raw.query("SELECT 1")) == [b"SELECT 1"]
    _nothing_is_written(server)


def test_a_library_sees_its_own_writes_during_a_preview(at: At, server: PostgreSQL) -> None:
    """The changes are visible to it until it ends its transaction."""
    with at("writer", reads_only=True) as login, connected(login) as connection:
        cursor = connection.cursor()
        cursor.execute("UPDATE ship SET masts = masts + %s RETURNING name, masts", (1,))
        assert sorted(cursor.fetchall()) == [["Gorch Fock", 4], ["Passat", 5]]
        cursor.execute("SELECT sum(masts) FROM ship")
        assert cursor.fetchone() == [9]
        connection.rollback()
        cursor.execute("SELECT sum(masts) FROM ship")
        assert cursor.fetchone() == [7]
        cursor.execute("DELETE FROM ship")
        connection.commit()
        cursor.execute("SELECT count(*) FROM ship")
        assert cursor.fetchone() == [2], "a COMMIT in a preview is a ROLLBACK"
        stream = "Wilhelm Gustloff\t0\n"
        cursor.execute("COPY ship FROM STDIN", stream=io.StringIO(stream))
        cursor.execute("SELECT count(*) FROM ship")
        assert cursor.fetchone() == [3]
        with pytest.raises(pg8000.dbapi.DatabaseError, match="VACUUM is not passed on"):
            cursor.execute("VACUUM")
        connection.rollback()
    assert rows(server) == SHIPS


def test_a_library_can_read_over_a_read_only_login(at: At) -> None:
    """Reading works after an error, and outside a transaction."""
    with at.reading() as login, connected(login) as connection:
        connection.autocommit = True
        cursor = connection.cursor()
        for _ in range(2):
            with pytest.raises(pg8000.dbapi.DatabaseError, match="no_such_table"):
                cursor.execute("SELECT * FROM no_such_table")
            cursor.execute("SELECT masts FROM ship WHERE name = %s", ("Passat",))
            assert cursor.fetchone() == [4]
        connection.autocommit = False
        cursor.execute("SELECT count(*) FROM ship")
        connection.commit()
        cursor.executemany("SELECT masts FROM ship WHERE name = %s", (("Passat",), ("Gorch Fock",)))
        connection.rollback()
        with pytest.raises(
            pg8000.dbapi.DatabaseError, match="INSERT is not passed on in a transaction that only reads"
        ):
            cursor.execute(WRITE)


def test_a_library_sees_the_state_of_its_own_transactions(at: At) -> None:
    """ReadyForQuery reports the state of the library's transaction, and not of the one around it."""
    with at.reading() as login:
        raw = Raw(login)
        raw.start(user="x")
        for sql, tag, status in (
            ("BEGIN", b"BEGIN", b"T"),
            ("SELECT 1", b"SELECT 1", b"T"),
            ("COMMIT", b"COMMIT", b"I"),
            ("SELECT 1", b"SELECT 1", b"I"),
            ("start transaction read only, isolation level read committed;", b"BEGIN", b"T"),
            ("ROLLBACK", b"ROLLBACK", b"I"),
        ):
            answers = raw.query(sql)
            assert (tags(answers), answers[-1]) == ([tag], (b"Z", status)), sql
        raw.query("BEGIN")
        assert raw.query("SELECT 1/0")[-1] == (b"Z", b"E")
        assert errors(raw.query("SELECT 1"))[0].sqlstate == "25P02"
        assert raw.query("ROLLBACK")[-1] == (b"Z", b"I")
        assert kinds(raw.query("")) == "IZ"
        assert kinds(raw.query("SELECT 1")) == "TDCZ"
        assert errors(raw.query("SELECT 1; SELECT 2"))[0].sqlstate == "42601"
        assert kinds(raw.query("SAVEPOINT a")) == "CZ"


def test_a_session_parameter_alone_does_not_prevent_writes(at: At, server: PostgreSQL) -> None:
    """SQL can reset a parameter, which is why a transaction is put around the stream."""
    with at("writer") as login, connected(login) as connection:
        cursor = connection.cursor()
        cursor.execute("SET default_transaction_read_only = on")
        connection.commit()
        with pytest.raises(pg8000.dbapi.DatabaseError, match="read-only transaction"):
            cursor.execute(WRITE)
        connection.rollback()
        cursor.execute("SELECT set_config('default_transaction_read_only', 'off', false)")
        connection.commit()
        cursor.execute(WRITE)
        cursor.execute("DELETE FROM ship WHERE masts = 0")
        connection.commit()
    with at.reading() as login:
        raw = Raw(login)
        raw.start(user="x")
        raw.query("SELECT set_config('default_transaction_read_only', 'off', false)")
        raw.query("COMMIT")
        for sql in ("SELECT set_config('transaction_read_only', 'off', false)", "SET TRANSACTION READ WRITE"):
            assert errors(raw.query(sql))[0].sqlstate == "25001"
    _nothing_is_written(server)


@pytest.mark.abuse_case("LC8")
def test_knowing_the_name_of_the_enclosing_savepoint_does_not_allow_writes(at: At) -> None:
    """Another session of the role can see the statement that made it, while it is the last one."""
    with at.reading() as login, at.reading() as beside:
        raw, other = Raw(login), Raw(beside)
        raw.start(user="x")
        other.start(user="x")
        shown = other.query("SELECT query FROM pg_stat_activity WHERE query LIKE 'BEGIN%SAVEPOINT aileron%'")
        name = re.search(rb"aileron_[0-9a-f]+", b"".join(body for _, body in shown))
        assert name is not None, shown
        assert kinds(raw.query(f"RELEASE SAVEPOINT {name[0].decode()}")) == "CZ"
        assert errors(raw.query("SET TRANSACTION READ WRITE"))[0].sqlstate == "25001"
