"""A git repository on a server: look up a ref, fetch the commits and files that an operation needs, and push.

A fetch is shallow, and leaves files out if the server supports that; missing objects are fetched later by their ids. A server
that supports neither sends all files of a commit, so only commits that fit into a bounded pack can be read.

Not here: git's protocol (remote.py), operations (__main__.py).
"""

from __future__ import annotations

from typing import Any, Final

from dulwich.refs import check_ref_format
from packs import Objects, check_pack
from remote import NO_COMMIT, Remote, TooLarge, is_id

from aileron_connector import BadInput, ExternalApiError

__all__ = ["Repository", "branch_ref", "name_of", "ref_named"]

SEARCHED_COMMITS: Final = 200
"""Number of commits per branch that are searched for a commit's id if the server does not send commits by id."""


class Repository:
    """A git repository on a server, and the objects that were fetched from it."""

    def __init__(self, path: str) -> None:
        """Check the path of the repository on the server. Connects only when something is fetched. Raises BadInput if
        the path is not valid.
        """
        self.remote: Final = Remote(path)
        self.objects: Final = Objects()
        self.refs: dict[bytes, bytes] = {}
        """Refs by name, as of the last fetch."""

    def fetch_commit(self, ref: str, *, depth: int, leave_out: str | None = None) -> bytes:
        """Fetch the commit of a ref or an id, with `depth` commits of history, and return the commit's id. Raises BadInput
        if there is no such ref, ExternalApiError if no commit with that id is found, TooLarge for a large pack.
        """

        def choose(refs: dict[bytes, bytes]) -> list[bytes]:
            chosen[:] = [_chosen(refs, ref)]
            return chosen

        chosen: list[bytes] = []
        try:
            self._fetch(choose, depth=depth, leave_out=leave_out)
        except TooLarge:
            raise
        except ExternalApiError:
            if not (is_id(ref) and chosen):
                raise
            self._search(ref.encode(), leave_out)
        return self.objects.peeled(chosen[0])

    def fetch_commits(self, ids: list[bytes], *, leave_out: str | None = None) -> None:
        """Fetch these commits with their trees, however old they are. Raises ExternalApiError if the server lacks a
        commit, TooLarge for a large pack.
        """
        if not ids:
            return
        try:
            self._fetch(lambda _refs: ids, depth=1, leave_out=leave_out)
        except TooLarge:
            raise
        except ExternalApiError:
            for sha in ids:
                if sha not in self.objects:
                    self._search(sha, leave_out)

    def need(self, ids: list[bytes]) -> None:
        """Fetch the objects with these ids that an earlier fetch left out, if the server sends objects by id. Raises
        TooLarge for a large pack.
        """
        missing = [sha for sha in dict.fromkeys(ids) if sha not in self.objects]
        if missing and self.remote.gives_any_object:
            self._fetch(lambda _refs: missing, depth=None)

    def add_thin_pack(self, pack: bytes) -> list[bytes]:
        """Add a thin pack, after fetching the missing objects to which its deltas refer, as `need` does. Return the ids of the
        pack's objects.
        """
        self.need(sorted(check_pack(pack)))
        return self.objects.add_pack(pack)

    def move(self, name: bytes, expected: bytes | None, to: bytes | None, objects: list[Any]) -> None:
        """Push `objects`, and move a ref on the server from `expected` (None: the ref does not exist) to `to` (None: delete
        the ref). Raises BadInput if the ref is at another commit.
        """

        def change(refs: dict[bytes, bytes]) -> dict[bytes, bytes]:
            check_at(refs, name, expected)
            return {name: to or NO_COMMIT}

        self.remote.push(change, objects)

    def _fetch(self, wants: Any, *, depth: int | None, leave_out: str | None = None) -> None:
        found = self.remote.fetch(wants, depth=depth, leave_out=leave_out)
        self.refs = found.refs
        self.objects.add_pack(found.pack)

    def _search(self, sha: bytes, leave_out: str | None) -> None:
        """Search for the commit `sha` in the latest history of all branches. Raises ExternalApiError if the commit is
        not found.
        """

        def heads(refs: dict[bytes, bytes]) -> list[bytes]:
            return [tip for name, tip in refs.items() if name.startswith(b"refs/heads/")]

        self._fetch(heads, depth=SEARCHED_COMMITS, leave_out=leave_out)
        if sha not in self.objects:
            searched = f"the last {SEARCHED_COMMITS} commits of each branch"
            words = f"the server does not give {sha.decode()} by its id, and it is not among {searched}"
            raise ExternalApiError(words)


def check_at(refs: dict[bytes, bytes], name: bytes, expected: bytes | None) -> None:
    """Raise BadInput, with the ref's actual commit, if the ref `name` is not at the commit `expected` (None: does not exist)."""
    at = refs.get(name)
    if at == expected:
        return
    if expected is None:
        assert at is not None
        raise BadInput(f"{name_of(name)} exists already, at {at.decode()}; nothing was pushed")
    where = "does not exist" if at is None else f"is at {at.decode()}"
    raise BadInput(
        f"{name_of(name)} {where}, not at {expected.decode()}; it was moved meanwhile, and nothing was pushed"
    )


def branch_ref(branch: str) -> bytes:
    """Return `refs/heads/BRANCH`. Raises BadInput if git does not allow a branch of this name."""
    return ref_named("refs/heads/", branch, "branch")


def ref_named(prefix: str, name: str, argument: str) -> bytes:
    """Return the complete ref, `prefix` and `name`. Raises BadInput, about `argument`, if git does not allow the name."""
    ref = (prefix + name).encode("utf-8", "replace")
    if len(ref) > 255 or not name.isprintable() or name.startswith(("-", "refs/")) or not check_ref_format(ref):  # type: ignore[arg-type]
        raise BadInput(
            f"{argument} {name[:64]!a} is not a name that git allows; write it like feature/login", argument=argument
        )
    return ref


def name_of(ref: bytes) -> str:
    """Return the ref's name as people write it, such as `main` for `refs/heads/main`."""
    text = ref.decode("utf-8", "replace")
    return text.removeprefix("refs/heads/").removeprefix("refs/")


def _chosen(refs: dict[bytes, bytes], ref: str) -> bytes:
    """Return the object id of `ref`, which is `HEAD`, a branch, a tag, a complete ref, or itself an id."""
    if is_id(ref):
        return ref.encode()
    name = ref.encode("utf-8", "replace")
    for candidate in (name, b"refs/heads/" + name, b"refs/tags/" + name, b"refs/" + name):
        if candidate in refs and not candidate.endswith(b"^{}"):
            return refs[candidate]
    if ref == "HEAD" and not refs:
        raise ExternalApiError("the repository is empty: it has no commit yet")
    words = f"there is no ref {ref[:64]!a}; name a branch, a tag, or a commit by all 40 digits of its id"
    raise BadInput(words, argument="ref")
