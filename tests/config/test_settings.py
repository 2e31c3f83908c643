"""config.toml: which settings are read and refused, and which take effect only as a person consented to them."""

from __future__ import annotations

import hashlib
import json
import os
import re
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aileron.config import (
    CONSENTED,
    FIELDS,
    MAX_CA_BYTES,
    CellSettings,
    ForgeSettings,
    GatewaySettings,
    GitHubSettings,
    GitLabSettings,
    HubSettings,
    LaunchSettings,
    ListenAddress,
    McpSettings,
    Settings,
    Upstream,
    consented_form,
    load_settings,
)
from aileron.model.canonical import canonical_json
from aileron.model.failure import AileronError, FailureClass
from aileron.model.names import HostPort
from aileron.model.selecting import parse_selectors
from aileron_sandbox.cell.policy import Bind, CellPolicy

PEM = "-----BEGIN CERTIFICATE-----\nQUFB\n-----END CERTIFICATE-----\n"
PAGE = (Path(__file__).parents[2] / "docs" / "reference" / "consents.md").read_text(encoding="utf-8")
WEBHOOK = '[notify]\nwebhook = "https://hooks.example.com/a?b=c"\nwebhook_secret = "hook"\n'


def load(directory: Path, text: str) -> Settings:
    """Load the settings from this text."""
    path = directory / "config.toml"
    path.write_text(text, encoding="utf-8")
    return load_settings(path)


def refusal(directory: Path, text: str) -> str:
    """Return the message with which the file is refused."""
    with pytest.raises(AileronError) as caught:
        load(directory, text)
    assert caught.value.failure.failure_class is FailureClass.INVALID_REQUEST
    assert str(directory / "config.toml") in caught.value.failure.message
    return caught.value.failure.message


def test_without_a_configuration_file_the_default_settings_apply(tmp_path: Path) -> None:
    """The defaults: no private hosts, no webhook, all layers, loopback only, the providers' own APIs, desktop notifications."""
    settings = load_settings(tmp_path / "config.toml")

    assert settings == Settings()
    assert (settings.daemon_listen, settings.gateway.require_vault) == (None, True)
    assert settings.gateway.anthropic == Upstream("https://api.anthropic.com", None)
    assert settings.gateway.openai == Upstream("https://api.openai.com", None)
    assert (settings.notify_desktop, settings.notify_webhook, settings.notify_webhook_secret) == (True, None, None)


def test_every_key_of_a_file_is_read(tmp_path: Path) -> None:
    """The content of the certificate files is read too."""
    (tmp_path / "ca.pem").write_text(PEM)
    (tmp_path / "own.pem").write_text(PEM * 2)
    settings = load(
        tmp_path,
        f'[egress]\nprivate = ["nas.lan:443"]\nprivate_plain = ["localhost:8080"]\nca_file = "{tmp_path}/ca.pem"\n'
        '[sandbox]\nmode = "landlock"\n[daemon]\nport = 27182\nlisten = "192.0.2.1:8443"\n'
        f'certificate = "{tmp_path}/own.pem"\ncertificate_key = "{tmp_path}/own.key"\n'
        '[gateway]\nrequire_vault = false\n[gateway.upstreams]\nopenai.url = "http://localhost:11434"\n'
        '[gateway.upstreams.anthropic]\nurl = "https://llm.example.com:8443/team-a/anthropic/"\nsecret = "claude"\n'
        '[launch]\njail = false\n[launch.cell]\nallow_read = ["/srv/b", "/opt/a", "/srv/b"]\nallow_write = ["/w"]\n'
        'allow_hosts = ["pypi", "a.example:443", "*.b.example", "a.example", "nas:8443"]\nallow_env = ["JAVA_HOME", "A_1"]\n'
        "ask_hosts = false\nmemory_mb = 64\nprocesses = 17\nopen_files = 65\nfile_mb = 2\nscratch_mb = 3\n"
        '[mcp]\nfind_above = 0\nkeep_listed = ["tag:mail", "list-*", "tag:mail"]\n'
        'folders = ["/w/b=x", "/w/a=tag:a", "/w/a=a-*", "/w/k=v=tag:e"]\n'
        '[notify]\ndesktop = false\nwebhook = "https://hooks.example.com:8443/x"\nwebhook_secret = "hook"\n',
    )

    assert settings == Settings(
        egress_private=frozenset({HostPort("nas.lan", 443)}),
        egress_private_plain=frozenset({HostPort("localhost", 8080)}),
        egress_ca_file=tmp_path / "ca.pem",
        egress_ca_pem=PEM,
        sandbox_mode="landlock",
        daemon_port=27182,
        daemon_listen=ListenAddress("192.0.2.1", 8443),
        daemon_certificate=tmp_path / "own.pem",
        daemon_certificate_key=tmp_path / "own.key",
        daemon_certificate_pem=PEM * 2,
        gateway=GatewaySettings(
            anthropic=Upstream("https://llm.example.com:8443/team-a/anthropic/", "claude"),
            openai=Upstream("http://localhost:11434"),
            require_vault=False,
        ),
        launch=LaunchSettings(
            jail=False,
            cell=CellSettings(
                allow_read=("/opt/a", "/srv/b"),
                allow_write=("/w",),
                allow_hosts=("*.b.example", "a.example", "nas:8443", "pypi"),
                allow_env=("A_1", "JAVA_HOME"),
                ask_hosts=False,
                memory_mb=64,
                processes=17,
                open_files=65,
                file_mb=2,
                scratch_mb=3,
            ),
        ),
        mcp=McpSettings(
            find_above=0,
            keep_listed=parse_selectors(["list-*", "tag:mail"]),
            folders=(
                ("/w/a", parse_selectors(["a-*", "tag:a"])),
                ("/w/b", parse_selectors(["x"])),
                ("/w/k=v", parse_selectors(["tag:e"])),
            ),
        ),
        notify_desktop=False,
        notify_webhook="https://hooks.example.com:8443/x",
        notify_webhook_secret="hook",
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[notify]\ndesktop = 1\n", "config.toml:2: 'desktop' is an integer; expected a boolean"),
        ("[notify]\nwebhok = 1\n", "config.toml:2: unknown key 'webhok' in [notify]; did you mean 'webhook'?"),
        ("[egress]\nca_pem = 'x'\n", "unknown key 'ca_pem' in [egress]; did you mean 'ca_file'?"),
        ("[egress]\nca_file_sha256 = 'x'\n", "unknown key 'ca_file_sha256' in [egress]"),
        ('[notify]\nwebhook = "https://a.example/"\n', "must be set together"),
        ('[notify]\nwebhook_secret = "hook"\n', "must be set together"),
        (WEBHOOK.replace('"hook"', '"Hook key"'), "notify.webhook_secret is not the name of a secret"),
        (WEBHOOK.replace('"hook"', "1"), "'webhook_secret' is an integer; expected a string"),
        (WEBHOOK.replace('"https://hooks.example.com/a?b=c"', "1"), "'webhook' is an integer; expected a string"),
        (WEBHOOK.replace("a?b=c", "\\u202e"), "'webhook' holds a hidden character: U+202E RIGHT-TO-LEFT OVERRIDE"),
        ("[gateway]\nrequire_vault = 0\n", "'require_vault' is an integer; expected a boolean"),
        ("[gateway.upstreams.gemini]\nurl = 'x'\n", "unknown key 'gemini' in [gateway.upstreams]"),
        ("[gateway.upstreams.openai]\nsecret = 'A b'\n", "gateway.upstreams.openai.secret is not the name of a secret"),
        ("[gateway.upstreams.openai]\nsecret = 1\n", "'secret' is an integer; expected a string"),
        ("[gateway.upstreams.openai]\nurl = 1\n", "'url' is an integer; expected a string"),
        ("[gateway]\nupstreams = 1\n", "'upstreams' is an integer; expected a table"),
        ("[mcp]\nfind_above = 1001\n", "config.toml:2: find_above = 1001 is not between 0 and 1000"),
        ("[mcp]\nfind_above = true\n", "'find_above' is a boolean; expected an integer"),
        ("[mcp]\nkeep_listed = ['Mail']\n", "mcp.keep_listed is not a list of selectors: 'Mail' is not a selector"),
        ("[mcp]\nfolders = ['tag:a']\n", "mcp.folders 'tag:a' is not FOLDER=SELECTOR with an absolute path"),
        ("[mcp]\nfolders = ['w=tag:a']\n", "mcp.folders 'w=tag:a' is not FOLDER=SELECTOR"),
        ("[mcp]\nfolders = ['/w/../x=tag:a']\n", "mcp.folders '/w/../x=tag:a' is not FOLDER=SELECTOR"),
        ("[mcp]\nfolders = ['/w=tag:A']\n", "mcp.folders 'tag:A' is not a selector: use tag:NAME"),
        ("[launch]\njail = 'yes'\n", "'jail' is a string; expected a boolean"),
        ("[launch.jail]\nallow_read = []\n", "'jail' is a table; expected a boolean"),
        ("[launch.cell]\nallow_read = ['~/x']\n", "launch.cell.allow_read '~/x' is not an absolute path"),
        ("[launch.cell]\nallow_read = ['/a/../b']\n", "launch.cell.allow_read '/a/../b' is not an absolute path"),
        ("[launch.cell]\nallow_write = ['//a']\n", "launch.cell.allow_write '//a' is not an absolute path"),
        ("[launch.cell]\nallow_write = ['/a/']\n", "launch.cell.allow_write '/a/' is not an absolute path"),
        ("[launch.cell]\nallow_hosts = ['*']\n", "launch.cell.allow_hosts '*': * stands for the first labels only"),
        (
            "[launch.cell]\nallow_hosts = ['a.*.example']\n",
            "launch.cell.allow_hosts 'a.*.example': * stands for the first",
        ),
        ("[launch.cell]\nallow_hosts = ['A.example']\n", "launch.cell.allow_hosts 'A.example' is not a host"),
        ("[launch.cell]\nallow_hosts = ['https://a.example']\n", "'https://a.example' is not a host"),
        ("[launch.cell]\nallow_hosts = ['a.example:']\n", "launch.cell.allow_hosts 'a.example:' is not a host"),
        ("[launch.cell]\nallow_hosts = ['a.example:0']\n", "launch.cell.allow_hosts 'a.example:0' is not a host"),
        ("[launch.cell]\nallow_hosts = ['192.0.2.1']\n", "launch.cell.allow_hosts '192.0.2.1' is an address"),
        ("[launch.cell]\nallow_env = ['A=b']\n", "launch.cell.allow_env 'A=b' is not the name of a variable"),
        ("[launch.cell]\nallow_env = ['AILERON_HOME']\n", "is one of Aileron's own"),
        (
            "[launch.cell]\nallow_read = [" + ", ".join(f"'/{i}'" for i in range(65)) + "]\n",
            "has 65 entries; at most 64",
        ),
        ("[launch.cell]\nmemory_mb = 63\n", "memory_mb = 63 is not between 64 and 33554432"),
        ("[daemon]\ncertificate_sha256 = 'x'\n", "unknown key 'certificate_sha256' in [daemon]"),
    ],
)
def test_a_mistake_in_the_configuration_is_reported_with_its_setting(tmp_path: Path, text: str, message: str) -> None:
    """The file is refused as a whole."""
    assert message in refusal(tmp_path, text)


def test_a_mistake_in_the_configuration_is_reported_with_its_line(tmp_path: Path) -> None:
    """This includes a value of the right type but without meaning; lines may end with CR LF."""
    path = tmp_path / "config.toml"
    path.write_bytes(b"# mine\r\n[egress]\r\nprivate = [\r\n  'nas.lan:443',\r\n]\r\n[vault]\r\nlock_after = '15m'\r\n")
    assert load_settings(path).vault_lock_after_s == 900

    path.write_bytes(path.read_bytes().replace(b"15m", b"never"))
    with pytest.raises(AileronError, match=r"config\.toml:7: vault\.lock_after is not a duration"):
        load_settings(path)


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
        "https://hooks.example.com/" + "a" * 2048,
        "//hooks.example.com/",
        "",
    ],
)
def test_a_webhook_must_be_an_unambiguous_https_url(tmp_path: Path, url: str) -> None:
    """A URL that two programs could read differently is refused. Positive control: plain ones are accepted."""
    assert "notify.webhook is not an https URL" in refusal(
        tmp_path, f'[notify]\nwebhook = "{url}"\nwebhook_secret = "k"\n'
    )
    for fine in ("https://hooks.example.com", "https://hooks.example.com/", "https://10.0.0.1:8443/a/b?c=d&e=%20"):
        assert load(tmp_path, f'[notify]\nwebhook = "{fine}"\nwebhook_secret = "k"\n').notify_webhook == fine


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("http://api.example.com", "http is allowed for loopback only"),
        ("http://10.0.0.1:8080", "http is allowed for loopback only"),
        ("http://127.example.com", "http is allowed for loopback only"),
        ("http://localhost.example.com", "http is allowed for loopback only"),
        ("https://api.openai.com/v1", "leave out /v1"),
        ("https://api.openai.com/v1/", "leave out /v1"),
        ("https://api.example.com/a/../b", "must not contain . or .."),
        ("https://api.example.com/a/./b", "must not contain . or .."),
        ("https://api.example.com/a//b", "plain path segments"),
        ("https://api.example.com//", "plain path segments"),
        ("https://api.example.com/a%2fb", "plain path segments"),
        ("https://api.example.com/a?b", "no user, query or fragment"),
        ("https://api.example.com?", "no user, query or fragment"),
        ("https://api.example.com/#a", "no user, query or fragment"),
        ("https://user@api.example.com", "no user, query or fragment"),
        ("https://user:key@api.example.com", "no user, query or fragment"),
        ("HTTPS://api.example.com", "https, a host in lower case"),
        ("https://Api.example.com", "https, a host in lower case"),
        ("ftp://api.example.com", "https, a host in lower case"),
        ("//api.example.com", "https, a host in lower case"),
        ("https://", "https, a host in lower case"),
        ("", "https, a host in lower case"),
        ("https://[::1]", "https, a host in lower case"),
        ("https://api.example.com:", "https, a host in lower case"),
        ("https://api.example.com:0", "not a number from 1 to 65535"),
        ("https://api.example.com.", "not a lower-case host name"),
        ("https://127.1", "four decimal octets"),
        ("https://api.example.com/" + "a" * 2048, "at most 2048 characters"),
    ],
)
def test_an_upstream_must_be_an_unambiguous_url(tmp_path: Path, url: str, why: str) -> None:
    """The URL is https or loopback, and no two programs could read it differently. Positive control: plain ones are accepted."""
    message = refusal(tmp_path, f'[gateway.upstreams.openai]\nurl = "{url}"\n')
    assert "gateway.upstreams.openai.url is not a URL such as https://api.openai.com: " in message
    assert why in message
    for fine in ("https://a.example", "https://10.0.0.1:8443/x/v1.1_~-/", "http://localhost", "http://127.0.0.2:1/a"):
        assert load(tmp_path, f'[gateway.upstreams.openai]\nurl = "{fine}"\n').gateway.openai.url == fine


# The daemon's own address


def listening(directory: Path, address: str, pem: str = PEM) -> str:
    """Return a file that sets the address, with a certificate beside it."""
    (directory / "own.pem").write_text(pem)
    files = f'certificate = "{directory}/own.pem"\ncertificate_key = "{directory}/own.key"\n'
    return f'[daemon]\nlisten = "{address}"\n{files}'


@pytest.mark.parametrize(
    ("address", "why"),
    [
        ("localhost:8443", "is not ADDRESS:PORT with an IP address"),
        ("example.com:8443", "is not ADDRESS:PORT with an IP address"),
        ("192.0.2.1", "is not ADDRESS:PORT with an IP address"),
        ("", "is not ADDRESS:PORT with an IP address"),
        ("127.1:8443", "is not ADDRESS:PORT with an IP address"),
        ("192.0.2.1:", "has no port from 1024 to 65535"),
        ("192.0.2.1:443", "has no port from 1024 to 65535"),
        ("192.0.2.1:65536", "has no port from 1024 to 65535"),
        ("192.0.2.1:08443", "has no port from 1024 to 65535"),
        ("192.0.2.1:8443a", "has no port from 1024 to 65535"),
        ("0.0.0.0:8443", "is not the address of a network interface"),
        ("[::]:8443", "is not the address of a network interface"),
        ("224.0.0.1:8443", "is not the address of a network interface"),
        ("[fe80::1%eth0]:8443", "is not the address of a network interface"),
        ("[2001:DB8::1]:8443", "must be written as '[2001:db8::1]:8443'"),
        ("2001:db8::1:8443", "must be written as '[2001:db8::1]:8443'"),
        ("[192.0.2.1]:8443", "must be written as '192.0.2.1:8443'"),
    ],
)
def test_a_listen_address_is_one_interface_and_a_port(tmp_path: Path, address: str, why: str) -> None:
    """A name could come to mean another interface, and all interfaces are too many; IPv4 and IPv6 addresses are accepted."""
    assert why in refusal(tmp_path, listening(tmp_path, address))
    for fine in ("192.0.2.1:8443", "[2001:db8::1]:1024", "127.0.0.1:65535"):
        assert str(load(tmp_path, listening(tmp_path, fine)).daemon_listen) == fine


@pytest.mark.parametrize("missing", ["listen", "certificate", "certificate_key"])
def test_a_listen_address_requires_encryption(tmp_path: Path, missing: str) -> None:
    """Address, certificate and key are set together or not at all."""
    lines = listening(tmp_path, "192.0.2.1:8443").splitlines()
    without = [line for line in lines if not line.startswith(f"{missing} ")]
    assert len(without) == len(lines) - 1

    assert "daemon.listen, daemon.certificate and daemon.certificate_key must be set together" in refusal(
        tmp_path, "\n".join(without)
    )


def test_a_certificate_file_with_a_private_key_is_refused(tmp_path: Path) -> None:
    """Clients get that file. A file with the certificate alone is read; the key's file is not."""
    key = "-----BEGIN PRIVATE KEY-----\nQUFB\n-----END PRIVATE KEY-----\n"
    assert "own.pem contains a private key" in refusal(tmp_path, listening(tmp_path, "192.0.2.1:8443", PEM + key))

    settings = load(tmp_path, listening(tmp_path, "192.0.2.1:8443"))
    assert settings.daemon_certificate_pem == PEM
    assert settings.daemon_certificate_key == tmp_path / "own.key"  # this file does not exist
    assert "BEGIN" not in repr(settings)
    assert settings.consented()["daemon.certificate_sha256"] == f"sha256:{hashlib.sha256(PEM.encode()).hexdigest()}"


def test_an_unreadable_certificate_is_reported_with_its_setting(tmp_path: Path) -> None:
    """The file is missing, or a directory."""
    text = listening(tmp_path, "192.0.2.1:8443")
    (tmp_path / "own.pem").unlink()
    assert f"daemon.certificate {tmp_path}/own.pem: No such file" in refusal(tmp_path, text)
    (tmp_path / "own.pem").mkdir()
    assert f"daemon.certificate {tmp_path}/own.pem: " in refusal(tmp_path, text)


# Certificates


def ca_setting(path: Path) -> str:
    """Return a file that names this certificate file."""
    return f'[egress]\nca_file = "{path}"\n'


def test_an_unreadable_ca_file_is_reported_with_its_setting(tmp_path: Path) -> None:
    """The file is missing, too large, no text or no regular file. Positive control: a readable one is accepted."""
    fifo, binary, large = tmp_path / "fifo", tmp_path / "der.pem", tmp_path / "large.pem"
    os.mkfifo(fifo)
    binary.write_bytes(b"\x30\x82\xff\xfe")
    large.write_bytes(b"x" * (MAX_CA_BYTES + 1))
    problems = {
        tmp_path / "none.pem": "No such file",
        tmp_path: "is not a regular file",
        fifo: "is not a regular file",
        binary: "is not valid UTF-8",
        large: "is larger than 1 MiB",
    }
    for path, problem in problems.items():
        message = refusal(tmp_path, ca_setting(path))
        assert f"egress.ca_file {path}: {problem}" in message or f"{path}: Is a directory" in message
        assert "it must be a PEM certificate file" in message

    good = tmp_path / "good.pem"
    good.write_bytes(b"x" * MAX_CA_BYTES)
    assert load(tmp_path, ca_setting(good)).egress_ca_pem == "x" * MAX_CA_BYTES


def test_replacing_a_ca_file_after_the_start_has_no_effect(tmp_path: Path) -> None:
    """The bytes read at the start are the approved ones; the next start reads the file again."""
    path = tmp_path / "ca.pem"
    path.write_text(PEM)
    settings = load(tmp_path, ca_setting(path))
    path.write_text("another")

    assert settings.egress_ca_pem == PEM
    assert settings.consented()["egress.ca_file_sha256"] == f"sha256:{hashlib.sha256(PEM.encode()).hexdigest()}"
    assert load(tmp_path, ca_setting(path)).consented() != settings.consented()


def test_certificates_are_not_logged() -> None:
    """A megabyte of PEM would bury the rest of the log."""
    assert "BEGIN" not in repr(Settings(egress_ca_pem=PEM))


def test_the_cell_policy_accepts_the_default_and_extreme_limits_of_the_settings() -> None:
    """The defaults are equal, and the policy accepts the smallest and largest values of the settings."""
    usual = CellPolicy(folder="/w", home="/h", binds=(Bind("/usr", "/usr"),))
    cell = CellSettings()
    mib = 1 << 20

    assert (usual.memory_bytes, usual.file_bytes) == (cell.memory_mb * mib, cell.file_mb * mib)
    assert usual.scratch_bytes == cell.scratch_mb * mib
    assert (usual.processes, usual.open_files) == (cell.processes, cell.open_files)
    for end in (0, -1):
        limits = {}
        for key in LaunchSettings().limits():
            bounds = FIELDS[key].bounds
            assert bounds is not None
            limits[key.rpartition(".")[2]] = bounds[end]
        msgspec.structs.replace(
            usual,
            memory_bytes=limits["memory_mb"] * mib,
            processes=limits["processes"],
            open_files=limits["open_files"],
            file_bytes=limits["file_mb"] * mib,
            scratch_bytes=limits["scratch_mb"] * mib,
        )


def test_the_innermost_configured_folder_decides_a_sessions_selection(tmp_path: Path) -> None:
    """Paths are compared folder by folder, so /a/bc is not inside /a/b."""
    mcp = load(tmp_path, '[mcp]\nfolders = ["/=r", "/w/a=a", "/w/a/b=b"]\n').mcp
    told = {folder: mcp.of_folder(folder) for folder in ("/", "/w", "/w/a", "/w/ab", "/w/a/x/y", "/w/a/b", "/w/a/b/c")}

    assert {folder: str((found or ("none",))[0]) for folder, found in told.items()} == {
        "/": "r",
        "/w": "r",
        "/w/a": "a",
        "/w/ab": "r",
        "/w/a/x/y": "a",
        "/w/a/b": "b",
        "/w/a/b/c": "b",
    }
    assert McpSettings().of_folder("/w") is None


# Settings that need consent


def test_the_consents_page_lists_exactly_the_settings_that_need_consent() -> None:
    """The page, the constant and the settings agree in content and order."""
    section = PAGE.split("## Settings\n")[1].split("\n## ")[0]

    assert tuple(re.findall(r"^\| `([\w.]+)` \|", section, re.MULTILINE)) == CONSENTED == tuple(Settings().consented())


def test_a_consent_to_settings_contains_every_default_as_json() -> None:
    """Lists are sorted, so that the same settings have one digest."""
    settings = Settings(egress_private=frozenset({HostPort("b.lan", 1), HostPort("a.lan", 2)}))

    assert settings.consented() == {
        "connectors.require_signature": False,
        "daemon.certificate": None,
        "daemon.certificate_key": None,
        "daemon.certificate_sha256": None,
        "daemon.listen": None,
        "egress.ca_file": None,
        "egress.ca_file_sha256": None,
        "egress.private": ["a.lan:2", "b.lan:1"],
        "egress.private_plain": [],
        "forges.github.api": "https://api.github.com",
        "forges.github.raw": "https://raw.githubusercontent.com",
        "forges.github.storage": [
            "https://objects.githubusercontent.com",
            "https://release-assets.githubusercontent.com",
        ],
        "forges.github.token": None,
        "forges.github.url": "https://github.com",
        "forges.gitlab.storage": ["https://cdn.artifacts.gitlab-static.net", "https://storage.googleapis.com"],
        "forges.gitlab.token": None,
        "forges.gitlab.url": "https://gitlab.com",
        "gateway.require_vault": True,
        "gateway.upstreams.anthropic.secret": None,
        "gateway.upstreams.anthropic.url": "https://api.anthropic.com",
        "gateway.upstreams.openai.secret": None,
        "gateway.upstreams.openai.url": "https://api.openai.com",
        "hub.url": None,
        "launch.cell.allow_env": [],
        "launch.cell.allow_hosts": [],
        "launch.cell.allow_read": [],
        "launch.cell.allow_write": [],
        "launch.cell.ask_hosts": True,
        "launch.jail": None,
        "mcp.folders": [],
        "notify.details": False,
        "notify.webhook": None,
        "notify.webhook_secret": None,
        "sandbox.mode": "namespaces",
    }
    assert json.loads(canonical_json(settings.consented())) == settings.consented()


_hosts = st.frozensets(st.builds(HostPort, st.sampled_from(["nas.lan", "localhost"]), st.integers(1, 3)), max_size=3)
_webhooks = st.sampled_from([(None, None), ("https://a.example/", "hook"), ("https://b.example", "key")])
_files = st.sampled_from([(None, None), (Path("/nowhere/ca.pem"), PEM), (Path("/nowhere/b.pem"), "another")])
_addresses = st.builds(ListenAddress, st.sampled_from(["192.0.2.1", "2001:db8::1"]), st.integers(8443, 8444))
_certificates = st.sampled_from([(Path("/nowhere/own.pem"), PEM), (Path("/nowhere/other.pem"), "another")])
_upstreams = st.builds(
    Upstream,
    st.sampled_from(["https://api.anthropic.com", "https://api.openai.com", "http://localhost:1/a"]),
    st.sampled_from([None, "claude"]),
)
_gateways = st.builds(GatewaySettings, _upstreams, _upstreams, st.booleans())
_tokens = st.sampled_from([None, "forge-token"])
_storages = st.sampled_from([(), ("https://a.example", "https://b.example:8443")])
_forges = st.builds(
    ForgeSettings,
    st.builds(GitHubSettings, storage=_storages, token=_tokens)
    | st.just(GitHubSettings("https://ghe.example", "https://ghe.example/api/v3", "https://ghe.example/raw", (), None)),
    st.builds(GitLabSettings, st.sampled_from(["https://gitlab.com", "https://git.example/lab"]), _storages, _tokens),
    st.builds(HubSettings, st.sampled_from([None, "https://hub.example/index"])),
)
_folders = st.sampled_from([(), (("/w", parse_selectors(["a-*", "tag:a"])),), (("/w/b", parse_selectors(["x"])),)])
_launches = st.builds(
    LaunchSettings,
    st.sampled_from([None, True, False]),
    st.builds(
        CellSettings,
        allow_read=st.sampled_from([(), ("/opt/a", "/srv/b c")]),
        allow_write=st.sampled_from([(), ("/srv/w",)]),
        allow_hosts=st.sampled_from([(), ("*.example.com", "nas:443", "npm")]),
        allow_env=st.sampled_from([(), ("JAVA_HOME",)]),
        ask_hosts=st.booleans(),
        memory_mb=st.sampled_from([64, 8192]),
    ),
)
_mcp = st.builds(McpSettings, st.integers(0, 1), st.sampled_from([(), parse_selectors(["tag:mail"])]), _folders)


@st.composite
def _settings(draw: st.DrawFn) -> Settings:
    webhook, secret = draw(_webhooks)
    ca_file, ca_pem = draw(_files)
    listen = draw(st.none() | _addresses)
    certificate, certificate_pem = (None, None) if listen is None else draw(_certificates)
    return Settings(
        egress_private=draw(_hosts),
        egress_private_plain=draw(_hosts),
        egress_ca_file=ca_file,
        egress_ca_pem=ca_pem,
        sandbox_mode=draw(st.sampled_from(["namespaces", "landlock"])),
        daemon_port=draw(st.none() | st.integers(1024, 1030)),
        daemon_listen=listen,
        daemon_certificate=certificate,
        daemon_certificate_key=None if certificate is None else certificate.with_suffix(".key"),
        daemon_certificate_pem=certificate_pem,
        gateway=draw(_gateways),
        forges=draw(_forges),
        connectors_require_signature=draw(st.booleans()),
        launch=draw(_launches),
        mcp=draw(_mcp),
        notify_desktop=draw(st.booleans()),
        notify_details=draw(st.booleans()),
        notify_webhook=webhook,
        notify_webhook_secret=secret,
    )


@given(_settings())
def test_applying_a_consent_that_equals_the_current_settings_changes_nothing(settings: Settings) -> None:
    """The certificate file is not read again, because its bytes are already known."""
    assert settings.with_consented(settings.consented()) == settings


@given(_settings(), _settings())
def test_only_settings_that_need_consent_come_from_the_consent(file: Settings, agreed: Settings) -> None:
    """All other settings come from config.toml."""
    in_force = file.with_consented(json.loads(json.dumps(agreed.consented())))
    lost = {
        name: None
        for name, wanted, read in (
            ("egress.ca_file_sha256", agreed.egress_ca_pem, file.egress_ca_pem),
            ("daemon.certificate_sha256", agreed.daemon_certificate_pem, file.daemon_certificate_pem),
        )
        if wanted not in {None, read}
    }
    expected = agreed.consented() | lost

    assert in_force.consented() == expected
    assert (in_force.daemon_port, in_force.notify_desktop) == (file.daemon_port, file.notify_desktop)
    assert (in_force.mcp.find_above, in_force.mcp.keep_listed) == (file.mcp.find_above, file.mcp.keep_listed)
    assert in_force.launch.limits() == file.launch.limits()
    assert in_force.egress_ca_pem in {None, agreed.egress_ca_pem}
    assert in_force.daemon_certificate_pem in {None, agreed.daemon_certificate_pem}


def test_approved_certificates_are_found_by_their_digest(tmp_path: Path) -> None:
    """The file at the approved path is used if config.toml names another one, but only with the approved bytes."""
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


def test_a_setting_missing_from_an_older_consent_has_its_default() -> None:
    """The file's value is not used, because no person consented to it."""
    file = Settings(
        egress_private=frozenset({HostPort("nas.lan", 1)}),
        notify_webhook="https://a.example/",
        notify_webhook_secret="k",
    )

    assert file.with_consented({}) == Settings()
    assert file.with_consented({"sandbox.mode": "landlock"}) == Settings(sandbox_mode="landlock")


def test_a_self_hosted_forge_has_its_api_and_files_below_its_url(tmp_path: Path) -> None:
    """GitHub Enterprise Server and GitLab have them there; the storage hosts of the public forge are not trusted for it."""
    forges = load(
        tmp_path,
        '[forges.github]\nurl = "https://ghe.example.com/"\ntoken = "ghe"\n'
        '[forges.gitlab]\nurl = "https://git.example.com:8443/lab"\n'
        'storage = ["https://s3.example.com"]\n[hub]\nurl = "https://files.example.com/hub/"\n'
        "[connectors]\nrequire_signature = true\n",
    ).forges

    assert forges == ForgeSettings(
        github=GitHubSettings(
            "https://ghe.example.com", "https://ghe.example.com/api/v3", "https://ghe.example.com/raw", (), "ghe"
        ),
        gitlab=GitLabSettings("https://git.example.com:8443/lab", ("https://s3.example.com",), None),
        hub=HubSettings("https://files.example.com/hub"),
    )


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("[forges.github]\nurl = 'http://ghe.example.com'", "forges.github.url is not an https address"),
        ("[forges.github]\nurl = 'https://a@ghe.example.com'", "forges.github.url is not an https address"),
        ("[forges.github]\nurl = 'https://ghe.example.com/a/../b'", "forges.github.url is not an https address"),
        ("[forges.github]\napi = 7", "'api' is an integer; expected a string"),
        (
            "[forges.github]\nurl = 'https://1.2.3'",
            "forges.github.url is not HOST:PORT: '1.2.3' looks like an IP address",
        ),
        ("[forges.gitlab]\nstorage = 'https://a.example'", "'storage' is a string; expected an array of strings"),
        ("[forges.gitlab]\nstorage = ['https://a.example/x']", "forges.gitlab.storage is not a list of origins"),
        ("[forges.gitlab]\nstorage = ['http://a.example']", "forges.gitlab.storage is not a list of origins"),
        ("[forges.gitlab]\ntoken = 'A b'", "forges.gitlab.token is not the name of a secret"),
        ("[forges.bitbucket]\nurl = 'https://x.example'", "unknown key 'bitbucket' in [forges]"),
        ("[hub]\nurl = 'hub.example.com'", "hub.url is not an https address"),
        ("[connectors]\nrequire_signature = 'yes'", "'require_signature' is a string; expected a boolean"),
    ],
)
def test_an_invalid_forge_is_refused(tmp_path: Path, text: str, problem: str) -> None:
    """Schemes are a closed list, and every address is https."""
    assert problem in refusal(tmp_path, text + "\n")


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
        {"daemon.listen": "192.0.2.1:8443"},
        {"gateway.require_vault": "no"},
        {"gateway.upstreams.openai.url": "http://api.example.com"},
    ],
)
def test_stored_settings_that_no_person_could_have_approved_are_refused(values: dict[str, Any]) -> None:
    """The stored consent comes from a file that another program may have changed."""
    with pytest.raises(AileronError, match="what was agreed to"):
        Settings().with_consented(values)


def test_a_consent_from_before_the_gateway_settings_existed_is_still_valid() -> None:
    """The old consent covers only seven settings. Later ones need no new consent until the user changes them."""
    before = Settings(egress_private=frozenset({HostPort("nas.lan", 1)})).consented()
    seven = {key: value for key, value in before.items() if key.startswith(("egress.", "notify.webhook", "sandbox."))}
    assert len(seven) == 7

    in_force = Settings().with_consented(seven)
    assert in_force.consented() == before
    assert consented_form(in_force.consented()) == seven


@given(_settings(), _settings())
def test_different_settings_never_have_the_same_signed_form(first: Settings, other: Settings) -> None:
    """Defaults are left out of the form, so no other value may be left out too."""
    forms = [canonical_json(consented_form(settings.consented())) for settings in (first, other)]

    assert (forms[0] == forms[1]) == (first.consented() == other.consented())
