"""A person's sign-in for a connector: shows where to sign in, waits, and cancels the sign-in on Ctrl-C.

Runs in commands; the daemon performs the sign-in, and no token reaches a command. Publishers and providers wrote the text that
the daemon passes on: it is opened only if it is certainly an address, and is shown with hidden characters spelled out.

Rules
- A browser is opened only for a person at a terminal, if there is a display or $BROWSER names one. The address is shown in any
  case. Other users of the machine can read it in the list of processes: the address alone gives nobody a token (RFC 7636).
- If the person leaves (Ctrl-C, a closed terminal), the sign-in ends at the daemon too, which frees the binding's name.
- Messages go to standard error; with --json standard output gets one object a line: the sign-in, then its result.

Source: docs/reference/bindings.md, docs/reference/sign-in.md. Not here: what a connector wants, and names (bind.py).
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import msgspec

from aileron.api.approvals import ConsentAnswer
from aileron.api.bindings import BeginSignIn, BindingEntry, SignInState
from aileron.api.fetches import Installed
from aileron.api.services import SignInToService
from aileron.cli import output
from aileron.cli.problem import INTERRUPTED, OK, Problem
from aileron.cli.prompts import can_ask
from aileron.cli.supervisor import Supervisor, path_of, read
from aileron.model.credential import Flow
from aileron.model.visible import visible

__all__ = ["How", "browser", "ended_when_gone", "invite_in_browser", "open_page", "sign_in", "sign_in_to_service"]

_TICK_S = 1.0
"""Seconds between two requests at a terminal, which shows the time left."""
_WAIT_S = 30.0
"""Seconds that a request waits without a terminal. The daemon responds at once when the sign-in ends, and lets a
request wait up to 60 s.
"""
_BEGIN_S = 30.0
"""Seconds to wait for the start of a sign-in, because the provider may have to issue a code for a device first."""
_OPENERS = ("xdg-open", "gio open", "x-www-browser", "firefox", "chromium", "google-chrome")
_LOCAL = ("http://localhost:", "http://127.0.0.1:")


class How(NamedTuple):
    """Options for signing in: with a code on another device, or without opening a browser."""

    device: bool = False
    no_browser: bool = False
    as_json: bool = False

    @property
    def flow(self) -> Flow:
        """The way to sign in."""
        return "device" if self.device else "browser"

    @property
    def is_said(self) -> bool:
        """True if options specify how to sign in, so that no terminal is needed."""
        return self.device or self.no_browser


def sign_in(
    supervisor: Supervisor,
    connector: str,
    name: str,
    how: How,
    finish: Callable[[msgspec.Struct], int],
    *,
    replace: bool = False,
    username: str | None = None,
) -> int:
    """Sign in for the binding `name` of `connector`, then call `finish` with the daemon's answer. Return the exit code.

    Raises Problem if the sign-in fails. `replace`: the name is bound already. `username`: the user who logs in with the token,
    if that is not the user whom the provider reports.
    """
    body = BeginSignIn(connector=connector, name=name, flow=how.flow, replace=replace, username=username)
    begun = supervisor.fetch(SignInState, "POST", "/v1/sign-ins", body, wait_s=_BEGIN_S)
    code, ended = _carried_on(supervisor, begun, how)
    if ended is None:
        return code
    is_asked = isinstance(ended, dict) and "approval_id" in ended
    return finish(read(ConsentAnswer, ended) if is_asked else read(BindingEntry, ended))


def sign_in_to_service(
    supervisor: Supervisor, asked: SignInToService, how: How, finish: Callable[[msgspec.Struct], int]
) -> int:
    """Sign in for a service, which is added then, and call `finish` with the daemon's answer. Return the exit code.

    Raises Problem if the sign-in fails, or if the service cannot be added.
    """
    begun = supervisor.fetch(SignInState, "POST", "/v1/services/sign-ins", asked, wait_s=_BEGIN_S)
    code, ended = _carried_on(supervisor, begun, how)
    if ended is None:
        return code
    is_asked = isinstance(ended, dict) and "approval_id" in ended
    return finish(read(ConsentAnswer, ended) if is_asked else read(Installed, ended))


def _carried_on(supervisor: Supervisor, begun: SignInState, how: How) -> tuple[int, Any]:
    """Tell the person where to sign in, and wait for the end. Return 0 and the result, or an exit code and None if the person
    left. Raises Problem if the sign-in fails.
    """
    opener = browser() if not how.is_said and can_ask() else None
    path = path_of("v1", "sign-ins", begun.id)
    with ended_when_gone():
        try:
            _invite(begun, opener, how)
            ended = _waited_for(supervisor, path, begun, how)
        except KeyboardInterrupt:
            _clear()
            ended = supervisor.fetch(SignInState, "DELETE", path, wait_s=_BEGIN_S)
            if ended.status != "done":
                output.note("sign-in cancelled; nothing bound")
                return INTERRUPTED, None
    if ended.status != "done":
        raise _problem_of(ended)
    return OK, ended.result


def browser() -> list[str] | None:
    """Return the command, without the page's address, that opens a page for the person here.

    None if there is no browser or display.
    """
    import shlex
    import shutil

    has_display = bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))
    named = [command for command in os.environ.get("BROWSER", "").split(":") if command.strip()]
    for command in [*named, *(_OPENERS if has_display else ())]:
        with contextlib.suppress(ValueError):  # an open quotation mark
            words = shlex.split(command)
            if words and shutil.which(words[0]):
                return words
    return None


def _invite(begun: SignInState, opener: list[str] | None, how: How) -> None:
    if how.as_json:
        output.write(json.dumps(msgspec.to_builtins(begun)))
        return
    if begun.user_code:
        _invite_elsewhere(begun, begun.user_code)
        return
    invite_in_browser(begun.authorize_url or "", opener)


def invite_in_browser(url: str, opener: list[str] | None) -> None:
    """Print the address for signing in on this machine, and open the page if there is a browser."""
    if opener is not None and _is_address(url):
        open_page(opener, url)
        output.note("Your browser opens so that you can sign in. If it does not, open this page on this machine:\n")
    else:
        output.note("To sign in, open this page in a browser on this machine:\n")
    output.write(visible(url) + "\n", "stderr")
    if opener is None and (port := _port_of(url)):
        output.note("To open it on another machine, first run this there, so that the answer reaches Aileron:")
        output.note(f"  ssh -L {port}:localhost:{port} THIS-MACHINE\n")


def _port_of(url: str) -> int | None:
    """Return the port on this machine to which the provider redirects the browser. None if the address does not contain one."""
    from urllib.parse import parse_qs, urlsplit

    with contextlib.suppress(ValueError):
        (back,) = parse_qs(urlsplit(url).query).get("redirect_uri", [""])
        if back.startswith(_LOCAL):
            return urlsplit(back).port
    return None


def _invite_elsewhere(begun: SignInState, code: str) -> None:
    output.note("To sign in, open this page on any device:\n")
    output.write(visible(begun.verification_uri or "") + "\n", "stderr")
    output.note(f"and enter the code {output.styled(visible(code), 'bold', 'stderr')}\n")
    if whole := begun.verification_uri_complete:
        output.note("or this page, which already contains the code:\n")
        output.write(visible(whole) + "\n", "stderr")


def open_page(words: list[str], url: str) -> None:
    """Open a page in a separate process session. The browser then outlives this command and does not write to this terminal."""
    import subprocess

    filled = [url if word == "%s" else word for word in words]
    command = filled if "%s" in words else [*words, url]
    with contextlib.suppress(OSError):  # the address is shown below
        subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )


def _is_address(url: str) -> bool:
    """Return whether the text is certainly one address, which no program can take for an option, a file, or two words."""
    return url.isascii() and url.isprintable() and " " not in url and url.startswith(("https://", *_LOCAL))


def _waited_for(supervisor: Supervisor, path: str, begun: SignInState, how: How) -> SignInState:
    is_shown = output.is_terminal("stderr") and not how.as_json
    wait_s = _TICK_S if is_shown else _WAIT_S
    state = begun
    while state.status == "waiting":
        if is_shown:
            _tick(state.expires_at or begun.expires_at or "")
        state = supervisor.fetch(SignInState, "GET", f"{path}?wait={wait_s:g}", wait_s=wait_s)
    if is_shown:
        _clear()
    return state


def _tick(expires_at: str) -> None:
    sys.stderr.write(f"\rwaiting for you, {_left(expires_at)}; press Ctrl-C to cancel   ")
    sys.stderr.flush()


def _left(expires_at: str) -> str:
    import datetime

    try:
        moment = datetime.datetime.fromisoformat(expires_at)
        left_s = max(0, int((moment - datetime.datetime.now(datetime.UTC)).total_seconds()))
    except (ValueError, TypeError):
        return "10 minutes at most"
    return f"{left_s // 60}:{left_s % 60:02} left"


def _clear() -> None:
    if output.is_terminal("stderr"):
        sys.stderr.write("\r" + " " * 60 + "\r")
        sys.stderr.flush()


def _problem_of(ended: SignInState) -> Problem:
    if ended.error:
        return Problem.of_error(ended.error)
    return Problem("sign-in cancelled; nothing bound", exit_code=6, name="cancelled")


@contextlib.contextmanager
def ended_when_gone() -> Iterator[None]:
    """Treat a closed terminal and SIGTERM like Ctrl-C within the block."""

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    before = {which: signal.signal(which, interrupt) for which in (signal.SIGHUP, signal.SIGTERM)}
    try:
        yield
    finally:
        for which, handler in before.items():
            signal.signal(which, handler)
