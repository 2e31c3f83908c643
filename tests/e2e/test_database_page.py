"""docs/how-to/let-an-agent-use-a-database.md, followed as it stands: its SQL and its commands, at Debian's PostgreSQL."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.test_tutorial import ROOT, Shell, home, shell, with_its_own
from tests.support.canary import scan
from tests.support.postgresql import PostgreSQL
from tests.support.upstream import Authority

__all__ = ["home", "shell"]  # fixtures

pytestmark = [pytest.mark.jail, pytest.mark.slow]
PAGE = ROOT / "docs" / "how-to" / "let-an-agent-use-a-database.md"
READER, WRITER = "a long random password", "another long random password"


@pytest.fixture
def server(authority: Authority) -> Iterator[PostgreSQL]:
    """Start the reader's database."""
    with PostgreSQL(authority) as running:
        with running.admin() as admin:
            admin.run("CREATE DATABASE shop")
        with running.admin("shop") as admin:
            admin.run("CREATE TABLE customers (id int PRIMARY KEY, name text, city text)")
            admin.run("INSERT INTO customers VALUES (1, 'Ada', 'Bergen'), (2, 'Bo', 'Bergen')")
        yield running


def test_every_step_of_the_database_page_works(
    shell: Shell, home: Path, server: PostgreSQL, authority: Authority
) -> None:
    """The test does every step, from the roles to the question; nothing is changed, and the passwords stay where they
    were put.
    """
    place = f"localhost:{server.port}"
    text = with_its_own(PAGE, ("--host db.example.com:5432", f"--host {place}"))
    (roles,) = re.findall(r"```sql\n(.*?)```", text, re.DOTALL)
    with server.admin("shop") as admin:
        admin.run(roles)
    (home / "connectors").symlink_to(ROOT / "connectors")
    (home / "reader.txt").write_text(READER)
    (home / "writer.txt").write_text(WRITER)
    shell.begin(place, ca_file=authority.ca_file)
    list(shell.follow(text, home))

    with server.admin("shop") as admin:
        assert admin.run("SELECT city FROM customers") == [["Bergen"], ["Bergen"]]
    assert scan([home / ".aileron"], b"Bergen"), "the scan finds nothing that is there"
    assert scan([home / ".aileron"], WRITER.encode()) == {}
