"""Input from a person, typed or given beforehand: answers, secrets and passphrases.

Runs in commands. Nothing is asked in a cell, in a shell's background, or if standard input or standard error is not a terminal.
Instead, a script that lacks an input is told which option provides it.

Rules
- AILERON_VAULT_PASSPHRASE and AILERON_NEW_VAULT_PASSPHRASE leave the environment as soon as a command starts, so that no process
  started from it, the daemon included, has them in its own.
- An answer is one line that was typed after its question appeared: earlier typed or pasted input is discarded, and so are several
  lines at once.
- If only a few words are valid answers, only these are shown: a passphrase that is typed too early does not appear.
- Input is limited in size, and one line end at its end is removed (`echo secret | aileron secret set NAME`). Of a file with
  certificates, only the PEM blocks are used, not the text that tools print between them.
- No value is ever part of a message.

Source: docs/reference/cli.md (secrets without a terminal).
"""

from __future__ import annotations

import contextlib
import os
import select
import sys
from collections.abc import Callable, Collection, Iterator
from typing import Final, TypeVar

from aileron.cli.output import is_terminal, note
from aileron.cli.problem import Problem
from aileron.client import is_in_cell

__all__ = [
    "MAX_SECRET_BYTES",
    "NO",
    "TRIES",
    "YES",
    "Passphrase",
    "ask",
    "ask_now",
    "ask_unseen",
    "can_ask",
    "choose",
    "edit_text",
    "is_yes",
    "may_unlock",
    "new_passphrase_from",
    "passphrase_from",
    "pem_in",
    "read_secret",
    "take_passphrase",
    "text_in",
    "unseen_between",
    "until_right",
]

MAX_SECRET_BYTES = 64 << 10
"""64 KiB: the maximum size of a secret in the vault. No key or token has more than a hundredth of that."""
_MAX_PASSPHRASE_BYTES = 4096
_MAX_LINE_BYTES = 16 << 10
"""16 KiB: the maximum that is read of a line. A terminal passes at most 4 KiB, termios(3)."""
_MAX_EDITED_BYTES = 1 << 20
"""1 MiB: the maximum size of an edited text, the same as that of a request body that the daemon reads."""
_PKCS7_DATA = b"\x2a\x86\x48\x86\xf7\x0d\x01\x07"
_HEAD_OF_PKCS12 = 64
"""Number of bytes at the start of a PKCS #12 file that contain its content type: RFC 7292 section 4, 1.2.840.113549.1.7 as an
OID.
"""
YES, NO = ("y", "yes"), ("n", "no")
TRIES: Final = 3
"""Maximum number of attempts at a passphrase, and at a question with a few possible answers."""
_PASTED_S = 0.03
"""Seconds within which further input counts as pasted, because a person takes longer than 30 ms to type another line."""
_VARIABLE = "AILERON_VAULT_PASSPHRASE"
_NEW_VARIABLE = "AILERON_NEW_VAULT_PASSPHRASE"
_Typed = TypeVar("_Typed")
_Used = TypeVar("_Used")
_taken: str | None = None
_new_taken: str | None = None

Passphrase = Callable[[], "str | None"]
"""A function that returns the vault's passphrase without asking; None if it was not given."""


def take_passphrase() -> None:
    """Remove the passphrases from the environment and store them in this process. Call this once, before anything else."""
    global _taken, _new_taken
    _taken = os.environ.pop(_VARIABLE, None) or _taken
    _new_taken = os.environ.pop(_NEW_VARIABLE, None) or _new_taken


def passphrase_from(file: str | None) -> Passphrase:
    """Return a function that returns the content of `--passphrase-file`, or else the value that AILERON_VAULT_PASSPHRASE had."""
    return lambda: _taken if file is None else text_in("--passphrase-file", file)


def new_passphrase_from(file: str | None) -> Passphrase:
    """Return a function that returns the content of `--new-passphrase-file`, or else the value that AILERON_NEW_VAULT_PASSPHRASE
    had.
    """
    return lambda: _new_taken if file is None else text_in("--new-passphrase-file", file)


def can_ask() -> bool:
    """Return whether a person at a terminal can be asked. False in a cell, where an agent would see the question or answer it."""
    return not is_in_cell() and is_terminal("stdin") and is_terminal("stderr") and _is_in_foreground()


def may_unlock() -> bool:
    """Return whether a command may ask for the vault's passphrase. It may not with an agent's token or with `--json`."""
    return can_ask() and not os.environ.get("AILERON_SESSION_TOKEN") and "--json" not in sys.argv


def ask(question: str, default: str | None = None) -> str:
    """Ask for one line.

    For an empty line, return the default; without a default, ask again. Raises Problem at the end of input.
    """
    while (typed := ask_now(f"{question} [{default}]: " if default else f"{question}: ")) is not None:
        if answer := typed or default:
            return answer
    raise Problem.usage(f"no answer to {question!r}")


def ask_now(question: str) -> str | None:
    """Return one line typed after `question`, without the spaces around it; None at the end of input."""
    line = _line(question, is_shown=True)
    return None if line is None else line.decode("utf-8", "replace").strip()


def choose(question: str, answers: Collection[str], *, tries: int = TRIES) -> str | None:
    """Return the typed answer in lower case, or "" for Enter alone. None at the end of input and after `tries` attempts.

    Input is echoed only if it is one of `answers`. A person who expects a passphrase prompt types the passphrase here, perhaps
    twice. Because the question is repeated, the second attempt is typed here too, and not into the shell.
    """
    for left in reversed(range(tries)):
        line = _line(question, is_shown=False, end="")
        if line is None:
            return None
        typed = line.decode("utf-8", "replace").strip().lower()
        if not typed or typed in answers:
            note(typed)
            return typed
        note(f"\nanswer with one of: {', '.join(filter(None, answers))}" if left else "")
    return None


def is_yes(question: str) -> bool:
    """Ask `question`, which ends in `[y/N]`, and return whether the person confirms. Any answer except `y` and `yes` means no."""
    return choose(question, YES + NO) in YES


def ask_unseen(question: str, *, twice: bool = False, may_be_empty: bool = False) -> str:
    """Ask for a text without showing what is typed, and return it. With `twice`, ask for two entries until both
    match.

    With `may_be_empty`, Enter alone is an answer.
    """
    while True:
        typed = _unseen(question)
        if not typed and may_be_empty:
            return typed
        if not typed:
            continue
        if not twice or typed == _unseen(f"{question}, again"):
            return typed
        note("they do not match; try again")


def until_right(ask: Callable[[], _Typed], use: Callable[[_Typed], _Used]) -> _Used:
    """Ask for a passphrase and return the result of `use` with it. Ask again while `use` raises a Problem (unauthorized) because
    the passphrase is wrong.

    After TRIES attempts, that Problem is raised; any other Problem is raised at once.
    """
    for left in reversed(range(TRIES)):
        typed = ask()
        try:
            return use(typed)
        except Problem as problem:
            if problem.name != "unauthorized" or not left:
                raise
            note(f"{problem.what}; try again ({left} left)")
    raise AssertionError("the last try returns or raises")


def _unseen(question: str) -> str:
    line = _line(f"{question}: ", is_shown=False)
    if line is None:
        raise Problem.usage(f"no answer to {question!r}")
    try:
        return _without_line_end(line).decode()
    except UnicodeDecodeError:
        raise Problem.usage(f"the answer to {question!r} is not valid UTF-8") from None


def _line(question: str, *, is_shown: bool, end: str = "\n") -> bytes | None:
    """Show `question`, and return the line typed after that, with its line end; None at the end of input.

    Earlier terminal input is discarded, and so are several lines that arrive at once, because they were pasted for the shell or
    for later questions. `end` is written if the person's own Enter is not shown.
    """
    terminal = sys.stdin.fileno()
    while True:
        with _typing(terminal, is_shown=is_shown):
            sys.stderr.write(question)
            sys.stderr.flush()
            line = sys.stdin.buffer.readline(_MAX_LINE_BYTES)
            is_pasted = bool(line) and bool(select.select([terminal], [], [], _PASTED_S)[0])
        if not is_pasted:
            # Without a line, the cursor is still on this row
            sys.stderr.write("\n" if not line else "" if is_shown else end)
            return line or None
        note("\nseveral lines were pasted; type one answer")


@contextlib.contextmanager
def _typing(terminal: int, *, is_shown: bool) -> Iterator[None]:
    """Set the terminal to canonical mode (input in whole lines) during this block, with echo if `is_shown`.

    Earlier input is discarded, and so is unread input when the block ends.
    """
    import termios

    try:
        before = termios.tcgetattr(terminal)
    except termios.error:
        yield
        return
    wanted = [*before]
    wanted[3] |= termios.ICANON
    wanted[3] = wanted[3] | termios.ECHO if is_shown else wanted[3] & ~termios.ECHO
    termios.tcsetattr(terminal, termios.TCSAFLUSH, wanted)
    try:
        yield
    finally:
        termios.tcsetattr(terminal, termios.TCSAFLUSH, before)


@contextlib.contextmanager
def unseen_between() -> Iterator[None]:
    """Show nothing of what is typed between two questions during this block, because it may be the passphrase that a person
    expects to be asked for.
    """
    import termios

    try:
        terminal = sys.stdin.fileno()
        before = termios.tcgetattr(terminal)
    except (termios.error, OSError, ValueError):
        yield
        return
    wanted = [*before]
    wanted[3] = before[3] & ~termios.ECHO
    termios.tcsetattr(terminal, termios.TCSADRAIN, wanted)
    try:
        yield
    finally:
        termios.tcsetattr(terminal, termios.TCSADRAIN, before)


def edit_text(text: str, *, suffix: str, instead: str) -> str:
    """Let a person edit `text` in $VISUAL or $EDITOR and return the result. `instead` is the option to suggest if there is no
    editor. Raises Problem if editing fails.

    Only this user can read the file, which is removed afterwards. Other processes of the user can change it, so the caller must
    show the returned text.
    """
    import shlex
    import subprocess
    import tempfile
    from pathlib import Path

    command = next((found for name in ("VISUAL", "EDITOR") if (found := os.environ.get(name, "").strip())), "")
    if not can_ask() or not command:
        why = "neither VISUAL nor EDITOR is set" if can_ask() else "no terminal to edit at"
        raise Problem.usage(why, fix=f"use {instead}")
    with tempfile.TemporaryDirectory(prefix="aileron-") as directory:  # 0700, and its file 0600
        file = Path(directory) / f"edit{suffix}"
        with open(os.open(file, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "w", encoding="utf-8") as opened:
            opened.write(text)
        try:
            code = subprocess.run([*shlex.split(command), str(file)], check=False).returncode
        except (OSError, ValueError) as error:
            raise Problem.usage(f"cannot start the editor {command!r}: {error}", fix=f"use {instead}") from None
        if code != 0:
            raise Problem(f"the editor exited with {code}; nothing changed", exit_code=1, name="invalid_request")
        try:
            with file.open("rb") as edited:
                data = edited.read(_MAX_EDITED_BYTES + 1)
            if len(data) > _MAX_EDITED_BYTES:
                raise Problem.usage(f"the edited text is longer than {_MAX_EDITED_BYTES} bytes")
            return data.decode()
        except OSError as error:
            raise Problem.usage(f"cannot read the edited text: {error.strerror or error}") from None
        except UnicodeDecodeError:
            raise Problem.usage("the edited text is not valid UTF-8") from None


def read_secret(name: str) -> bytes:
    """Return a secret from standard input, or one typed at a terminal without echo. Raises Problem if it is empty or too long."""
    if is_terminal("stdin"):
        if not can_ask():
            raise Problem.usage(
                "standard input is a terminal; provide the secret through a pipe or a file",
                fix=f"aileron secret set {name} < FILE",
            )
        return ask_unseen(f"Value of {name}").encode()
    value = sys.stdin.buffer.read(MAX_SECRET_BYTES + 3) if sys.stdin is not None else b""
    from aileron.model.pem import pem_without_text

    _check_is_pem(value, "standard input")
    value = _without_line_end(pem_without_text(value))
    if not value:
        raise Problem.usage(
            "standard input is empty; it must contain the secret", fix=f"aileron secret set {name} < FILE"
        )
    if len(value) > MAX_SECRET_BYTES:
        raise Problem.usage(f"the secret is longer than {MAX_SECRET_BYTES} bytes")
    return value


def _is_in_foreground() -> bool:
    """Return whether this job is in the foreground. True also if there is no controlling terminal.

    In a shell's background, reading would stop the process (SIGTTIN).
    """
    try:
        return os.tcgetpgrp(sys.stdin.fileno()) == os.getpgrp()
    except OSError:  # without a controlling terminal there is no background
        return True


def pem_in(file: str, what: str, *, signs: bool = False) -> bytes:
    """Return the content of a file that a person specified. The file must be in PEM; `what` describes the expected
    content in errors. With `signs`, the PEM must have exactly one private key, and JSON is accepted too.

    Raises Problem, without quoting the file, if it cannot be read or has other content.
    """
    from pathlib import Path

    from aileron.model.pem import pem_without_text, private_key_blocks

    try:
        with Path(file).expanduser().open("rb") as opened:
            data = opened.read(MAX_SECRET_BYTES + 1)
    except (OSError, RuntimeError) as error:  # RuntimeError: no such user's home
        raise Problem.usage(f"{file}: {getattr(error, 'strerror', None) or error}") from None
    _check_is_pem(data, file)
    data = pem_without_text(data)
    is_what = data.startswith(b"-----BEGIN ")
    if signs:
        is_what = data.lstrip().startswith(b"{") or len(private_key_blocks(data)) == 1
    if not is_what or len(data) > MAX_SECRET_BYTES:
        why = "a certificate, a public key or a client secret cannot sign" if signs else None
        raise Problem.usage(f"{file} is not {what}", why=why)
    return data


def _check_is_pem(data: bytes, source: str) -> None:
    """Raise Problem if the data has a form that browsers and certificate stores export, PKCS #12 or DER, instead of PEM."""
    if not _is_sequence(data):
        return
    import shlex

    file = "FILE" if source == "standard input" else source
    is_pkcs12 = _PKCS7_DATA in data[:_HEAD_OF_PKCS12]
    form = "PKCS #12 (.p12, .pfx)" if is_pkcs12 else "DER"
    command = [
        "openssl",
        *(("pkcs12", "-nodes") if is_pkcs12 else ("x509", "-inform", "der")),
        "-in",
        file,
        "-out",
        "client.pem",
    ]
    why = None if is_pkcs12 else "client.pem has no private key then: append it"
    raise Problem.usage(f"{source} is in the form {form}; PEM is required", why=why, fix=shlex.join(command))


def _is_sequence(data: bytes) -> bool:
    """Return whether the data is one complete ASN.1 SEQUENCE, as a DER certificate, a DER key or a PKCS #12 file is.

    A random key must not match by chance. So the length must be encoded in the long form, with one or two further bytes,
    because no data for TLS is short enough for the short form. Or the length must be indefinite, as some programs write it,
    with an end mark at the end of the data (X.690, section 8.1.3).
    """
    if data.startswith(b"\x30\x80"):
        return data.endswith(b"\0\0")
    if len(data) < 4 or data[0] != 0x30 or data[1] not in (0x81, 0x82):
        return False
    counted = data[1] & 0x7F
    return int.from_bytes(data[2 : 2 + counted], "big") == len(data) - 2 - counted


def text_in(option: str, file: str) -> str:
    """Return the text of the file that `option` specifies, for secrets that a command line would expose.

    Raises Problem, without quoting the file, if it cannot be used.
    """
    try:
        with open(file, "rb") as opened:
            data = opened.read(_MAX_PASSPHRASE_BYTES + 3)
        text = _without_line_end(data).decode()
    except OSError as error:
        raise Problem.usage(f"{option} {file}: {error.strerror or error}") from None
    except UnicodeDecodeError:
        raise Problem.usage(f"{option} {file} is not valid UTF-8") from None
    if not text or len(data) > _MAX_PASSPHRASE_BYTES + 2:
        raise Problem.usage(f"{option} {file} is empty, or longer than {_MAX_PASSPHRASE_BYTES} bytes")
    return text


def _without_line_end(data: bytes) -> bytes:
    """Remove the line end that an editor or `echo` adds. A private key keeps all its line ends."""
    if data.startswith(b"-----BEGIN "):
        return data
    return data.removesuffix(b"\n").removesuffix(b"\r")
