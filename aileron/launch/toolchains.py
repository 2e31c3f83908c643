"""Where programs in a person's home are installed, and which of it is shown so that they run: never what they log in with.

Runs in the command that starts the cell. It looks at directories and links and starts nothing.

A directory of PATH is shown, and what its links lead to. Where that lies in a toolchain of the table, the table says what of the
toolchain is shown: cargo's programs and not its credentials, nvm's versions. Elsewhere it is the tree that a program needs around
it: the outermost `node_modules`, a virtual environment and its Python, the prefix whose `bin` it lies in, else the file.

Source: the manuals of the tools. Not here: programs of the system (system_sights.py), whether a path may be shown (sights.py).
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from aileron.launch.places import is_within

__all__ = ["TOOLCHAINS", "Toolchain", "installation_of", "path_directories", "toolchain_variables"]


class Toolchain(NamedTuple):
    """A directory below the home, or where `variable` says; `shows` are parts of it, or all; `brings` are others it needs."""

    name: str
    shows: tuple[str, ...] = ("",)
    variable: str = ""
    brings: tuple[str, ...] = ()


TOOLCHAINS: Final = (
    Toolchain(".cargo", ("bin", "env"), "CARGO_HOME", (".rustup",)),
    Toolchain(".rustup", ("toolchains", "settings.toml", "update-hashes"), "RUSTUP_HOME"),
    Toolchain(".nvm", ("versions", "alias", "nvm.sh", "nvm-exec", "bash_completion"), "NVM_DIR"),
    Toolchain(".pyenv", variable="PYENV_ROOT"),
    Toolchain(".rbenv", variable="RBENV_ROOT"),
    Toolchain(".nodenv", variable="NODENV_ROOT"),
    Toolchain(".goenv", variable="GOENV_ROOT"),
    Toolchain(".jenv"),
    Toolchain(".sdkman", ("candidates",), "SDKMAN_DIR"),
    Toolchain(".asdf", variable="ASDF_DATA_DIR", brings=(".tool-versions", ".asdfrc")),
    Toolchain(".local/share/mise", variable="MISE_DATA_DIR", brings=(".tool-versions",)),
    Toolchain(".volta", ("bin", "tools", "hooks.json"), "VOLTA_HOME"),
    Toolchain(".local/share/fnm", variable="FNM_DIR"),
    Toolchain(".fnm"),
    Toolchain(".bun", ("bin", "install/global"), "BUN_INSTALL"),
    Toolchain(".deno", ("bin",), "DENO_INSTALL"),
    Toolchain(".local/share/pnpm", variable="PNPM_HOME"),
    Toolchain(".npm-global"),
    Toolchain(".local/lib/node_modules"),
    Toolchain(".local/share/uv", ("tools", "python")),
    Toolchain(".local/share/pipx"),
    Toolchain(".local/pipx"),
    Toolchain(".local/share/claude"),
    Toolchain(".opencode", ("bin",)),
    Toolchain("go", ("bin",), "GOPATH"),
    Toolchain(".ghcup"),
    Toolchain(".cabal", ("bin",)),
    Toolchain(".opam", variable="OPAMROOT"),
    Toolchain(".juliaup"),
    Toolchain(".dotnet", variable="DOTNET_ROOT"),
    Toolchain(".gem", ("ruby",)),
    Toolchain(".local/share/gem"),
    Toolchain(".composer", ("vendor",)),
    Toolchain(".config/composer", ("vendor",)),
    Toolchain(".pixi", ("bin", "envs")),
    Toolchain(".proto", ("bin", "shims", "tools")),
    Toolchain("miniconda3"),
    Toolchain("miniforge3"),
    Toolchain("mambaforge"),
    Toolchain("anaconda3"),
)
_DIRECTORY_VARIABLES: Final = ("JAVA_HOME", "GOROOT", "VIRTUAL_ENV", "CONDA_PREFIX", "ANDROID_HOME", "ANDROID_SDK_ROOT")
"""Each names an installation, wherever it is."""
_MAX_PROGRAMS: Final = 2000
"""Entries of one directory of PATH that are looked at: a person's has tens."""
_MAX_UP: Final = 4
"""Directories above a program that are looked at for what it belongs to."""
_PREFIX_HAS: Final = ("lib", "lib64", "libexec", "share", "include")
_MAX_CONFIG: Final = 1 << 16


def path_directories(environment: Mapping[str, str]) -> tuple[str, ...]:
    """The directories of PATH that are there, resolved, each once, in their order."""
    said = environment.get("PATH", os.defpath).split(os.pathsep)
    found = (os.path.realpath(path) for path in said if path.startswith("/") and os.path.isdir(path))
    return tuple(dict.fromkeys(found))


def toolchain_variables(environment: Mapping[str, str]) -> tuple[str, ...]:
    """Installations that variables name, and that are there."""
    said = (environment.get(name, "") for name in _DIRECTORY_VARIABLES)
    return tuple(os.path.realpath(path) for path in said if path.startswith("/") and os.path.isdir(path))


def installation_of(path: str, home: str, environment: Mapping[str, str], *, is_own: bool = True) -> tuple[str, ...]:
    """What is shown so that a program, or all programs of a directory, can run. `path` is resolved, and so is the answer.

    It can be in a place that is shown anyway. With `is_own` False an agent may have written there: links and the names in it lead
    to toolchains of the table, and nowhere else, or an agent would choose what the next cell shows.
    """
    if not is_own:
        return tuple(dict.fromkeys(_toolchains_named_in(path, home, environment)))
    if not os.path.isdir(path):
        return tuple(dict.fromkeys(_around(path, home, environment)))
    found = [path]
    if part := _toolchain_of(path, home, environment):
        found = [*part] if any(is_within(path, one) for one in part) else [path, *part]
    for target in _linked_from(path):
        if not any(is_within(target, one) for one in found):
            found += _around(target, home, environment)
    return tuple(dict.fromkeys([*found, *_below_environment(path)]))


def _toolchains_named_in(path: str, home: str, environment: Mapping[str, str]) -> Iterator[str]:
    yield path
    for target in (*_linked_from(path), *_below_environment(path)):
        yield from _toolchain_of(target, home, environment)


def _around(path: str, home: str, environment: Mapping[str, str]) -> Iterator[str]:
    """One program: what of its toolchain, or which tree around it."""
    if part := _toolchain_of(path, home, environment):
        yield from part
        if any(is_within(path, one) for one in part):
            return
    yield _tree_of(path, home)
    yield from _below_environment(os.path.dirname(path))


def _toolchain_of(path: str, home: str, environment: Mapping[str, str]) -> tuple[str, ...]:
    """What is shown of the toolchain in which a path lies; nothing where it lies in none."""
    for chain in TOOLCHAINS:
        if is_within(path, _place_of(chain, home, environment)):
            return tuple(_parts_of(chain, home, environment))
    return ()


def _place_of(chain: Toolchain, home: str, environment: Mapping[str, str]) -> str:
    said = environment.get(chain.variable, "") if chain.variable else ""
    return os.path.realpath(said if said.startswith("/") else f"{home}/{chain.name}")


def _parts_of(chain: Toolchain, home: str, environment: Mapping[str, str]) -> Iterator[str]:
    place = _place_of(chain, home, environment)
    for part in chain.shows:
        if os.path.exists(path := os.path.join(place, part).rstrip("/")):
            yield path
    for name in chain.brings:
        other = next((one for one in TOOLCHAINS if one.name == name), None)
        if other is not None:
            yield from _parts_of(other, home, environment)
        elif os.path.exists(path := f"{home}/{name}"):
            yield os.path.realpath(path)


def _linked_from(directory: str) -> Iterator[str]:
    """What links of a directory lead to outside of it, resolved."""
    try:
        with os.scandir(directory) as entries:
            links = [entry.path for entry in itertools.islice(entries, _MAX_PROGRAMS) if entry.is_symlink()]
    except OSError:
        return
    for link in links:
        target = os.path.realpath(link)
        if not is_within(target, directory) and os.path.exists(target):
            yield target


def _tree_of(path: str, home: str) -> str:
    """What a program needs around it, by where it lies."""
    parts = path.split("/")
    if "node_modules" in parts[1:-1]:
        return "/".join(parts[: parts.index("node_modules") + 1])
    above = path
    for _ in range(_MAX_UP):
        above = os.path.dirname(above)
        if is_within(home, above):
            break
        if os.path.exists(f"{above}/pyvenv.cfg"):
            return above
    prefix = os.path.dirname(os.path.dirname(path))
    is_bin = os.path.basename(os.path.dirname(path)) == "bin"
    is_own = not is_within(home, prefix) and prefix != f"{home}/.local"
    if is_bin and is_own and any(os.path.isdir(f"{prefix}/{name}") for name in _PREFIX_HAS):
        return prefix
    return path


def _below_environment(directory: str) -> Iterator[str]:
    """Of the `bin` of a virtual environment: the environment, and the Python that it is made from."""
    environment = os.path.dirname(directory)
    try:
        with open(f"{environment}/pyvenv.cfg", encoding="utf-8", errors="replace") as opened:
            lines = opened.read(_MAX_CONFIG).splitlines()
    except OSError:
        return
    yield environment
    for line in lines:
        key, _, value = line.partition("=")
        if key.strip() == "home" and (below := value.strip()).startswith("/") and os.path.isdir(below):
            yield os.path.dirname(os.path.realpath(below))
