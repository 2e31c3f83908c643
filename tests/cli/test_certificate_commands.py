"""`aileron binding` for client certificates, with a real daemon: the file that is named, what is shown, and when it expires."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.command import Command
from tests.cli.person import at_terminal, flat
from tests.support.client_certificates import ClientAuthority
from tests.support.home import DaemonHome, daemon_home
from tests.support.key_value_store import TOKEN, KeyValueStore
from tests.support.skewed_daemon import skewed_daemon

BANK = "github://aileron-tests/bank"
MANIFEST = f"""\
[connector]
name = "{BANK}"
version = "1.0.0"

[capabilities.network]
hosts = ["bank.example.test:443"]

[capabilities.credential]
kind = "mtls"
scope = "Read the accounts"

[capabilities.runtime]
imports = ["http"]
"""
PROGRAM = "from aileron_connector import op, run\n\n@op\ndef query():\n    return 1\n\nrun()\n"
TWO_DAYS_S = 172_800.0
QUESTION = "File of the certificate and its private key, in PEM: "


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Directory of the connector's source."""
    directory = tmp_path_factory.mktemp("connector")
    (directory / "manifest.toml").write_text(MANIFEST)
    (directory / "__main__.py").write_text(PROGRAM)
    return directory


@pytest.fixture(scope="module")
def home(source: Path) -> Iterator[DaemonHome]:
    """A home with the connector, and an open vault."""
    with daemon_home() as made:
        made.ask("GET", "/healthz")
        made.unlock()
        made.install(source)
        yield made


@pytest.fixture(scope="module")
def clients(tmp_path_factory: pytest.TempPathFactory) -> ClientAuthority:
    """An authority that issues client certificates."""
    return ClientAuthority(tmp_path_factory.mktemp("clients"))


def openssl(*words: str) -> None:
    """Run the openssl command, as a person would."""
    program = shutil.which("openssl")
    assert program is not None
    subprocess.run([program, *words], check=True, capture_output=True)


def test_check_manifest_says_that_a_client_certificate_is_sent(aileron: Command, source: Path) -> None:
    """The person also reads that the private key is not sent."""
    said = " ".join(aileron("connector", "check-manifest", str(source)).out.split())
    assert "a client certificate of TLS, without its private key" in said


def test_setup_at_a_terminal_takes_a_pem_file(aileron: Command, clients: ClientAuthority, tmp_path: Path) -> None:
    """The file may have text between its blocks, as `openssl pkcs12` writes it; for a PKCS #12 file that command is the fix."""
    file, p12, out = tmp_path / "client.pem", tmp_path / "client.p12", tmp_path / "out.pem"
    file.write_bytes(clients.issue())
    openssl("pkcs12", "-export", "-in", str(file), "-out", str(p12), "-passout", "pass:", "-name", "mira")
    openssl("pkcs12", "-nodes", "-in", str(p12), "-out", str(out), "-passin", "pass:")
    assert b"Bag Attributes" in out.read_bytes()
    words = ("binding", "setup", BANK, "--name", "mtls/bank/me")

    refused = at_terminal(aileron, *words, answers=[(QUESTION, str(p12))])
    other = at_terminal(aileron, *words, answers=[(QUESTION, str(Path(__file__)))])
    bound = at_terminal(aileron, *words, answers=[(QUESTION, str(out))])
    shown = aileron("binding", "inspect", "mtls/bank/me")

    assert "is in the form PKCS #12 (.p12, .pfx); PEM is required" in flat(refused)
    assert f"openssl pkcs12 -nodes -in {p12} -out client.pem" in flat(refused)
    assert "is not a certificate and its private key (-----BEGIN CERTIFICATE-----" in flat(other)
    assert bound.code == 0, bound
    assert "a client certificate and its private key, stored in the vault" in flat(bound)
    text = " ".join(shown.out.split())
    assert "certificate CN=mira@example.test" in text
    assert "issued by " in text
    assert "before that, store another with `aileron secret set bank-me < client.pem`" in text
    assert "a client certificate of TLS, without its private key" in text


def test_a_script_can_store_pem_files_with_extra_text_around_the_blocks(
    aileron: Command, clients: ClientAuthority, tmp_path: Path
) -> None:
    """Text and carriage returns are left out; an expired certificate or a missing key is refused with the fix."""
    stored = clients.issue()
    given = b"Bag Attributes\r\n    localKeyID: 01\r\n" + stored.replace(b"\n", b"\r\n") + b"Key Attributes: none\r\n"
    assert aileron("secret", "set", "scripted", given=given.decode()).code == 0
    bound = aileron("binding", "setup", BANK, "--name", "mtls/bank/script", "--secret", "scripted")
    expired = aileron("secret", "set", "scripted", given=clients.issue_for(-9, -1).decode())
    key = stored[stored.index(b"-----BEGIN EC") :]
    lonely = aileron("secret", "set", "scripted", given=key.decode())

    assert bound.code == 0, bound
    assert (expired.code, lonely.code) == (2, 2), (expired, lonely)
    assert "has a certificate that expired on 202" in expired.err
    assert "aileron secret set scripted < client.pem" in expired.err
    assert "has no certificate" in lonely.err
    assert "cat client.crt client.key > client.pem" in lonely.err


def test_a_client_certificate_that_expired_after_binding_is_listed_as_expired(
    aileron: Command, home: DaemonHome, clients: ClientAuthority
) -> None:
    """The list names the fix. While the vault is locked the state is unknown."""
    aileron("secret", "set", "short", given=clients.issue_for(-1, 1).decode())
    assert aileron("binding", "setup", BANK, "--name", "mtls/bank/short", "--secret", "short").code == 0
    before = aileron("binding", "inspect", "mtls/bank/short", "--json").json
    home.stop()
    with skewed_daemon(home.path, TWO_DAYS_S):
        home.unlock()
        listed = {entry["name"]: entry for entry in aileron("binding", "list", "--json").json["bindings"]}
        seen = at_terminal(aileron, "binding", "list")
        home.must("POST", "/v1/vault/lock")
        locked = aileron("binding", "inspect", "mtls/bank/short", "--json").json
        told = at_terminal(aileron, "binding", "list")

    assert (before["state"], before["certificate"]["valid_until"]) == ("ok", before["expires_at"])
    assert listed["mtls/bank/short"]["state"] == "expired"
    assert listed["mtls/bank/short"]["expires_at"] == before["expires_at"]
    assert "mtls/bank/short is expired: its client certificate has expired" in flat(seen)
    assert "fix: store another with `aileron secret set short < client.pem`" in flat(seen)
    assert (locked["state"], locked["expires_at"], "certificate" in locked) == ("unknown", None, False)
    assert "mtls/bank/short may be expired: its client certificate cannot be seen until the vault is unlocked" in flat(
        told
    )


def test_the_fix_for_an_expired_certificate_in_a_secret_store_names_that_store(
    source: Path, clients: ClientAuthority
) -> None:
    """The vault has no certificate that `secret set` could replace. Whether it has expired is unknown until it is fetched."""
    with KeyValueStore("") as store, daemon_home() as home:
        home.configure(f'[egress]\nprivate_plain = ["{store.address}"]\n')
        home.ask("GET", "/healthz")
        home.unlock()
        home.install(source)
        aileron = Command(home.path)
        assert aileron("secret", "set", "store-token", given=TOKEN.decode()).code == 0
        store.value = clients.issue_for_seconds(12).decode()
        kept = ("--from", store.at("mail/home"), "--from-token", "store-token")
        bound = aileron("binding", "setup", BANK, "--name", "mtls/bank/away", *kept)
        before = aileron("binding", "inspect", "mtls/bank/away")
        clients.wait_until_over()
        listed = aileron("binding", "list", "--json").json["bindings"]
        seen = [at_terminal(aileron, "binding", *words) for words in (("list",), ("inspect", "mtls/bank/away"))]
        home.must("POST", "/v1/vault/lock")
        home.unlock()
        unknown = aileron("binding", "inspect", "mtls/bank/away", "--json").json["state"]
        told = at_terminal(aileron, "binding", "inspect", "mtls/bank/away")

    fix = f"change it at {store.at('mail/home')}, then approve it with `aileron binding rebind mtls/bank/away`"
    assert bound.code == 0, bound
    assert f"before that, {fix}" in " ".join(before.out.split())
    assert [binding["elsewhere"] for binding in listed] == [
        {"reference": store.at("mail/home"), "token": "store-token"}
    ]
    for said in seen:
        assert f"mtls/bank/away is expired: its client certificate has expired fix: {fix}" in flat(said)
        assert "secret set" not in flat(said)
    assert "ends over used by" in flat(seen[1])
    assert unknown == "unknown"
    assert "until the vault is unlocked and the secret was fetched: that is, with the next run that uses it" in flat(
        told
    )
