"""AWS keys in the vault: as text with an access key ID, or as the JSON that `credential_process` programs print."""

from __future__ import annotations

import datetime
import json

import pytest

from aileron.model.aws_key import AwsKey
from aileron.model.credential import Reach
from aileron.model.failure import FailureClass
from aileron.model.names import BindingName
from aileron.model.secret import Secret
from aileron.vault import Binding, Vault
from tests.vault.conftest import CONNECTOR, refused

SECRET = b"wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY"
PEM = b"-----BEGIN PRIVATE KEY-----\nMC4CAQAwBQYDK2VwBCIEIA==\n-----END PRIVATE KEY-----\n"


def document(**more: object) -> bytes:
    """Return a document on several lines, as the AWS CLI prints it."""
    text: dict[str, object] = {"Version": 1, "AccessKeyId": "ASIAEXAMPLEEXAMPLE", "SecretAccessKey": SECRET.decode()}
    return json.dumps(text | {"SessionToken": "IQoJb3JpZ2luX2VjEXAMPLE=="} | more, indent=4).encode()


def bound(username: str | None) -> Binding:
    """Return a binding to S3 in one region."""
    reach = Reach(hosts=("s3.us-east-1.amazonaws.com:443",), wire="aws_sigv4 us-east-1 s3")
    return Binding(
        BindingName("aws_sigv4", "s3", "own"), CONNECTOR, "aws_sigv4", username, "s3-own", 1_700_000_000.0, reach
    )


@pytest.mark.parametrize(
    ("username", "value"),
    [("AKIAEXAMPLEEXAMPLE", SECRET), (None, document()), ("ASIAEXAMPLEEXAMPLE", document()),
     (None, document(Expiration="2099-01-01T00:00:00Z")),
     (None, document(Expiration="2025-07-01T00:00:00Z")), ("minio-admin", b"minio-secret"),
     (None, document().replace(b"\n", b""))],
    ids=["text", "json", "json-and-name", "not-expired", "not-by-the-vaults-clock", "of-another-service", "on-one-line"],
)  # fmt: skip
def test_an_aws_key_that_can_sign_is_bound(vault: Vault, username: str | None, value: bytes) -> None:
    """The key is plain text with an access key ID, or a JSON document that has both, on one or several lines."""
    vault.set_secret("s3-own", Secret(value))
    vault.bind(bound(username))
    _binding, lent = vault.reveal(bound(username).name)
    assert AwsKey.parse(username, lent).secrets[0] in {SECRET, b"minio-secret"}


@pytest.mark.parametrize(
    ("username", "value", "says"),
    [
        (None, SECRET, "no access key ID: give it as the user name"),
        ("ann@example.test", SECRET, "an access key ID that is none"),
        ("ASIAEXAMPLEEXAMPLE", SECRET, "without its session token"),
        ("AKIAEXAMPLEEXAMPLE", b"AKIAEXAMPLEEXAMPLE", "looks like an access key ID"),
        ("AKIAEXAMPLEEXAMPLE", PEM, "private key or a certificate"),
        ("AKIAEXAMPLEEXAMPLE", b"two words here", "a blank"),
        ("AKIAEXAMPLEANOTHER", document(), "another AccessKeyId"),
        (None, document(SessionToken=None), "without its SessionToken"),
        (None, document(Version=2), "a Version other than 1"),
        (None, document(Expiration="2023-01-01T00:00:00Z"), "expired at 2023-01-01 00:00 UTC"),
        (None, b'{\n"Credentials": {}\n}', "needs AccessKeyId and SecretAccessKey"),
    ],
    ids=["no-id", "bad-id", "no-token", "swapped", "pem", "blanks", "other-id", "no-token-in-json", "version", "expired",
         "wrapped"],
)  # fmt: skip
def test_an_aws_key_that_cannot_sign_is_not_bound(vault: Vault, username: str | None, value: bytes, says: str) -> None:
    """The message says what is wrong and what to do, and quotes no part of the key."""
    vault.set_secret("s3-own", Secret(value))
    with refused(FailureClass.BAD_INPUT) as refusal:
        vault.bind(bound(username))
    assert says in refusal.message
    assert "aileron secret set s3-own" in refusal.message
    assert SECRET.decode() not in refusal.message


def test_a_bound_key_cannot_be_replaced_by_a_key_that_cannot_sign(vault: Vault) -> None:
    """The old key stays; another key that can sign is accepted."""
    vault.set_secret("s3-own", Secret(document()))
    vault.bind(bound(None))
    with refused(FailureClass.BAD_INPUT):
        vault.set_secret("s3-own", Secret(PEM))
    _binding, lent = vault.reveal(bound(None).name)
    assert lent.reveal() == document()
    vault.set_secret("s3-own", Secret(document(AccessKeyId="ASIAEXAMPLEANOTHER")))


def test_the_repr_of_an_aws_key_shows_no_secret() -> None:
    """Both the secret key and the session token are left out."""
    key = AwsKey.parse(None, Secret(document(Expiration="2099-01-01T00:00:00+00:00")))
    assert SECRET.decode() not in repr(key)
    assert "IQoJ" not in repr(key)
    assert key.expires_at == datetime.datetime(2099, 1, 1, tzinfo=datetime.UTC)
