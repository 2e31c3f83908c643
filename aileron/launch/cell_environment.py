"""The variables that an agent in a cell gets from the person's environment, and the variables made for the cell. Pure.

A variable is passed if it is in a list. All others are left out, because variables contain credentials, and addresses
of signing agents (SSH_AUTH_SOCK) and of the desktop. A person adds names with `--allow-env`. The lists here override
that option only for Aileron's own variables and for variables that lead out of the cell.

An agent's own prefix counts for less than a list: a variable with that prefix is not passed if its name suggests a
credential or a command, except for the agent's own key. A value that contains a credential or loads code is passed only
in a variable that was allowed by name, or in the agent's own key. A note names the variables in lists or with prefixes
that are not passed.

Source: environ(7), the XDG base directory specification, curl(1) and the manuals of pip, npm, cargo, git and Go on proxies. Not
here: the variables that the agent's module sets (agent.py), the agent's keys that the gateway has.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Final, NamedTuple

__all__ = ["NEVER", "PROXY_PORT", "RUN_HOME", "Passed", "certificate_files", "is_refused", "made", "passed"]

RUN_HOME: Final = "/run/aileron"
"""Value of AILERON_HOME in a cell. The directory contains only the sockets of the home."""
PROXY_PORT: Final = 3128
"""Port on the cell's loopback on which the tunnel to the outside listens: the usual port of such proxies."""

_PASSED: Final = frozenset(
    {
        *(f"LC_{name}" for name in (
            "ALL", "ADDRESS", "COLLATE", "CTYPE", "IDENTIFICATION", "MEASUREMENT", "MESSAGES", "MONETARY", "NAME", "NUMERIC",
            "PAPER", "TELEPHONE", "TERMINAL", "TERMINAL_VERSION", "TIME",
        )),
        "USER", "LOGNAME", "SHELL", "TERM", "COLORTERM", "TERM_PROGRAM", "TERM_PROGRAM_VERSION", "LANG", "LANGUAGE", "TZ",
        "EDITOR", "VISUAL", "PAGER", "LESS", "MANPAGER", "NO_COLOR", "FORCE_COLOR", "CLICOLOR", "CLICOLOR_FORCE", "COLUMNS",
        "LINES", "CI", "DEBIAN_FRONTEND", "SOURCE_DATE_EPOCH", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME",
        # toolchains: where they are, and how they build
        "CARGO_HOME", "CARGO_TARGET_DIR", "CARGO_BUILD_JOBS", "RUSTUP_HOME", "RUSTUP_TOOLCHAIN", "RUSTFLAGS", "RUST_BACKTRACE",
        "RUST_LOG", "GOPATH", "GOROOT", "GOFLAGS", "GOTOOLCHAIN", "GOOS", "GOARCH", "CGO_ENABLED", "JAVA_HOME", "MAVEN_OPTS",
        "GRADLE_OPTS", "ANDROID_HOME", "ANDROID_SDK_ROOT", "NVM_DIR", "NVM_BIN", "NODE_ENV", "NODE_OPTIONS", "NODE_PATH",
        "VOLTA_HOME", "BUN_INSTALL", "DENO_INSTALL", "PNPM_HOME", "FNM_DIR", "COREPACK_HOME", "PYENV_ROOT", "PYENV_VERSION",
        "VIRTUAL_ENV", "CONDA_PREFIX", "CONDA_DEFAULT_ENV", "PYTHONPATH", "PYTHONHASHSEED", "PYTHONDONTWRITEBYTECODE",
        "PYTHONUNBUFFERED", "PYTHONWARNINGS", "RBENV_ROOT", "NODENV_ROOT", "GOENV_ROOT", "SDKMAN_DIR", "ASDF_DIR",
        "ASDF_DATA_DIR", "MISE_DATA_DIR", "OPAMROOT", "DOTNET_ROOT", "CC", "CXX", "CPP", "LD", "AR", "CFLAGS", "CXXFLAGS",
        "CPPFLAGS", "LDFLAGS", "MAKEFLAGS", "PKG_CONFIG_PATH", "LD_LIBRARY_PATH", "CMAKE_PREFIX_PATH", "CMAKE_GENERATOR",
        # certificates to trust
        "SSL_CERT_FILE", "SSL_CERT_DIR", "NODE_EXTRA_CA_CERTS", "CURL_CA_BUNDLE", "REQUESTS_CA_BUNDLE", "PIP_CERT",
        "GIT_SSL_CAINFO", "CARGO_HTTP_CAINFO",
        # who commits
        "GIT_AUTHOR_NAME", "GIT_AUTHOR_EMAIL", "GIT_COMMITTER_NAME", "GIT_COMMITTER_EMAIL",
    }
)  # fmt: skip
_HOLDS_CREDENTIAL: Final = (
    r"TOKEN(?!S)|SECRET|PASSW|PASSPHRASE|CREDENTIAL|COOKIE|BEARER|(?:KEY|DSN|JWT|CREDS|PASS|PWD|WEBHOOK)S?(?:_|$)"
    r"|(?:^|_)PAT(?:_|$)|HEADERS?(?:_|$)|(?:^|_)O?AUTH(?:ORIZATION)?(?:_|$)|TOKENS"
)
"""Pattern of names of variables that contain credentials. `TOKENS` is mostly a count, which is passed if its value is
a number.
"""
_RUNS: Final = (
    r"(?:COMMAND|CMD|HELPER|HOOKS?|PRELOAD|ASKPASS|STARTUP|PROGRAM|EXEC|SHELL_PREFIX|WRAPPER|EVAL|OPTIONS|OPTS?)$"
    r"|(?:^|_)ENV(?:_|$)|(?:^|_)FUNC_|RC$"
)
_SWITCH: Final = r"|[01]|true|false|yes|no|on|off"
_NUMBER: Final = r"[0-9]{1,9}"
_COUNTS: Final = r"(?:TOKENS|_MS|SECONDS|TIMEOUT|LENGTH|LIMIT|COUNT|SIZE|BUDGET|RETRIES|PORT)$"
_IS_CREDENTIAL: Final = (
    r"://(?!git@)[^/\s?#]*@|\b(?:bearer|basic)\s+[\w+/=.-]{8}|authorization\s*:|-----BEGIN "
    r"|(?:password|passwd|passphrase|secret|token|credential|api[-_]?key|access[-_]?key)[\"']?\s*[=:]\s*\S"
    r"|\b(?:sk|pk|rk)[-_](?:\w+-)*\w{16}|\bgh[opsur]_\w{16}|\bgithub_pat_\w{16}|\bglpat-\w{16}|\bxox[a-z]-\w{8}|\bA[KS]IA[0-9A-Z]{16}"
    r"|\bAIza[\w-]{30}|\bnpm_\w{30}|\bpypi-\w{16}|\bhf_\w{16}|\bail_\w{16}|\beyJ[\w-]+\.eyJ"
)
"""Pattern of variables' values that contain a credential: a name or password in an address, text after a word such as
"token", or a prefix of some service's tokens.
"""
_LOADS: Final = {
    "NODE_OPTIONS": r"(?:^|[\s\"'])(?:-r|--require|--import|--(?:experimental-)?loader|--env-file)\b",
    "MAVEN_OPTS": r"-(?:javaagent|agentlib|agentpath)\b|-XX:\S*On",
    "GRADLE_OPTS": r"-(?:javaagent|agentlib|agentpath)\b|-XX:\S*On",
    "GOFLAGS": r"-(?:toolexec|exec|overlay)\b",
    "MAKEFLAGS": r"--eval\b|-E\b",
}
"""Patterns of values, by variable that a cell gets. With a value that matches, the variable makes programs run code,
and that code is mostly not in the cell.
"""
_CERTIFICATES: Final = (
    "SSL_CERT_FILE", "SSL_CERT_DIR", "NODE_EXTRA_CA_CERTS", "CURL_CA_BUNDLE", "REQUESTS_CA_BUNDLE", "PIP_CERT", "GIT_SSL_CAINFO",
    "CARGO_HTTP_CAINFO",
)  # fmt: skip
NEVER: Final = frozenset(
    {
        "SSH_AUTH_SOCK", "SSH_AGENT_PID", "GPG_AGENT_INFO", "DBUS_SESSION_BUS_ADDRESS", "DISPLAY", "WAYLAND_DISPLAY",
        "XAUTHORITY", "TMUX", "STY", "DOCKER_HOST", "CONTAINER_HOST", "LD_PRELOAD", "LD_AUDIT",
    }
)  # fmt: skip
"""Variables that lead to processes outside, which a cell cannot reach, or that load code into every program of the
cell. Not even --allow-env passes them.
"""
_OURS: Final = "AILERON_"


def is_refused(name: str) -> bool:
    """Return whether this variable is never passed, whatever options are given."""
    return name in NEVER or name.startswith(_OURS)


class Passed(NamedTuple):
    """The environment variables of the person that an agent gets, and the names of listed or prefixed variables that
    are withheld, because they may contain a credential or run code.
    """

    variables: dict[str, str]
    held_back: tuple[str, ...]


def passed(
    environment: Mapping[str, str],
    *,
    names: Collection[str],
    prefixes: Iterable[str],
    own_keys: Collection[str],
    kept_keys: Collection[str],
    allowed: Collection[str],
) -> Passed:
    """Select the variables of the person's `environment` that an agent in a cell gets: those that every agent gets,
    those of this agent (`names` and `prefixes`), and those that the person `allowed`.

    `own_keys` are the variables with which the agent logs in. The gateway has the keys in `kept_keys`, which are not
    passed unless they were allowed by name.

    >>> given = {"LANG": "C", "X_MODE": "1", "X_TOKEN": "t", "X_KEY": "k", "OTHER": "1"}
    >>> passed(given, names=(), prefixes=("X_",), own_keys=("X_KEY",), kept_keys=(), allowed=())
    Passed(variables={'LANG': 'C', 'X_MODE': '1', 'X_KEY': 'k'}, held_back=('X_TOKEN',))
    """
    own = tuple(prefixes)
    variables: dict[str, str] = {}
    held_back: list[str] = []
    for name, value in environment.items():
        is_listed = name in _PASSED or name in names
        if is_refused(name) or not (name in allowed or is_listed or name in own_keys or name.startswith(own)):
            continue
        if name in allowed:
            variables[name] = value
        elif name in own_keys:
            variables |= {} if name in kept_keys else {name: value}
        elif _is_harmless_value(name, value) and (is_listed or _is_harmless_name(name, value)):
            variables[name] = value
        else:
            held_back.append(name)
    return Passed(variables, tuple(held_back))


def _is_harmless_name(name: str, value: str) -> bool:
    """Return whether a variable, judged by its name, contains no credential and runs no code. A variable is always
    harmless if its value is a switch, or if its value is a number and its name says that it counts something.
    """
    is_number = re.fullmatch(_NUMBER, value) is not None
    if re.fullmatch(_SWITCH, value, re.IGNORECASE) or (is_number and re.search(_COUNTS, name, re.IGNORECASE)):
        return True
    return not re.search(_HOLDS_CREDENTIAL, name, re.IGNORECASE) and not re.search(_RUNS, name, re.IGNORECASE)


def _is_harmless_value(name: str, value: str) -> bool:
    loads = _LOADS.get(name)
    return not re.search(_IS_CREDENTIAL, value, re.IGNORECASE) and not (loads is not None and re.search(loads, value))


def certificate_files(environment: Mapping[str, str]) -> Iterator[tuple[str, bool]]:
    """Yield the paths of certificates in the variables, so that the cell can show them, and for each whether it must be
    a directory.
    """
    for name in _CERTIFICATES:
        if (path := environment.get(name, "")).startswith("/"):
            yield path, name == "SSL_CERT_DIR"


def made(*, home: str, path: Iterable[str], folder: str) -> dict[str, str]:
    """Return the variables that are set in every cell. No proxy for plain HTTP is set, because unencrypted requests
    cannot leave a cell.
    """
    proxy = f"http://127.0.0.1:{PROXY_PORT}"
    loopback = "localhost,127.0.0.1,::1"
    return {
        "HOME": home,
        "PATH": ":".join(path),
        "PWD": folder,
        "TMPDIR": "/tmp",  # noqa: S108 - the cell's own
        "HTTPS_PROXY": proxy,
        "https_proxy": proxy,
        "NO_PROXY": loopback,
        "no_proxy": loopback,
        "NODE_USE_ENV_PROXY": "1",
        "GIT_TERMINAL_PROMPT": "0",
    }
