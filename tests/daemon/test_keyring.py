"""Publishers' keys: trusted, asked about, checked against an archive, revoked, and written by a stranger."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from aileron.model.secret import Secret
from aileron.registry.connector_build import build
from aileron.registry.keyring import Authority, Keyring, KeyringFile
from aileron.registry.signatures import SigningKey
from aileron.registry.tarball import pack
from tests.support.approver import Approver
from tests.support.forge import TOKEN, ForgeServer
from tests.support.home import DaemonHome, daemon_home, word
from tests.support.upstream import Authority as CertificateAuthority

pytestmark = pytest.mark.jail
KEY, OTHER = SigningKey(Secret(b"k" * 32)), SigningKey(Secret(b"o" * 32))
MANIFEST = '[connector]\nname = "github://acme/echo"\nversion = "{version}"\n'


@pytest.fixture
def own() -> Iterator[DaemonHome]:
    """Start a home for one test."""
    with daemon_home() as home:
        yield home


@pytest.fixture
def own_home(approver: Approver) -> Iterator[DaemonHome]:
    """Start a home with an approver, the vault open."""
    with daemon_home() as home:
        home.unlock()
        approver.appoint(home)
        yield home


def archive(folder: Path, version: str = "1.0.0", key: SigningKey | None = KEY) -> str:
    """Build a connector of Acme's, signed with `key`, and return its archive's path."""
    source = folder / f"echo-{version}"
    source.mkdir(exist_ok=True)
    (source / "manifest.toml").write_text(MANIFEST.format(version=version), encoding="utf-8")
    (source / "connector.py").write_text("print('never run here')\n", encoding="utf-8")
    built = build(source)
    members = {"connector": built.connector, "manifest.toml": built.manifest}
    if key is not None:
        members["signature.sig"] = key.sign(built.connector + built.manifest)
    path = folder / f"{version}.tar.gz"
    path.write_bytes(pack(members))
    return str(path)


def trust(home: DaemonHome, authority: str = "github://acme", key: SigningKey = KEY) -> Any:
    """Request that a key is trusted."""
    body = {"authority": authority, "key": key.public.to_pem(), "source": "a test"}
    return home.ask("POST", "/v1/keyring", body)


def installed(home: DaemonHome) -> list[str]:
    """Return the versions in the store."""
    return sorted(entry["version"] for entry in home.must("GET", "/v1/connectors")["connectors"])


def test_a_signed_archive_needs_a_trusted_key(own: DaemonHome, tmp_path: Path) -> None:
    """The archive is refused before and verified afterwards, in the response and on record; an unsigned one then gets
    a warning.
    """
    before = own.ask("POST", "/v1/connectors", {"path": archive(tmp_path)})
    own.must("POST", "/v1/keyring", {"authority": "github://acme", "key": KEY.public.to_base64(), "source": "a test"})

    after = own.must("POST", "/v1/connectors", {"path": archive(tmp_path)})
    unsigned = own.must("POST", "/v1/connectors", {"path": archive(tmp_path, "1.1.0", key=None)})

    assert (before.status, word(before)) == (409, "signature_failure")
    assert after["signature"] == f"verified: {KEY.public.fingerprint}, trusted for github://acme"
    assert unsigned["signature"] == "UNSIGNED, although you trust a key of its publisher"
    events = own.must("GET", "/v1/audit?type=connector.installed")["events"]
    assert [event["signature"] for event in events] == [unsigned["signature"], after["signature"]]
    (trusted,) = own.must("GET", "/v1/audit?type=key.trusted")["events"]
    assert (trusted["authority"], trusted["key"]) == ("github://acme", KEY.public.fingerprint)


@pytest.mark.abuse_case("B2")
def test_a_revoked_publisher_key_is_no_longer_trusted(own: DaemonHome, tmp_path: Path) -> None:
    """Installed connectors stay, new ones are refused, and a key that is not trusted cannot be revoked."""
    for key in (KEY, OTHER):
        trust(own, key=key)
    own.must("POST", "/v1/connectors", {"path": archive(tmp_path)})
    revoked = own.must("POST", "/v1/keyring/revoke", {"authority": "github://acme", "key": KEY.public.fingerprint})

    assert revoked["revoked"] == [KEY.public.fingerprint]
    assert word(own.ask("POST", "/v1/connectors", {"path": archive(tmp_path, "1.1.0")})) == "signature_failure"
    assert installed(own) == ["1.0.0"]
    own.must("POST", "/v1/connectors", {"path": archive(tmp_path, "1.2.0", key=OTHER)})
    again = own.ask("POST", "/v1/keyring/revoke", {"authority": "github://acme", "key": KEY.public.fingerprint})
    assert word(again) == "not_found"
    assert own.must("GET", "/v1/keyring")["keyring"] == [
        {"authority": "github://acme", "keys": [OTHER.public.fingerprint]}
    ]


@pytest.mark.abuse_case("B3")
def test_the_setting_require_signature_refuses_unsigned_connectors(own: DaemonHome, tmp_path: Path) -> None:
    """A source directory is refused too, because it has no signature."""
    own.configure("[connectors]\nrequire_signature = true\n")
    trust(own)

    for path in (archive(tmp_path, key=None), str(tmp_path / "echo-1.0.0")):
        answer = own.ask("POST", "/v1/connectors", {"path": path})
        assert (word(answer), "require_signature" in answer.body["error"]["message"]) == ("signature_failure", True)
    own.must("POST", "/v1/connectors", {"path": archive(tmp_path)})


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        ({"authority": "github://acme", "key": "x", "source": ""}, "it is not an Ed25519 public key"),
        ({"authority": "acme", "key": KEY.public.to_base64(), "source": ""}, "has no known scheme"),
        ({"authority": "github://acme", "key": KEY.to_pem().reveal().decode(), "source": ""}, "it is a private key"),
    ],
)
def test_an_invalid_publisher_key_or_authority_is_refused(own: DaemonHome, body: dict[str, str], problem: str) -> None:
    """The response contains nothing of a private key."""
    answer = own.ask("POST", "/v1/keyring", body)

    assert (answer.status, problem in answer.body["error"]["message"]) == (400, True)
    assert KEY.to_pem().reveal().decode().splitlines()[1] not in json.dumps(answer.body)
    assert own.must("GET", "/v1/keyring")["keyring"] == []


def test_a_repositorys_key_is_fetched_from_its_forge(own: DaemonHome, authority: CertificateAuthority) -> None:
    """The request has the forge's token if the repository is private; the result lists other trusted keys."""
    with ForgeServer(authority) as forge:
        forge.keys["github://acme/mail"] = KEY.public.to_pem()
        forge.private.add("github://acme/mail")
        own.configure(forge.toml(token="forge-token"))
        own.unlock(TOKEN.encode())
        own.must("PUT", "/v1/secrets/forge-token", {"value_base64": "Zm9yZ2UtdG9rZW4tNDcxMS1mb3JnZS10b2tlbg=="})
        trust(own, key=OTHER)

        found = own.must("POST", "/v1/keyring/look", {"authority": "github://acme/mail/connectors/imap"})
        owner = own.ask("POST", "/v1/keyring/look", {"authority": "github://acme"})
        nobody = own.ask("POST", "/v1/keyring/look", {"authority": "gitlab://acme/none"})

    assert found == {
        "authority": "github://acme/mail",
        "key": KEY.public.fingerprint,
        "public_key": KEY.public.to_base64(),
        "source": "keys/publisher.pub of github://acme/mail",
        "trusted": False,
        "others": [OTHER.public.fingerprint],
    }
    assert "is an owner, and only repositories publish keys" in owner.body["error"]["message"]
    assert word(nobody) == "not_found"


# With an approver


def test_a_publishers_key_is_trusted_only_after_the_approver_signed(
    own_home: DaemonHome, approver: Approver, tmp_path: Path
) -> None:
    """The question shows authority, fingerprint and source; archives are refused until then."""
    answer = trust(own_home)
    assert (answer.status, answer.body["kind"]) == (202, "trusted_key")
    assert word(own_home.ask("POST", "/v1/connectors", {"path": archive(tmp_path)})) == "signature_failure"
    subject = approver.shown(own_home, answer.body["approval_id"])["subject"]

    settled = approver.agree(own_home, answer)

    assert (subject["authority"], subject["new"], subject["source"]) == (
        "github://acme",
        KEY.public.fingerprint,
        "handed in, said to be from a test",
    )
    assert settled["status"] == "completed"
    asked = own_home.ask("POST", "/v1/connectors", {"path": archive(tmp_path)})
    about = approver.shown(own_home, asked.body["approval_id"])["subject"]
    assert about["signature"] == f"verified: {KEY.public.fingerprint}, trusted for github://acme"
    assert approver.agree(own_home, asked)["status"] == "completed"
    assert trust(own_home).body["new"] is False


@pytest.mark.abuse_case("B3")
def test_a_key_written_into_the_keyring_file_by_hand_is_not_trusted(
    own_home: DaemonHome, approver: Approver, tmp_path: Path
) -> None:
    """An approved key of the same authority loses its trust too: an authority's keys are approved together."""
    approver.agree(own_home, trust(own_home))
    file = KeyringFile(own_home.path / "keyring.json")
    file.write(file.read().trusting(Authority.parse("github://acme"), OTHER.public))

    for key, version in ((OTHER, "1.0.0"), (KEY, "1.1.0")):
        assert (
            word(own_home.ask("POST", "/v1/connectors", {"path": archive(tmp_path, version, key=key)}))
            == "signature_failure"
        )
    assert own_home.must("GET", "/v1/keyring")["keyring"] == []
    file.write(Keyring().trusting(Authority.parse("github://acme"), KEY.public))
    assert own_home.ask("POST", "/v1/connectors", {"path": archive(tmp_path, "1.1.0")}).status == 202


def test_revoking_one_key_of_a_publisher_keeps_the_publishers_remaining_keys_trusted(
    own_home: DaemonHome, approver: Approver, tmp_path: Path
) -> None:
    """A revocation needs no consent; revoking the last key ends the authority's consent."""
    for key in (KEY, OTHER):
        approver.agree(own_home, trust(own_home, key=key))
    own_home.must("POST", "/v1/keyring/revoke", {"authority": "github://acme", "key": KEY.public.fingerprint})

    assert own_home.ask("POST", "/v1/connectors", {"path": archive(tmp_path, key=OTHER)}).status == 202
    assert word(own_home.ask("POST", "/v1/connectors", {"path": archive(tmp_path, "1.1.0")})) == "signature_failure"
    own_home.must("POST", "/v1/keyring/revoke", {"authority": "github://acme"})
    assert own_home.must("GET", "/v1/keyring")["keyring"] == []
    assert trust(own_home).status == 202


@pytest.mark.abuse_case("B3")
def test_approving_a_publishers_key_fails_if_the_keyring_changed_after_the_question(
    own_home: DaemonHome, approver: Approver
) -> None:
    """Two questions are pending: approving the first changes the keyring that the second was about."""
    first, second = trust(own_home), trust(own_home, key=OTHER)
    assert approver.agree(own_home, first)["status"] == "completed"

    settled = approver.agree(own_home, second)

    assert (settled["status"], settled["error"]["class"]) == ("failed", "hash_mismatch")
    assert approver.agree(own_home, trust(own_home, key=OTHER))["status"] == "completed"


@pytest.mark.abuse_case("B3")
def test_an_archives_signature_is_checked_again_on_installation(
    own_home: DaemonHome, approver: Approver, tmp_path: Path
) -> None:
    """The key is revoked between the question and the approval, so nothing is installed."""
    approver.agree(own_home, trust(own_home))
    asked = own_home.ask("POST", "/v1/connectors", {"path": archive(tmp_path)})
    own_home.must("POST", "/v1/keyring/revoke", {"authority": "github://acme"})

    settled = approver.agree(own_home, asked)

    assert (settled["status"], settled["error"]["class"]) == ("failed", "signature_failure")
    assert "1.0.0" not in [
        entry["version"] for entry in own_home.must("GET", "/v1/connectors")["connectors"] if "acme" in entry["name"]
    ]


def test_existing_publisher_keys_are_approved_with_the_approvers_enrollment(
    own: DaemonHome, approver: Approver, tmp_path: Path
) -> None:
    """The inventory that is shown and signed at enrollment contains them."""
    own.unlock()
    trust(own)
    inventory = own.must("GET", "/v1/approver/inventory")["inventory"]
    approver.appoint(own)

    assert inventory["keys"] == [{"name": "github://acme", "keys": [KEY.public.fingerprint]}]
    assert own.ask("POST", "/v1/connectors", {"path": archive(tmp_path)}).status == 202
