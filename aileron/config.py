"""Every setting, frozen, with its unit, its default and the reason for the default.

Read once when the daemon starts from `config.toml` in the home; a key that is not listed here is an error with its name
and the nearest valid one. Where a value comes from the environment, it is `AILERON_HOME` and nothing else.

Some settings decide what may be reached, how strong a jail is and where something is sent by itself. Anybody who can write the
file could change them, so where an approver exists, those are in force as a person agreed to them last: `CONSENTED` lists them,
`Settings.consented` says what a person is shown, `Settings.with_consented` puts what was agreed to in place of the file's. The
certificates of `egress.ca_file` and `daemon.certificate` are read here, once: what was agreed to is those bytes, not what lies at
the path by then.

Source: docs/reference/configuration.md, checked against `Settings`; docs/reference/consents.md. Not here: what was agreed to (the
vault), asking (daemon/).
"""

from __future__ import annotations

import dataclasses
import difflib
import ipaddress
import os
import re
import stat
import tomllib
from pathlib import Path
from typing import Any, Final, Literal, cast, get_args

from aileron import files
from aileron.model.failure import AileronError, FailureClass
from aileron.model.names import HostPort

__all__ = [
    "CONSENTED",
    "MAX_CONFIG_BYTES",
    "NAMING_A_SECRET",
    "SETTINGS",
    "ForgeSettings",
    "GatewaySettings",
    "GitHubSettings",
    "GitLabSettings",
    "Home",
    "HubSettings",
    "ListenAddress",
    "SandboxMode",
    "Settings",
    "Upstream",
    "agreed_form",
    "keep_port",
    "load_settings",
    "parse_settings",
    "written_settings",
]

SandboxMode = Literal["namespaces", "landlock"]

MAX_CONFIG_BYTES: Final = 1 << 20
"""1 MiB: a file that a person writes by hand."""
MAX_CERTIFICATE_CHARS: Final = 1 << 16
"""Of a certificate with its chain: it goes to ingress in one packet (ingress/messages.py); four of 4096 bits are 10 KiB."""
MAX_CA_BYTES: Final = 1 << 20
"""1 MiB: all authorities of a distribution take about a fifth of that."""
_MAX_URL: Final = 2048
"""Characters of a URL; what servers and proxies take at least (RFC 9110 section 4.1 asks for 8000)."""
_WEBHOOK: Final = re.compile(r"https://([a-z0-9.-]+)(?::([0-9]+))?(?:/[!-\"$-\[\]-~]*)?")
_UPSTREAM: Final = re.compile(r"(https?)://([a-z0-9.-]+)(?::([0-9]+))?((?:/[A-Za-z0-9._~-]+)*)/?")
"""A path is plain segments: nothing in it that two programs could read differently."""
_DURATION: Final = re.compile(r"([1-9][0-9]{0,5})([smh])")
_LONGEST_S: Final = 24 * 3600
_SECRET_NAME: Final = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}")
"""As vault/bindings.py has it."""


@dataclasses.dataclass(frozen=True)
class Home:
    """Where everything of one user lives: `~/.aileron`, or `AILERON_HOME`. Directories are 0700."""

    path: Path

    @classmethod
    def from_environment(cls) -> Home:
        """`$AILERON_HOME`, else `~/.aileron`; always absolute."""
        configured = os.environ.get("AILERON_HOME")
        return cls(Path(configured).absolute() if configured else Path.home() / ".aileron")

    @property
    def actions(self) -> Path:
        """One `NAME.md` per action."""
        return self.path / "actions"

    @property
    def action_state(self) -> Path:
        """Which actions are switched off."""
        return self.path / "action-state.json"

    @property
    def agreed(self) -> Path:
        """What a person agreed to, by its digest: texts of actions, certificates, settings."""
        return self.path / "agreed"

    @property
    def connectors(self) -> Path:
        """The content-addressed store: `sha256/<hex>/{connector,manifest.toml}`."""
        return self.path / "store" / "connectors"

    @property
    def fetched(self) -> Path:
        """Archives that were fetched and are not installed yet."""
        return self.path / "store" / "fetched"

    @property
    def installing(self) -> Path:
        """What is being installed together, while it is."""
        return self.path / "store" / "installing.json"

    @property
    def published(self) -> Path:
        """Action files as they were published, for the next update to be merged with."""
        return self.path / "store" / "actions"

    @property
    def vault(self) -> Path:
        """Encrypted secrets."""
        return self.path / "vault.json"

    @property
    def approver_key(self) -> Path:
        """The private half of the approver's key, under their passphrase."""
        return self.path / "approver.json"

    @property
    def ledger(self) -> Path:
        """What happened."""
        return self.path / "ledger.db"

    @property
    def config(self) -> Path:
        """This module's file."""
        return self.path / "config.toml"

    @property
    def run(self) -> Path:
        """Sockets, lock, pid, `daemon.json`."""
        return self.path / "run"

    @property
    def mcp_answers(self) -> Path:
        """What agents are answered first, for the relay that starts the next daemon."""
        return self.run / "mcp-answers.json"

    @property
    def logs(self) -> Path:
        """The daemon's own log."""
        return self.path / "logs"

    @property
    def agent_socket(self) -> Path:
        """HTTP, agent scope."""
        return self.run / "agent.sock"

    @property
    def keyring(self) -> Path:
        """Whose signatures count."""
        return self.path / "keyring.json"

    @property
    def operator_socket(self) -> Path:
        """HTTP, every route."""
        return self.run / "operator.sock"

    @property
    def mcp_socket(self) -> Path:
        """The Model Context Protocol, agent scope: for `aileron-mcp`."""
        return self.run / "mcp.sock"


@dataclasses.dataclass(frozen=True)
class ListenAddress:
    """Where to listen beside loopback: the address of one interface, IPv4 or IPv6 in its one spelling, and a port."""

    address: str
    port: int

    @classmethod
    def parse(cls, text: str) -> ListenAddress:
        """Parse `192.0.2.1:8443` or `[2001:db8::1]:8443`. ValueError says what is wrong."""
        address, separator, port = text.rpartition(":")
        bare = address.removeprefix("[").removesuffix("]") if address.startswith("[") else address
        try:
            parsed = ipaddress.ip_address(bare)
        except ValueError:
            raise ValueError("is not ADDRESS:PORT with an IP address") from None
        number = int(port) if re.fullmatch(r"[1-9][0-9]{0,4}", port) else 0
        made = cls(str(parsed), number)
        if not separator or not 1024 <= number <= 65535:
            raise ValueError("has no port from 1024 to 65535")
        if parsed.is_unspecified or parsed.is_multicast or getattr(parsed, "scope_id", None) is not None:
            raise ValueError("is not the address of one interface (`ip address` lists them)")
        if str(made) != text:
            raise ValueError(f"is spelt {str(made)!r}")
        return made

    def __str__(self) -> str:
        return f"[{self.address}]:{self.port}" if ":" in self.address else f"{self.address}:{self.port}"


@dataclasses.dataclass(frozen=True)
class Upstream:
    """Where requests for one provider's API go. `url` is https, or http on loopback, with a path to put before theirs or none.

    `secret` names what is sent there in place of the client's key; None: the client's own key passes.
    """

    url: str
    secret: str | None = None


@dataclasses.dataclass(frozen=True)
class GatewaySettings:
    """The way to the models' APIs."""

    anthropic: Upstream = Upstream("https://api.anthropic.com")
    """For `/v1/messages`, and for `/v1/models` where `anthropic-version` is sent."""
    openai: Upstream = Upstream("https://api.openai.com")
    """For all else."""
    require_vault: bool = True
    """Whether a locked vault stops it. Default yes: an agent that thinks and cannot act wastes what its model costs."""


_GATEWAY_KEYS: Final = (
    "gateway.require_vault",
    "gateway.upstreams.anthropic.url",
    "gateway.upstreams.anthropic.secret",
    "gateway.upstreams.openai.url",
    "gateway.upstreams.openai.secret",
)


@dataclasses.dataclass(frozen=True)
class GitHubSettings:
    """What `github://` means. `storage` are the origins that its downloads are redirected to; `token` names a secret."""

    url: str = "https://github.com"
    api: str = "https://api.github.com"
    raw: str = "https://raw.githubusercontent.com"
    storage: tuple[str, ...] = ("https://objects.githubusercontent.com", "https://release-assets.githubusercontent.com")
    token: str | None = None


@dataclasses.dataclass(frozen=True)
class GitLabSettings:
    """What `gitlab://` means; as for GitHub."""

    url: str = "https://gitlab.com"
    storage: tuple[str, ...] = ("https://cdn.artifacts.gitlab-static.net", "https://storage.googleapis.com")
    token: str | None = None


@dataclasses.dataclass(frozen=True)
class HubSettings:
    """What `hub://` means: the address of a directory that `aileron hub build` made. None: nothing."""

    url: str | None = None


@dataclasses.dataclass(frozen=True)
class ForgeSettings:
    """Where artifacts are published. The schemes are a closed list; a server of one's own takes the place of the public one."""

    github: GitHubSettings = GitHubSettings()
    gitlab: GitLabSettings = GitLabSettings()
    hub: HubSettings = HubSettings()


_FORGE_KEYS: Final = (
    "forges.github.url",
    "forges.github.api",
    "forges.github.raw",
    "forges.github.storage",
    "forges.github.token",
    "forges.gitlab.url",
    "forges.gitlab.storage",
    "forges.gitlab.token",
    "hub.url",
)


@dataclasses.dataclass(frozen=True)
class Settings:
    """What the user may set. Everything else is a constant beside the code that uses it, with its reason."""

    egress_private: frozenset[HostPort] = frozenset()
    """host:port pairs that may resolve to an address that is not public. Default none: promise 3."""
    egress_private_plain: frozenset[HostPort] = frozenset()
    """host:port pairs spoken to without TLS, on loopback only. Default none."""
    egress_ca_file: Path | None = None
    """PEM file of one more certificate authority for what leaves. Default none: the system's."""
    egress_ca_pem: str | None = dataclasses.field(default=None, repr=False, metadata={"keys": ()})
    """What was in that file when it was read. No setting of its own; without it the file has no effect."""
    sandbox_mode: SandboxMode = "namespaces"
    """What jails are made of. Default all layers; `landlock` is weaker, and for machines that forbid user namespaces."""
    daemon_port: int | None = None
    """TCP port of the pages, on loopback only. Default: chosen once, and kept here by the daemon."""
    daemon_listen: ListenAddress | None = None
    """One more address for agents elsewhere, in containers above all, over TLS. Default none: loopback only."""
    daemon_certificate: Path | None = None
    """PEM file of the certificate shown there, with its chain. Default none; needed to listen."""
    daemon_certificate_key: Path | None = None
    """PEM file of its private key. Default none; needed to listen. Not read here: TLS takes only the certificate's own."""
    daemon_certificate_pem: str | None = dataclasses.field(default=None, repr=False, metadata={"keys": ()})
    """What was in the certificate's file when it was read. No setting of its own; without it nothing is listened on."""
    gateway: GatewaySettings = dataclasses.field(default=GatewaySettings(), metadata={"keys": _GATEWAY_KEYS})
    """Where the models' APIs are."""
    forges: ForgeSettings = dataclasses.field(default=ForgeSettings(), metadata={"keys": _FORGE_KEYS})
    """Where artifacts are published. Default: the public forges, and no Hub."""
    connectors_require_signature: bool = False
    """Whether only what is signed by a trusted key may be installed. Default no: a signature is information (seed 003)."""
    notify_desktop: bool = True
    """Whether a question is announced on the desktop, where there is one. Default yes: a question nobody sees expires."""
    notify_webhook: str | None = None
    """https URL that is told of each question, by id. Default none: nothing is sent that nobody asked for."""
    notify_webhook_secret: str | None = None
    """Name of the secret in the vault that signs what is sent there. Default none; needed with a webhook."""
    vault_lock_after_s: float | None = dataclasses.field(default=None, metadata={"keys": ("vault.lock_after",)})
    """Seconds after which a vault that nobody used locks itself. Default never: agents act while nobody is there to unlock it."""

    def consented(self) -> dict[str, Any]:
        """The settings a person agrees to, by the names of CONSENTED, as JSON values; lists are sorted, defaults are there."""
        github, gitlab = self.forges.github, self.forges.gitlab
        return {
            "connectors.require_signature": self.connectors_require_signature,
            "daemon.certificate": _maybe_text(self.daemon_certificate),
            "daemon.certificate_key": _maybe_text(self.daemon_certificate_key),
            "daemon.certificate_sha256": _maybe_digest(self.daemon_certificate_pem),
            "daemon.listen": _maybe_text(self.daemon_listen),
            "egress.ca_file": _maybe_text(self.egress_ca_file),
            "egress.ca_file_sha256": _maybe_digest(self.egress_ca_pem),
            "egress.private": sorted(map(str, self.egress_private)),
            "egress.private_plain": sorted(map(str, self.egress_private_plain)),
            "forges.github.api": github.api,
            "forges.github.raw": github.raw,
            "forges.github.storage": sorted(github.storage),
            "forges.github.token": github.token,
            "forges.github.url": github.url,
            "forges.gitlab.storage": sorted(gitlab.storage),
            "forges.gitlab.token": gitlab.token,
            "forges.gitlab.url": gitlab.url,
            "gateway.require_vault": self.gateway.require_vault,
            "gateway.upstreams.anthropic.secret": self.gateway.anthropic.secret,
            "gateway.upstreams.anthropic.url": self.gateway.anthropic.url,
            "gateway.upstreams.openai.secret": self.gateway.openai.secret,
            "gateway.upstreams.openai.url": self.gateway.openai.url,
            "hub.url": self.forges.hub.url,
            "notify.webhook": self.notify_webhook,
            "notify.webhook_secret": self.notify_webhook_secret,
            "sandbox.mode": self.sandbox_mode,
        }

    def values(self) -> dict[str, Any]:
        """Every setting by its name, as JSON values; `vault.lock_after` in seconds, and None for what is not set."""
        mine = {
            "daemon.port": self.daemon_port,
            "notify.desktop": self.notify_desktop,
            "vault.lock_after": self.vault_lock_after_s,
        }
        found = {**self.consented(), **mine}
        return {key: found[key] for key in SETTINGS}

    def with_consented(self, values: dict[str, Any]) -> Settings:
        """The same with what `consented` gave at another time in place of its own; what is absent there is at its default.

        The certificates are those of the digest that was agreed to: of these settings, or read from the file that is named. Where
        neither has them any more there are none, `consented` then says so, the file's authority is not trusted, and nothing is
        listened on.
        AileronError(invalid_request) for values that `consented` cannot have given.
        """
        where = Path("what was agreed to")
        unknown = sorted(set(values) - set(CONSENTED))
        if unknown:
            raise _refused(where, f"unknown settings {', '.join(map(repr, unknown))}")
        flat = {key: value for key, value in values.items() if value is not None}
        webhook, secret = _webhook(where, flat)
        ca_file = _file(where, flat, "egress.ca_file")
        listen, certificate, key = _listen(where, flat)
        return dataclasses.replace(
            self,
            egress_private=_host_ports(where, flat, "egress.private"),
            egress_private_plain=_host_ports(where, flat, "egress.private_plain"),
            egress_ca_file=ca_file,
            egress_ca_pem=_maybe_agreed_pem(self.egress_ca_pem, ca_file, flat.get("egress.ca_file_sha256")),
            sandbox_mode=_sandbox_mode(where, flat, "sandbox.mode"),
            daemon_listen=listen,
            daemon_certificate=certificate,
            daemon_certificate_key=key,
            daemon_certificate_pem=_maybe_agreed_pem(
                self.daemon_certificate_pem, certificate, flat.get("daemon.certificate_sha256")
            ),
            gateway=_gateway(where, flat),
            forges=_forges(where, flat),
            connectors_require_signature=_require_signature(where, flat),
            notify_webhook=webhook,
            notify_webhook_secret=secret,
        )


SETTINGS: Final = (
    "egress.private",
    "egress.private_plain",
    "egress.ca_file",
    "sandbox.mode",
    "daemon.port",
    "daemon.listen",
    "daemon.certificate",
    "daemon.certificate_key",
    *_GATEWAY_KEYS,
    *_FORGE_KEYS,
    "connectors.require_signature",
    "notify.desktop",
    "notify.webhook",
    "notify.webhook_secret",
    "vault.lock_after",
)
"""Every setting, by its name in the file, in the order of the page."""
CONSENTED: Final = (
    "connectors.require_signature",
    "daemon.certificate",
    "daemon.certificate_key",
    "daemon.certificate_sha256",
    "daemon.listen",
    "egress.ca_file",
    "egress.ca_file_sha256",
    "egress.private",
    "egress.private_plain",
    "forges.github.api",
    "forges.github.raw",
    "forges.github.storage",
    "forges.github.token",
    "forges.github.url",
    "forges.gitlab.storage",
    "forges.gitlab.token",
    "forges.gitlab.url",
    "gateway.require_vault",
    "gateway.upstreams.anthropic.secret",
    "gateway.upstreams.anthropic.url",
    "gateway.upstreams.openai.secret",
    "gateway.upstreams.openai.url",
    "hub.url",
    "notify.webhook",
    "notify.webhook_secret",
    "sandbox.mode",
)
"""What is in force only as a person agreed to it, where an approver exists: the closed list."""
NAMING_A_SECRET: Final = (
    "forges.github.token",
    "forges.gitlab.token",
    "gateway.upstreams.anthropic.secret",
    "gateway.upstreams.openai.secret",
    "notify.webhook_secret",
)
"""Those whose value is the name of a secret in the vault."""
_FIRST_CONSENTED: Final = frozenset(
    {
        "egress.ca_file",
        "egress.ca_file_sha256",
        "egress.private",
        "egress.private_plain",
        "notify.webhook",
        "notify.webhook_secret",
        "sandbox.mode",
    }
)
"""Those that were there when the first home's settings were agreed to: in every digest of them, with their defaults."""


def agreed_form(values: dict[str, Any]) -> dict[str, Any]:
    """What of `Settings.consented` counts when two sets of settings are compared by their digest.

    A setting that came later and is at its default says what an agreement of before it said, which did not name it: a new version
    does not ask about what nobody changed. So a default of those must not change either.
    """
    defaults = Settings().consented()
    return {key: value for key, value in values.items() if key in _FIRST_CONSENTED or value != defaults.get(key)}


def load_settings(path: Path) -> Settings:
    """Read `config.toml`; a missing file means the defaults. AileronError(invalid_request) for anything not understood."""
    try:
        text = _read_regular(path, MAX_CONFIG_BYTES)
    except FileNotFoundError:
        return Settings()
    except OSError as error:
        raise _refused(path, f"cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise _refused(path, f"cannot be read: it {error}") from error
    return parse_settings(text, path)


def written_settings(text: str, path: Path) -> dict[str, Any]:
    """What `text`, the content of `path`, says of each setting by its dotted name, unchecked. AileronError(invalid_request)."""
    try:
        return dict(_flatten(tomllib.loads(text)))
    except (ValueError, RecursionError) as error:
        raise _refused(path, f"cannot be read: {error}") from error


def parse_settings(text: str, path: Path) -> Settings:
    """`text` as `load_settings` reads it from `path`. AileronError(invalid_request) for anything not understood."""
    flat = written_settings(text, path)
    for key in flat:
        if key not in SETTINGS:
            near = difflib.get_close_matches(key, SETTINGS, n=1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            raise _refused(path, f"unknown setting {key!r}{hint}")
    ca_file = _file(path, flat, "egress.ca_file")
    webhook, secret = _webhook(path, flat)
    listen, certificate, certificate_key = _listen(path, flat)
    return Settings(
        egress_private=_host_ports(path, flat, "egress.private"),
        egress_private_plain=_host_ports(path, flat, "egress.private_plain"),
        egress_ca_file=ca_file,
        egress_ca_pem=None if ca_file is None else _pem(path, "egress.ca_file", ca_file),
        sandbox_mode=_sandbox_mode(path, flat, "sandbox.mode"),
        daemon_port=_port(path, flat, "daemon.port"),
        daemon_listen=listen,
        daemon_certificate=certificate,
        daemon_certificate_key=certificate_key,
        daemon_certificate_pem=None if certificate is None else _public_pem(path, certificate),
        gateway=_gateway(path, flat),
        forges=_forges(path, flat),
        connectors_require_signature=_require_signature(path, flat),
        notify_desktop=_boolean(path, flat, "notify.desktop", Settings.notify_desktop),
        notify_webhook=webhook,
        notify_webhook_secret=secret,
        vault_lock_after_s=_duration_s(path, flat, "vault.lock_after"),
    )


def keep_port(path: Path, port: int) -> None:
    """Write `daemon.port` into `config.toml`, and change nothing else in it. AileronError(invalid_request)."""
    import tomlkit  # 30 ms, needed once in the life of a home
    from tomlkit.exceptions import TOMLKitError

    directory = path.parent
    try:
        with files.open_directory(directory, files.OTHERS_MAY_WRITE) as opened:
            try:
                document = tomlkit.parse(files.read(opened, path, MAX_CONFIG_BYTES).decode())
            except FileNotFoundError:
                document = tomlkit.document()
            table = document.setdefault("daemon", tomlkit.table())
            table["port"] = port
            files.replace(opened, path, tomlkit.dumps(document).encode())
    except (AileronError, OSError, UnicodeDecodeError, TOMLKitError) as error:
        why = f"the port of the pages cannot be kept there ({error}): put `port = {port}` under [daemon] yourself"
        raise _refused(path, why) from error


def _flatten(table: dict[str, Any], prefix: str = "") -> list[tuple[str, Any]]:
    pairs: list[tuple[str, Any]] = []
    for key, value in table.items():
        if isinstance(value, dict):
            pairs.extend(_flatten(value, f"{prefix}{key}."))
        else:
            pairs.append((prefix + key, value))
    return pairs


def _host_ports(path: Path, flat: dict[str, Any], key: str) -> frozenset[HostPort]:
    values = flat.get(key, [])
    if not isinstance(values, list) or not all(isinstance(value, str) for value in values):
        raise _refused(path, f'{key} is not a list of "HOST:PORT" strings')
    try:
        return frozenset(HostPort.parse(value) for value in values)
    except ValueError as error:
        raise _refused(path, f"{key}: {error}") from error


def _file(path: Path, flat: dict[str, Any], key: str) -> Path | None:
    value = flat.get(key)
    if value is None:
        return None
    if not isinstance(value, str) or not Path(value).is_absolute():
        raise _refused(path, f"{key} is not an absolute path")
    return Path(value)


def _pem(path: Path, key: str, file: Path) -> str:
    try:
        return _read_pem(file)
    except OSError as error:
        problem = error.strerror or "cannot be read"
    except ValueError as error:
        problem = str(error)
    raise _refused(path, f"{key} {file}: {problem}; it must be a PEM certificate file")


def _public_pem(path: Path, certificate: Path) -> str:
    pem = _pem(path, "daemon.certificate", certificate)
    if len(pem) > MAX_CERTIFICATE_CHARS:
        raise _refused(
            path,
            f"daemon.certificate {certificate} is over {MAX_CERTIFICATE_CHARS >> 10} KiB: a certificate and its chain",
        )
    if "PRIVATE KEY-----" in pem:
        why = f"daemon.certificate {certificate} holds a private key: keep that in the file of daemon.certificate_key alone"
        raise _refused(path, why)
    return pem


def _read_pem(file: Path) -> str:
    """The text of a certificate file. OSError or ValueError; whether it holds a certificate, its user sees."""
    return _read_regular(file, MAX_CA_BYTES)


def _read_regular(file: Path, limit_bytes: int) -> str:
    """The text of a file, whosever it is and wherever its links lead. OSError, or ValueError of an end to "FILE …"."""
    descriptor = os.open(file, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)  # a FIFO must not hold us
    with open(descriptor, "rb") as opened:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise ValueError("is not a regular file")
        data = opened.read(limit_bytes + 1)
    if len(data) > limit_bytes:
        raise ValueError(f"is larger than {limit_bytes >> 20} MiB")
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise ValueError("is not text in UTF-8") from None


def _maybe_agreed_pem(read: str | None, file: Path | None, digest: object) -> str | None:
    """The text of this digest: the one that was read already, or what is in the file."""
    if file is None or digest is None:
        return None
    if read is not None and _digest(read) == digest:
        return read
    try:
        pem = _read_pem(file)
    except (OSError, ValueError):
        return None
    return pem if _digest(pem) == digest else None


def _maybe_text(value: object) -> str | None:
    return None if value is None else str(value)


def _maybe_digest(pem: str | None) -> str | None:
    return None if pem is None else _digest(pem)


def _digest(pem: str) -> str:
    from aileron.model.canonical import sha256_digest  # a command that reads where its home is has no need of it

    return sha256_digest(pem.encode())


def _webhook(path: Path, flat: dict[str, Any]) -> tuple[str | None, str | None]:
    """The URL and the name of the secret: both or neither."""
    url, secret = flat.get("notify.webhook"), flat.get("notify.webhook_secret")
    if (url is None) != (secret is None):
        raise _refused(path, "notify.webhook and notify.webhook_secret go together: what is sent is signed")
    if url is None or secret is None:
        return None, None
    if not isinstance(url, str) or (problem := _url_problem(url)):
        why = "a string" if not isinstance(url, str) else problem
        raise _refused(path, f"notify.webhook is not an https URL such as https://hooks.example.com/aileron: {why}")
    if not isinstance(secret, str) or not _SECRET_NAME.fullmatch(secret):
        raise _refused(path, "notify.webhook_secret is not the name of a secret, as `aileron secret set NAME` takes it")
    return url, secret


def _url_problem(url: str) -> str | None:
    # A grammar, not a parser: there is one of those (egress/url.py), for what is sent.
    found = _WEBHOOK.fullmatch(url)
    if found is None or len(url) > _MAX_URL:
        return f"at most {_MAX_URL} visible ASCII characters, a host in lower case, no user and no fragment"
    host, port = found[1], found[2]
    try:
        HostPort.parse(f"{host}:{port or 443}")
    except ValueError as error:
        return str(error)
    return None


def _listen(path: Path, flat: dict[str, Any]) -> tuple[ListenAddress | None, Path | None, Path | None]:
    """Address, certificate, key: all or none."""
    value = flat.get("daemon.listen")
    certificate, key = _file(path, flat, "daemon.certificate"), _file(path, flat, "daemon.certificate_key")
    if value is None and certificate is None and key is None:
        return None, None, None
    if value is None or certificate is None or key is None:
        why = "daemon.listen, daemon.certificate and daemon.certificate_key go together: what is served elsewhere is encrypted"
        raise _refused(path, why)
    if not isinstance(value, str):
        raise _refused(path, 'daemon.listen is not an "ADDRESS:PORT" string')
    try:
        return ListenAddress.parse(value), certificate, key
    except ValueError as error:
        raise _refused(path, f"daemon.listen {value!r} {error}; it is written as in 192.0.2.1:8443") from error


def _gateway(path: Path, flat: dict[str, Any]) -> GatewaySettings:
    return GatewaySettings(
        anthropic=_upstream(path, flat, "anthropic", GatewaySettings.anthropic),
        openai=_upstream(path, flat, "openai", GatewaySettings.openai),
        require_vault=_boolean(path, flat, "gateway.require_vault", GatewaySettings.require_vault),
    )


def _upstream(path: Path, flat: dict[str, Any], provider: str, default: Upstream) -> Upstream:
    key = f"gateway.upstreams.{provider}"
    url = flat.get(f"{key}.url", default.url)
    if not isinstance(url, str) or (problem := _upstream_problem(url)):
        why = "a string is needed" if not isinstance(url, str) else problem
        raise _refused(path, f"{key}.url is not a URL such as {default.url}: {why}")
    return Upstream(url, _secret_name(path, flat, f"{key}.secret"))


def _upstream_problem(url: str) -> str | None:
    found = _UPSTREAM.fullmatch(url)
    if found is None or len(url) > _MAX_URL:
        return f"https, a host in lower case, plain path segments, at most {_MAX_URL} characters; no user, query or fragment"
    scheme, host, port, prefix = found.groups()
    try:
        HostPort.parse(f"{host}:{port or 443}")
    except ValueError as error:
        return str(error)
    if scheme == "http" and host != "localhost" and not re.fullmatch(r"127(\.[0-9]+){3}", host):
        return "http is for loopback only, so that no key is sent in the clear"
    segments = prefix.split("/")
    if not {".", ".."}.isdisjoint(segments):
        return "a path is written without . and .."
    return "leave out /v1, which every request brings" if segments[-1] == "v1" else None


def _forges(path: Path, flat: dict[str, Any]) -> ForgeSettings:
    """A server of one's own has its API and its files below its own address, as GitHub Enterprise Server and GitLab do."""
    public, gitlab = GitHubSettings(), GitLabSettings()
    url = _base(path, flat, "forges.github.url", public.url)
    is_public, other = url == public.url, _base(path, flat, "forges.gitlab.url", gitlab.url)
    github = GitHubSettings(
        url=url,
        api=_base(path, flat, "forges.github.api", public.api if is_public else f"{url}/api/v3"),
        raw=_base(path, flat, "forges.github.raw", public.raw if is_public else f"{url}/raw"),
        storage=_origins(path, flat, "forges.github.storage", public.storage if is_public else ()),
        token=_secret_name(path, flat, "forges.github.token"),
    )
    return ForgeSettings(
        github=github,
        gitlab=GitLabSettings(
            url=other,
            storage=_origins(path, flat, "forges.gitlab.storage", gitlab.storage if other == gitlab.url else ()),
            token=_secret_name(path, flat, "forges.gitlab.token"),
        ),
        hub=HubSettings(url=_base(path, flat, "hub.url", "") or None),
    )


def _base(path: Path, flat: dict[str, Any], key: str, default: str) -> str:
    """An address that paths are put behind, without the last slash."""
    value = flat.get(key, default)
    found = _UPSTREAM.fullmatch(value) if isinstance(value, str) and len(value) <= _MAX_URL else None
    if key not in flat:
        return default
    if found is None or found[1] != "https" or not {".", ".."}.isdisjoint(found[4].split("/")):
        raise _refused(
            path, f"{key} is not an https address such as https://forge.example.com, without user, query or fragment"
        )
    _check_host(path, key, found)
    return value.removesuffix("/") if isinstance(value, str) else default


def _origins(path: Path, flat: dict[str, Any], key: str, default: tuple[str, ...]) -> tuple[str, ...]:
    values = flat.get(key, list(default))
    found = (
        [_UPSTREAM.fullmatch(one) if isinstance(one, str) else None for one in values]
        if isinstance(values, list)
        else [None]
    )
    if not all(one is not None and one[1] == "https" and not one[4] and not one[0].endswith("/") for one in found):
        raise _refused(path, f'{key} is not a list of origins such as "https://storage.example.com"')
    for one in found:
        if one is not None:
            _check_host(path, key, one)
    return tuple(sorted(values))


def _check_host(path: Path, key: str, found: re.Match[str]) -> None:
    try:
        HostPort.parse(f"{found[2]}:{found[3] or 443}")
    except ValueError as error:
        raise _refused(path, f"{key}: {error}") from None


def _secret_name(path: Path, flat: dict[str, Any], key: str) -> str | None:
    value = flat.get(key)
    if value is not None and (not isinstance(value, str) or not _SECRET_NAME.fullmatch(value)):
        raise _refused(path, f"{key} is not the name of a secret, as `aileron secret set NAME` takes it")
    return value


def _require_signature(path: Path, flat: dict[str, Any]) -> bool:
    return _boolean(path, flat, "connectors.require_signature", Settings.connectors_require_signature)


def _duration_s(path: Path, flat: dict[str, Any], key: str) -> float | None:
    value = flat.get(key)
    if value is None:
        return None
    found = _DURATION.fullmatch(value) if isinstance(value, str) else None
    seconds = int(found[1]) * {"s": 1, "m": 60, "h": 3600}[found[2]] if found else 0
    if not 1 <= seconds <= _LONGEST_S:
        raise _refused(path, f'{key} is not a time from "1s" to "24h", such as "15m" or "8h"')
    return float(seconds)


def _boolean(path: Path, flat: dict[str, Any], key: str, default: bool) -> bool:
    value = flat.get(key, default)
    if isinstance(value, bool):
        return value
    raise _refused(path, f"{key} is neither true nor false")


def _sandbox_mode(path: Path, flat: dict[str, Any], key: str) -> SandboxMode:
    value = flat.get(key, Settings.sandbox_mode)
    if value not in get_args(SandboxMode):
        raise _refused(path, f"{key} is {value!r}, not one of {', '.join(map(repr, get_args(SandboxMode)))}")
    return cast(SandboxMode, value)


def _port(path: Path, flat: dict[str, Any], key: str) -> int | None:
    value = flat.get(key)
    if value is None or (isinstance(value, int) and not isinstance(value, bool) and 1024 <= value <= 65535):
        return value
    raise _refused(path, f"{key} is not a port number from 1024 to 65535")


def _refused(path: Path, why: str) -> AileronError:
    return AileronError(FailureClass.INVALID_REQUEST, f"{path}: {why}")
