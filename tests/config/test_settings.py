"""config.toml: what is read and refused, and which of it counts only as a person agreed to it."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aileron.config import CONSENTED, MAX_CA_BYTES, Settings, load_settings
from aileron.model.canonical import canonical_json
from aileron.model.failure import AileronError, FailureClass
from aileron.model.names import HostPort

PEM = "-----BEGIN CERTIFICATE-----\nQUFB\n-----END CERTIFICATE-----\n"
PAGE = (Path(__file__).parents[2] / "docs" / "reference" / "consents.md").read_text(encoding="utf-8")
WEBHOOK = '[notify]\nwebhook = "https://hooks.example.com/a?b=c"\nwebhook_secret = "hook"\n'


def load(directory: Path, text: str) -> Settings:
    """The settings of this file."""
    path = directory / "config.toml"
    path.write_text(text, encoding="utf-8")
    return load_settings(path)


def refusal(directory: Path, text: str) -> str:
    """Why the file is refused."""
    with pytest.raises(AileronError) as caught:
        load(directory, text)
    assert caught.value.failure.failure_class is FailureClass.INVALID_REQUEST
    assert str(directory / "config.toml") in caught.value.failure.message
    return caught.value.failure.message


def test_without_a_file_the_defaults_hold(tmp_path: Path) -> None:
    """Nothing private, nothing sent by itself, all layers, and a word on the desktop."""
    settings = load_settings(tmp_path / "config.toml")

    assert settings == Settings()
    assert (settings.notify_desktop, settings.notify_webhook, settings.notify_webhook_secret) == (True, None, None)


def test_a_whole_file_is_read(tmp_path: Path) -> None:
    """Every key, and of the certificate file what is in it."""
    (tmp_path / "ca.pem").write_text(PEM)
    settings = load(
        tmp_path,
        f'[egress]\nprivate = ["nas.lan:443"]\nprivate_plain = ["localhost:8080"]\nca_file = "{tmp_path}/ca.pem"\n'
        '[sandbox]\nmode = "landlock"\n[daemon]\nport = 27182\n'
        '[notify]\ndesktop = false\nwebhook = "https://hooks.example.com:8443/x"\nwebhook_secret = "hook"\n',
    )

    assert settings == Settings(
        egress_private=frozenset({HostPort("nas.lan", 443)}),
        egress_private_plain=frozenset({HostPort("localhost", 8080)}),
        egress_ca_file=tmp_path / "ca.pem",
        egress_ca_pem=PEM,
        sandbox_mode="landlock",
        daemon_port=27182,
        notify_desktop=False,
        notify_webhook="https://hooks.example.com:8443/x",
        notify_webhook_secret="hook",
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[notify]\ndesktop = 1\n", "notify.desktop is neither true nor false"),
        ("[notify]\nwebhok = 1\n", "unknown setting 'notify.webhok'; did you mean 'notify.webhook'?"),
        ("[egress]\nca_pem = 'x'\n", "unknown setting 'egress.ca_pem'; did you mean 'egress.ca_file'?"),
        ("[egress]\nca_file_sha256 = 'x'\n", "unknown setting 'egress.ca_file_sha256'"),
        ('[notify]\nwebhook = "https://a.example/"\n', "go together"),
        ('[notify]\nwebhook_secret = "hook"\n', "go together"),
        (WEBHOOK.replace('"hook"', '"Hook key"'), "notify.webhook_secret is not the name of a secret"),
        (WEBHOOK.replace('"hook"', "1"), "notify.webhook_secret is not the name of a secret"),
        (WEBHOOK.replace('"https://hooks.example.com/a?b=c"', "1"), "not an https URL"),
    ],
)
def test_a_mistake_is_told_with_the_setting(tmp_path: Path, text: str, message: str) -> None:
    """And the daemon does not start."""
    assert message in refusal(tmp_path, text)


@pytest.mark.parametrize(
    "url",
    [
        "http://hooks.example.com/",
        "HTTPS://hooks.example.com/",
        "https://Hooks.example.com/",
        "https://user:secret@hooks.example.com/",
        "https://hooks.example.com#x",
        "https://hooks.example.com/a#x",
        "https://hooks.example.com/a b",
        "https://hooks.example.com\\\\@evil.test/",
        "https://hooks.example.com:0/",
        "https://hooks.example.com:65536/",
        "https://hooks.example.com:/",
        "https://hooks.example.com./",
        "https://127.1/",
        "https://[::1]/",
        "https:///x",
        "https://hooks.example.com/é",
        "https://hooks.example.com/\\u202e",
        "https://hooks.example.com/" + "a" * 2048,
        "//hooks.example.com/",
        "",
    ],
)
def test_a_webhook_is_an_https_url_of_one_reading(tmp_path: Path, url: str) -> None:
    """Nothing that two programs could understand differently; the plain one is taken."""
    assert "notify.webhook is not an https URL" in refusal(
        tmp_path, f'[notify]\nwebhook = "{url}"\nwebhook_secret = "k"\n'
    )
    for fine in ("https://hooks.example.com", "https://hooks.example.com/", "https://10.0.0.1:8443/a/b?c=d&e=%20"):
        assert load(tmp_path, f'[notify]\nwebhook = "{fine}"\nwebhook_secret = "k"\n').notify_webhook == fine


# Certificates


def ca_setting(path: Path) -> str:
    """The file that names this one."""
    return f'[egress]\nca_file = "{path}"\n'


def test_a_certificate_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    """Not there, too large, no text, no file: with the setting, and the path; one that can be is."""
    fifo, binary, large = tmp_path / "fifo", tmp_path / "der.pem", tmp_path / "large.pem"
    os.mkfifo(fifo)
    binary.write_bytes(b"\x30\x82\xff\xfe")
    large.write_bytes(b"x" * (MAX_CA_BYTES + 1))
    problems = {
        tmp_path / "none.pem": "No such file",
        tmp_path: "is not a regular file",
        fifo: "is not a regular file",
        binary: "is not text",
        large: "is larger than 1 MiB",
    }
    for path, problem in problems.items():
        message = refusal(tmp_path, ca_setting(path))
        assert f"egress.ca_file {path}: {problem}" in message or f"{path}: Is a directory" in message
        assert "it must be a PEM certificate file" in message

    good = tmp_path / "good.pem"
    good.write_bytes(b"x" * MAX_CA_BYTES)
    assert load(tmp_path, ca_setting(good)).egress_ca_pem == "x" * MAX_CA_BYTES


def test_certificates_that_are_exchanged_after_the_start_have_no_effect(tmp_path: Path) -> None:
    """What is used is what was read, and so what was agreed to; the next start reads anew."""
    path = tmp_path / "ca.pem"
    path.write_text(PEM)
    settings = load(tmp_path, ca_setting(path))
    path.write_text("another")

    assert settings.egress_ca_pem == PEM
    assert settings.consented()["egress.ca_file_sha256"] == f"sha256:{hashlib.sha256(PEM.encode()).hexdigest()}"
    assert load(tmp_path, ca_setting(path)).consented() != settings.consented()


def test_certificates_are_not_in_what_is_logged() -> None:
    """A megabyte of them helps nobody."""
    assert "BEGIN" not in repr(Settings(egress_ca_pem=PEM))


# What a person agrees to


def test_the_page_has_the_closed_list() -> None:
    """Neither more nor fewer."""
    section = PAGE.split("## Settings\n")[1].split("\n## ")[0]

    assert tuple(re.findall(r"^\| `([\w.]+)` \|", section, re.MULTILINE)) == CONSENTED == tuple(Settings().consented())


def test_what_a_person_agrees_to_is_json_with_the_defaults_in_it() -> None:
    """Lists sorted, so that the same settings have one digest."""
    settings = Settings(egress_private=frozenset({HostPort("b.lan", 1), HostPort("a.lan", 2)}))

    assert settings.consented() == {
        "egress.ca_file": None,
        "egress.ca_file_sha256": None,
        "egress.private": ["a.lan:2", "b.lan:1"],
        "egress.private_plain": [],
        "notify.webhook": None,
        "notify.webhook_secret": None,
        "sandbox.mode": "namespaces",
    }
    assert json.loads(canonical_json(settings.consented())) == settings.consented()


_hosts = st.frozensets(st.builds(HostPort, st.sampled_from(["nas.lan", "localhost"]), st.integers(1, 3)), max_size=3)
_webhooks = st.sampled_from([(None, None), ("https://a.example/", "hook"), ("https://b.example", "key")])
_files = st.sampled_from([(None, None), (Path("/nowhere/ca.pem"), PEM), (Path("/nowhere/b.pem"), "another")])


@st.composite
def _settings(draw: st.DrawFn) -> Settings:
    webhook, secret = draw(_webhooks)
    ca_file, ca_pem = draw(_files)
    return Settings(
        egress_private=draw(_hosts),
        egress_private_plain=draw(_hosts),
        egress_ca_file=ca_file,
        egress_ca_pem=ca_pem,
        sandbox_mode=draw(st.sampled_from(["namespaces", "landlock"])),
        daemon_port=draw(st.none() | st.integers(1024, 1030)),
        notify_desktop=draw(st.booleans()),
        notify_webhook=webhook,
        notify_webhook_secret=secret,
    )


@given(_settings())
def test_with_what_they_say_settings_stay_as_they_are(settings: Settings) -> None:
    """Also where the certificate file is gone: its bytes are known."""
    assert settings.with_consented(settings.consented()) == settings


@given(_settings(), _settings())
def test_what_was_agreed_to_is_in_force_and_nothing_else(file: Settings, agreed: Settings) -> None:
    """All of the list comes from what was agreed to, all else from the file."""
    in_force = file.with_consented(json.loads(json.dumps(agreed.consented())))
    have_the_bytes = agreed.egress_ca_pem in {None, file.egress_ca_pem}
    expected = agreed.consented() | ({} if have_the_bytes else {"egress.ca_file_sha256": None})

    assert in_force.consented() == expected
    assert (in_force.daemon_port, in_force.notify_desktop) == (file.daemon_port, file.notify_desktop)
    assert in_force.egress_ca_pem in {None, agreed.egress_ca_pem}


def test_the_certificates_agreed_to_are_found_again_by_their_digest(tmp_path: Path) -> None:
    """At their path, if the file names another by now; bytes that are others are trusted under no name."""
    path = tmp_path / "ca.pem"
    path.write_text(PEM)
    agreed = load(tmp_path, ca_setting(path)).consented()

    assert Settings().with_consented(agreed).egress_ca_pem == PEM
    path.write_text("another")
    exchanged = load(tmp_path, ca_setting(path)).with_consented(agreed)
    assert (exchanged.egress_ca_file, exchanged.egress_ca_pem) == (path, None)
    assert exchanged.consented() != agreed
    path.unlink()
    assert Settings().with_consented(agreed).egress_ca_pem is None


def test_what_is_absent_from_an_older_agreement_is_at_its_default() -> None:
    """Not as the file has it: nobody agreed to that."""
    file = Settings(
        egress_private=frozenset({HostPort("nas.lan", 1)}),
        notify_webhook="https://a.example/",
        notify_webhook_secret="k",
    )

    assert file.with_consented({}) == Settings()
    assert file.with_consented({"sandbox.mode": "landlock"}) == dataclasses.replace(Settings(), sandbox_mode="landlock")


@pytest.mark.parametrize(
    "values",
    [
        {"egress.everything": True},
        {"daemon.port": 5000},
        {"egress.private": "nas.lan:443"},
        {"egress.private": ["*:443"]},
        {"egress.ca_file": "ca.pem"},
        {"sandbox.mode": "none"},
        {"notify.webhook": "https://a.example/"},
        {"notify.webhook": "http://a.example/", "notify.webhook_secret": "k"},
    ],
)
def test_values_that_nobody_can_have_agreed_to_are_refused(values: dict[str, Any]) -> None:
    """The copy they come from is a file."""
    with pytest.raises(AileronError, match="what was agreed to"):
        Settings().with_consented(values)
