"""Secrets that the daemon lends and searches for beyond the bindings: by its settings, and in a real vault."""

from __future__ import annotations

from pathlib import Path

import pytest

from aileron.config import NAMING_A_SECRET, load_settings
from aileron.daemon.secrets.lending import Lending
from aileron.model.names import HostPort
from aileron.model.secret import Secret
from aileron.vault.vault import Vault

PASSPHRASE, KEY = Secret(b"correct horse battery staple"), b"canary-9Kd4Ns7eV2wQ"
SENT_TO = {
    "gateway.upstreams.anthropic.secret": ("", "api.anthropic.com:443"),
    "gateway.upstreams.openai.secret": ('url = "http://127.0.0.1:8080/o"', "127.0.0.1:8080"),
    "forges.github.token": ("", "api.github.com:443"),
    "forges.gitlab.token": ('url = "https://git.example:8443"', "git.example:8443"),
}


@pytest.mark.parametrize("key", SENT_TO)
def test_the_secret_of_a_setting_is_searched_for_only_in_responses_of_the_host_it_is_sent_to(
    tmp_path: Path, key: str
) -> None:
    """The daemon knows which host that is even while the vault is locked."""
    url, host = SENT_TO[key]
    table, _, name = key.rpartition(".")
    config = tmp_path / "config.toml"
    config.write_text(f'[{table}]\n{name} = "models"\n{url}\n')
    vault = Vault(tmp_path / "home" / "vault.json")
    vault.create(PASSPHRASE)
    vault.set_secret("models", Secret(KEY))
    lending, there, elsewhere = Lending(vault), HostPort.parse(host), HostPort.parse("other.example:443")
    assert not lending.needles(there)
    lending.send_own(load_settings(config))
    assert lending.needles(there)
    assert not lending.needles(elsewhere)
    vault.lock()
    assert (lending.may_be_bound(there), lending.may_be_bound(elsewhere)) == (True, False)


def test_these_tests_cover_every_setting_that_sends_a_secret() -> None:
    """A webhook's secret is left out, because only a signature made with it is sent."""
    assert set(SENT_TO) == set(NAMING_A_SECRET) - {"notify.webhook_secret"}
