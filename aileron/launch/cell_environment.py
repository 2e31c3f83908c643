"""Which variables an agent in a cell gets, and which are made for it. Pure.

A variable is passed if it is in a list; everything else is not there, because variables hold credentials, and ways to agents that
sign (SSH_AUTH_SOCK) and to the desktop. A person adds names with `--allow-env`, which no list of ours overrules but for Aileron's
own variables and those that lead out of the cell.

Source: environ(7), the XDG base directory specification, curl(1) and the manuals of pip, npm, cargo, git and Go on proxies. Not
here: what the agent's module sets (agent.py), which of an agent's keys the gateway has.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Final

__all__ = ["NEVER", "PROXY_PORT", "RUN_HOME", "certificate_files", "is_refused", "made", "passed"]

RUN_HOME: Final = "/run/aileron"
"""AILERON_HOME in a cell: nothing of the home is there but sockets."""
PROXY_PORT: Final = 3128
"""Where the cell's way out listens, on its loopback: the port that proxies of this kind have by custom."""

_PASSED: Final = frozenset(
    {
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
        # whom to believe
        "SSL_CERT_FILE", "SSL_CERT_DIR", "NODE_EXTRA_CA_CERTS", "CURL_CA_BUNDLE", "REQUESTS_CA_BUNDLE", "PIP_CERT",
        "GIT_SSL_CAINFO", "CARGO_HTTP_CAINFO",
        # who commits
        "GIT_AUTHOR_NAME", "GIT_AUTHOR_EMAIL", "GIT_COMMITTER_NAME", "GIT_COMMITTER_EMAIL",
    }
)  # fmt: skip
_PASSED_PREFIXES: Final = ("LC_",)
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
"""What leads to processes outside, of which nothing is there, or into every program of the cell: not by --allow-env either."""
_OURS: Final = "AILERON_"


def is_refused(name: str) -> bool:
    """Whether no option passes this variable."""
    return name in NEVER or name.startswith(_OURS)


def passed(
    environment: Mapping[str, str], *, prefixes: Iterable[str], keys: Collection[str], allowed: Collection[str]
) -> dict[str, str]:
    """What of the person's environment the agent gets: the lists, what begins with its own `prefixes`, and what was `allowed`.

    `keys` are variables whose value the gateway has: they are not passed unless they were allowed by name.
    """
    own = tuple(prefixes)
    return {
        name: value
        for name, value in environment.items()
        if not is_refused(name)
        and (name in allowed or (name not in keys and (name in _PASSED or name.startswith((*_PASSED_PREFIXES, *own)))))
    }


def certificate_files(environment: Mapping[str, str]) -> Iterator[tuple[str, bool]]:
    """Where certificates are that are passed by name, and so have to be there; and whether a directory is meant."""
    for name in _CERTIFICATES:
        if (path := environment.get(name, "")).startswith("/"):
            yield path, name == "SSL_CERT_DIR"


def made(*, home: str, path: Iterable[str], folder: str) -> dict[str, str]:
    """What is set in every cell. No proxy for plain HTTP: what is not encrypted goes nowhere."""
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
