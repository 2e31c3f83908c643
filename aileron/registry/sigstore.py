"""Sigstore signatures: made by a CI workflow of an artifact's repository, without a key of the publisher.

Such a `signature.sig` is a bundle in JSON. It holds a certificate that names the signer, valid for minutes and issued by a
public authority (Fulcio), and an entry of a public log (Rekor) that proves the time. Pure: everything is checked offline, with
the trusted roots in the `sigstore` package. That package's cache in the user's home is not read, because any program that can
write there could choose the authority. Trusts neither bundle nor artifact.

Rules
- The artifact's name determines who can sign: for github://OWNER/REPO, a workflow of exactly that repository on github.com, run
  for that repository; for gitlab://GROUP/PROJECT, the same on gitlab.com. Artifacts of other forges and of Hubs cannot be
  signed with Sigstore.
- The workflow must have run for a branch or a tag: a run for a pull request does not publish.
- The certificate names the workflow's file. Other repositories can call a reusable workflow (`workflow_call`), so the
  repository that it ran for is compared, too.
- A statement (DSSE, in-toto) is accepted only if it says that its subject was built or published; a scan report, for example,
  is refused.

The `sigstore` package is imported only when there is a bundle: it takes 0.35 s and 45 MB (docs/adr/0011-dependencies.md).

Source: docs/reference/signatures.md; https://github.com/sigstore/fulcio/blob/main/docs/oid-info.md (the extensions);
https://github.com/in-toto/attestation/tree/main/spec/v1 (statements). Not here: Ed25519 (signatures.py), telling the two forms
of a signature apart (keyring.py).
"""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from importlib import resources
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from aileron.config import GitHubSettings, GitLabSettings
from aileron.extras import install_command
from aileron.model.names import Fqn
from aileron.model.visible import visible

if TYPE_CHECKING:
    from cryptography.x509 import Certificate
    from sigstore.verify import Verifier

__all__ = ["MAX_BUNDLE_BYTES", "PUBLIC_FORGES", "BundleError", "check_bundle", "is_bundle", "public_forges"]

MAX_BUNDLE_BYTES: Final = 64 << 10
"""64 KiB, the same limit as for `signature.sig` in an archive; known bundles have 5 to 12 KiB."""
PUBLIC_FORGES: Final = frozenset({"github", "gitlab"})
"""Schemes that mean the public server unless a setting specifies another server."""
_ROOTS: Final = ("_store", "https%3A%2F%2Ftuf-repo-cdn.sigstore.dev", "trusted_root.json")
"""Path of the public instance's trusted roots in the `sigstore` package, which only an installer writes."""
_MAX_SHOWN: Final = 300
"""Maximum number of characters of an untrusted text in a message."""
_ISSUER: Final = "1.3.6.1.4.1.57264.1.8"
_SOURCE: Final = "1.3.6.1.4.1.57264.1.12"
_STATEMENT: Final = "application/vnd.in-toto+json"
_STATEMENTS: Final = ("https://in-toto.io/Statement/v1", "https://in-toto.io/Statement/v0.1")
_VOUCHING: Final = ("https://slsa.dev/provenance/v1", "https://docs.pypi.org/attestations/publish/v1")
"""Predicate types of in-toto statements with which a signer says that it built or published the subject."""
_FILE: Final = r"[\x21-\x2e\x30-\x3f\x41-\x7e]{1,255}"
"""Pattern of a workflow file's name, printable ASCII without `/` and `@`, because the name is shown to a person."""
_REF: Final = r"@refs/(?:heads|tags)/[\x21-\x7e]{1,255}"


class BundleError(ValueError):
    """Error: a bundle is not a valid signature for the artifact. The message is a clause, such as `it was not signed by
    a workflow`.
    """


def is_bundle(signature: bytes) -> bool:
    """Return whether a signature begins like a JSON object, as a Sigstore bundle does."""
    return signature.lstrip()[:1] == b"{"


def public_forges(settings: Mapping[str, object]) -> frozenset[str]:
    """Return the schemes of PUBLIC_FORGES whose server is the public one in `settings`, the values in force by name.

    `settings` is in the form of `Settings.consented`.
    """
    urls = {"github": GitHubSettings().url, "gitlab": GitLabSettings().url}
    return frozenset(scheme for scheme, url in urls.items() if settings.get(f"forges.{scheme}.url") == url)


def check_bundle(name: Fqn, digest: bytes, bundle: bytes, public: frozenset[str]) -> str:
    """Return the workflow that signed the artifact called `name`, as a URL. Raises BundleError if the check fails.

    `digest` is the sha256 of the artifact's bytes, and `public` the schemes that mean the public server.
    """
    expected = identity_of(name, public)  # 1
    found = _verified(bundle, digest)  # 2: from here on the certificate is verified
    check_identity(found, expected)  # 3
    return found.workflow


class Identity(NamedTuple):
    """The workflow identity that is allowed to sign an artifact.

    The signer's certificate must have exactly this issuer and repository, and a matching workflow.
    """

    issuer: str
    repository: str
    workflow: re.Pattern[str]


class Signer(NamedTuple):
    """The workflow identity that the certificate in a verified bundle names."""

    issuer: str
    repository: str
    workflow: str


def identity_of(name: Fqn, public: frozenset[str]) -> Identity:
    """Return the identity allowed to sign the artifact called `name`. Raises BundleError if its scheme has no identities."""
    if name.scheme not in PUBLIC_FORGES:
        raise BundleError(f"{name.scheme}:// has no identity at Sigstore; its publisher signs with a key of their own")
    if name.scheme not in public:
        raise BundleError(
            f"{name.scheme}:// is a server of your own here (forges.{name.scheme}.url), and has no identity at Sigstore; its "
            "publisher signs with a key of their own"
        )
    path = "/".join(name.path[:2])
    if name.scheme == "github":
        repository, issuer = f"https://github.com/{path}", "https://token.actions.githubusercontent.com"
        return Identity(issuer, repository, re.compile(rf"{re.escape(repository)}/\.github/workflows/{_FILE}{_REF}"))
    repository, issuer = f"https://gitlab.com/{path}", "https://gitlab.com"
    return Identity(issuer, repository, re.compile(rf"{re.escape(repository)}//{_FILE}(?:/{_FILE})*{_REF}"))


def check_identity(found: Signer, expected: Identity) -> None:
    """Raise BundleError unless `found`, the actual signer, is the `expected` identity.

    Complete values are compared exactly, without prefix match or case folding.
    """
    if found.issuer != expected.issuer:
        raise BundleError(f"its signer was vouched for by {_cut(found.issuer)}, and not by {expected.issuer!r}")
    if not expected.workflow.fullmatch(found.workflow):
        raise BundleError(
            f"it was signed by {_cut(found.workflow)}, which is not a workflow of {expected.repository} for a branch or a tag"
        )
    if found.repository != expected.repository:
        raise BundleError(
            f"it was signed by a workflow of {expected.repository} that ran for {_cut(found.repository)}: others may call it too"
        )


def _verified(bundle: bytes, digest: bytes) -> Signer:
    """Verify that the bundle signs exactly this digest, and return its signer. Raises BundleError for anything else."""
    if len(bundle) > MAX_BUNDLE_BYTES:
        raise BundleError(f"it has {len(bundle)} bytes; a bundle has at most {MAX_BUNDLE_BYTES}")
    try:
        return _signer_of(bundle, digest)
    except BundleError:
        raise
    except ImportError:
        raise BundleError(
            "it was made by Sigstore, which cannot be checked here. Install the extra, and start the daemon again: "
            + install_command("sigstore")
        ) from None
    except Exception as error:  # noqa: BLE001
        # Several libraries parse these bytes, and their errors are no closed list: any error means that it is no signature.
        raise BundleError(f"its bundle is not valid: {_told(error)}") from None


class _Form(msgspec.Struct, rename="camel"):
    """The field that distinguishes the two forms of a bundle: `dsse_envelope` is present only if the bundle signs an
    in-toto statement.

    The verifier parses the same bytes again, and either sees the same form or refuses the bundle.
    """

    dsse_envelope: object = None


def _signer_of(raw: bytes, digest: bytes) -> Signer:
    from sigstore.hashes import Hashed
    from sigstore.models import Bundle
    from sigstore_models.common.v1 import HashAlgorithm

    bundle, reading = Bundle.from_json(raw), Reading()
    if msgspec.json.decode(raw, type=_Form).dsse_envelope is None:
        trusted_verifier().verify_artifact(Hashed(algorithm=HashAlgorithm.SHA2_256, digest=digest), bundle, reading)
    else:
        kind, payload = trusted_verifier().verify_dsse(bundle, reading)
        check_statement(kind, payload, digest)
    return reading.signer()


class Reading:
    """A policy for Sigstore's Verifier that accepts every signer and stores the certificate.

    The caller compares the signer with the allowed identity once the bundle is verified.
    """

    def __init__(self) -> None:
        self._certificate: Certificate | None = None

    def verify(self, cert: Certificate) -> None:
        """Store a certificate whose chain is valid. The verifier calls this method."""
        self._certificate = cert

    def signer(self) -> Signer:
        """Return the verified signer. Raises BundleError if the certificate names no signer, or several."""
        from cryptography.x509 import SubjectAlternativeName, UniformResourceIdentifier

        assert self._certificate is not None
        names = list(self._certificate.extensions.get_extension_for_class(SubjectAlternativeName).value)
        if len(names) != 1 or not isinstance(names[0], UniformResourceIdentifier):
            raise BundleError("it was not signed by a workflow")
        issuer, repository = (_extension(self._certificate, oid) for oid in (_ISSUER, _SOURCE))
        return Signer(issuer, repository, names[0].value)


def _extension(certificate: Certificate, oid: str) -> str:
    """Decode an extension of Fulcio, a DER string. Raises BundleError if it is missing, as in certificates from before 2023."""
    from cryptography.hazmat import asn1
    from cryptography.x509 import ExtensionNotFound, ObjectIdentifier, UnrecognizedExtension

    try:
        found = certificate.extensions.get_extension_for_oid(ObjectIdentifier(oid)).value
    except ExtensionNotFound:
        raise BundleError(f"its certificate does not identify the signer completely ({oid} is missing)") from None
    assert isinstance(found, UnrecognizedExtension)
    return asn1.decode_der(str, found.value)


class _Subject(msgspec.Struct):
    digest: dict[str, str] = {}


class _Statement(msgspec.Struct, rename={"kind": "_type", "predicate": "predicateType"}):
    """The fields of an in-toto statement that are read, after its signature was verified."""

    kind: str
    subject: list[_Subject]
    predicate: str


def check_statement(kind: str, payload: bytes, digest: bytes) -> None:
    """Raise BundleError unless an in-toto statement says that the artifact with this sha256 `digest` was built or published."""
    if kind != _STATEMENT:
        raise BundleError(f"it signs a {_cut(kind)}, not an in-toto statement")
    statement = msgspec.json.decode(payload, type=_Statement)
    if statement.kind not in _STATEMENTS:
        raise BundleError(f"it signs a {_cut(statement.kind)}, not an in-toto statement of a known version")
    if statement.predicate not in _VOUCHING:
        raise BundleError(
            f"its statement is {_cut(statement.predicate)}, which does not say who built these bytes; expected one of "
            f"{', '.join(_VOUCHING)}"
        )
    if not any(subject.digest.get("sha256") == digest.hex() for subject in statement.subject):
        raise BundleError("its statement is about other bytes")


@functools.cache
def trusted_verifier() -> Verifier:
    """Return a verifier that trusts the roots in the `sigstore` package.

    Unlike `Verifier.production`, this verifier fetches nothing and reads nothing in the user's home.
    """
    from sigstore.models import TrustedRoot
    from sigstore.verify import Verifier

    with resources.as_file(resources.files("sigstore").joinpath(*_ROOTS)) as path:
        return Verifier(trusted_root=TrustedRoot.from_file(str(path)))


def _cut(word: str) -> str:
    return repr(word[:_MAX_SHOWN])


def _told(error: Exception) -> str:
    said = " ".join(str(error).split())[:_MAX_SHOWN]
    return visible(said) or type(error).__name__
