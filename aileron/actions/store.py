"""The directory of installed actions, with one file `NAME.md` for each, owned by the user.

Reads every file anew on every call, because anyone with an editor may change one between two calls; only the
result of parsing unchanged bytes is cached. Runs in the daemon. Trusts no file: links, special files, invalid
names and files that others may write are refused, and a file that cannot be parsed is listed with its problem
rather than hidden.

Rules
- A file's name is the action's name and `.md`. Any other `.md` file in the directory is shown as a problem, unless
  it is hidden; files without `.md` are ignored.
- If two actions have the same tool name (`a-b`, `a_b`), an agent could not tell which one it calls. So the second
  cannot be added, and if both files exist nevertheless, both are refused. An action cannot have the name of one of
  Aileron's own tools.
- An action is enabled unless the state file says otherwise; a state file that cannot be read disables
  everything.

Source: docs/reference/action-file.md. Not here: consent to what a file newly requests, parsing the text
(manifest.py).
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Final

import msgspec

from aileron import files
from aileron.actions.manifest import parse_action
from aileron.model.canonical import sha256_digest
from aileron.model.document import MAX_DOCUMENT_BYTES
from aileron.model.failure import AileronError, Boundary, FailureClass
from aileron.model.manifest import ActionFile
from aileron.model.names import ACTION_NAME, RESERVED_TOOLS, tool_name

__all__ = ["ActionStore", "Listed"]

_MAX_ACTIONS: Final = 1000
"""Maximum number of files that are listed; an agent cannot use a thousand tools, and each listing reads all files."""
_FEW_ACTIONS: Final = 100
"""Maximum number of installed actions for which `at_hand` returns an action. Checking all their names takes 0.1 ms,
short enough for the event loop.
"""
_MAX_STATE_BYTES: Final = 128 << 10
"""128 KiB: maximum size of `action-state.json`, enough for a thousand names of 64 characters."""
_LOCK_DEADLINE_S: Final = 5.0
"""Maximum time to wait, in seconds, for another writer of the state file, which needs milliseconds."""


class Listed(msgspec.Struct, frozen=True, kw_only=True):
    """An action file in the directory of actions: its name, whether it is enabled, and either the `action` or the
    `problem`, never both.
    """

    name: str
    enabled: bool
    action: ActionFile | None = None
    problem: str | None = None


class _State(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The content of `action-state.json`: the names of the disabled actions."""

    version: int = 1
    disabled: frozenset[str] = frozenset()


class ActionStore:
    """The actions in `directory`; the file `state` says which actions are disabled."""

    def __init__(self, directory: Path, state: Path) -> None:
        self._directory: Final = directory
        self._state: Final = state
        # By file name without `.md`: the action that was parsed, with the digest of its bytes. Bounded by
        # _MAX_ACTIONS.
        self._parsed: Final[dict[str, ActionFile]] = {}
        self._stamps: Final[dict[str, files.Stamp]] = {}
        """Stamps (such as size and time) of the files that the cached actions were parsed from."""
        self._count = 0
        """Number of action files when the directory was last listed."""

    def list_actions(self) -> tuple[Listed, ...]:
        """Return every action file (`NAME.md`), sorted by name; a broken file has its problem instead of an action."""
        disabled = self._disabled()
        try:
            with self._opened() as directory:
                alike = _by_tool(self._names(directory))
                found = sorted(name for same in alike.values() for name in same)
                return tuple(self._listed(directory, name, alike[tool_name(name)], disabled) for name in found)
        except FileNotFoundError:
            return ()

    def load(self, name: str) -> ActionFile:
        """Return the action as its file is now, enabled or not.

        Raises AileronError: not_found if there is no such file, invalid_request if it cannot be used.
        """
        try:
            with self._opened() as directory:
                return self._load(directory, name, _alike(name, self._names(directory)))
        except FileNotFoundError:
            raise self._unknown(name) from None

    def at_hand(self, name: str) -> ActionFile | None:
        """Return the action from the cache if its file is unchanged, and if there are at most _FEW_ACTIONS actions;
        None otherwise.

        No file is read, so the result is not guaranteed to be current; `load` returns the file's content.
        """
        stamp = self._stamps.get(name)
        if stamp is None or self._count > _FEW_ACTIONS or stamp != files.stamp(self._directory / f"{name}.md"):
            return None
        return self._parsed.get(name)

    def maybe_load(self, name: str) -> ActionFile | None:
        """Return the action like `load`, but None if its file is missing or cannot be used."""
        try:
            return self.load(name)
        except AileronError:
            return None

    def load_enabled(self, name: str) -> ActionFile:
        """Return the action like `load`, for a run. Raises AileronError(action_disabled) if the user disabled the action."""
        action = self.load(name)
        self._check_on(name)
        return action

    def check_enabled(self, name: str) -> None:
        """Check, for a run that was already resolved, that the file still exists, whatever its content is now,
        and that the action is enabled.

        Raises AileronError: not_found if the file is gone, action_disabled if the action is disabled.
        """
        path = self._path(name)
        try:
            with self._opened() as directory, files.translated(path, "cannot be looked at"):
                os.stat(path.name, dir_fd=directory, follow_symlinks=False)
        except FileNotFoundError:
            raise self._unknown(name) from None
        self._check_on(name)

    def add(self, text: str, *, replace: bool = False) -> ActionFile:
        """Check the text of an action file and write it under the action's name with mode 0600. Raises
        AileronError(invalid_request) if it cannot be added.

        Adding the same text again changes nothing; adding another text under the same name requires `replace`.
        """
        action = parse_action(text, file="the new action")
        path = self._path(action.name)
        files.make_directory(self._directory)
        with (
            self._opened() as directory,
            files.locked(directory, self._directory / ".actions", _LOCK_DEADLINE_S),
        ):
            self._check_tool_name(action.name, _alike(action.name, self._names(directory)))
            if not replace:
                self._check_free(directory, path, text)
            files.replace(directory, path, text.encode())
        return action

    def check_addable(self, text: str, *, replace: bool = False) -> ActionFile:
        """Return the action if `add` would accept it now, without writing. Raises AileronError(invalid_request) like `add`."""
        action = parse_action(text, file="the new action")
        try:
            with self._opened() as directory:
                self._check_tool_name(action.name, _alike(action.name, self._names(directory)))
                if not replace:
                    self._check_free(directory, self._path(action.name), text)
        except FileNotFoundError:
            pass  # no action yet: the directory is made with the first
        return action

    def remove(self, name: str) -> None:
        """Delete the action's file, whatever its content. Raises AileronError(not_found) if there is none."""
        path = self._path(name)
        try:
            with (
                self._opened() as directory,
                files.translated(path, "cannot be removed"),
            ):
                os.unlink(path.name, dir_fd=directory)
                os.fsync(directory)
        except FileNotFoundError:
            raise self._unknown(name) from None
        self.set_enabled(name, True)  # a new action of that name starts enabled

    def is_enabled(self, name: str) -> bool:
        """Return whether the action is enabled, that is, the user has not disabled it."""
        return name not in self._disabled()

    def set_enabled(self, name: str, enabled: bool) -> None:
        """Enable or disable an action, durably. The action need not exist, because its file may be restored later."""
        self._path(name)  # refuses what is not a name
        with (
            files.open_directory(self._state.parent, files.OTHERS_MAY_WRITE) as directory,
            files.locked(directory, self._state, _LOCK_DEADLINE_S),
        ):
            before = self._disabled()
            after = before - {name} if enabled else before | {name}
            if after != before:
                files.replace(directory, self._state, msgspec.json.encode(_State(disabled=after), order="sorted"))

    def _check_on(self, name: str) -> None:
        if not self.is_enabled(name):
            message = f"action {name!r} is disabled: aileron action enable {name}"
            raise AileronError(FailureClass.ACTION_DISABLED, message, boundary=Boundary.USER)

    def _opened(self) -> AbstractContextManager[int]:
        return files.open_directory(self._directory, files.OTHERS_MAY_WRITE)

    def _names(self, directory: int) -> list[str]:
        """Return the name of every installed action."""
        names = [entry[:-3] for entry in os.listdir(directory) if entry.endswith(".md") and entry[0] != "."]
        if len(names) > _MAX_ACTIONS:
            raise self._refused(f"{self._directory} holds {len(names)} actions; at most {_MAX_ACTIONS}")
        self._count = len(names)
        return names

    def _listed(self, directory: int, name: str, alike: Sequence[str], disabled: frozenset[str]) -> Listed:
        # An invalid action name may hold anything that a file name can.
        shown = name if ACTION_NAME.fullmatch(name) else ascii(name)
        enabled = name not in disabled
        try:
            return Listed(name=shown, enabled=enabled, action=self._load(directory, name, alike))
        except AileronError as error:
            return Listed(name=shown, enabled=enabled, problem=error.failure.message)
        except FileNotFoundError:
            return Listed(name=shown, enabled=enabled, problem="just removed")

    def _load(self, directory: int, name: str, alike: Sequence[str]) -> ActionFile:
        path = self._path(name)
        self._check_tool_name(name, alike)
        stamp = files.stamp(path)  # before it is read
        action = self._parse(name, files.read(directory, path, MAX_DOCUMENT_BYTES), str(path))
        if stamp is not None:
            self._stamps[name] = stamp
        return action

    def _parse(self, name: str, data: bytes, file: str) -> ActionFile:
        known = self._parsed.get(name)
        if known is not None and known.digest == sha256_digest(data):
            return known
        try:
            text = data.decode()
        except UnicodeDecodeError as error:
            raise self._refused(f"{file} is not valid UTF-8 (byte {error.start})") from None
        action = parse_action(text, file=file)
        if action.name != name:
            raise self._refused(f"{file}: action {action.name!r} must be in a file named {action.name}.md; rename it")
        if len(self._parsed) >= _MAX_ACTIONS:
            self._parsed.clear()
            self._stamps.clear()
        self._parsed[name] = action
        return action

    def _path(self, name: str) -> Path:
        if not ACTION_NAME.fullmatch(name):
            raise AileronError(
                FailureClass.NOT_FOUND,
                f"{name!a} is not an action name (lower-case letters, digits, '.', '_', '-', at most 64)",
                boundary=Boundary.ACTION,
            )
        return self._directory / f"{name}.md"

    def _check_tool_name(self, name: str, alike: Sequence[str]) -> None:
        tool = tool_name(name)
        if tool in RESERVED_TOOLS:
            raise self._refused(
                f"action {name!r} would get the tool name {tool!r}, which Aileron uses itself; rename the action"
            )
        for other in alike:
            if other != name:
                raise self._refused(f"actions {name!r} and {other!r} would both get the tool name {tool!r}; rename one")

    @staticmethod
    def _check_free(directory: int, path: Path, text: str) -> None:
        try:
            installed = files.read(directory, path, MAX_DOCUMENT_BYTES)
        except FileNotFoundError:
            return
        if installed != text.encode():
            problem = f"action {path.stem!r} is already installed with different content"
            raise ActionStore._refused(
                f"{problem}; see it with `aileron action show`, or replace it with `aileron action add --force`"
            )

    def _disabled(self) -> frozenset[str]:
        try:
            with files.open_directory(self._state.parent, files.OTHERS_MAY_WRITE) as directory:
                data = files.read(directory, self._state, _MAX_STATE_BYTES)
            state = msgspec.json.decode(data, type=_State)
        except FileNotFoundError:
            return frozenset()
        except msgspec.DecodeError as error:
            raise self._refused(f"{self._state} cannot be read: {error}; remove it to enable all") from None
        if state.version != 1:
            raise self._refused(f"{self._state} has version {state.version}; this aileron reads version 1")
        return state.disabled

    @staticmethod
    def _unknown(name: str) -> AileronError:
        message = f"no action {name!r} is installed; see `aileron action list`"
        return AileronError(FailureClass.NOT_FOUND, message, boundary=Boundary.ACTION)

    @staticmethod
    def _refused(message: str) -> AileronError:
        return AileronError(FailureClass.INVALID_REQUEST, message, boundary=Boundary.ACTION)


def _by_tool(names: Sequence[str]) -> dict[str, list[str]]:
    """Return the action names grouped by the tool name that an agent sees. If several actions share a tool name, an
    agent could not tell which one it calls.
    """
    alike: dict[str, list[str]] = {}
    for name in names:
        alike.setdefault(tool_name(name), []).append(name)
    return alike


def _alike(name: str, names: Sequence[str]) -> list[str]:
    """Return those of `names` that have the same tool name as `name`."""
    tool = tool_name(name)
    # An action's name and its tool name have the same length. To compare lengths first is quick, and each run does this.
    return [other for other in names if len(other) == len(tool) and tool_name(other) == tool]
