"""The publishers' keys that a person trusts, and what a signature is worth with them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aileron.model.failure import AileronError, FailureClass
from aileron.model.names import Fqn
from aileron.model.secret import Secret
from aileron.registry.keyring import MAX_KEYS, Authority, Keyring, KeyringFile, check_signature, trust_digest
from aileron.registry.signatures import PublicKey, SigningKey
from tests.registry.conftest import refusal_as

MAIL = Fqn.parse("github://acme/mail/connectors/imap")
REPOSITORY, OWNER = Authority.parse("github://acme/mail"), Authority.parse("github://acme")
KEY, OTHER = SigningKey(Secret(b"k" * 32)), SigningKey(Secret(b"o" * 32))
BYTES = b"connector" + b"manifest"
KEYRINGS = st.dictionaries(
    st.sampled_from([REPOSITORY, OWNER, Authority.parse("gitlab://acme"), Authority.parse("hub://a/b")]),
    st.lists(st.integers(0, 40), min_size=1, max_size=4, unique=True),
).map(
    lambda table: _keyring(
        [(authority, PublicKey(bytes([number]) * 32)) for authority, numbers in table.items() for number in numbers]
    )
)


def _keyring(pairs: list[tuple[Authority, PublicKey]]) -> Keyring:
    keyring = Keyring()
    for authority, key in pairs:
        keyring = keyring.trusting(authority, key)
    return keyring


def refusal(name: Fqn, signature: bytes, keyring: Keyring) -> str:
    """Return the message with which the signature is refused."""
    return refusal_as(FailureClass.SIGNATURE_FAILURE, check_signature, name, BYTES, signature, keyring)


# Who speaks for whom


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("github://acme", "github://acme"),
        ("gitlab://acme/mail", "gitlab://acme/mail"),
        ("hub://acme/mail/connectors/imap", "hub://acme/mail"),
    ],
)
def test_an_authority_is_an_owner_or_a_repository(text: str, meant: str) -> None:
    """A key can be trusted for one repository, or for all repositories of an owner."""
    assert str(Authority.parse(text)) == meant
    assert Authority.parse(text).is_owner is (meant.count("/") == 2)


@pytest.mark.parametrize(
    "text", ["", "acme", "github://", "github:///acme", "https://acme", "github://acme/", "github://..", "github://a b"]
)
def test_an_invalid_authority_is_refused(text: str) -> None:
    """An authority follows the naming rules of an artifact's full name."""
    with pytest.raises(ValueError, match="://"):
        Authority.parse(text)


@pytest.mark.parametrize("authority", [REPOSITORY, OWNER])
def test_a_signature_is_accepted_if_its_key_is_trusted_for_the_repository_or_its_owner(authority: Authority) -> None:
    """The result says which key signed, and for which authority it is trusted."""
    keyring = _keyring([(authority, OTHER.public), (authority, KEY.public)])

    signed = check_signature(MAIL, BYTES, KEY.sign(BYTES), keyring)

    assert (signed.status, signed.by, signed.trusted_for) == ("verified", KEY.public.fingerprint, str(authority))


@pytest.mark.abuse_case("B2")
@pytest.mark.parametrize(
    "authority",
    ["github://acme/mail2", "github://acm", "github://Acme", "gitlab://acme", "gitlab://acme/mail", "hub://acme"],
)
def test_a_signature_is_refused_if_its_key_is_trusted_only_for_another_authority(authority: str) -> None:
    """Another repository, another owner and the same name at another forge are refused, although the signature is good."""
    keyring = _keyring([(Authority.parse(authority), KEY.public)])

    assert "you trust no key of github://acme/mail" in refusal(MAIL, KEY.sign(BYTES), keyring)
    assert check_signature(MAIL, BYTES, KEY.sign(BYTES), keyring.trusting(OWNER, KEY.public)).status == "verified"


def test_a_wrong_signature_is_refused_with_what_to_do() -> None:
    """The signature is over other bytes, by another key, or truncated."""
    keyring = _keyring([(REPOSITORY, KEY.public)])

    assert "from none of the keys that you trust for it" in refusal(MAIL, KEY.sign(BYTES + b"x"), keyring)
    assert KEY.public.fingerprint in refusal(MAIL, OTHER.sign(BYTES), keyring)
    assert "has 63 bytes" in refusal(MAIL, KEY.sign(BYTES)[:63], keyring)
    assert "aileron keyring trust github://acme/mail" in refusal(MAIL, KEY.sign(BYTES), Keyring())


def test_a_signature_is_expected_only_if_a_key_is_trusted_for_the_publisher() -> None:
    """An unsigned archive is normal otherwise: the publisher may not sign at all."""
    assert check_signature(MAIL, BYTES, None, Keyring()).expected is False
    assert check_signature(MAIL, BYTES, None, _keyring([(OWNER, KEY.public)])).expected is True


def test_an_old_and_a_new_key_are_both_trusted_until_the_old_key_is_revoked() -> None:
    """Signatures by the old key are refused once it is revoked, earlier ones too."""
    both = _keyring([(OWNER, KEY.public), (OWNER, OTHER.public), (OWNER, KEY.public)])
    after = both.without(OWNER, KEY.public.fingerprint)

    assert len(both.of(OWNER)) == 2
    assert check_signature(MAIL, BYTES, KEY.sign(BYTES), both).by == KEY.public.fingerprint
    assert KEY.public.fingerprint not in refusal(MAIL, KEY.sign(BYTES), after)
    assert check_signature(MAIL, BYTES, OTHER.sign(BYTES), after).status == "verified"
    assert both.without(OWNER) == Keyring()


def test_only_trusted_keys_can_be_revoked_and_their_number_is_bounded() -> None:
    """An unknown authority or fingerprint is refused. Trusting a key again is allowed at the bound."""
    keyring = _keyring([(OWNER, PublicKey(bytes([number]) * 32)) for number in range(MAX_KEYS)])
    for authority, fingerprint in ((REPOSITORY, None), (OWNER, KEY.public.fingerprint)):
        with pytest.raises(AileronError, match="see `aileron keyring list`"):
            keyring.without(authority, fingerprint)
    with pytest.raises(AileronError, match="revoke one first"):
        keyring.trusting(OWNER, KEY.public)
    assert keyring.trusting(OWNER, PublicKey(bytes(32))) is keyring


def test_a_keyring_file_with_a_key_that_no_person_approved_makes_no_key_trusted() -> None:
    """A person approves an authority's keys as a set: if the file has one more, none of them is trusted."""
    keyring = _keyring([(OWNER, KEY.public), (REPOSITORY, KEY.public)])
    agreed = {str(authority): trust_digest(authority, keys) for authority, keys in keyring.keys.items()}
    written = keyring.trusting(OWNER, OTHER.public)

    assert keyring.agreed(agreed.get) == keyring
    assert list(written.agreed(agreed.get).keys) == [REPOSITORY]
    assert keyring.agreed(dict[str, str]().get) == Keyring()
    assert keyring.agreed({str(REPOSITORY): agreed[str(OWNER)]}.get) == Keyring()


# At rest


@given(KEYRINGS)
def test_a_keyring_is_read_back_as_written(tmp_path_factory: pytest.TempPathFactory, keyring: Keyring) -> None:
    """Only its owner may read the file."""
    path = tmp_path_factory.mktemp("home") / "keyring.json"
    KeyringFile(path).write(keyring)

    assert KeyringFile(path).read() == keyring
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_missing_keyring_file_is_an_empty_keyring_and_a_file_of_version_1_can_be_read(tmp_path: Path) -> None:
    """Version 1 had repositories only."""
    path = tmp_path / "keyring.json"
    assert KeyringFile(path).read() == Keyring()
    path.write_text(
        f'{{"version": 1, "publishers": {{"github://acme/mail": ["{KEY.public.to_base64()}"]}}}}', encoding="utf-8"
    )

    assert KeyringFile(path).read() == _keyring([(REPOSITORY, KEY.public)])


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "cannot be read as a keyring"),
        ("[]", "cannot be read as a keyring"),
        ('{"version": 3}', "version 3; this aileron reads 1 and 2"),
        ('{"version": 1, "owners": {"github://acme": []}}', "version 1"),
        ('{"version": 2, "people": {}}', "people"),
        ('{"version": 2, "owners": {"github://acme/mail": ["AAAA"]}}', "it is not an Ed25519 public key"),
        ('{"version": 2, "owners": {"github://acme/mail": ["KEY"]}}', "'github://acme/mail' is not an owner"),
        ('{"version": 2, "publishers": {"github://acme": ["KEY"]}}', "'github://acme' is not a repository"),
        ('{"version": 2, "publishers": {"github://acme/mail/x": ["KEY"]}}', "is not a repository"),
    ],
)
def test_an_invalid_keyring_file_is_refused(tmp_path: Path, text: str, problem: str) -> None:
    """The failure names the file; Aileron does not guess at its meaning."""
    path = tmp_path / "keyring.json"
    path.write_text(text.replace("KEY", KEY.public.to_base64()), encoding="utf-8")
    with pytest.raises(AileronError) as refused:
        KeyringFile(path).read()

    assert problem in refused.value.failure.message
    assert str(path) in refused.value.failure.message


def test_a_keyring_file_that_others_may_write_is_not_read(tmp_path: Path) -> None:
    """A link to a good file is not read either."""
    path = tmp_path / "keyring.json"
    KeyringFile(path).write(_keyring([(OWNER, KEY.public)]))
    os.chmod(path, 0o666)
    with pytest.raises(AileronError):
        KeyringFile(path).read()
    os.chmod(path, 0o600)
    link = tmp_path / "link.json"
    link.symlink_to(path)
    with pytest.raises(AileronError):
        KeyringFile(link).read()
    assert KeyringFile(path).read() != Keyring()
