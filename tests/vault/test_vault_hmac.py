"""The key of an HMAC: one that cannot be decoded as the manifest says is refused on binding and on replacement."""

from __future__ import annotations

import msgspec
import pytest

from aileron.model.credential import Reach, hmac_template_of
from aileron.model.failure import FailureClass
from aileron.model.names import BindingName
from aileron.model.request_signing import HmacTemplate, KeyForm
from aileron.model.secret import Secret
from aileron.vault import Binding, Vault
from tests.vault.conftest import CONNECTOR, refused


def bound(form: KeyForm) -> Binding:
    """Return a binding of a webhook whose key is written in this form."""
    template = HmacTemplate(key=form, message="{body}", headers=(("X-Signature", "{signature}"),))
    reach = Reach(hosts=("hooks.example.test:443",), wire=f"hmac {msgspec.json.encode(template).decode()}")
    assert hmac_template_of(reach.wire) == template
    return Binding(BindingName("hmac", "hooks", form), CONNECTOR, "hmac", None, f"hook-{form}", 1_700_000_000.0, reach)


@pytest.mark.parametrize(
    ("form", "bad", "good", "says"),
    [
        ("whsec", b"MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", b"whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "not begin with whsec_"),
        ("base64", b"c2VzYW1lLTEyMzQ", b"c2VzYW1lLTEyMzQ1", "is not base64"),
        ("hex", b"sesame-12345", b"736573616d652d31", "is not hexadecimal"),
    ],
    ids=["whsec", "base64", "hex"],
)  # fmt: skip
def test_an_hmac_key_that_cannot_be_decoded_is_not_bound(
    vault: Vault, form: KeyForm, bad: bytes, good: bytes, says: str
) -> None:
    """Otherwise the first refused webhook would reveal the mistake. The message does not quote the secret."""
    binding = bound(form)
    vault.set_secret(binding.secret, Secret(bad))
    with refused(FailureClass.BAD_INPUT) as refusal:
        vault.bind(binding)
    assert says in refusal.message
    assert f"aileron secret set {binding.secret}" in refusal.message
    assert bad.decode() not in refusal.message

    vault.set_secret(binding.secret, Secret(good))
    vault.bind(binding)
    with refused(FailureClass.BAD_INPUT) as refusal:
        vault.set_secret(binding.secret, Secret(bad))
    assert says in refusal.message
    _binding, lent = vault.reveal(binding.name)
    assert lent.reveal() == good


def test_any_text_is_a_utf8_key_unless_it_has_several_lines(vault: Vault) -> None:
    """A text of several lines is probably a document that was stored by mistake."""
    binding = bound("utf8")
    vault.set_secret(binding.secret, Secret(b"It's a Secret to Everybody"))
    vault.bind(binding)
    with refused(FailureClass.BAD_INPUT) as refusal:
        vault.set_secret(binding.secret, Secret(b'{\n"key": "value"\n}'))
    assert "has several lines" in refusal.message
