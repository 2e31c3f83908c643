"""Attacks of a same-user process on a page that the person unlocked: with their cookie, with guesses, with forms of its own.

It has a shell, every file and the loopback port, and gets the cookie, which it would find in a browser's memory or on disk.
It knows no passphrase. Beside each attempt the person's own process does the same, and succeeds.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from typing import Any, Final

import pytest

from tests.attacks.same_user.house import House, house, only_as_an_ordinary_user
from tests.attacks.same_user.terminal import APPROVER, DEADLINE_S
from tests.attacks.tally import Attack
from tests.support.home import PASSPHRASE
from tests.support.paged import PageClient

pytestmark = [pytest.mark.jail, only_as_an_ordinary_user]

_HIDES: Final = "import ctypes; assert ctypes.CDLL(None).prctl(4, 0, 0, 0, 0) == 0"
_SHARES: Final = """
import os
ended, its_end = os.pipe()
if os.fork() == 0:
    os.close(its_end)
    os.read(ended, 1)
    os._exit(0)
"""
_ASKS: Final = """
import http.client, json, sys
port, cookie, path = int(sys.argv[1]), sys.argv[2], sys.argv[3]
connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
connection.connect()
{before}
connection.request("GET", path, headers={{"Host": f"localhost:{{port}}", "Cookie": cookie, "Sec-Fetch-Site": "none"}})
answer = connection.getresponse()
print(json.dumps([answer.status, answer.read().decode()]))
"""


@pytest.fixture
def home() -> Iterator[House]:
    """Provide a new home for each test, because a page that is attacked is locked."""
    with house() as made:
        yield made


def at_the_page(home: House) -> PageClient:
    """Return a page client of the person, who has unlocked the page."""
    client = PageClient(home.home)
    assert client.unlock(APPROVER).status == 200
    return client


def thief(client: PageClient, path: str, before: str = "") -> tuple[int, str]:
    """Request a page from another process that has the person's cookie. Return status and text."""
    words = [sys.executable, "-c", _ASKS.format(before=before), str(client.port), str(client.cookie), path]
    said = subprocess.run(words, capture_output=True, text=True, timeout=DEADLINE_S, check=True).stdout
    status, text = json.loads(said)
    return status, text


def _title(page: str) -> str:
    found = re.search(r"<h1>(.*?)</h1>", page)
    return found[1] if found else page[:200]


@pytest.mark.abuse_case("D26")
@pytest.mark.parametrize(
    ("how", "before"),
    [
        ("from a process of its own", ""),
        ("from one that nobody can look into", _HIDES),
        ("over a connection that two processes hold", _SHARES),
    ],
)
def test_the_persons_cookie_is_refused_from_another_process(attack: Attack, home: House, how: str, before: str) -> None:
    """The page locks itself and both events are recorded, so the person learns of it at the next look."""
    question, person = home.asked(), at_the_page(home)
    path = f"/approvals/{question['approval_id']}"
    attack.worked("the person's own process, with the same cookie", 200, person.get(path).status)
    secret = str(question["plan"]["args"]["path"])
    attack.worked("and it is shown the question", True, secret in person.get(path).text)
    since = home.newest()
    status, text = thief(person, path, before)
    attack.answered(f"the cookie, {how}", 403, status, _title(text))
    attack.answered("what it was shown of the question", False, secret in text)
    attack.answered("what the record has of it", ["process"], home.why(since))
    locked = [event["reason"] for event in home.events("page.locked", since)]
    attack.answered(
        "the page afterwards", (["process"], True), (locked, "Approver passphrase" in person.get(path).text)
    )
    attack.answered(
        "what came of the question", ("pending_approval", 0), (home.status(question), home.effects(question))
    )


@pytest.mark.abuse_case("D27")
def test_no_one_decides_on_the_page_without_the_passphrase(attack: Attack, home: House) -> None:
    """Guesses, the vault's passphrase and forged sessions fail; the sixth guess gets status 429."""
    question, since = home.asked(), home.newest()
    here = PageClient(home.home)
    for guess in ("hunter2 hunter2", PASSPHRASE, "", "x" * 2000, "nine green bottles"):
        attack.answered(f"unlocking with {guess[:20]!r}", 403, here.unlock(guess).status)
    attack.answered("the sixth try within a minute", 429, here.unlock("once more").status)
    decide = f"/approvals/{question['approval_id']}/decide"
    form = {"decision": "approve", "digest": str(question["digest"]), "token": "0" * 64, "word": "send"}
    made_up = f"aileron-page-{here.port}={'A' * 43}"
    for what, cookie in (("no cookie", None), ("one that is made up", made_up), ("another's", "aileron-page-1=x")):
        here.cookie = cookie
        attack.answered(f"a decision with {what}", 403, here.post(decide, form).status)
    attack.answered("what the record has of the guesses", ["passphrase"] * 5, home.why(since))
    attack.answered(
        "what came of the question", ("pending_approval", 0), (home.status(question), home.effects(question))
    )
    said = home.person("approve", question["approval_id"], "--yes")
    attack.worked("the person, at a terminal meanwhile", (0, 1), (said.code, home.effects(question)))


@pytest.mark.abuse_case("D27")
def test_another_key_in_approver_json_does_not_unlock_the_page(attack: Attack, home: House) -> None:
    """The attacker can write that file, but the vault names the approver's public key."""
    from aileron.approver_key import keyfile
    from aileron.model.secret import Secret

    file = home.home.path / "approver.json"
    kept: bytes = file.read_bytes()
    keyfile.create(file, Secret(b"my own passphrase"), replace=True).wipe()
    answer: Any = PageClient(home.home).unlock("my own passphrase")
    attack.answered("a key file of the attacker's own", 409, answer.status, answer.words[:200])
    file.write_bytes(kept)
    attack.worked("the person's, put back", 200, PageClient(home.home).unlock(APPROVER).status)
