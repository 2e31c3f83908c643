"""The page docs/reference/signed-decisions.md compared with the code: every worked byte, and the way to check a
signature by hand.
"""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from aileron.approvals.passkey_rules import MAX_NAME_CHARACTERS
from aileron.approvals.signed import CEREMONY_S, CLOCK_S
from aileron.approver_key.keyfile import ApproverKey
from aileron.model.consent import MAX_PASSKEYS, PASSKEY_DECIDES, ConsentKind
from aileron.model.decision import (
    ApproverStatement,
    DecisionStatement,
    HeadStatement,
    PageStatement,
    PreviewStatement,
    Statement,
    check_signature,
)
from aileron.model.passkey import (
    ALGORITHMS,
    MAX_AUTHENTICATOR_BYTES,
    MAX_CLIENT_BYTES,
    MAX_SIGNATURE_BYTES,
    Assertion,
    PasskeyKey,
    base64url,
    challenge_of,
    check_assertion,
    from_base64url,
    passkey_id,
)

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "reference" / "signed-decisions.md").read_text(encoding="utf-8")
KINDS: dict[str, type[Statement]] = {
    "aileron-decision-v1": DecisionStatement,
    "aileron-head-v1": HeadStatement,
    "aileron-preview-v1": PreviewStatement,
    "aileron-page-v1": PageStatement,
    "aileron-approver-v1": ApproverStatement,
}
WORKED = re.findall(r"```text\n(aileron-\w+-v1)\n(\{.*\})\n```\n\n`([A-Za-z0-9+/=]+)`", PAGE)


def seed() -> bytes:
    """Return the private key of the page."""
    found = re.search(r"The private key `([0-9a-f]{64})`", PAGE)
    assert found
    return bytes.fromhex(found[1])


def test_the_reference_page_has_example_bytes_for_every_kind_of_signed_statement() -> None:
    """Each kind is there once, and its fields are those of the table."""
    assert [line for line, _, _ in WORKED] == list(KINDS)
    for line, kind in KINDS.items():
        (row,) = re.findall(rf"^\| `{line}` \| (.+?) \| .+ \|$", PAGE, re.MULTILINE)
        named = re.findall(r"`(\w+)`", re.sub(r"\([^)]*\)", "", row))
        assert named == list(kind.__struct_fields__)


@pytest.mark.parametrize(("line", "fields", "signature"), WORKED, ids=[line for line, _, _ in WORKED])
def test_the_reference_pages_example_bytes_are_those_that_the_code_signs(
    line: str, fields: str, signature: str
) -> None:
    """Our key and any other Ed25519 agree, and the signature is the one on the page."""
    statement = KINDS[line](**json.loads(fields))
    with ApproverKey(bytearray(seed())) as key:
        assert statement.signed_bytes() == f"{line}\n{fields}".encode()
        assert key.sign(statement) == signature
        check_signature(key.public_key, statement, signature)
        assert key.public_key == Ed25519PrivateKey.from_private_bytes(seed()).public_key().public_bytes_raw()
        assert json.loads(fields)["key_id"] == key.key_id
        assert f'"public_key": "{key.public_key.hex()}"' in PAGE  # of the file that is shown


def _passkey() -> tuple[DecisionStatement, PasskeyKey, Assertion]:
    """Return the worked passkey of the page: the statement that it signs, the key, and the assertion."""
    (section,) = re.findall(r"### Worked bytes of a passkey\n(.*?)\n## ", PAGE, re.DOTALL)
    fields, client = re.findall(r"^(\{.*\})$", section, re.MULTILINE)
    (signature,) = re.findall(r"^`([\w.-]+)`$", section, re.MULTILINE)
    credential, origin, public_key = re.findall(r"`([\w-]{22}|http://[\w:]+|[0-9a-f]{84})`", " ".join(section.split()))
    passkey = PasskeyKey(
        name="worked", credential_id=credential, public_key=public_key, rp_id="localhost", origin=origin
    )
    assertion = Assertion.parse(signature)
    assert assertion.client_data == client.encode()
    return DecisionStatement(**json.loads(fields)), passkey, assertion


def test_the_reference_pages_example_signature_of_a_passkey_verifies() -> None:
    """Our check and plain Ed25519 with the key of the page agree; id and challenge are those of the page."""
    statement, passkey, assertion = _passkey()
    public = Ed25519PrivateKey.from_private_bytes(seed()).public_key()

    check_assertion(passkey, statement, assertion.spelled())
    public.verify(assertion.signature, assertion.authenticator_data + hashlib.sha256(assertion.client_data).digest())
    assert statement.key_id == passkey_id(from_base64url(passkey.credential_id), bytes.fromhex(passkey.public_key))
    assert bytes.fromhex(passkey.public_key).endswith(public.public_bytes_raw())
    assert json.loads(assertion.client_data)["challenge"] == challenge_of(statement)


def test_the_reference_pages_limits_for_passkeys_are_those_of_the_code() -> None:
    """The limits are sizes, times, algorithms, and the kinds of consent that a passkey cannot decide."""
    words = " ".join(PAGE.split())
    consents = " ".join((Path(__file__).resolve().parents[2] / "docs/reference/consents.md").read_text().split())

    assert f"signature | {MAX_SIGNATURE_BYTES} bytes |" in words
    assert f"| 2 | `authenticatorData` | {MAX_AUTHENTICATOR_BYTES >> 10} KiB |" in words
    assert f"byte for byte | {MAX_CLIENT_BYTES >> 10} KiB |" in words
    assert f"no more than {CLOCK_S:.0f} s from now, of a passkey up to {CEREMONY_S / 60:.0f} minutes ago" in words
    assert list(ALGORITHMS.values()) == ["ES256", "EdDSA", "RS256"]
    assert set(ConsentKind) - PASSKEY_DECIDES == {ConsentKind.PASSKEY, ConsentKind.SETTINGS}
    assert "but for the kinds `passkey` and `settings`" in words
    assert f"| passkeys | at most {MAX_PASSKEYS} |" in consents
    assert f"| name | 1 to {MAX_NAME_CHARACTERS} characters, and no other passkey's |" in consents
    assert f"| from the challenge to the answer | {CEREMONY_S / 60:.0f} minutes; one answer |" in consents
    assert f"| algorithms | {', '.join(ALGORITHMS.values())} |" in consents


def test_the_reference_pages_commands_verify_a_passkeys_signature(tmp_path: Path) -> None:
    """The commands run as the page has them, after those that make the key's file."""
    if any(shutil.which(tool) is None for tool in ("openssl", "xxd", "base64", "sh")):
        pytest.skip("openssl, xxd or base64 is not installed")
    (block,) = re.findall(r"### Worked bytes of a passkey\n.*?```console\n(.*?)```", PAGE, re.DOTALL)
    (made,) = re.findall(r"^\$ (echo 302a.* > key\.der)$", PAGE, re.MULTILINE)
    commands = [line.removeprefix("$ ") for line in block.splitlines() if line.startswith("$ ")]
    statement, _, _ = _passkey()
    (tmp_path / "statement").write_bytes(statement.signed_bytes())

    done = subprocess.run(
        ["sh", "-c", "\n".join([made, *commands])],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )

    said = [line for line in block.splitlines() if not line.startswith("$ ")]
    assert done.stdout.split() == " ".join(said).split(), done.stderr
    assert base64url(hashlib.sha256(statement.signed_bytes()).digest()) == said[0]


def test_the_reference_pages_commands_verify_a_signature_of_the_approvers_key(tmp_path: Path) -> None:
    """The commands run as the page has them and print what it says; for another statement they fail."""
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
