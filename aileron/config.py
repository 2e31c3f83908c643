"""All settings as frozen values, each with its unit, its default and the reason for the default.

The settings are read from `config.toml` in the home, by the parser of all documents with a closed schema (model/document.py). A
key that is not in SCHEMA is an error, whose message names the line and the nearest valid key. The only setting from the
environment is `AILERON_HOME`.

Some settings determine what can be reached, how strong a jail is and where data is sent without asking. Every process that can
write the file could change them. So if there is an approver, the values in force are the ones that a person last consented to.
`CONSENTED` lists them, `Settings.consented` returns the values that a person is shown, and `Settings.with_consented` replaces
the file's values by the values with consent. The certificates of `egress.ca_file` and `daemon.certificate` are read once, here:
the consent covers those bytes, and not a file that is at the path later.

Source: docs/reference/configuration.md, checked against `Settings`; docs/reference/consents.md. Not here: the stored consent (the
vault), asking (daemon/).
"""

from __future__ import annotations

import ipaddress
import os
import re
import stat
import tomllib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, Final, Literal, TypeVar, get_args

import msgspec

from aileron import files
from aileron.model.canonical import canonical_json, sha256_digest
from aileron.model.document import Field, Kind, Table, read_document, read_values, rows
from aileron.model.failure import AileronError, Boundary, FailureClass
from aileron.model.host_pattern import MAX_HOST_PATTERNS, HostPattern
from aileron.model.json_value import JSONObject, dict_of
from aileron.model.names import HostPort
from aileron.model.selecting import Selector, parse_selector, parse_selectors

__all__ = [
    "CONSENTED",
    "FIELDS",
    "LOCK_S",
    "MAX_CONFIG_BYTES",
    "NAMING_A_SECRET",
    "SCHEMA",
    "SETTINGS",
    "CellSettings",
    "ForgeSettings",
    "GatewaySettings",
    "GitHubSettings",
    "GitLabSettings",
    "HubSettings",
    "LaunchSettings",
    "ListenAddress",
    "LiveSettings",
    "McpSettings",
    "SandboxMode",
    "Settings",
    "Upstream",
    "consented_form",
    "keep_port",
    "load_settings",
    "parse_settings",
    "written_settings",
]

SandboxMode = Literal["namespaces", "landlock"]
_T = TypeVar("_T")
_D = TypeVar("_D")

LOCK_S: Final = 5.0
"""Maximum number of seconds that a writer of config.toml waits for another writer. The other writer only reads and
writes a small file.
"""
MAX_CONFIG_BYTES: Final = 1 << 20
"""Maximum size of config.toml in bytes. 1 MiB is ample for a file that a person writes by hand."""
MAX_CERTIFICATE_CHARS: Final = 1 << 16
"""Maximum length of a certificate with its chain, 64 KiB: it is sent to ingress in one packet (ingress/daemon_messages.py). Four
certificates with 4096 bits take 10 KiB.
"""
MAX_CA_BYTES: Final = 1 << 20
"""Maximum size in bytes of the file of certificate authorities, 1 MiB: all authorities of a distribution take about a fifth of
that.
"""
_MAX_URL: Final = 2048
"""Maximum number of characters of a URL. Servers and proxies accept at least as many (RFC 9110 section 4.1 asks for 8000)."""
_MAX_FIND_ABOVE: Final = 1000
"""Largest value of `mcp.find_above`. It is the maximum number of actions, so with this value all actions are always listed."""
_MAX_FOLDERS: Final = 256
_MAX_FOLDER: Final = 4096  # PATH_MAX, limits.h
_MAX_PLACES: Final = 64
"""Maximum number of paths in one of the lists of paths that a cell's agent can see. Each path is a mount, and a cell
can have 256 mounts (aileron_sandbox/cell/policy.py).
"""
_MAX_VARIABLES: Final = 64
_VARIABLE: Final = re.compile(r"(?!AILERON_)[A-Za-z_][A-Za-z0-9_]{0,127}")
"""Pattern of the name of an environment variable. Names that begin with AILERON_ are reserved: Aileron sets these variables for
the agent.
"""
_PRESET: Final = re.compile(r"[a-z][a-z0-9-]{0,31}")
"""Pattern of the name of a preset of hosts. A host without a dot must be listed with its port, so that it cannot be confused
with a preset.
"""
_WEBHOOK: Final = re.compile(r"https://([a-z0-9.-]+)(?::([0-9]+))?(?:/[!-\"$-\[\]-~]*)?")
_UPSTREAM: Final = re.compile(r"(https?)://([a-z0-9.-]+)(?::([0-9]+))?((?:/[A-Za-z0-9._~-]+)*)/?")
"""Pattern of the URL of an upstream. Its path consists of plain segments, which no two programs can interpret differently."""
_DURATION: Final = re.compile(r"([1-9][0-9]{0,5})([smh])")
_LONGEST_S: Final = 24 * 3600
_SECRET_NAME: Final = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}")
"""Pattern of the name of a secret, the same as in vault/bindings.py."""


class ListenAddress(msgspec.Struct, frozen=True):
    """Address to listen on in addition to loopback: the IPv4 or IPv6 address of one interface in its canonical spelling, and a
    port.
    """

    address: str
    port: int

    @classmethod
    def parse(cls, text: str) -> ListenAddress:
        """Parse `192.0.2.1:8443` or `[2001:db8::1]:8443`. Raises ValueError that says what is wrong."""
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
            raise ValueError("is not the address of a network interface (`ip address` lists them)")
        if str(made) != text:
            raise ValueError(f"must be written as {str(made)!r}")
        return made

    def __str__(self) -> str:
        return f"[{self.address}]:{self.port}" if ":" in self.address else f"{self.address}:{self.port}"


class Upstream(msgspec.Struct, frozen=True):
    """Destination of requests for one provider's API. `url` is https, or http on loopback, and may have a path that is put
    before the paths of the requests.

    `secret` names the secret that is sent to the upstream in place of the client's key. If it is None, the client's own key is
    forwarded.
    """

    url: str
    secret: str | None = None


class GatewaySettings(msgspec.Struct, frozen=True):
    """Settings of the gateway to the models' APIs."""

    anthropic: Upstream = Upstream("https://api.anthropic.com")
    """Upstream for `/v1/messages`, and for `/v1/models` if the request has `anthropic-version`."""
    openai: Upstream = Upstream("https://api.openai.com")
    """Upstream for all other requests."""
    require_vault: bool = True
    """True if the gateway refuses requests while the vault is locked. Default yes, because an agent that can think but not act
    wastes the cost of its model.
    """


class GitHubSettings(msgspec.Struct, frozen=True):
    """Servers of `github://`. `storage` are the origins that downloads are redirected to; `token` names a secret."""

    url: str = "https://github.com"
    api: str = "https://api.github.com"
    raw: str = "https://raw.githubusercontent.com"
    storage: tuple[str, ...] = ("https://objects.githubusercontent.com", "https://release-assets.githubusercontent.com")
    token: str | None = None


class GitLabSettings(msgspec.Struct, frozen=True):
    """Servers of `gitlab://`; the fields are those of GitHubSettings."""

    url: str = "https://gitlab.com"
    storage: tuple[str, ...] = ("https://cdn.artifacts.gitlab-static.net", "https://storage.googleapis.com")
    token: str | None = None


class HubSettings(msgspec.Struct, frozen=True):
    """Server of `hub://`: the address of a directory that `aileron hub build` created. None if there is no Hub."""

    url: str | None = None


class ForgeSettings(msgspec.Struct, frozen=True):
    """Servers where artifacts are published. The schemes are a closed list; a private server replaces the public one."""

    github: GitHubSettings = GitHubSettings()
    gitlab: GitLabSettings = GitLabSettings()
    hub: HubSettings = HubSettings()


class McpSettings(msgspec.Struct, frozen=True):
    """Settings of how agents see actions: the number above which they must search for actions, and the actions that
    they can use in each folder.
    """

    find_above: int = 40
    """Largest number of actions that are all listed as tools; if there are more, agents find actions by searching for
    words. Default 40: the descriptions and schemas of 40 actions take 7,000 tokens in each request to a model
    (docs/reference/mcp.md#many-actions). Even many services together usually have fewer actions.
    """
    keep_listed: tuple[Selector, ...] = ()
    """Actions that are listed even if there are more than find_above. Default none."""
    folders: tuple[tuple[str, tuple[Selector, ...]], ...] = ()
    """Pairs, sorted, of a folder and the actions that a session in the folder or below it can use. Default: all actions in all
    folders.
    """

    def of_folder(self, folder: str) -> tuple[Selector, ...] | None:
        """Return the selectors for a session in `folder`: the selectors of the innermost configured folder. None if all actions
        can be used.
        """
        around = [
            entry for entry in self.folders if folder == entry[0] or folder.startswith(entry[0].rstrip("/") + "/")
        ]
        return max(around, key=lambda entry: len(entry[0]))[1] if around else None

    def as_values(self) -> JSONObject:
        """Return these settings by their names in the file, as JSON values."""
        return {
            "mcp.find_above": self.find_above,
            "mcp.folders": [f"{folder}={selector}" for folder, selectors in self.folders for selector in selectors],
            "mcp.keep_listed": [str(selector) for selector in self.keep_listed],
        }


class CellSettings(msgspec.Struct, frozen=True):
    """Settings of an agent's cell: what the agent can see, reach and use in addition to its basic needs and the options of its
    command.
    """

    allow_read: tuple[str, ...] = ()
    """Absolute paths that the agent can read. Default none."""
    allow_write: tuple[str, ...] = ()
    """Absolute paths that the agent can read and change. Default none."""
    allow_hosts: tuple[str, ...] = ()
    """Hosts that the agent can reach: `NAME`, `NAME:PORT`, `*.NAME` or the name of a preset. Default none."""
    allow_env: tuple[str, ...] = ()
    """Names of environment variables that are passed to the agent. Default none, because variables often hold credentials."""
    ask_hosts: bool = True
    """True if a person is asked about any other host that the agent connects to. Default yes, because a refused tool only
    reports that it cannot connect.
    """
    memory_mb: int = 8192
    """Maximum memory of all processes in the cell together, in MiB. The defaults of the limits are explained in the cell's
    policy.
    """
    processes: int = 4096
    """Maximum number of processes and threads in the cell."""
    open_files: int = 65536
    """Maximum number of open descriptors of one process."""
    file_mb: int = 65536
    """Maximum size of one file in MiB."""
    scratch_mb: int = 4096
    """Maximum size of the cell's /tmp, and of its home directory, in MiB each; both are in memory."""


class LaunchSettings(msgspec.Struct, frozen=True):
    """Settings of `aileron launch`, which starts agents."""

    jail: bool | None = None
    """True to start agents in a cell, unless the command says otherwise. None if the person was not asked yet; agents
    are then started without a cell.
    """
    cell: CellSettings = CellSettings()
    """Settings of the cell."""

    def consented(self) -> JSONObject:
        """Return the settings that extend what an agent can see, change or reach, by their names in the file, as JSON values."""
        return {
            "launch.cell.allow_env": list(self.cell.allow_env),
            "launch.cell.allow_hosts": list(self.cell.allow_hosts),
            "launch.cell.allow_read": list(self.cell.allow_read),
            "launch.cell.allow_write": list(self.cell.allow_write),
            "launch.cell.ask_hosts": self.cell.ask_hosts,
            "launch.jail": self.jail,
        }

    def limits(self) -> JSONObject:
        """Return the cell's limits, which need no consent, by their names in the file."""
        return {f"launch.cell.{name}": getattr(self.cell, name) for name in _CELL_LIMITS}

    def with_limits_of(self, other: LaunchSettings) -> LaunchSettings:
        """Return these settings with the limits of the cell taken from `other`."""
        limits = {name: getattr(other.cell, name) for name in _CELL_LIMITS}
        return msgspec.structs.replace(self, cell=msgspec.structs.replace(self.cell, **limits))


_CELL_LIMITS: Final = {
    "memory_mb": range(64, (1 << 25) + 1),
    "processes": range(16, (1 << 20) + 1),
    "open_files": range(64, (1 << 20) + 1),
    "file_mb": range(1, (1 << 25) + 1),
    "scratch_mb": range(1, (1 << 25) + 1),
}
"""Allowed values of each limit of a cell, the same as in the cell's policy."""
_TEXT: Final = Field(Kind.STRING)
_TEXTS: Final = Field(Kind.STRINGS)
_SECRET: Final = Field(Kind.STRING, pattern=_SECRET_NAME.pattern)
_SWITCH: Final = Field(Kind.BOOLEAN)


def _table(**fields: Field) -> Field:
    return Field(Kind.TABLE, fields=fields)


SCHEMA: Final = {
    "egress": _table(private=_TEXTS, private_plain=_TEXTS, ca_file=_TEXT),
    "sandbox": _table(mode=Field(Kind.STRING, choices=get_args(SandboxMode))),
    "daemon": _table(
        port=Field(Kind.INTEGER, bounds=range(1024, 65536)),
        listen=_TEXT,
        certificate=_TEXT,
        certificate_key=_TEXT,
    ),
    "gateway": _table(
        require_vault=_SWITCH,
        upstreams=_table(anthropic=_table(url=_TEXT, secret=_SECRET), openai=_table(url=_TEXT, secret=_SECRET)),
    ),
    "forges": _table(
        github=_table(url=_TEXT, api=_TEXT, raw=_TEXT, storage=_TEXTS, token=_SECRET),
        gitlab=_table(url=_TEXT, storage=_TEXTS, token=_SECRET),
    ),
    "hub": _table(url=_TEXT),
    "connectors": _table(require_signature=_SWITCH),
    "launch": _table(
        jail=_SWITCH,
        cell=_table(
            allow_read=_TEXTS,
            allow_write=_TEXTS,
            allow_hosts=_TEXTS,
            allow_env=_TEXTS,
            ask_hosts=_SWITCH,
            **{name: Field(Kind.INTEGER, bounds=bounds) for name, bounds in _CELL_LIMITS.items()},
        ),
    ),
    "mcp": _table(
        find_above=Field(Kind.INTEGER, bounds=range(_MAX_FIND_ABOVE + 1)), keep_listed=_TEXTS, folders=_TEXTS
    ),
    "notify": _table(desktop=_SWITCH, details=_SWITCH, webhook=_TEXT, webhook_secret=_SECRET),
    "vault": _table(lock_after=_TEXT),
}
"""Schema of config.toml. `_meaning` below interprets the values, beyond checking their kinds."""
FIELDS: Final = {f"{row.table[1:-1]}.{row.key}": row.field for row in rows(SCHEMA)}
"""Fields of SCHEMA by their dotted names."""
SETTINGS: Final = tuple(FIELDS)
"""Names of all settings in the file, in the order of docs/reference/configuration.md."""
_NEVER_CONSENTED: Final = frozenset(
    {
        "daemon.port",
        *(f"launch.cell.{name}" for name in _CELL_LIMITS),
        "mcp.find_above",
        "mcp.keep_listed",
        "notify.desktop",
        "vault.lock_after",
    }
)
_DIGESTS: Final = ("daemon.certificate_sha256", "egress.ca_file_sha256")
"""Names of values that need consent but are not in config.toml: the digests of the certificates' content."""
CONSENTED: Final = tuple(sorted({*SETTINGS, *_DIGESTS} - _NEVER_CONSENTED))
"""Names of the settings that, if there is an approver, are in force only with a person's consent. The list is closed."""
NAMING_A_SECRET: Final = tuple(sorted(key for key, field in FIELDS.items() if field is _SECRET))
"""Names of the settings whose value is the name of a secret in the vault."""
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
"""The settings that existed when consent to settings was introduced. They are in every digest, even with their default values."""


class Settings(msgspec.Struct, frozen=True):
    """The user's settings. All other parameters are constants next to the code that uses them, with their reasons."""

    egress_private: frozenset[HostPort] = frozenset()
    """HOST:PORT pairs that may resolve to an address that is not public. Default none (promise 3)."""
    egress_private_plain: frozenset[HostPort] = frozenset()
    """HOST:PORT pairs that are reached without TLS, on loopback only. Default none."""
    egress_ca_file: Path | None = None
    """PEM file of an additional certificate authority for egress. Default none: only the system's."""
    egress_ca_pem: str | None = None
    """Content of `egress_ca_file` when the file was read; not a separate setting. If None, the file has no effect."""
    sandbox_mode: SandboxMode = "namespaces"
    """Confinement of jails. Default: all layers. `landlock` is weaker, and is meant for machines that forbid user namespaces."""
    daemon_port: int | None = None
    """TCP port of the pages, on loopback only. Default: chosen once by the daemon, which then writes it to config.toml."""
    daemon_listen: ListenAddress | None = None
    """Additional address to listen on over TLS, for agents on other machines, mainly in containers. Default none: loopback
    only.
    """
    daemon_certificate: Path | None = None
    """PEM file of the certificate, with its chain, that is presented at `daemon_listen`. Default none; needed to listen."""
    daemon_certificate_key: Path | None = None
    """PEM file of the certificate's private key. Default none; needed to listen. The file is not read here, because TLS accepts
    only the key that belongs to the certificate.
    """
    daemon_certificate_pem: str | None = None
    """Content of `daemon_certificate` when the file was read; not a separate setting. If None, the daemon does not
    listen on `daemon_listen`.
    """
    gateway: GatewaySettings = GatewaySettings()
    """Addresses of the models' APIs."""
    forges: ForgeSettings = ForgeSettings()
    """Servers where artifacts are published. Default: the public forges, and no Hub."""
    connectors_require_signature: bool = False
    """True if only artifacts signed by a trusted key can be installed. Default no: a signature is only information (seed 003)."""
    launch: LaunchSettings = LaunchSettings()
    """Settings of agents that Aileron starts."""
    mcp: McpSettings = McpSettings()
    """Settings of the actions that agents can see."""
    notify_desktop: bool = True
    """True if questions are announced on the desktop, if there is one. Default yes, because a question that nobody sees
    expires.
    """
    notify_details: bool = False
    """True if notices show the agent's arguments. Default no, because a webhook sends them to another machine, and a locked
    screen may show them.
    """
    notify_webhook: str | None = None
    """https URL to which a notice of each question is sent, with the question's id. Default none: no notice is sent without
    being requested.
    """
    notify_webhook_secret: str | None = None
    """Name of the secret in the vault that signs the notices to the webhook. Default none; needed with a webhook."""
    vault_lock_after_s: float | None = None
    """Seconds without use after which the vault locks itself. None, the default, means never, because agents act while
    nobody is present to unlock the vault.
    """

    def __repr__(self) -> str:
        """Return a text with every field but the text of certificates, which is long."""
        fields = ", ".join(f"{name}={getattr(self, name)!r}" for name in self.__struct_fields__ if name not in _PEMS)
        return f"Settings({fields})"

    def consented(self) -> dict[str, Any]:
        """Return the settings that need consent, by the names of CONSENTED, as JSON values; lists sorted, defaults included."""
        github, gitlab = self.forges.github, self.forges.gitlab
        return {
            "connectors.require_signature": self.connectors_require_signature,
            "daemon.certificate": _maybe_text(self.daemon_certificate),
            "daemon.certificate_key": _maybe_text(self.daemon_certificate_key),
            "daemon.certificate_sha256": _maybe_digest(self.daemon_certificate_pem),
            "daemon.listen": _maybe_text(self.daemon_listen),
            "egress.ca_file": _maybe_text(self.egress_ca_file),
            "egress.ca_file_sha256": _maybe_digest(self.egress_ca_pem),
            "egress.private": [*sorted(map(str, self.egress_private))],
            "egress.private_plain": [*sorted(map(str, self.egress_private_plain))],
            "forges.github.api": github.api,
            "forges.github.raw": github.raw,
            "forges.github.storage": [*sorted(github.storage)],
            "forges.github.token": github.token,
            "forges.github.url": github.url,
            "forges.gitlab.storage": [*sorted(gitlab.storage)],
            "forges.gitlab.token": gitlab.token,
            "forges.gitlab.url": gitlab.url,
            "gateway.require_vault": self.gateway.require_vault,
            "gateway.upstreams.anthropic.secret": self.gateway.anthropic.secret,
            "gateway.upstreams.anthropic.url": self.gateway.anthropic.url,
            "gateway.upstreams.openai.secret": self.gateway.openai.secret,
            "gateway.upstreams.openai.url": self.gateway.openai.url,
            "hub.url": self.forges.hub.url,
            **self.launch.consented(),
            "mcp.folders": self.mcp.as_values()["mcp.folders"],
            "notify.details": self.notify_details,
            "notify.webhook": self.notify_webhook,
            "notify.webhook_secret": self.notify_webhook_secret,
            "sandbox.mode": self.sandbox_mode,
        }

    def values(self) -> JSONObject:
        """Return every setting by its name, as JSON values; None for a setting that is not set. `vault.lock_after` is
        in seconds.
        """
        mine = {
            "daemon.port": self.daemon_port,
            "notify.desktop": self.notify_desktop,
            "vault.lock_after": self.vault_lock_after_s,
        }
        found = {**self.consented(), **mine, **self.launch.limits(), **self.mcp.as_values()}
        return {key: found[key] for key in SETTINGS}

    def differences(self, other: Settings) -> list[str]:
        """Return the sorted names of the settings, and of the certificates' digests, whose values differ between these
        settings and `other`.
        """
        mine, theirs = self._recorded(), other._recorded()
        return [key for key in sorted(mine) if mine[key] != theirs[key]]

    def digest(self) -> str:
        """Return the digest of every setting and certificate, as it is recorded."""
        return sha256_digest(canonical_json(self._recorded()))

    def _recorded(self) -> JSONObject:
        return {**self.values(), **self.consented()}

    def with_consented(self, values: JSONObject) -> Settings:
        """Return these settings with the values that an earlier `consented` returned. A setting that is absent from `values`
        gets its default.

        The result has the certificates whose digests got consent, from these settings or read from the named file. If neither
        still has a certificate with that digest, the result has none in its place. The values of `consented` then show that the
        certificate is missing, and the authority is not trusted, or the daemon does not listen on `daemon_listen`. Raises
        AileronError (invalid_request) for values that `consented` cannot have returned.
        """
        unknown = sorted(set(values) - set(CONSENTED))
        if unknown:
            raise _refused(_AGREED, f"unknown settings {', '.join(map(repr, unknown))}")
        known: JSONObject = {key: value for key, value in values.items() if value is not None}
        ca_digest, digest = known.pop("egress.ca_file_sha256", None), known.pop("daemon.certificate_sha256", None)
        agreed = _meaning(read_values(_nested(known), SCHEMA, file=_AGREED, boundary=Boundary.RUNTIME))
        return msgspec.structs.replace(
            agreed,
            egress_ca_pem=_maybe_agreed_pem(self.egress_ca_pem, agreed.egress_ca_file, ca_digest),
            daemon_certificate_pem=_maybe_agreed_pem(self.daemon_certificate_pem, agreed.daemon_certificate, digest),
            daemon_port=self.daemon_port,
            launch=agreed.launch.with_limits_of(self.launch),
            mcp=msgspec.structs.replace(self.mcp, folders=agreed.mcp.folders),
            notify_desktop=self.notify_desktop,
            vault_lock_after_s=self.vault_lock_after_s,
        )


class LiveSettings:
    """The holder of the settings in force: `now`, which is replaced as a whole when other settings take effect. Users
    of settings keep this object, and read `now` once for each thing that they do.
    """

    def __init__(self, now: Settings) -> None:
        self._now = now

    @property
    def now(self) -> Settings:
        """The settings in force."""
        return self._now

    def replace(self, new: Settings) -> None:
        """Put other settings in force. Only SettingsInForce calls this, after it has checked consent and written the
        record.
        """
        self._now = new


_PEMS: Final = ("egress_ca_pem", "daemon_certificate_pem")
_AGREED: Final = "what was agreed to"


def consented_form(values: JSONObject) -> JSONObject:
    """Return the part of `values`, a result of `Settings.consented`, whose digest is compared with the digest of other
    settings.

    A newer setting at its default is left out, because an older consent did not name it. So a new version does not ask about
    settings that nobody changed. Therefore the default of such a setting must never change.
    """
    defaults = Settings().consented()
    return {key: value for key, value in values.items() if key in _FIRST_CONSENTED or value != defaults.get(key)}


def load_settings(path: Path) -> Settings:
    """Read `config.toml`; a missing file means the defaults. Raises AileronError (invalid_request) for an unknown key or an
    invalid value.
    """
    try:
        text = _read_regular(path, MAX_CONFIG_BYTES)
    except FileNotFoundError:
        return Settings()
    except OSError as error:
        raise _refused(path, f"cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise _refused(path, f"cannot be read: it {error}") from error
    return parse_settings(text, path)


def written_settings(text: str, path: Path) -> JSONObject:
    """Return each setting in `text`, the content of `path`, by its dotted name, without checking the values. Raises
    AileronError (invalid_request) if the text cannot be parsed.
    """
    try:
        return dict(_flat(tomllib.loads(text)))
    except (ValueError, RecursionError) as error:
        raise _refused(path, f"cannot be read: {error}") from error


def parse_settings(text: str, path: Path) -> Settings:
    """Parse `text`, the content of `path`, as `load_settings` does. Raises AileronError (invalid_request) for an
    unknown key or an invalid value.
    """
    document = read_document(
        text.replace("\r\n", "\n"), SCHEMA, file=str(path), boundary=Boundary.RUNTIME, most_bytes=MAX_CONFIG_BYTES
    )
    settings = _meaning(document)
    return msgspec.structs.replace(
        settings,
        egress_ca_pem=_maybe_pem(document.table("egress"), "ca_file", "egress.ca_file", settings.egress_ca_file),
        daemon_certificate_pem=_maybe_public_pem(document.table("daemon"), settings.daemon_certificate),
    )


def keep_port(path: Path, port: int) -> None:
    """Write `daemon.port` into `config.toml`, without changing any other part of the file. Raises AileronError
    (invalid_request).
    """
    directory = path.parent
    try:
        with files.open_directory(directory, files.OTHERS_MAY_WRITE) as opened, files.locked(opened, path, LOCK_S):
            try:
                text = files.read(opened, path, MAX_CONFIG_BYTES).decode()
            except FileNotFoundError:
                text = ""
            files.replace(opened, path, _with_port(text, port).encode())
    except (AileronError, OSError, ValueError) as error:  # tomlkit's errors and UTF-8 decoding errors are ValueErrors
        why = f"the port of the pages could not be saved ({error}): add `port = {port}` under [daemon] yourself"
        raise _refused(path, why) from error


def _with_port(text: str, port: int) -> str:
    if not text:
        return f"[daemon]\nport = {port}\n"
    import tomlkit  # 30 ms, once for a home that began with a file of settings

    document = tomlkit.parse(text)
    table = document.setdefault("daemon", tomlkit.table())
    table["port"] = port
    return tomlkit.dumps(document)


def _flat(table: JSONObject, prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in table.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield prefix + key, value


def _nested(flat: JSONObject) -> JSONObject:
    """Return values by dotted name as nested tables: `{"a.b": 1}` becomes `{"a": {"b": 1}}`. The inverse of `_flat`."""
    found: JSONObject = {}
    for key, value in flat.items():
        *tables, name = key.split(".")
        place = found
        for table in tables:
            place = dict_of(place.setdefault(table, {}))
        place[name] = value
    return found


# The meaning of the values. Their kinds were already checked.


def _meaning(document: Table) -> Settings:
    """Return the settings in a document whose kinds of values were already checked. The files of the certificates are
    not read here.
    """
    webhook, secret = _webhook(document)
    listen, certificate, certificate_key = _listen(document)
    hosts = frozenset[HostPort]()
    return Settings(
        egress_private=_value(document, "egress.private", _host_ports, hosts),
        egress_private_plain=_value(document, "egress.private_plain", _host_ports, hosts),
        egress_ca_file=_value(document, "egress.ca_file", _absolute, None),
        sandbox_mode=_value(document, "sandbox.mode", _as_it_is, Settings().sandbox_mode),
        daemon_port=_value(document, "daemon.port", _as_it_is, None),
        daemon_listen=listen,
        daemon_certificate=certificate,
        daemon_certificate_key=certificate_key,
        gateway=_gateway(document),
        forges=_forges(document),
        connectors_require_signature=_value(document, "connectors.require_signature", _as_it_is, False),
        launch=_launch(document),
        mcp=_mcp(document),
        notify_desktop=_value(document, "notify.desktop", _as_it_is, True),
        notify_details=_value(document, "notify.details", _as_it_is, False),
        notify_webhook=webhook,
        notify_webhook_secret=secret,
        vault_lock_after_s=_value(document, "vault.lock_after", _duration_s, None),
    )


def _value(document: Table, key: str, parse: Callable[[Any], _T], default: _D) -> _T | _D:
    """Return the parsed value of a setting, or the default. The message of a ValueError from `parse` continues a sentence that
    begins with the key.
    """
    *tables, name = key.split(".")
    table = document
    for table_name in tables:
        table = table.table(table_name)
    if name not in table:
        return default
    try:
        return parse(table.value(name))
    except ValueError as error:
        raise table.refuse(name, f"{key} {error}") from None


def _as_it_is(value: Any) -> Any:
    return value


def _host_ports(values: list[str]) -> frozenset[HostPort]:
    return frozenset(map(_host_port, values))


def _host_port(text: str) -> HostPort:
    try:
        return HostPort.parse(text)
    except ValueError as error:
        raise ValueError(f"is not HOST:PORT: {error}") from None


def _absolute(text: str) -> Path:
    if not Path(text).is_absolute():
        raise ValueError("is not an absolute path")
    return Path(text)


def _secret_name(text: str) -> str:
    if not _SECRET_NAME.fullmatch(text):
        raise ValueError("is not the name of a secret, as in `aileron secret set NAME`")
    return text


def _duration_s(text: str) -> float:
    found = _DURATION.fullmatch(text)
    seconds = int(found[1]) * {"s": 1, "m": 60, "h": 3600}[found[2]] if found else 0
    if not 1 <= seconds <= _LONGEST_S:
        raise ValueError('is not a duration from "1s" to "24h", such as "15m" or "8h"')
    return float(seconds)


def _launch(document: Table) -> LaunchSettings:
    default = CellSettings()
    limits = {name: _value(document, f"launch.cell.{name}", _as_it_is, getattr(default, name)) for name in _CELL_LIMITS}
    return LaunchSettings(
        jail=_value(document, "launch.jail", _as_it_is, None),
        cell=CellSettings(
            allow_read=_value(document, "launch.cell.allow_read", _places, ()),
            allow_write=_value(document, "launch.cell.allow_write", _places, ()),
            allow_hosts=_value(document, "launch.cell.allow_hosts", _reached, ()),
            allow_env=_value(document, "launch.cell.allow_env", _variables, ()),
            ask_hosts=_value(document, "launch.cell.ask_hosts", _as_it_is, default.ask_hosts),
            **limits,
        ),
    )


def _places(values: list[str]) -> tuple[str, ...]:
    """Check that the paths are absolute and plain, and return them sorted, because their order is irrelevant."""
    for value in values:
        is_plain = os.path.normpath(value) == value and not value.startswith("//")  # POSIX: a leading // is special
        if not Path(value).is_absolute() or not is_plain or len(value) > _MAX_FOLDER:
            raise ValueError(f"{value[:80]!r} is not an absolute path without `.`, `..` and doubled slashes")
    return _each_once(values, _MAX_PLACES)


def _reached(values: list[str]) -> tuple[str, ...]:
    """Return each host that an agent can reach in its canonical spelling. A word with neither a dot nor a port is a
    preset, which `aileron launch` defines.
    """
    return _each_once(map(_spelled_host, values), MAX_HOST_PATTERNS)


def _spelled_host(value: str) -> str:
    if _PRESET.fullmatch(value):
        return value
    pattern = HostPattern.parse(value)
    spelled = str(pattern)
    return f"{spelled}:{pattern.port}" if _PRESET.fullmatch(spelled) else spelled


def _variables(values: list[str]) -> tuple[str, ...]:
    for value in values:
        if not _VARIABLE.fullmatch(value):
            raise ValueError(f"{value[:80]!r} is not the name of a variable, or is one of Aileron's own (AILERON_…)")
    return _each_once(values, _MAX_VARIABLES)


def _each_once(values: Iterable[str], most: int) -> tuple[str, ...]:
    found = set(values)
    if len(found) > most:
        raise ValueError(f"has {len(found)} entries; at most {most}")
    return tuple(sorted(found))


def _mcp(document: Table) -> McpSettings:
    default = McpSettings()
    return McpSettings(
        find_above=_value(document, "mcp.find_above", _as_it_is, default.find_above),
        keep_listed=_value(document, "mcp.keep_listed", _selectors, ()),
        folders=_value(document, "mcp.folders", _folders, ()),
    )


def _selectors(values: list[str]) -> tuple[Selector, ...]:
    return _each_selector(values) if values else ()


def _each_selector(values: list[str]) -> tuple[Selector, ...]:
    """Return the selectors sorted, because their order is irrelevant and a consent needs one canonical spelling."""
    try:
        return tuple(sorted(parse_selectors(values), key=str))
    except ValueError as error:
        raise ValueError(f"is not a list of selectors: {error}") from None


def _folders(values: list[str]) -> tuple[tuple[str, tuple[Selector, ...]], ...]:
    found: dict[str, list[str]] = {}
    for value in values:
        folder, separator, selector = value.rpartition("=")
        if not separator or not Path(folder).is_absolute() or os.path.normpath(folder) != folder:
            raise ValueError(f"{value[:80]!r} is not FOLDER=SELECTOR with an absolute path, as `pwd -P` prints it")
        if len(folder) > _MAX_FOLDER:
            raise ValueError(f"has a path of {len(folder)} characters")
        parse_selector(selector)
        found.setdefault(folder, []).append(selector)
    if len(found) > _MAX_FOLDERS:
        raise ValueError(f"has {len(found)} folders; at most {_MAX_FOLDERS}")
    return tuple((folder, _each_selector(found[folder])) for folder in sorted(found))


def _webhook(document: Table) -> tuple[str | None, str | None]:
    """Return the webhook's URL and the name of the secret that signs its notices: both, or None for both."""
    url = _value(document, "notify.webhook", _webhook_url, None)
    secret = _value(document, "notify.webhook_secret", _secret_name, None)
    if (url is None) != (secret is None):
        why = "notify.webhook and notify.webhook_secret must be set together, because messages are signed"
        raise document.refuse("notify", why, "webhook" if secret is None else "webhook_secret")
    return url, secret


def _webhook_url(url: str) -> str:
    # A grammar, not a parser: egress/url.py has the only parser of URLs, which checks each URL that is requested.
    found = _WEBHOOK.fullmatch(url)
    problem = f"at most {_MAX_URL} visible ASCII characters, a host in lower case, no user and no fragment"
    if found is not None and len(url) <= _MAX_URL:
        try:
            HostPort.parse(f"{found[1]}:{found[2] or 443}")
        except ValueError as error:
            problem = str(error)
        else:
            return url
    raise ValueError(f"is not an https URL such as https://hooks.example.com/aileron: {problem}")


def _listen(document: Table) -> tuple[ListenAddress | None, Path | None, Path | None]:
    """Return the additional address to listen on, and the files of its certificate and key: all three, or None for all."""
    address = _value(document, "daemon.listen", _listen_address, None)
    certificate = _value(document, "daemon.certificate", _absolute, None)
    key = _value(document, "daemon.certificate_key", _absolute, None)
    if len({setting is None for setting in (address, certificate, key)}) > 1:
        why = (
            "daemon.listen, daemon.certificate and daemon.certificate_key must be set together, because remote "
            "connections are encrypted"
        )
        raise document.refuse("daemon", why)
    return address, certificate, key


def _listen_address(text: str) -> ListenAddress:
    try:
        return ListenAddress.parse(text)
    except ValueError as error:
        raise ValueError(f"{text!r} {error}; expected a form such as 192.0.2.1:8443") from None


def _gateway(document: Table) -> GatewaySettings:
    default = GatewaySettings()
    return GatewaySettings(
        anthropic=_upstream(document, "anthropic", default.anthropic),
        openai=_upstream(document, "openai", default.openai),
        require_vault=_value(document, "gateway.require_vault", _as_it_is, default.require_vault),
    )


def _upstream(document: Table, provider: str, default: Upstream) -> Upstream:
    def parse(url: str) -> str:
        if problem := _upstream_problem(url):
            raise ValueError(f"is not a URL such as {default.url}: {problem}")
        return url

    key = f"gateway.upstreams.{provider}"
    url, secret = (
        _value(document, f"{key}.url", parse, default.url),
        _value(document, f"{key}.secret", _secret_name, None),
    )
    return Upstream(url, secret)


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
        return "http is allowed for loopback only, so that no key is sent unencrypted"
    segments = prefix.split("/")
    if not {".", ".."}.isdisjoint(segments):
        return "the path must not contain . or .."
    return "leave out /v1, which is added to every request" if segments[-1] == "v1" else None


def _forges(document: Table) -> ForgeSettings:
    """Return the settings of the forges. A private server's API and files are below its own address, as with GitHub Enterprise
    Server and GitLab.
    """
    public, public_gitlab = GitHubSettings(), GitLabSettings()
    url = _value(document, "forges.github.url", _base, public.url)
    other = _value(document, "forges.gitlab.url", _base, public_gitlab.url)
    github = public if url == public.url else GitHubSettings(url, f"{url}/api/v3", f"{url}/raw", ())
    gitlab = public_gitlab if other == public_gitlab.url else GitLabSettings(other, ())
    return ForgeSettings(
        github=GitHubSettings(
            url=url,
            api=_value(document, "forges.github.api", _base, github.api),
            raw=_value(document, "forges.github.raw", _base, github.raw),
            storage=_value(document, "forges.github.storage", _origins, github.storage),
            token=_value(document, "forges.github.token", _secret_name, None),
        ),
        gitlab=GitLabSettings(
            url=other,
            storage=_value(document, "forges.gitlab.storage", _origins, gitlab.storage),
            token=_value(document, "forges.gitlab.token", _secret_name, None),
        ),
        hub=HubSettings(url=_value(document, "hub.url", _base, None)),
    )


def _base(text: str) -> str:
    """Check an address that paths are appended to, and return it without its final slash."""
    found = _UPSTREAM.fullmatch(text) if len(text) <= _MAX_URL else None
    if found is None or found[1] != "https" or not {".", ".."}.isdisjoint(found[4].split("/")):
        raise ValueError("is not an https address such as https://forge.example.com, without user, query or fragment")
    _host_port(f"{found[2]}:{found[3] or 443}")
    return text.removesuffix("/")


def _origins(values: list[str]) -> tuple[str, ...]:
    for match in map(_UPSTREAM.fullmatch, values):
        if match is None or match[1] != "https" or match[4] or match[0].endswith("/"):
            raise ValueError('is not a list of origins such as "https://storage.example.com"')
        _host_port(f"{match[2]}:{match[3] or 443}")
    return tuple(sorted(values))


# Files


def _maybe_pem(table: Table, name: str, key: str, file: Path | None) -> str | None:
    try:
        return None if file is None else _read_regular(file, MAX_CA_BYTES)
    except OSError as error:
        problem = error.strerror or "cannot be read"
    except ValueError as error:
        problem = str(error)
    raise table.refuse(name, f"{key} {file}: {problem}; it must be a PEM certificate file")


def _maybe_public_pem(table: Table, certificate: Path | None) -> str | None:
    pem = _maybe_pem(table, "certificate", "daemon.certificate", certificate)
    if pem is not None and len(pem) > MAX_CERTIFICATE_CHARS:
        why = f"is larger than {MAX_CERTIFICATE_CHARS >> 10} KiB; expected a certificate and its chain"
    elif pem is not None and "PRIVATE KEY-----" in pem:
        why = "contains a private key: put it only in the file of daemon.certificate_key"
    else:
        return pem
    raise table.refuse("certificate", f"daemon.certificate {certificate} {why}")


def _read_regular(file: Path, limit_bytes: int) -> str:
    """Return the text of a regular file, whoever owns it and even if it is a link. Raises OSError, or ValueError whose message
    continues "FILE …".
    """
    descriptor = os.open(file, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)  # a FIFO must not block
    with open(descriptor, "rb") as opened:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise ValueError("is not a regular file")
        data = opened.read(limit_bytes + 1)
    if len(data) > limit_bytes:
        raise ValueError(f"is larger than {limit_bytes >> 20} MiB")
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise ValueError("is not valid UTF-8") from None


def _maybe_agreed_pem(read: str | None, file: Path | None, digest: object) -> str | None:
    """Return the PEM text with the digest that got consent: `read`, or else the content of `file`; None if neither has
    that digest.
    """
    if file is None or digest is None:
        return None
    if read is not None and _maybe_digest(read) == digest:
        return read
    try:
        pem = _read_regular(file, MAX_CA_BYTES)
    except (OSError, ValueError):
        return None
    return pem if _maybe_digest(pem) == digest else None


def _maybe_text(value: object) -> str | None:
    return None if value is None else str(value)


def _maybe_digest(pem: str | None) -> str | None:
    return None if pem is None else sha256_digest(pem.encode())


def _refused(path: Path | str, why: str) -> AileronError:
    return AileronError(FailureClass.INVALID_REQUEST, f"{path}: {why}")
