"""Every setting, frozen, with its unit, its default and the reason for the default.

Read once when the daemon starts from `config.toml` in the home; a key that is not listed here is an error with its name
and the nearest valid one. Where a value comes from the environment, it is `AILERON_HOME` and nothing else.

Source: docs/reference/configuration.md, checked against `Settings`.
"""

from __future__ import annotations

import dataclasses
import difflib
import os
import tomllib
from pathlib import Path
from typing import Any, Final, Literal, cast, get_args

from aileron import files
from aileron.model.failure import AileronError, FailureClass
from aileron.model.names import HostPort

__all__ = ["Home", "SandboxMode", "Settings", "keep_port", "load_settings"]

SandboxMode = Literal["namespaces", "landlock"]

MAX_CONFIG_BYTES: Final = 1 << 20
"""1 MiB: a file that a person writes by hand."""


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
    def connectors(self) -> Path:
        """The content-addressed store: `sha256/<hex>/{connector,manifest.toml}`."""
        return self.path / "store" / "connectors"

    @property
    def vault(self) -> Path:
        """Encrypted secrets."""
        return self.path / "vault.json"

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
    def logs(self) -> Path:
        """The daemon's own log."""
        return self.path / "logs"

    @property
    def agent_socket(self) -> Path:
        """HTTP, agent scope."""
        return self.run / "agent.sock"

    @property
    def operator_socket(self) -> Path:
        """HTTP, every route."""
        return self.run / "operator.sock"


@dataclasses.dataclass(frozen=True)
class Settings:
    """What the user may set. Everything else is a constant beside the code that uses it, with its reason."""

    egress_private: frozenset[HostPort] = frozenset()
    """host:port pairs that may resolve to an address that is not public. Default none: promise 3."""
    egress_private_plain: frozenset[HostPort] = frozenset()
    """host:port pairs spoken to without TLS, on loopback only. Default none."""
    egress_ca_file: Path | None = None
    """PEM file of one more certificate authority for what leaves. Default none: the system's."""
    sandbox_mode: SandboxMode = "namespaces"
    """What jails are made of. Default all layers; `landlock` is weaker, and for machines that forbid user namespaces."""
    daemon_port: int | None = None
    """TCP port of the pages, on loopback only. Default: chosen once, and kept here by the daemon."""


_KEYS: Final = ("egress.private", "egress.private_plain", "egress.ca_file", "sandbox.mode", "daemon.port")


def load_settings(path: Path) -> Settings:
    """Read `config.toml`; a missing file means the defaults. AileronError(invalid_request) for anything not understood."""
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return Settings()
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise _refused(path, f"cannot be read: {error}") from error
    flat = dict(_flatten(document))
    for key in flat:
        if key not in _KEYS:
            near = difflib.get_close_matches(key, _KEYS, n=1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            raise _refused(path, f"unknown setting {key!r}{hint}")
    return Settings(
        egress_private=_host_ports(path, flat, "egress.private"),
        egress_private_plain=_host_ports(path, flat, "egress.private_plain"),
        egress_ca_file=_file(path, flat, "egress.ca_file"),
        sandbox_mode=_sandbox_mode(path, flat, "sandbox.mode"),
        daemon_port=_port(path, flat, "daemon.port"),
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
