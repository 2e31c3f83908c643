"""Client certificates in the vault: which ones a binding accepts, the advice on refusal, and what may be seen of them."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from aileron.model.credential import Reach
from aileron.model.failure import FailureClass
from aileron.model.names import BindingName
from aileron.model.secret import Secret
from aileron.vault import Binding, Vault, VaultLender
from tests.support.client_certificates import ClientAuthority
from tests.vault.conftest import BASIC, CONNECTOR, PASSPHRASE, refused, use

BINDING = Binding(
    BindingName.parse("mtls/bank/me"),
    CONNECTOR,
    "mtls",
    None,
    "client",
    1_700_000_002.0,
    Reach(hosts=("bank.example.test:443",), wire="mtls"),
)


@pytest.fixture(scope="module")
def clients(tmp_path_factory: pytest.TempPathFactory) -> ClientAuthority:
    """Return the authority that issues the client certificates."""
    return ClientAuthority(tmp_path_factory.mktemp("clients"))


def test_a_certificate_is_bound_lent_and_shown_while_the_vault_is_open(vault: Vault, clients: ClientAuthority) -> None:
    """The certificate's public part can be shown, but only while the vault is open."""
    stored = clients.issue()
    vault.set_secret("client", Secret(stored))
    vault.bind(BINDING)

    with VaultLender(vault).lend(use(BINDING)) as loan:
        assert (loan.kind, loan.secret.reveal(), loan.username) == ("mtls", stored, None)
    seen = vault.certificate(BINDING.name)
    assert seen is not None
    assert "CN=mira@example.test" in seen.facts.subject
    assert vault.certificate(BASIC.name) is None
    vault.lock()
    assert vault.certificate(BINDING.name) is None


def test_an_unusable_certificate_is_refused_when_bound_and_when_replaced(path: Path, clients: ClientAuthority) -> None:
    """The message names the command that stores another; a good certificate passes in between. The certificates are
    dated from today, and so is the vault's clock.
    """
    vault = Vault(path)
    vault.unlock(Secret(PASSPHRASE))
    certificate, _, key = clients.issue().partition(b"-----BEGIN EC")
    encrypted = b"-----BEGIN EC" + key.replace(
        b"-----\n", b"-----\nProc-Type: 4,ENCRYPTED\nDEK-Info: AES-256-CBC,00\n\n", 1
    )
    wrong = {
        "no private key": certificate,
        "has a private key with a passphrase": certificate + encrypted,
        "has a certificate that expired on": clients.issue_for(-9, -1),
        "has a certificate that is not valid before": clients.issue_for(2, 9),
    }
    for said, value in wrong.items():
        vault.set_secret("client", Secret(value))  # nothing is bound to it yet
        with refused(FailureClass.BAD_INPUT) as refusal:
            vault.bind(BINDING)
        assert said in refusal.message
        assert "store another with `aileron secret set client < client.pem`" in refusal.message
    vault.set_secret("client", Secret(clients.issue()))
    vault.bind(BINDING)
    for said, value in {**wrong, "has no private key": b"a password"}.items():
        with refused(FailureClass.BAD_INPUT) as refusal:
            vault.set_secret("client", Secret(value))
        assert said in refusal.message
    vault.set_secret("client", Secret(clients.issue("noor@example.test")))
    seen = vault.certificate(BINDING.name)
    assert seen is not None
    assert "noor" in seen.facts.subject


def test_a_certificate_is_refused_for_other_kinds_of_credential_and_for_settings(
    vault: Vault, clients: ClientAuthority
) -> None:
    """The line ends of a certificate would end a header. Settings refuse one, too."""
    vault.set_secret("client", Secret(clients.issue()))
    for kind in ("basic", "api_key", "hmac"):
        other = msgspec.structs.replace(
            BASIC,
            name=BindingName(kind, "x", "y"),
            kind=kind,
            secret="client",
            username="a" if kind == "basic" else None,
        )
        with refused(FailureClass.BAD_INPUT) as refusal:
            vault.bind(other)
        assert f"which kind {kind} cannot send" in refusal.message
    with refused(FailureClass.BINDING_FAILED), VaultLender(vault).lend_secret("client"):
        pass
