"""The installations of programs in a person's home, and the parts that a cell shows so that the programs run, but
never credentials.

Runs in the command that starts the cell. It reads directories and links, but starts no program.

A directory in PATH is shown, together with the targets of its links. If a target is in a toolchain of the table, the
table says which parts of the toolchain are shown: for example cargo's programs without its credentials, or nvm's
versions. Otherwise the tree that the program needs is shown: the outermost `node_modules`, a virtual environment and
its Python, the prefix whose `bin` contains it, else only the file.

Source: the manuals of the tools. Not here: programs of the system (system_mounts.py), whether a path may be shown (cell_spec.py).
"""

from __future__ import annotations

import functools
import itertools
import os
from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

import msgspec

from aileron.launch.credential_places import is_within
from aileron.launch.ways import leads_away, read_regular, resolved_unless_led_away

__all__ = [
    "TOOLCHAINS",
    "Toolchain",
    "Where",
    "brought_by",
    "installation_of",
    "path_directories",
    "python_of",
    "toolchain_of",
    "toolchain_variables",
    "tree_of",
]


class Where(msgspec.Struct, frozen=True, dict=True):
    """The values that the search for toolchains depends on: the person's resolved home, their environment, and the
    resolved folders that an agent may have written to (`written`).
    """

    home: str
    environment: Mapping[str, str]
    written: tuple[str, ...] = ()

    def leads_away(self, path: str) -> bool:
        """Return whether an agent could have chosen the target of a path."""
        return leads_away(path, self.written)

    def is_written(self, path: str) -> bool:
        """Return whether an agent could have made this path."""
        return any(is_within(path, place) for place in self.written)

    @functools.cached_property
    def toolchains(self) -> Mapping[str, str]:
        """The resolved directory of each toolchain by its name, as found at the first access. Toolchains that an agent
        could have moved are left out.
        """
        found = {chain.name: resolved_unless_led_away(_said_of(chain, self), self.written) for chain in TOOLCHAINS}
        return {name: place for name, place in found.items() if place is not None}


class Toolchain(NamedTuple):
    """A toolchain's directory, which is `name` below the home or the value of `variable`. A cell shows its parts
    `shows`, by default all, and `brings`, other toolchains or files that it needs.
    """

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
    Toolchain(".local/share/uv/python", variable="UV_PYTHON_INSTALL_DIR"),
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
_BROUGHT: Final = {"uv": ".local/share/uv/python", "mise": ".local/share/mise", "asdf": ".asdf"}
"""Programs that install other programs and run them from a toolchain's directory, each with the name of that toolchain."""
_DATA_HOME: Final = ".local/share/"
"""Default of XDG_DATA_HOME, relative to the home."""
_DIRECTORY_VARIABLES: Final = ("JAVA_HOME", "GOROOT", "VIRTUAL_ENV", "CONDA_PREFIX", "ANDROID_HOME", "ANDROID_SDK_ROOT")
"""Variables that each contain the directory of an installation."""
_MAX_PROGRAMS: Final = 2000
"""Maximum number of entries of one directory of PATH that are examined: a person's directory has tens."""
_MAX_UP: Final = 4
"""Maximum number of directories above a program that are examined to find its virtual environment."""
_PREFIX_HAS: Final = ("lib", "lib64", "libexec", "share", "include")
_MAX_CONFIG: Final = 1 << 16
"""Maximum number of bytes that are read from a pyvenv.cfg, 64 KiB; it has ten lines."""


def path_directories(environment: Mapping[str, str]) -> tuple[str, ...]:
    """Return the directories in PATH that exist, in their order, unresolved and without duplicates."""
    said = environment.get("PATH", os.defpath).split(os.pathsep)
    return tuple(dict.fromkeys(path for path in said if path.startswith("/") and os.path.isdir(path)))


def toolchain_variables(environment: Mapping[str, str]) -> tuple[str, ...]:
    """Return the directories of installations that variables contain and that exist."""
    said = (environment.get(name, "") for name in _DIRECTORY_VARIABLES)
    return tuple(path for path in said if path.startswith("/") and os.path.isdir(path))


def installation_of(said: str, where: Where) -> tuple[str, ...]:
    """Return the paths that a cell must show so that the program at the path `said`, or every program in that
    directory, can run. Some of these paths may be shown for other reasons anyway.
    """
    path = os.path.realpath(said)
    if where.leads_away(said):
        return tuple(dict.fromkeys(toolchain_of(path, where)))
    if not os.path.isdir(path):
        # For a path that an agent could have made, only the program itself: its folder is shown anyway, or not this cell's.
        of_file = [path, *toolchain_of(path, where)] if where.is_written(path) else _around(path, where)
        return tuple(dict.fromkeys(of_file))
    found = [path]
    if part := toolchain_of(path, where):
        found = [*part] if any(is_within(path, place) for place in part) else [path, *part]
    for link, target in _linked_from(path):
        if not any(is_within(target, place) for place in found):
            found += [*toolchain_of(target, where)] if where.leads_away(link) else [*_around(target, where)]
    return tuple(dict.fromkeys([*found, *_below_environment(path, where)]))


def brought_by(directory: str, where: Where) -> tuple[str, ...]:
    """Return the directories into which programs in a directory of PATH have installed other programs that they run."""
    names = [name for program, name in _BROUGHT.items() if os.path.exists(f"{directory}/{program}")]
    return tuple(part for chain in TOOLCHAINS if chain.name in names for part in _parts_of(chain, where))


def python_of(file: str) -> str | None:
    """Return the unresolved directory of the Python that a pyvenv.cfg names as its `home`; None if that directory does
    not exist.
    """
    content = read_regular(file, _MAX_CONFIG) or b""
    for line in content.decode("utf-8", "replace").splitlines():
        key, _, value = line.partition("=")
        if key.strip() == "home" and (said := value.strip()).startswith("/") and os.path.isdir(said):
            return said
    return None


def _around(path: str, where: Where) -> Iterator[str]:
    """Yield the paths that a cell must show for one program: the parts of its toolchain, or the directory tree around it."""
    if part := toolchain_of(path, where):
        yield from part
        if any(is_within(path, place) for place in part):
            return
    yield tree_of(path, where.home)
    yield from _below_environment(os.path.dirname(path), where)


def toolchain_of(path: str, where: Where) -> tuple[str, ...]:
    """Return the shown parts of the toolchain that contains a path; an empty tuple if no toolchain contains it."""
    for chain in TOOLCHAINS:
        place = where.toolchains.get(chain.name)
        if place is not None and is_within(path, place):
            return tuple(_parts_of(chain, where))
    return ()


def _said_of(chain: Toolchain, where: Where) -> str:
    said = where.environment.get(chain.variable, "") if chain.variable else ""
    return said if said.startswith("/") else _in_home(chain.name, where)


def _in_home(name: str, where: Where) -> str:
    data = where.environment.get("XDG_DATA_HOME", "")
    if name.startswith(_DATA_HOME) and data.startswith("/"):
        return os.path.join(data, name.removeprefix(_DATA_HOME))
    return f"{where.home}/{name}"


def _parts_of(chain: Toolchain, where: Where) -> Iterator[str]:
    place = where.toolchains.get(chain.name, "")
    for part in chain.shows if place else ():
        path = os.path.join(place, part).rstrip("/")
        if os.path.exists(path) and not where.leads_away(path):
            yield path
    for name in chain.brings:
        other = next((toolchain for toolchain in TOOLCHAINS if toolchain.name == name), None)
        if other is not None:
            yield from _parts_of(other, where)
        elif os.path.exists(path := f"{where.home}/{name}") and not where.leads_away(path):
            yield os.path.realpath(path)


def _linked_from(directory: str) -> Iterator[tuple[str, str]]:
    """Yield the links in a directory that lead out of it, each with its resolved target."""
    try:
        with os.scandir(directory) as entries:
            links = [entry.path for entry in itertools.islice(entries, _MAX_PROGRAMS) if entry.is_symlink()]
    except OSError:
        return
    for link in links:
        target = os.path.realpath(link)
        if not is_within(target, directory) and os.path.exists(target):
            yield link, target


def tree_of(path: str, home: str) -> str:
    """Return the directory that contains all files that a program needs, judged by the program's path and the
    directories above it.
    """
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


def _below_environment(directory: str, where: Where) -> Iterator[str]:
    """Yield the virtual environment whose `bin` is `directory`, and the Python from which it was made; nothing for any
    other directory.
    """
    environment = os.path.dirname(directory)
    file = f"{environment}/pyvenv.cfg"
    if read_regular(file, _MAX_CONFIG) is None:
        return
    yield environment
    is_own = not where.is_written(file) and not where.leads_away(file)
    if (said := python_of(file)) is not None:
        below = os.path.realpath(said)
        if is_own and not where.leads_away(said):
            yield os.path.dirname(below)
        else:
            yield from toolchain_of(below, where)
