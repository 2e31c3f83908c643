"""`aileron open`: the page's address, and the person's browser."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.command import Command
from tests.support.home import DaemonHome, asking_home
from tests.support.waiting import wait_text

pytestmark = pytest.mark.jail

NO_DISPLAY = {"DISPLAY": "", "WAYLAND_DISPLAY": "", "BROWSER": "", "NO_COLOR": "1"}


@pytest.fixture(scope="module")
def home() -> Iterator[DaemonHome]:
    """A home with an action that asks."""
    with asking_home() as made:
        yield made


@pytest.fixture
def opener(tmp_path: Path) -> Path:
    """A browser that writes down its arguments."""
    program = tmp_path / "my browser"
    program.write_text(
        f"#!/bin/sh\nprintf '%s\\n' \"$@\" > '{tmp_path}/opening'\nmv '{tmp_path}/opening' '{tmp_path}/opened'\n"
    )
    program.chmod(0o755)
    return program


def test_open_prints_the_review_address_and_opens_the_browser(home: DaemonHome, opener: Path, tmp_path: Path) -> None:
    """The browser opens only at a terminal; without one, without a browser or with --print, the address is printed."""
    aileron, asked = Command(home.path), home.asked("ask-first", {"text": "x"})
    name, address = asked["approval_id"], asked["review_url"]
    queue = address.rpartition("/")[0]
    chosen = {**NO_DISPLAY, "BROWSER": f"'{opener}'"}
    for words, expected in ((("approval", name), address), (("approval", name[-6:]), address), (("approvals",), queue)):
        said = aileron.at_terminal("open", *words, variables=chosen)
        assert (said.code, expected in said.out.split(), "opening your browser" in said.out) == (0, True, True)
        assert wait_text(tmp_path / "opened", "\n") == f"{expected}\n"
        (tmp_path / "opened").unlink()
        assert aileron("open", *words, **chosen).out == f"{expected}\n"
        printed = aileron.at_terminal("open", *words, "--print", variables=chosen)
        bare = aileron.at_terminal("open", *words, variables=NO_DISPLAY)
        assert (printed.out.strip(), bare.out.strip()) == (expected, expected)
    assert not (tmp_path / "opened").exists()


def test_the_message_of_a_pending_run_names_its_page_and_the_command_that_opens_it(home: DaemonHome) -> None:
    """The message has the response's address, and the command prints the same."""
    asked = home.asked("ask-first", {"text": "x"})
    command = re.search(r"`aileron (open approval \S+)`", asked["message"])

    assert command is not None
    assert f" {asked['review_url']} " in asked["message"]
    assert Command(home.path)(*command[1].split()).out == f"{asked['review_url']}\n"


def test_opening_an_unknown_approval_exits_with_3(home: DaemonHome) -> None:
    """All commands use this code for an approval that does not exist."""
    said = Command(home.path)("open", "approval", "act-20260101T000000-00000000000000000000")

    assert (said.code, said.out) == (3, "")
    assert "no approval" in said.err


def test_the_review_address_is_the_same_after_a_restart(home: DaemonHome) -> None:
    """The port is stored in the home."""
    aileron = Command(home.path)
    before = aileron("open", "approvals").out
    home.stop()

    assert aileron("open", "approvals").out == before
