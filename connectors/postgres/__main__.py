"""Connector for one PostgreSQL database. It reads as a role that cannot write, and commits a change only if its effects
are those that a person saw in the preview.

Runs inside the jail; the server is fixed when the connector is built. The supervisor logs in; this code has no password. Its
`BEGIN` and `COMMIT` are executed only if the supervisor allows them: `execute` commits only if its effects are those of the
preview.

Not handled: COPY, large objects, notifications, more than one statement in a call.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Any, Final

import msgspec
from answers import as_text, rows
from wire import DatabaseError, Session

from aileron_connector import BadInput, ConnectorError, ExternalApiError, hosts, op, run

TIMEOUT_S: Final = 20
"""Seconds that one statement may take at the server."""
MAX_ROWS: Final = 1000
Sql = Annotated[str, msgspec.Meta(min_length=1, max_length=100_000)]
Values = list[str | int | float | bool | None]
_TABLES: Final = """
SELECT n.nspname AS schema, c.relname AS "table",
       CASE c.relkind WHEN 'v' THEN 'view' WHEN 'm' THEN 'materialized view' WHEN 'f' THEN 'foreign table' ELSE 'table' END
           AS kind,
       CASE WHEN c.reltuples < 0 THEN NULL ELSE c.reltuples::bigint END AS about_rows,
       obj_description(c.oid, 'pg_class') AS comment
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE c.relkind IN ('r', 'p', 'v', 'm', 'f') AND NOT c.relispartition AND n.nspname !~ '^pg_'
  AND n.nspname <> 'information_schema'
  AND ($1::text IS NULL OR n.nspname = $1) AND has_table_privilege(c.oid, 'SELECT')
ORDER BY 1, 2"""
_COLUMNS: Final = """
SELECT a.attname AS name, format_type(a.atttypid, a.atttypmod) AS type, NOT a.attnotnull AS nullable,
       pg_get_expr(d.adbin, d.adrelid) AS "default", col_description(a.attrelid, a.attnum) AS comment
FROM pg_attribute a LEFT JOIN pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
WHERE a.attrelid = to_regclass($1) AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum"""
_CONSTRAINTS: Final = """
SELECT conname AS name, pg_get_constraintdef(oid) AS definition FROM pg_constraint WHERE conrelid = to_regclass($1)
ORDER BY contype <> 'p', conname"""


@op(login="read_only")
def query(
    sql: Sql, values: Values | None = None, limit: Annotated[int, msgspec.Meta(ge=1, le=MAX_ROWS)] = 100
) -> dict[str, Any]:
    """Run one statement that only reads, and return at most `limit` rows."""
    with _session() as session:
        result = session.run(sql, _texts(values), max_rows=limit)
    return {"rows": rows(result), "row_count": len(result.rows), "more": result.is_cut}


@op(login="read_only")
def list_tables(schema: str | None = None) -> dict[str, Any]:
    """List the tables and views that the role may read, with the approximate number of rows of each."""
    with _session() as session:
        result = session.run(_TABLES, [schema], max_rows=MAX_ROWS)
    return {"tables": rows(result), "more": result.is_cut}


@op(login="read_only")
def describe_table(table: Annotated[str, msgspec.Meta(min_length=1)]) -> dict[str, Any]:
    """Return the columns and constraints of one table. The table is named as in SQL: `customers`, `shop.customers`."""
    with _session() as session:
        columns = session.run(_COLUMNS, [table])
        constraints = session.run(_CONSTRAINTS, [table])
    if not columns.rows:
        raise BadInput(f"there is no table {table[:64]!r} that the role can see", argument="table")
    return {"table": table, "columns": rows(columns), "constraints": rows(constraints)}


@op(login="previewed")
def execute(sql: Sql, values: Values | None = None) -> dict[str, Any]:
    """Run an INSERT, UPDATE or DELETE that ends with RETURNING *. The change is committed only if its effects are those
    shown in the preview.
    """
    return _changed(sql, values)


@op(login="previewed")
def preview_execute(sql: Sql, values: Values | None = None) -> dict[str, Any]:
    """Run the same statement as `execute`, to show its effects in a preview. The supervisor rolls it back."""
    return _changed(sql, values)


def _changed(sql: str, values: list[Any] | None) -> dict[str, Any]:
    with _session() as session:
        session.control("BEGIN")
        result = session.run(sql, _texts(values))
        done = session.control("COMMIT")
    return {"rows": rows(result), "row_count": len(result.rows), "committed": done == "COMMIT"}


@contextmanager
def _session() -> Iterator[Session]:
    granted = hosts()
    if len(granted) != 1:
        raise ConnectorError(
            "connector_runtime_error",
            f"this connector is for exactly one server, and {len(granted)} are granted: "
            "build it with `aileron connector build --host NAME:PORT`",
        )
    try:
        with Session.open(granted[0].host, granted[0].port, timeout_s=TIMEOUT_S) as session:
            yield session
    except DatabaseError as error:
        raise _failure(error) from error


def _texts(values: list[Any] | None) -> list[str | None]:
    return [as_text(value) for value in values or ()]


def _failure(error: DatabaseError) -> ConnectorError:
    words = f"{error.message}{f' ({error.hint})' if error.hint else ''}"[:1000]
    match error.sqlstate[:2]:
        case "22" | "23" | "42":  # data, a constraint, syntax or a name
            return BadInput(f"PostgreSQL: {words}", argument="sql")
        case "0A" | "25":  # not in a transaction that only reads
            return BadInput(f"PostgreSQL: {words}; to change rows use postgres-execute", argument="sql")
        case "57":
            return ExternalApiError(f"PostgreSQL: {words}; a statement has {TIMEOUT_S} s", status=504)
        case _:
            return ExternalApiError(f"PostgreSQL: {words}", details={"sqlstate": error.sqlstate})


if __name__ == "__main__":
    run()
