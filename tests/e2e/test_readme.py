"""The README's first action, followed as it stands: its files are written, its commands typed at a terminal, its server started.

Only the port is another, so that two runs of the tests do not meet; the test gives the replies that the README's comments ask
of a person.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from tests.cli.command import Answers, Command, Said
from tests.support.ports import reserve_ports
from tests.support.relay import Agent
from tests.support.serving import made_folder

pytestmark = [pytest.mark.jail, pytest.mark.slow]
ROOT: Final = Path(__file__).resolve().parents[2]
PORT: Final = "8765"
VAULT, APPROVER = "correct horse battery", "nine of swords, reversed"
DECISION: Final[Answers] = [("Approver passphrase: ", APPROVER), ("Approve? ", "y")]
"""Replies to the question about a run that the person typed themselves."""
TYPED_DECISION: Final[Answers] = [DECISION[0], ("Type delete to approve: ", "delete")]
"""Replies to the question about a run that an agent requested."""
"""Replies to a question with a preview. The passphrase is asked for again only if the first was not kept that long."""
_BLOCK: Final = re.compile(r"^```(\w+)\n(.*?)^```$", re.DOTALL | re.MULTILINE)


@pytest.fixture
def folder() -> Iterator[Path]:
    """Provide the reader's folder; in a short path, because a socket's path is short."""
    with made_folder("reader-") as path:
        yield path


def section(port: str) -> str:
    """Return the README's section on a first action, at that port."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    found = re.search(r"^## A first action of your own.*?(?=^## )", text, re.DOTALL | re.MULTILINE)
    assert found
    return found[0].replace(PORT, port)


def files(text: str) -> dict[str, str]:
    """Return the blocks that are not commands, by the path in their first line or else in the sentence before."""
    found = {}
    for block in _BLOCK.finditer(text):
        if block[1] != "console":
            named = re.match(r"# (\S+)\n", block[2]) or re.search(r"`([^`]+\.md)`[^`]*\Z", text[: block.start()])
            assert named, block[2][:60]
            found[named[1]] = block[2]
    return found


def commands(text: str) -> list[list[str]]:
    """Return what is typed after `aileron`, in order. The only other command makes `aileron` available."""
    lines = [line for block in _BLOCK.findall(text) if block[0] == "console" for line in block[1].splitlines()]
    typed = [shlex.split(line.removeprefix("$ "), comments=True) for line in lines]
    assert typed.pop(0) == ["source", ".venv/bin/activate"]
    assert {words[0] for words in typed} == {"aileron"}
    return [words[1:] for words in typed]


def typed(aileron: Command, words: list[str], answers: Answers = ()) -> Said:
    """Type a command at a terminal, and check that it succeeds."""
    said = aileron.at_terminal(*words, answers=answers, NO_COLOR="1")
    assert said.code == 0, (words, said)
    return said


def follow(aileron: Command, todo: list[list[str]], key: str) -> dict[str, Said]:
    """Type the commands. Return what each showed, by its first two words."""
    answers: dict[str, Answers] = {
        "binding setup": [
            ("New vault passphrase: ", VAULT),
            ("again: ", VAULT),
            ("Service [", ""),
            ("Identity", ""),
            ("token: ", key),
        ],
        "approver init": [
            ("Create the approver's key? [y/N] ", "y"),
            ("Vault passphrase: ", VAULT),
            ("New approver passphrase: ", APPROVER),
            ("again: ", APPROVER),
        ],
        "run delete-note": DECISION,
    }
    said = {" ".join(words[:2]): typed(aileron, words, answers.get(" ".join(words[:2]), ())) for words in todo}
    assert set(answers) <= set(said)
    return said


def as_an_agent(aileron: Command) -> list[Any]:
    """Do the same as an agent. Return the list, the status of a deletion that waits, and its result after a person has
    approved it.
    """
    with Agent(aileron.home) as agent:

        def call(tool: str, **arguments: Any) -> Any:
            params = {"name": tool, "arguments": arguments}
            return agent.ask("tools/call", params)["result"]["structuredContent"]

        agent.initialize()
        listed, waits = call("list_notes"), call("delete_note", id=1)
        assert waits["id"] in aileron("approval", "list").out
        shown = typed(aileron, ["approve", waits["id"]], TYPED_DECISION)
        assert "Water the plants" in shown.out
        return [listed["result"], waits["status"], call("wait_for_action", id=waits["id"])["result"]]


def test_the_first_action_of_the_readme_works(folder: Path) -> None:
    """The connector never has the key, the approver sees the service's data, and only an approved change is made."""
    port = str(*reserve_ports(1))
    text = section(port)
    for path, body in files(text).items():
        (folder / path).parent.mkdir(exist_ok=True)
        (folder / path).write_text(body, encoding="utf-8")
    first, *others = commands(text)
    assert first == ["demo-server"]

    aileron = Command(folder / "home", folder=str(folder))
    with aileron.start(*first, "--port", port) as server:
        try:
            assert server.stdout is not None
            key = re.search(r"demo-[0-9a-f]{32}", server.stdout.readline() + server.stdout.readline())
            assert key
            said, told = follow(aileron, others, key[0]), as_an_agent(aileron)
        finally:
            aileron("daemon", "stop")
            server.terminate()
        assert server.stderr is not None
        served = server.stderr.read()

    assert "Call Jo" in said["run list-notes"].out
    assert said["run delete-note"].out.index("Call Jo") < said["run delete-note"].out.index("Approve?")
    assert told == [[{"id": 1, "text": "Water the plants"}], "pending_approval", {"deleted": 1}]
    assert re.findall(r"\d+  (?:GET|DELETE) /notes\S*", served) == [
        *("200  GET /notes", "200  GET /notes/2", "204  DELETE /notes/2"),
        *("200  GET /notes", "200  GET /notes/1", "204  DELETE /notes/1"),
    ]
    assert "egress.sending" in said["audit list"].out
    everything = [path.read_bytes() for path in (folder / "home").rglob("*") if path.is_file()]
    assert not any(key[0].encode() in data for data in everything)
