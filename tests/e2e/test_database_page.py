"""docs/how-to/let-an-agent-use-a-database.md, followed as it stands: its SQL and its commands, at Debian's PostgreSQL."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.command import Answers
from tests.e2e.test_tutorial import ROOT, Shell, home, shell
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
    text = PAGE.read_text(encoding="utf-8")
    (roles,) = re.findall(r"```sql\n(.*?)```", text, re.DOTALL)
    with server.admin("shop") as admin:
        admin.run(roles)
    shell.begin(place, ca_file=authority.ca_file)
    answers: list[tuple[str, Answers]] = [
        (
            "aileron add postgres",
            [
                ("PostgreSQL server, such as db.example.com: ", place),
                ("Which actions? [1-3, Enter for 2] ", ""),
                ("User name of the role that only reads: ", "shop_reader"),
                ("Password: ", READER),
                ("Does another role change rows? [y/N] ", "y"),
                ("User name of the role that writes: ", "shop_writer"),
                ("Password: ", WRITER),
            ],
        ),
        ("aileron remove postgres", [("[y/N] ", "y")]),
    ]
    for step, printed in shell.follow(text, home, answers=answers):
        assert READER not in printed, step
        assert scan([home / ".aileron"], READER.encode(), WRITER.encode()) == {}, step

    with server.admin("shop") as admin:
        assert admin.run("SELECT city FROM customers") == [["Bergen"], ["Bergen"]]
    assert scan([home / ".aileron"], b"Bergen"), "the scan finds nothing that is there"
