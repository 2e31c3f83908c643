"""Settings of PostgreSQL that a previewed change depends on: they are fixed before the change, and checked when its rows are
returned.

Pure; runs in the process of one login. The server formats a value as text by settings that any SQL can change: `set_config` in
a WHERE, in a function, in a trigger. But text that is shown and digested must depend only on the values.

Rules
- `FIX` gives each output setting a value with which different values have different texts. The order of day and month in a
  constant, the time zone, the locale of money and the search path remain the database's own, and are digested.
- The query `ASK` is executed directly before the write and directly after it. The server executes a write with RETURNING to
  its end, triggers included, and only then writes out its rows (the strategy PORTAL_ONE_RETURNING). So all rows are formatted
  with the settings that are in effect after the write. A setting that was changed and reset within the write has not affected
  any row.
- Every setting is compared, and so is the role, because a closed list of relevant settings would lack the settings of the next
  version.
- A setting that is only in a later response to `ASK` belongs to a library that was loaded meanwhile. It counts as changed only
  if it was set in this session.

Source: PostgreSQL's manual, "Client Connection Defaults", "pg_settings"; its source, src/backend/tcop/pquery.c
(ChoosePortalStrategy, FillPortalStore). Not here: when `ASK` is sent (postgres_effects.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from aileron.logins.login_messages import LoginError, Problem

__all__ = ["ASK", "FIX", "MAX_SETTINGS", "Settings", "other_than_fixed"]

MAX_SETTINGS: Final = 2_000
"""Maximum number of rows in a response to `ASK`: PostgreSQL 15 has some 350 settings, and extensions add their own."""

_FIXED: Final = {
    "client_encoding": "UTF8",
    "DateStyle": "ISO",  # the order of day and month stays the database's: ISO writes year, month, day
    "IntervalStyle": "postgres",
    "extra_float_digits": "3",  # before version 12, lower values round
    "bytea_output": "hex",
    "quote_all_identifiers": "off",
    "standard_conforming_strings": "on",
}
_DIGESTED: Final = ("DateStyle", "TimeZone", "lc_monetary", "search_path")
"""Settings that are part of the digest of the effects, because the text of a value depends on them: the text of a time,
an amount of money, or the name of a table (regclass).
"""

FIX: Final = "SELECT " + ", ".join(
    f"pg_catalog.set_config('{name}', '{value}', true)" for name, value in _FIXED.items()
)
ASK: Final = (
    "SELECT name, setting, source FROM pg_catalog.pg_settings "
    "UNION ALL VALUES ('role', pg_catalog.current_setting('role'), ''), "
    "('session_authorization', pg_catalog.current_setting('session_authorization'), '')"
)
"""Query for all settings. It uses no operator, because the current search path would determine which operator is used."""


class Settings:
    """The values of all PostgreSQL settings at the beginning of a transaction."""

    def __init__(self, rows: Iterable[list[bytes | None]]) -> None:
        """Take the `rows` of the response to ASK. Raises LoginError if a digested setting is missing."""
        self._values: Final = {name: value for name, value, _ in map(_setting, rows)}
        if any(name not in self._values for name in (*_DIGESTED, "role")):
            raise LoginError(Problem.PROTOCOL, "the service did not name the settings by which it writes values")

    @property
    def digested(self) -> Iterable[bytes]:
        """Bytes of the name and value of each setting that is part of the digest of the effects."""
        return (f"{name}={self._values[name]}".encode() for name in _DIGESTED)

    def check_same(self, rows: Iterable[list[bytes | None]]) -> None:
        """Raise LoginError(not_allowed) if `rows`, the response to a later ASK, differ from these settings."""
        now = {name: (value, source) for name, value, source in map(_setting, rows)}
        for name in self._values.keys() - now.keys():
            raise _changed(name)
        for name, (value, source) in now.items():
            if value != self._values.get(name, value) or (name not in self._values and source == "session"):
                raise _changed(name)


def other_than_fixed(parameters: Mapping[str, str]) -> str | None:
    """Return the first of the client's start-up parameters that a previewed change does not allow; None if all are allowed.

    A previewed change allows application_name, statement_timeout, and a fixed setting with its fixed value.

    >>> other_than_fixed({"DateStyle": "ISO", "client_encoding": "'utf-8'"}), other_than_fixed({"TimeZone": "UTC"})
    (None, 'TimeZone')
    """
    for name, value in parameters.items():
        if name not in ("application_name", "statement_timeout") and _bare(_FIXED.get(name, "")) != _bare(value):
            return name
    return None


def _bare(value: str) -> str:
    """Return the letters and digits of a value in lower case. The server ignores all other characters in the name of an
    encoding.
    """
    return "".join(letter for letter in value.lower() if letter.isalnum())


def _setting(row: list[bytes | None]) -> tuple[str, str, str]:
    if len(row) != 3:
        raise LoginError(Problem.PROTOCOL, "the service answered something else than its settings")
    name, value, source = ((data or b"").decode("utf-8", "replace") for data in row)
    return name, value, source


def _changed(name: str) -> LoginError:
    return LoginError(
        Problem.NOT_ALLOWED,
        f"the setting {name[:60]!a} was changed in SQL (set_config, or a function that sets it), and what is shown would "
        "depend on it: write the statement without that",
    )
