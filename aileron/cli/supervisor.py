"""Requests of commands to the daemon, with its failures as `Problem`.

Runs in commands, on top of aileron.client: one request, one response. If no daemon runs, it is started, except by commands that
only check whether a daemon runs.

Rules
- If a request that changes something gets no answer, that is `outcome_unknown`, with the command that tells whether it was done.
  It is never "there is no daemon", which reads as if nothing had happened.
- `vault_locked` is fixed once, if the passphrase was given beforehand or a person at this terminal types it: the vault is
  unlocked and the same request sent again. The daemon said that nothing was done, so nothing is done twice.

Not here: what the answers mean (run.py, commands/).
"""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

from aileron.cli.output import note
from aileron.cli.problem import Problem
from aileron.cli.prompts import Passphrase, ask_unseen, can_ask, may_unlock, passphrase_from, until_right
from aileron.client import Answer, AnswerLost, Client, DaemonUnreachable, home_path, is_in_cell, path_of

if TYPE_CHECKING:
    from pathlib import Path

    from aileron.api.approvals import ConsentAnswer, ConsentsAnswer
    from aileron.api.body import Body
    from aileron.api.secrets import VaultState

__all__ = ["ACCEPTED", "Supervisor", "checked", "path_of", "read"]

ACCEPTED: Final = 202
"""HTTP status of a response that says that a person is asked first or that the work continues."""

_KEY_DERIVATION_S = 30.0
"""Seconds to wait for unlocking: scrypt takes half a second, and longer on a machine under load."""
_T = TypeVar("_T")
_NAMED: Final = frozenset({"actions", "bindings", "secrets"})
"""Routes whose lists contain names that people type. An unknown name is compared with the names in these lists."""
_LOOK: Final = "aileron audit list"
"""Command that shows whether a request was executed, if there is no better command."""


class AskUnseen(Protocol):
    """A function that asks for a passphrase without echo, at standard input or on a terminal that no other process reads."""

    def __call__(self, question: str, *, may_be_empty: bool = False) -> str: ...


class Supervisor:
    """Client for the daemon of one home.

    It uses the operator's socket if `operator` is true, and otherwise (for `run`, and in a cell) the agents' socket.
    """

    def __init__(
        self,
        *,
        operator: bool = True,
        passphrase: Passphrase | None = None,
        home: Path | None = None,
        asks: bool = True,
    ) -> None:
        """Create a client. `operator` is true for requests that need the operator's socket, and `asks` if a person at
        this terminal may be asked for the vault's passphrase when a request needs it.
        """
        self._home = home_path() if home is None else os.fspath(home)
        self._asks = asks
        is_agents = is_in_cell()
        self._client = Client(self._home, operator=operator and not is_agents)
        self._operator = self._client if operator or is_agents else Client(self._home)
        self._passphrase = passphrase or passphrase_from(None)

    @property
    def home(self) -> Path:
        """Path of the daemon's home."""
        from pathlib import Path  # 3 ms, and most commands need no Path

        return Path(self._home)

    def ask(self, method: str, path: str, body: Any = None, *, wait_s: float = 0.0, look: str = _LOOK) -> Any:
        """Send a request and return the body of the response. Raises Problem for a failure, and if there is no daemon."""
        try:
            return checked(self.send(method, path, body, wait_s=wait_s, look=look)).body
        except Problem as problem:
            self.suggest(problem, path)
            raise

    def fetch(
        self,
        kind: type[_T],
        method: str,
        path: str,
        body: Body | None = None,
        *,
        wait_s: float = 0.0,
        look: str = _LOOK,
    ) -> _T:
        """Send a request and return the response as `kind`.

        Raises Problem as `ask` does, and (internal_error) if the response is not of that type.
        """
        return read(kind, self.ask(method, path, _as_json(body), wait_s=wait_s, look=look))

    def change(
        self,
        kind: type[_T],
        method: str,
        path: str,
        body: Body | None = None,
        *,
        later: type[ConsentsAnswer] | None = None,
        wait_s: float = 0.0,
        look: str = _LOOK,
    ) -> _T | ConsentAnswer | ConsentsAnswer:
        """Send a change that may need a consent.

        Return the response, or the question about the consent, in the type that the route declares.
        """
        from aileron.api.approvals import ConsentAnswer

        answer = self.send(method, path, _as_json(body), wait_s=wait_s, look=look)
        try:
            checked(answer)
        except Problem as problem:
            self.suggest(problem, path)
            raise
        if answer.status != ACCEPTED:
            return read(kind, answer.body)
        return read(ConsentAnswer, answer.body) if later is None else read(later, answer.body)

    def send(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        wait_s: float = 0.0,
        headers: dict[str, str] | None = None,
        look: str | None = _LOOK,
    ) -> Answer:
        """Send a request and return the response, even a failure. Unlock the vault first if that is necessary and possible.

        `look` is the command that shows whether the request was executed, in case no response arrives; None for a request that
        changes nothing.
        """
        look = None if method == "GET" else look
        answer = self._request(self._client, method, path, body, wait_s, headers, look)
        if _is_locked(answer) and self._is_opened():
            answer = self._request(self._client, method, path, body, wait_s, headers, look)
        return answer

    def _is_opened(self) -> bool:
        """Unlock the vault with the given passphrase, or ask for the passphrase. Return whether that was possible.

        Raises Problem for a wrong passphrase.
        """
        if (passphrase := self._passphrase()) is not None:
            self.unlock(passphrase)
            return True
        if not self._asks or not may_unlock() or not self.vault_state().exists:
            return False
        self.open_vault()
        return True

    def suggest(self, problem: Problem, path: str) -> None:
        """Add a similar name to a problem that says that the name in `path` does not exist."""
        parts = path.partition("?")[0].split("/")
        if problem.name != "not_found" or problem.why is not None or len(parts) < 4 or parts[2] not in _NAMED:
            return
        from urllib.parse import unquote

        from aileron.cli.near import did_you_mean

        # Errors of the list; the problem itself is reported all the same
        with contextlib.suppress(Problem, TypeError, KeyError):
            found = checked(self.send("GET", f"/v1/{parts[2]}")).body
            meant = did_you_mean(unquote(parts[3]), [str(entry["name"]) for entry in found[parts[2]]])
            if meant is not None:
                problem.why, problem.fix = meant[0], meant[1] or problem.fix

    def watch(self, path: str, *, wait_s: float, look: str) -> Any:
        """Wait for the result, at the API's `path`, of work that has begun in the daemon. If the daemon stops
        meanwhile, the work stops too.

        Raises Problem as `ask` does. But if the daemon does not restart by itself, the problem is `outcome_unknown`, with
        `look` as the command that shows what happened.
        """
        try:
            return self.ask("GET", path, wait_s=wait_s)
        except Problem as problem:
            if problem.name != "daemon_unreachable":
                raise
            raise Problem.lost(problem.why or problem.what, look=look) from problem

    def maybe_fetch(self, kind: type[_T], path: str) -> _T | None:
        """Get `path` and return the response as `kind`. None if no daemon runs; this function starts none."""
        answer = self.maybe_look(path)
        return None if answer is None else read(kind, answer.body)

    def maybe_look(self, path: str) -> Answer | None:
        """Get `path` and return the response. None if no daemon runs; this function starts none. Raises Problem for a failure."""
        self._check_here(self._client)
        try:
            return checked(self._client.ask("GET", path))
        except (FileNotFoundError, ConnectionRefusedError):
            return None
        except (DaemonUnreachable, OSError, ValueError) as error:
            raise _unreachable(error) from error

    def end_session(self, session: str, code: int | None) -> None:
        """Report that the session has ended. If no daemon runs, the next daemon sees that the session's process has ended."""
        with contextlib.suppress(DaemonUnreachable, OSError, ValueError):
            self._operator.ask("POST", path_of("v1", "sessions", session, "end"), {"exit_code": code})

    def unlock(self, passphrase: str) -> None:
        """Unlock the vault. Raises Problem for a wrong passphrase."""
        self._unlock({"passphrase": passphrase})

    def unlock_by_keyring(self, key_id: str) -> None:
        """Unlock the vault with the key that has this name in the desktop's keyring. Raises Problem if there is no such key."""
        from aileron.cli.keyring import fetch

        self._unlock({"keyring_key_base64": fetch(key_id)})

    def unlock_here(self, state: VaultState, question: str, ask: AskUnseen = ask_unseen) -> None:
        """Unlock the vault with a typed passphrase or recovery code, or on Enter with the desktop's keyring if that has a key.

        Raises Problem if that fails.
        """
        ways = [question, *(["a recovery code"] if state.recovery_codes else [])]
        ways += ["Enter to use the desktop's keyring"] if state.keyring else []

        def use(typed: str) -> None:
            if typed or not state.keyring:
                self.unlock(typed)
                return
            try:
                self.unlock_by_keyring(state.keyring)
            except Problem as problem:
                raise Problem(
                    problem.what, exit_code=problem.exit_code, name="unauthorized", fix=problem.fix
                ) from problem

        until_right(lambda: ask(", or ".join(ways), may_be_empty=bool(state.keyring)), use)

    def _unlock(self, body: dict[str, str]) -> None:
        checked(self._request(self._operator, "POST", "/v1/vault/unlock", body, _KEY_DERIVATION_S))

    def vault_state(self) -> VaultState:
        """Return the state of the vault, as the daemon reports it."""
        from aileron.api.secrets import VaultState

        return read(VaultState, checked(self._request(self._operator, "GET", "/v1/vault/status", None, 0.0)).body)

    def is_vault_locked(self) -> bool:
        """Return whether the vault is locked. Raises Problem if there is no vault."""
        state = self.vault_state()
        if not state.exists:
            raise Problem("there is no vault yet", exit_code=4, name="vault_locked", fix="aileron vault init")
        return state.locked

    def open_vault(self, ask: AskUnseen = ask_unseen) -> None:
        """Make sure that the vault is open before a person types a secret for it. At a terminal, `ask` for its passphrase."""
        if not self.is_vault_locked():
            return
        if (passphrase := self._passphrase()) is not None:
            self.unlock(passphrase)
        elif can_ask():
            self.unlock_here(self.vault_state(), "The vault is locked. Its passphrase", ask)
        else:
            raise Problem("the vault is locked", exit_code=4, name="vault_locked", fix="aileron vault unlock")

    def open_or_create_vault(self) -> None:
        """Open the vault before a secret is stored. If there is no vault, create one at a terminal, with a passphrase from the
        person.

        A script never creates a vault, even with a passphrase in its environment, because a mistyped home would be noticed late.
        """
        from aileron.api.secrets import InitVault, NewVault

        if self.vault_state().exists or not can_ask():
            self.open_vault()
            return
        note("There is no vault yet: a new one will keep this secret, encrypted with a passphrase.")
        passphrase = self._passphrase() or ask_unseen("New vault passphrase", twice=True)
        self.fetch(NewVault, "POST", "/v1/vault/init", InitVault(passphrase=passphrase), wait_s=_KEY_DERIVATION_S)
        note("vault created; without the passphrase it cannot be opened, so store that safely\n")

    def _request(
        self,
        client: Client,
        method: str,
        path: str,
        body: Any,
        wait_s: float,
        headers: dict[str, str] | None = None,
        look: str | None = None,
    ) -> Answer:
        self._check_here(client)
        try:
            return client.request(method, path, body, wait_s=wait_s, headers=headers)
        except AnswerLost as error:
            raise (_unreachable(error) if look is None else Problem.lost(str(error), look=look)) from error
        except (DaemonUnreachable, OSError, ValueError) as error:  # ValueError: an answer that is not JSON
            raise _unreachable(error) from error

    def _check_here(self, client: Client) -> None:
        """Check that this request may go to the local daemon. Raises Problem if the environment specifies a remote daemon."""
        if client is self._operator and os.environ.get("AILERON_URL"):
            raise Problem(
                "this command works only on the machine that the daemon runs on",
                exit_code=69,
                name="daemon_unreachable",
                why="AILERON_URL names a remote daemon, which accepts only what agents may do",
                fix="unset AILERON_URL",
            )


def _as_json(body: Body | None) -> Any:
    import msgspec  # `aileron run` does not need it

    return None if body is None else msgspec.to_builtins(body)


def read(kind: type[_T], body: Any) -> _T:
    """Convert a response, or a part of a response, to `kind`. Raises Problem (internal_error) if the types do not match."""
    import msgspec

    try:
        return msgspec.convert(body, kind)
    except ValueError as error:  # msgspec's, also for text that is not Unicode where it expects one of some words
        raise Problem(
            f"the daemon's answer does not match this version: {error}",
            exit_code=1,
            name="internal_error",
            why="the daemon keeps its old version until you restart it after an update",
            fix="aileron daemon restart",
        ) from error


def checked(answer: Answer) -> Answer:
    """Return the response if it is not a failure. Raises Problem otherwise."""
    if answer.is_error:
        raise Problem.of_answer(answer.body)
    return answer


def _is_locked(answer: Answer) -> bool:
    error = answer.body.get("error") if isinstance(answer.body, dict) else None
    return answer.status == 423 and isinstance(error, dict) and error.get("class") == "vault_locked"


def _unreachable(error: Exception) -> Problem:
    why = str(error) or type(error).__name__
    if is_in_cell():
        return Problem.unreachable(why, fix="run `aileron status` in a terminal outside the cell")
    if os.environ.get("AILERON_URL"):  # its log is not here
        return Problem.unreachable(why, fix="aileron status, on the daemon host")
    return Problem.unreachable(why)
