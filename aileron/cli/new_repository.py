"""The repository of a new connector on the author's machine: its name, its directory, and the key that signs what it publishes.

Runs in the author's commands. The key is never inside the repository, as everything there is published.

Not here: what is in the files (template.py for a template, aileron/importing for a document or an MCP server).
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Self

from aileron.cli.own_files import write_tree
from aileron.cli.problem import Problem
from aileron.cli.publisher import maybe_signing_key, write_new_key

if TYPE_CHECKING:
    from aileron.model.names import Fqn
    from aileron.registry.signatures import PublicKey, SigningKey

__all__ = ["NewRepository", "Written"]


class Written(NamedTuple):
    """A written repository: the paths of its files, the fingerprint of its key, and whether that key is new."""

    files: list[str]
    fingerprint: str
    is_new_key: bool


class NewRepository(NamedTuple):
    """The full name of a connector, the directory of its repository, and the file of its key. Neither the directory nor
    the file needs to exist yet.
    """

    name: Fqn
    directory: Path
    key_file: Path

    @classmethod
    def of(cls, name: str, directory: Path | None, key: Path | None, *, command: str) -> Self:
        """Parse NAME, DIR and `--key`. The fixes in errors suggest `command`, followed by a name.

        Raises Problem(usage) for a name that does not name a whole repository.
        """
        fqn = _repository_name(name, command)
        place = Path(fqn.path[-1]) if directory is None else directory
        return cls(fqn, place, place.with_name(f"{place.name}.signing-key") if key is None else key)

    def check_place(self, *, fix: str) -> None:
        """Check that the directory can be created, and that the key's file is not in it. Raises Problem(usage) otherwise."""
        if os.path.lexists(self.directory):
            raise Problem.usage(f"{self.directory} already exists", fix=fix)
        if self.key_file.absolute().resolve().is_relative_to(self.directory.absolute().resolve()):
            why = "everything in the repository is published"
            raise Problem.usage(
                f"--key {self.key_file} is inside the repository", why=why, fix="give a FILE outside the repository"
            )

    def write(self, files_of: Callable[[PublicKey], dict[str, bytes]], *, may_have_key: bool) -> Written:
        """Write the files that `files_of` returns, and a new key, unless `may_have_key` is true and the key's file exists.
        Either all of this is written, or nothing.
        """
        key, is_new = self._key(may_exist=may_have_key)
        try:
            files = files_of(key.public)
            write_tree(self.directory, files)
        except BaseException:
            if is_new:
                self.key_file.unlink(missing_ok=True)
            raise
        return Written(sorted(files), key.public.fingerprint, is_new)

    def _key(self, *, may_exist: bool) -> tuple[SigningKey, bool]:
        """Return the key from an existing file, if `may_exist`, or a new key in a new file, and whether the key is new."""
        from aileron.registry.signatures import SigningKey

        if may_exist and os.path.lexists(self.key_file):
            found = maybe_signing_key(self.key_file)
            assert found is not None  # a file was given
            return found, False
        made = SigningKey.generate()
        write_new_key(self.key_file, made)
        return made, True


def _repository_name(text: str, command: str) -> Fqn:
    """Parse the name of a complete repository. A path inside a repository is refused, because the key and the workflow
    belong to its top directory.
    """
    from aileron.model.names import Fqn

    if "://" not in text:
        raise Problem.usage(f"{text!r} is not a full name", fix=f"{command} github://OWNER/{text}")
    try:
        name = Fqn.parse(text)
    except ValueError as error:
        raise Problem.usage(str(error), fix=f"{command} --help") from None
    if len(name.path) != 2:
        raise Problem.usage(
            f"{name} is a path inside a repository; a new connector is a whole repository",
            fix=f"{command} {name.scheme}://{'/'.join(name.path[:2])}",
        )
    return name
