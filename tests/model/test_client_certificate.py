"""A stored client certificate: the forms that work, in any order, and the fix for each that does not."""

from __future__ import annotations

import datetime
from pathlib import Path

import pytest
import trustme
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import dsa, ed25519, rsa
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    KeySerializationEncryption,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
)
from hypothesis import example, given
from hypothesis import strategies as st

from aileron.model.client_certificate import CertificateError, ClientCertificate
from aileron.model.pem import pem_blocks, pem_without_text
from tests.support.client_certificates import ClientAuthority

NO_PASSPHRASE = NoEncryption()
LABELS = st.sampled_from(["CERTIFICATE", "PRIVATE KEY", "EC PARAMETERS", "RSA PRIVATE KEY", "X509 CRL"])
BODIES = st.lists(st.text("ABCxyz019+/=", min_size=1, max_size=64), min_size=1, max_size=4)
LINES = [f"-----{end} {label}-----".encode() for end in ("BEGIN", "END") for label in ("CERTIFICATE", "PRIVATE KEY")]
LINES += [b"AAAA", b"MIIB", b""]
TEXTS = st.lists(st.text(st.characters(codec="ascii", exclude_characters="-"), max_size=40), max_size=3)


@pytest.fixture(scope="module")
def clients(tmp_path_factory: pytest.TempPathFactory) -> ClientAuthority:
    """Return an authority that issues client certificates through an intermediate."""
    return ClientAuthority(tmp_path_factory.mktemp("clients"), has_intermediate=True)


@pytest.fixture(scope="module")
def issued(clients: ClientAuthority) -> list[bytes]:
    """Return the PEM blocks of the client's certificate, its issuer's certificate and the private key."""
    return [text for _, text in pem_blocks(clients.issue())]


def private_key(pem: bytes, form: PrivateFormat, encryption: KeySerializationEncryption = NO_PASSPHRASE) -> bytes:
    """Return the key in another form."""
    return load_pem_private_key(pem, None).private_bytes(Encoding.PEM, form, encryption)


def refusal(stored: bytes) -> str:
    """Return the refusal: what is wrong, and what mends it. Check that it quotes no line of the value."""
    with pytest.raises(CertificateError) as caught:
        ClientCertificate(stored)
    assert not any(len(line) > 30 and line.decode() in str(caught.value) for line in stored.splitlines())
    return str(caught.value)


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 2, 0), (1, 0, 2)])
def test_the_pem_blocks_may_be_in_any_order(issued: list[bytes], order: tuple[int, ...]) -> None:
    """The certificate that matches the key is the client's and is put first; the key is put last."""
    certificate = ClientCertificate(b"".join(issued[number] for number in order))

    assert certificate.pem == b"".join(issued)
    assert "CN=mira@example.test" in certificate.facts.subject
    assert certificate.facts.issuer == x509.load_pem_x509_certificate(issued[1]).subject.rfc4514_string()
    assert certificate.facts.valid_until.endswith("Z")
    assert "PRIVATE" not in repr(certificate)


def test_an_unrelated_certificate_is_left_out_of_the_chain(issued: list[bytes], tmp_path: Path) -> None:
    """A certificate that issued none of the others is not sent."""
    other = pem_blocks(ClientAuthority(tmp_path).issue())[0].text
    assert ClientCertificate(other + b"".join(issued)).pem == b"".join(issued)


@pytest.mark.parametrize("form", [PrivateFormat.PKCS8, PrivateFormat.TraditionalOpenSSL])
def test_every_key_format_that_openssl_writes_is_accepted(issued: list[bytes], form: PrivateFormat) -> None:
    """The key may follow the parameters that `openssl ecparam -genkey` writes."""
    parameters = b"-----BEGIN EC PARAMETERS-----\nBggqhkjOPQMBBw==\n-----END EC PARAMETERS-----\n"
    assert ClientCertificate(issued[0] + parameters + private_key(issued[2], form)).ends_at


def test_an_ed25519_key_is_accepted() -> None:
    """The certificate is self-signed and has an alternative name instead of a subject, as SPIFFE issues them."""
    key = ed25519.Ed25519PrivateKey.generate()
    now = datetime.datetime.now(datetime.UTC)
    uri = x509.UniformResourceIdentifier("spiffe://example.test/mira")
    made = (
        x509.CertificateBuilder(x509.Name([]), x509.Name([]), key.public_key(), 1, now, now + datetime.timedelta(1))
        .add_extension(x509.SubjectAlternativeName([uri]), critical=True)
        .sign(key, None)
    )
    key_pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NO_PASSPHRASE)
    assert ClientCertificate(made.public_bytes(Encoding.PEM) + key_pem).facts.subject == "spiffe://example.test/mira"


def test_each_unusable_certificate_is_refused_with_the_fix(issued: list[bytes], clients: ClientAuthority) -> None:
    """Each defect has its own message and fix."""
    client, issuer, key = issued
    other = pem_blocks(clients.issue("noor@example.test"))[2].text
    secret = BestAvailableEncryption(b"passphrase")
    public = load_pem_private_key(key, None).public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    subject = x509.CertificateSigningRequestBuilder(x509.Name([]))
    request = subject.sign(load_pem_private_key(key, None), SHA256()).public_bytes(Encoding.PEM)  # type: ignore[arg-type]
    weak = rsa.generate_private_key(65537, 1024)
    cat, pkey = "cat client.crt client.key > client.pem", "openssl pkey -in client.key -out plain.key"
    for stored, what, fix in (
        (b"", "has no private key", cat),
        (client + issuer, "has no private key", cat),
        (client + public, "has a public key, and no private key", cat),
        (key, "has no certificate", cat),
        (request + key, "has a certificate request, and no certificate", cat),
        (client + key + other, "has 2 private keys", "leave only the one"),
        (client + other, "belongs to none of its certificates", "openssl x509 -in client.crt -noout -pubkey"),
        (issuer + key, "belongs to none of its certificates", "openssl pkey -in client.key -pubout"),
        (client + private_key(key, PrivateFormat.PKCS8, secret), "has a private key with a passphrase", pkey),
        (
            client + private_key(key, PrivateFormat.TraditionalOpenSSL, secret),
            "has a private key with a passphrase",
            pkey,
        ),
        (client + private_key(key, PrivateFormat.OpenSSH), "in OpenSSH's format", "ssh-keygen -p -N '' -m PKCS8"),
        (client + dsa_key(), "has a private key that TLS does not use", "openssl genpkey -algorithm EC"),
        (client + _pem(weak), "has an RSA key of 1024 bits", "openssl genpkey -algorithm EC"),
        (client + cut(key), "has a private key that cannot be read", "openssl genpkey"),
        (cut(client) + key, "has a certificate that cannot be read", "store the file as it was issued"),
        (client * 11 + key, "has 11 certificates", "leave only its own chain"),
        (client + key + request, "has more in it", cat),
    ):
        said = refusal(stored)
        assert what in said, (what, said)
        assert fix in said


def dsa_key() -> bytes:
    """Return a DSA key, which TLS 1.3 does not support."""
    return _pem(dsa.generate_private_key(2048))


def _pem(key: rsa.RSAPrivateKey | dsa.DSAPrivateKey) -> bytes:
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NO_PASSPHRASE)


def cut(block: bytes) -> bytes:
    """Return the PEM block without its second line."""
    lines = block.splitlines(keepends=True)
    return b"".join((lines[0], *lines[2:])) if len(lines) > 3 else lines[0] + lines[-1]


@pytest.mark.parametrize(("begins_in", "ends_in", "said"), [(-9, -1, "expired on"), (1, 9, "not valid before")])
def test_a_certificate_is_refused_outside_its_dates(
    clients: ClientAuthority, begins_in: int, ends_in: int, said: str
) -> None:
    """The refusal names the date that matters; halfway between its dates the certificate is valid."""
    certificate = ClientCertificate(clients.issue_for(begins_in, ends_in))
    now = datetime.datetime.now(datetime.UTC).timestamp()

    with pytest.raises(CertificateError, match=said) as caught:
        certificate.check_valid_at(now)
    facts = certificate.facts
    assert (facts.valid_until if "expired" in said else facts.valid_from) in str(caught.value)
    certificate.check_valid_at((certificate.begins_at + certificate.ends_at) / 2)


def test_a_long_subject_is_truncated() -> None:
    """The issuer chose the subject, so its length has no other bound."""
    authority = trustme.CA()
    made = authority.issue_cert(*(f"{'a' * 60}{number}.example.test" for number in range(9)), common_name=None)
    stored = b"".join(pem.bytes() for pem in (*made.cert_chain_pems, made.private_key_pem))
    assert len(ClientCertificate(stored).facts.subject) <= 301


@given(st.lists(st.tuples(TEXTS, LABELS, BODIES), max_size=5), TEXTS, st.sampled_from(["\n", "\r\n", " \n"]))
@example([([], "CERTIFICATE", ["AAAA"])], ["-----BEGIN CERTIFICATE-----"], "\n")
def test_text_between_pem_blocks_is_ignored(
    parts: list[tuple[list[str], str, list[str]]], after: list[str], end: str
) -> None:
    """Tools print explanations there, with any line endings. Removing them a second time changes nothing."""
    lines: list[str] = []
    expected = []
    for text, label, body in parts:
        block = [f"-----BEGIN {label}-----", *body, f"-----END {label}-----"]
        lines += [*text, *block]
        expected.append((label.encode(), "".join(f"{line}\n" for line in block).encode()))
    data = "".join(line + end for line in [*lines, *after]).encode()

    assert [tuple(block) for block in pem_blocks(data)] == expected
    bare = pem_without_text(data)
    assert pem_without_text(bare) == bare
    has_certificate = any(label == b"CERTIFICATE" for label, _ in expected)
    assert bare == (b"".join(text for _, text in expected) if has_certificate else data)


@given(st.binary(max_size=400) | st.lists(st.sampled_from(LINES), max_size=12).map(b"\n".join))
def test_arbitrary_bytes_raise_only_certificate_error(data: bytes) -> None:
    """A stored value can be any bytes."""
    with pytest.raises(CertificateError):
        ClientCertificate(data)
