"""Sigstore signatures: published bundles, checked against the identity that the name implies."""

from __future__ import annotations

import base64
import datetime
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from hypothesis import given
from hypothesis import strategies as st

from aileron.config import Settings
from aileron.extras import install_command
from aileron.model.failure import AileronError, FailureClass
from aileron.model.names import Fqn
from aileron.model.secret import Secret
from aileron.registry import sigstore
from aileron.registry.keyring import Authority, Keyring, Signed, check_signature
from aileron.registry.signatures import SigningKey
from aileron.registry.sigstore import MAX_BUNDLE_BYTES, PUBLIC_FORGES, BundleError, check_bundle, public_forges

PUBLISHED = Path(__file__).parent / "sigstore"  # its README says where each of them is from
GITLAB = (PUBLISHED / "gitlab-publish.sigstore.json").read_bytes()
GITLAB_ARTIFACT = base64.b64decode((PUBLISHED / "gitlab-publish.base64").read_text(encoding="ascii"))
GITLAB_NAME = "gitlab://facutuesca/gitlab-oidc-project"
MESSAGE = (PUBLISHED / "github-message.sigstore.json").read_bytes()
MESSAGE_DIGEST = bytes.fromhex("c4e92e9ecc828bef2aa7dba1de8ac983511f7532a0df11c770d39099a25cf201")
MESSAGE_NAME = "github://trailofbits/rfc8785.py"
PROVENANCE = (PUBLISHED / "github-provenance.sigstore.json").read_bytes()
PROVENANCE_DIGEST = bytes.fromhex("9bb1add04b1b4e182be6b0b80931593f7a291eb49d69b4fd728a5d4cbcdc4bd3")
PROVENANCE_NAME = "github://trailofbits/pypi-attestations"


def signed(
    name: str, artifact: bytes = GITLAB_ARTIFACT, bundle: bytes = GITLAB, public: frozenset[str] = PUBLIC_FORGES
) -> Signed:
    """Return the result of checking the signature under that name."""
    return check_signature(Fqn.parse(name), artifact, bundle, Keyring(), public)


def refusal(attempt: Callable[[], object]) -> str:
    """Return the message with which the attempt is refused as a signature failure."""
    with pytest.raises(AileronError) as refused:
        attempt()
    assert refused.value.failure.failure_class is FailureClass.SIGNATURE_FAILURE
    return refused.value.failure.message


def problem(name: str, digest: bytes, bundle: bytes) -> str:
    """Return why a bundle is not accepted."""
    with pytest.raises(BundleError) as refused:
        check_bundle(Fqn.parse(name), digest, bundle, PUBLIC_FORGES)
    return str(refused.value)


def changed(bundle: bytes, *path: str | int, value: Any) -> bytes:
    """Return the bundle with another value at one place."""
    document = json.loads(bundle)
    inner = document
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = value
    return json.dumps(document).encode()


# Whose it is


def test_a_bundle_by_a_workflow_of_the_repository_is_verified() -> None:
    """The name may be anything in that repository, and the result names the workflow."""
    found = signed(f"{GITLAB_NAME}/connectors/mail")

    assert found.status == "verified"
    assert found.by == ("Sigstore https://gitlab.com/facutuesca/gitlab-oidc-project//.gitlab-ci.yml@refs/heads/main")
    assert found.trusted_for == GITLAB_NAME


def test_a_bundle_is_reported_as_not_signed_by_the_key_that_is_trusted_for_its_publisher() -> None:
    """Anybody who can change the repository can have its workflow sign, without having that key."""
    key = SigningKey(Secret(b"k" * 32)).public
    keyring = Keyring().trusting(Authority.parse("gitlab://facutuesca"), key)
    name = Fqn.parse(GITLAB_NAME)
    found = check_signature(name, GITLAB_ARTIFACT, GITLAB, keyring, PUBLIC_FORGES)
    other = Keyring().trusting(Authority.parse("gitlab://other"), key)

    assert (found.status, found.expected) == ("verified", True)
    assert str(found.by).endswith("@refs/heads/main (NOT a key of its publisher that you trust)")
    assert check_signature(name, GITLAB_ARTIFACT, GITLAB, other, PUBLIC_FORGES) == signed(GITLAB_NAME)


@pytest.mark.parametrize(
    ("name", "digest", "bundle", "workflow"),
    [
        (MESSAGE_NAME, MESSAGE_DIGEST, MESSAGE, "rfc8785.py/.github/workflows/release.yml@refs/tags/v0.1.2"),
        (
            PROVENANCE_NAME,
            PROVENANCE_DIGEST,
            PROVENANCE,
            "pypi-attestations/.github/workflows/release.yml@refs/tags/v0.0.19",
        ),
    ],
    ids=["message", "provenance"],
)
def test_bundles_over_bytes_and_bundles_over_a_statement_are_both_read(
    name: str, digest: bytes, bundle: bytes, workflow: str
) -> None:
    """A bundle holds a signature over the bytes, or a statement about their digest."""
    found = check_bundle(Fqn.parse(name), digest, bundle, PUBLIC_FORGES)

    assert found == f"https://github.com/trailofbits/{workflow}"


@pytest.mark.parametrize(
    "name",
    [
        "github://trailofbits/pypi-attestations-evil",
        "github://trailofbits/pypi-attestation",
        "github://trailofbits/pypi_attestations",
        "github://trailofbits/pypi-attestationsX",
        "github://trailofbits/rfc8785.py",
        "github://trailofbits-evil/pypi-attestations",
        "github://trailofbit/pypi-attestations",
        "github://evil/trailofbits/pypi-attestations",
        "github://Trailofbits/pypi-attestations",
        "github://trailofbits/Pypi-Attestations",
    ],
)
def test_a_bundle_signed_for_another_repository_is_refused(name: str) -> None:
    """The whole name is compared: the same owner, another, a common prefix and another case are all tried."""
    said = problem(name, PROVENANCE_DIGEST, PROVENANCE)

    assert "was signed by 'https://github.com/trailofbits/pypi-attestations/.github/workflows/release.yml" in said
    assert f"not a workflow of https://github.com/{'/'.join(Fqn.parse(name).path[:2])} for a branch" in said


def test_a_dot_in_a_repository_name_matches_only_a_dot() -> None:
    """A name that looks like a pattern matches itself alone."""
    assert "is not a workflow of" in problem("github://trailofbits/rfc8785Xpy", MESSAGE_DIGEST, MESSAGE)
    assert check_bundle(Fqn.parse(MESSAGE_NAME), MESSAGE_DIGEST, MESSAGE, PUBLIC_FORGES)


def test_a_bundle_signed_for_the_same_path_on_another_forge_is_refused() -> None:
    """The certificate names the forge that vouched for the signer, and each forge is another issuer."""
    said = problem("gitlab://trailofbits/pypi-attestations", PROVENANCE_DIGEST, PROVENANCE)
    assert "vouched for by 'https://token.actions.githubusercontent.com', and not by 'https://gitlab.com'" in said
    assert "vouched for by 'https://gitlab.com'" in refusal(
        lambda: signed(GITLAB_NAME.replace("gitlab://", "github://"))
    )


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({}, None),
        ({"issuer": "https://token.actions.githubusercontent.com.evil.example"}, "vouched for by"),
        ({"issuer": "https://gitlab.com"}, "vouched for by"),
        ({"repository": "https://github.com/evil/mail"}, "ran for 'https://github.com/evil/mail'"),
        ({"repository": "https://github.com/acme/mail-evil"}, "ran for"),
        ({"workflow": "/.github/workflows/release.yml@refs/pull/7/merge"}, "for a branch or a tag"),
        ({"workflow": "/.github/workflows/release.yml@main"}, "for a branch or a tag"),
        ({"workflow": "/.github/workflows/release.yml"}, "for a branch or a tag"),
        ({"workflow": "/.github/workflows/a/../../x@refs/heads/main"}, "for a branch or a tag"),
        ({"workflow": "/.github/other/release.yml@refs/heads/main"}, "for a branch or a tag"),
        ({"workflow": "-evil/.github/workflows/release.yml@refs/heads/main"}, "for a branch or a tag"),
        ({"workflow": "/.github/workflows/release.yml@refs/heads/ma\u202ein"}, "for a branch or a tag"),
        ({"workflow": "/.github/workflows/release.yml@refs/heads/main\n"}, "for a branch or a tag"),
        ({"workflow": "/.github/workflows/re\x1b[2Klease.yml@refs/heads/main"}, "for a branch or a tag"),
        ({"workflow": "/.github/workflows/release.yml@refs/heads/x@refs/heads/main"}, None),
    ],
)
def test_every_part_of_the_identity_in_a_certificate_is_compared(changes: dict[str, str], reason: str | None) -> None:
    """Issuer, workflow and the repository of the run must match: a reusable workflow (`workflow_call`) runs for others too."""
    expected = sigstore.identity_of(Fqn.parse("github://acme/mail/imap"), PUBLIC_FORGES)
    said = {
        "issuer": "https://token.actions.githubusercontent.com",
        "repository": "https://github.com/acme/mail",
        "workflow": "/.github/workflows/release.yml@refs/heads/main",
        **changes,
    }
    found = sigstore.Signer(said["issuer"], said["repository"], f"https://github.com/acme/mail{said['workflow']}")
    if reason is None:
        sigstore.check_identity(found, expected)
        return
    with pytest.raises(BundleError, match=reason) as refused:
        sigstore.check_identity(found, expected)
    assert str(refused.value).isprintable()


WORKFLOW = "https://github.com/acme/mail/.github/workflows/release.yml@refs/tags/v1.0.0"
ISSUER, SOURCE = "1.3.6.1.4.1.57264.1.8", "1.3.6.1.4.1.57264.1.12"
SAYING = {ISSUER: b"\x0c\x06issuer", SOURCE: b"\x0c\x06source"}
"""Certificate extensions, each a DER UTF8String."""


def certificate(names: list[x509.GeneralName], extensions: dict[str, bytes]) -> x509.Certificate:
    """Return a self-signed certificate with these names and extensions; no authority vouches for it."""
    key, now = ec.generate_private_key(ec.SECP256R1()), datetime.datetime(2026, 1, 1)
    builder = x509.CertificateBuilder(x509.Name([]), x509.Name([]), key.public_key(), 1, now, now).add_extension(
        x509.SubjectAlternativeName(names), critical=True
    )
    for oid, value in extensions.items():
        unknown = x509.UnrecognizedExtension(x509.ObjectIdentifier(oid), value)
        builder = builder.add_extension(unknown, critical=False)
    return builder.sign(key, hashes.SHA256())


def test_a_certificate_names_one_workflow_and_the_repository_it_ran_for() -> None:
    """Several names, a mail address, no repository, or bytes behind the value are refused."""
    workflow, other = x509.UniformResourceIdentifier(WORKFLOW), x509.UniformResourceIdentifier("https://evil.example")

    def signer(names: list[x509.GeneralName], extensions: dict[str, bytes]) -> object:
        reading = sigstore.Reading()
        reading.verify(certificate(names, extensions))
        return reading.signer()

    assert signer([workflow], SAYING) == ("issuer", "source", WORKFLOW)
    unknown: tuple[list[x509.GeneralName], ...] = (
        [workflow, other],
        [other, workflow],
        [x509.RFC822Name("a@acme.example")],
        [x509.DNSName("a.example")],
    )
    for names in unknown:
        with pytest.raises(BundleError, match="not signed by a workflow"):
            signer(names, SAYING)
    for absent in SAYING:
        with pytest.raises(BundleError, match="does not identify the signer completely"):
            signer([workflow], {oid: value for oid, value in SAYING.items() if oid != absent})
    with pytest.raises(ValueError, match="ExtraData"):
        signer([workflow], {**SAYING, SOURCE: SAYING[SOURCE] + b"x"})


# Where there is no such identity


def test_only_public_forges_have_a_sigstore_identity() -> None:
    """A private server, a Hub and an unnamed forge are refused with the reason."""
    assert "is a server of your own here (forges.gitlab.url)" in refusal(
        lambda: signed(GITLAB_NAME, public=frozenset({"github"}))
    )
    assert "is a server of your own here" in refusal(lambda: signed(GITLAB_NAME, public=frozenset()))
    assert "hub:// has no identity at Sigstore" in refusal(lambda: signed("hub://facutuesca/gitlab-oidc-project"))
    assert signed(GITLAB_NAME, public=frozenset({"gitlab"})).status == "verified"


def test_the_approved_settings_decide_which_forges_are_public() -> None:
    """A forge is public if its approved URL is the public one; a forge without a setting is not."""
    in_force = Settings().consented()

    assert public_forges(in_force) == PUBLIC_FORGES
    assert public_forges({**in_force, "forges.github.url": "https://git.acme.example"}) == {"gitlab"}
    assert public_forges({**in_force, "forges.gitlab.url": "https://gitlab.com.evil.example"}) == {"github"}
    assert public_forges({}) == frozenset()


# Other bytes


def test_one_changed_byte_of_the_artifact_invalidates_a_bundle() -> None:
    """This holds for a statement and for a message signature."""
    other = bytearray(GITLAB_ARTIFACT)
    other[100] ^= 1
    assert "its statement is about other bytes" in refusal(lambda: signed(GITLAB_NAME, bytes(other)))
    assert "message digest mismatch" in problem(MESSAGE_NAME, PROVENANCE_DIGEST, MESSAGE)
    unsaid = changed(MESSAGE, "messageSignature", "messageDigest", value=None)
    assert "Signature is invalid" in problem(MESSAGE_NAME, PROVENANCE_DIGEST, unsaid)


@pytest.mark.parametrize(
    ("bundle", "path"),
    [
        (PROVENANCE, ("dsseEnvelope", "payload")),
        (PROVENANCE, ("dsseEnvelope", "signatures", 0, "sig")),
        (PROVENANCE, ("verificationMaterial", "certificate", "rawBytes")),
        (PROVENANCE, ("verificationMaterial", "tlogEntries", 0, "canonicalizedBody")),
        (PROVENANCE, ("verificationMaterial", "tlogEntries", 0, "inclusionPromise", "signedEntryTimestamp")),
        (PROVENANCE, ("verificationMaterial", "tlogEntries", 0, "inclusionProof", "rootHash")),
        (PROVENANCE, ("verificationMaterial", "tlogEntries", 0, "inclusionProof", "hashes", 3)),
        (MESSAGE, ("messageSignature", "signature")),
        (MESSAGE, ("verificationMaterial", "x509CertificateChain", "certificates", 0, "rawBytes")),
        (MESSAGE, ("verificationMaterial", "tlogEntries", 0, "canonicalizedBody")),
    ],
    ids=lambda value: ".".join(map(str, value)) if isinstance(value, tuple) else "",
)
@pytest.mark.parametrize("at", [0.2, 0.5, 0.95])
def test_one_changed_byte_of_a_bundle_invalidates_it(bundle: bytes, path: tuple[str | int, ...], at: float) -> None:
    """The byte is in the signed content, the certificate, the log entry, or its proofs."""
    value: Any = json.loads(bundle)
    for key in path:
        value = value[key]
    raw = bytearray(base64.b64decode(value))
    raw[int(len(raw) * at)] ^= 1
    damaged = changed(bundle, *path, value=base64.b64encode(raw).decode())
    name, digest = (PROVENANCE_NAME, PROVENANCE_DIGEST) if bundle is PROVENANCE else (MESSAGE_NAME, MESSAGE_DIGEST)

    assert "its bundle is not valid" in problem(name, digest, damaged)


def test_a_log_entry_from_another_bundle_is_refused() -> None:
    """The entry is good in itself, but about other bytes (CVE-2022-36056)."""
    other = json.loads(MESSAGE)["verificationMaterial"]["tlogEntries"]
    swapped = changed(PROVENANCE, "verificationMaterial", "tlogEntries", value=other)

    assert "its bundle is not valid" in problem(PROVENANCE_NAME, PROVENANCE_DIGEST, swapped)


@pytest.mark.parametrize(
    "bundle",
    [
        b"{",
        b"{}",
        b'{"mediaType": "application/vnd.dev.sigstore.bundle.v0.3+json"}',
        b'{"mediaType": "application/vnd.dev.sigstore.bundle.v9+json"}',
        b'{"a": ' + b"[" * 20_000 + b"]" * 20_000 + b"}",
        b'{"a": "\xff"}',
    ],
    ids=["cut short", "empty", "no material", "another version", "deep", "not UTF-8"],
)
def test_an_invalid_bundle_is_refused(bundle: bytes) -> None:
    """The failure is that of a bad signature, in words that a terminal can show."""
    assert "its bundle is not valid: " in refusal(lambda: signed(GITLAB_NAME, bundle=bundle))


def test_a_signature_that_is_neither_ed25519_nor_a_bundle_is_refused() -> None:
    """A bundle that is too large is not parsed."""
    assert "expected 64 for Ed25519, or JSON for Sigstore" in refusal(lambda: signed(GITLAB_NAME, bundle=b"-----BEGIN"))
    large = GITLAB + b" " * MAX_BUNDLE_BYTES
    assert f"a bundle has at most {MAX_BUNDLE_BYTES}" in refusal(lambda: signed(GITLAB_NAME, bundle=large))


@given(st.integers(0, len(PROVENANCE) - 1), st.integers(1, 255), st.booleans())
def test_a_changed_bundle_is_equivalent_or_refused(at: int, flip: int, is_cut: bool) -> None:
    """A byte is changed or the rest cut off: BundleError is the only exception, unless the change only respells the bundle."""
    mutated = bytearray(PROVENANCE[:at] if is_cut else PROVENANCE)
    if not is_cut:
        mutated[at] ^= flip
    try:
        found = check_bundle(Fqn.parse(PROVENANCE_NAME), PROVENANCE_DIGEST, bytes(mutated), PUBLIC_FORGES)
    except BundleError as error:
        found = str(error)

    assert found.isprintable()
    assert found.startswith("its bundle is not valid: ") or found.endswith("/release.yml@refs/tags/v0.0.19")


# What a statement says


@pytest.mark.parametrize(
    ("kind", "statement", "reason"),
    [
        ("application/vnd.in-toto+json", {}, None),
        ("text/plain", {}, "it signs a 'text/plain'"),
        ("application/vnd.in-toto+json", {"_type": "https://in-toto.io/Statement/v9"}, "not an in-toto statement"),
        ("application/vnd.in-toto+json", {"predicateType": "https://in-toto.io/attestation/vulns"}, "who built these"),
        ("application/vnd.in-toto+json", {"subject": []}, "about other bytes"),
        ("application/vnd.in-toto+json", {"subject": [{"digest": {"sha512": "00" * 32}}]}, "about other bytes"),
        ("application/vnd.in-toto+json", {"subject": [{"digest": {"sha256": "01" * 32}}]}, "about other bytes"),
    ],
)
def test_only_a_provenance_statement_about_these_bytes_is_accepted(
    kind: str, statement: dict[str, Any], reason: str | None
) -> None:
    """A vulnerability scan names the same bytes, but not who built them."""
    payload = {
        "_type": "https://in-toto.io/Statement/v1",
        "subject": [{"digest": {"sha256": "02" * 32}}, {"name": "it", "digest": {"sha256": "00" * 32}}],
        "predicateType": "https://slsa.dev/provenance/v1",
        **statement,
    }
    if reason is None:
        sigstore.check_statement(kind, json.dumps(payload).encode(), bytes(32))
        return
    with pytest.raises(BundleError, match=reason):
        sigstore.check_statement(kind, json.dumps(payload).encode(), bytes(32))


# What it stands on


PROGRAM = """
import base64, pathlib, sys
sys.path.insert(0, {root!r})
{before}
from aileron.model.failure import AileronError
from aileron.model.names import Fqn
from aileron.registry.keyring import Keyring, check_signature
assert not {{"sigstore.models", "tuf", "pydantic"}} & sys.modules.keys(), "too early"
folder = pathlib.Path({folder!r})
artifact = base64.b64decode((folder / "gitlab-publish.base64").read_text())
bundle = (folder / "gitlab-publish.sigstore.json").read_bytes()
try:
    print(check_signature(Fqn.parse({name!r}), artifact, bundle, Keyring(), frozenset({{"gitlab"}})).status)
except AileronError as error:
    print(error.failure.failure_class.value, error.failure.message)
"""
WATCHED = """
REACHING = {"socket.connect", "socket.getaddrinfo", "socket.gethostbyname", "socket.sendto"}  # urllib3 binds one, to see

def watch(event, arguments):
    is_write = event == "open" and isinstance(arguments[2], int) and arguments[2] & 0o3
    if event in REACHING or event in ("os.mkdir", "os.rename") or is_write:
        print("DID", event, arguments[:2])
sys.addaudithook(watch)
"""

BELIEVING = """
import logging
from aileron.registry import sigstore as ours
logging.disable()
def believing():
    from sigstore.verify import Verifier
    return Verifier.production(offline=True)
ours.trusted_verifier = believing
"""
"""The library's own behaviour: it believes the roots in the home."""


def run_alone(before: str, **environment: str) -> str:
    """Return what a separate process says of the bundle."""
    program = PROGRAM.format(
        root=str(Path(__file__).resolve().parents[2]), folder=str(PUBLISHED), name=GITLAB_NAME, before=before
    )
    done = subprocess.run(
        [sys.executable, "-B", "-c", program],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_checking_a_bundle_uses_no_network_and_no_cached_file_of_the_user(tmp_path: Path) -> None:
    """The check connects nowhere and writes no file. Planted roots in the library's own folder are not read."""
    from importlib import resources

    planted = tmp_path / "sigstore-python" / "tuf" / "https%3A%2F%2Ftuf-repo-cdn.sigstore.dev"
    planted.mkdir(parents=True)
    staging = resources.files("sigstore").joinpath("_store", "https%3A%2F%2Ftuf-repo-cdn.sigstage.dev")
    for name in ("trusted_root.json", "signing_config.v0.2.json"):
        (planted / name).write_bytes(staging.joinpath(name).read_bytes())
    kept = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}

    planted_in = {"HOME": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path)}

    assert run_alone(WATCHED, **planted_in) == "verified"
    assert "its bundle is not valid" in run_alone(BELIEVING, **planted_in)
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == kept


def test_a_sigstore_bundle_is_refused_with_the_fix_if_the_optional_package_is_missing() -> None:
    """A signature that cannot be checked stops an install, as an invalid one does."""
    said = run_alone("sys.modules['sigstore'] = None")

    assert said.startswith("signature_failure")
    assert install_command("sigstore") in said
    assert run_alone("") == "verified"
