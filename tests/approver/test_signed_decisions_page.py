"""docs/reference/signed-decisions.md against the code: every worked byte, and the way to check one by hand."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from aileron.approver.keyfile import ApproverKey
from aileron.model.decision import (
    ApproverStatement,
    DecisionStatement,
    HeadStatement,
    PreviewStatement,
    Statement,
    check_signature,
)

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "reference" / "signed-decisions.md").read_text(encoding="utf-8")
KINDS: dict[str, type[Statement]] = {
    "aileron-decision-v1": DecisionStatement,
    "aileron-head-v1": HeadStatement,
    "aileron-preview-v1": PreviewStatement,
    "aileron-approver-v1": ApproverStatement,
}
WORKED = re.findall(r"```text\n(aileron-\w+-v1)\n(\{.*\})\n```\n\n`([A-Za-z0-9+/=]+)`", PAGE)


def seed() -> bytes:
    """The private key of the page."""
    found = re.search(r"The private key `([0-9a-f]{64})`", PAGE)
    assert found
    return bytes.fromhex(found[1])


def test_every_kind_of_statement_has_its_worked_bytes() -> None:
    """Each once, and its fields are those of the table."""
    assert [line for line, _, _ in WORKED] == list(KINDS)
    for line, kind in KINDS.items():
        (row,) = re.findall(rf"^\| `{line}` \| (.+?) \| .+ \|$", PAGE, re.MULTILINE)
        named = re.findall(r"`(\w+)`", re.sub(r"\([^)]*\)", "", row))
        assert named == list(kind.__struct_fields__)


@pytest.mark.parametrize(("line", "fields", "signature"), WORKED, ids=[line for line, _, _ in WORKED])
def test_the_worked_bytes_are_what_is_signed(line: str, fields: str, signature: str) -> None:
    """By our key and by any other Ed25519; and the signature is the one on the page."""
    statement = KINDS[line](**json.loads(fields))
    with ApproverKey(bytearray(seed())) as key:
        assert statement.signed_bytes() == f"{line}\n{fields}".encode()
        assert key.sign(statement) == signature
        check_signature(key.public_key, statement, signature)
        assert key.public_key == Ed25519PrivateKey.from_private_bytes(seed()).public_key().public_bytes_raw()
        assert json.loads(fields)["key_id"] == key.key_id
        assert f'"public_key": "{key.public_key.hex()}"' in PAGE  # of the file that is shown


def test_a_signature_is_checked_by_hand(tmp_path: Path) -> None:
    """The commands of the page, as they stand there, say what the page says; of another statement they do not."""
    if any(shutil.which(tool) is None for tool in ("openssl", "xxd", "base64", "sh")):
        pytest.skip("openssl, xxd or base64 is not installed")
    (block,) = re.findall(r"## By hand\n.*?```console\n(.*?)```", PAGE, re.DOTALL)
    commands = [line.removeprefix("$ ") for line in block.splitlines() if line.startswith("$ ")]
    said = [line for line in block.splitlines() if not line.startswith("$ ")]
    line, fields, _ = WORKED[0]
    for statement, expected in (
        (f"{line}\n{fields}", said),
        (f"{line}\n{fields}\n", ["Signature Verification Failure"]),
    ):
        (tmp_path / "statement").write_text(statement, encoding="utf-8")
        done = subprocess.run(
            ["sh", "-c", "\n".join(commands)], cwd=tmp_path, capture_output=True, text=True, timeout=30, check=False
        )
        assert done.stdout.splitlines() == expected, done.stderr
