"""The console in lines, for screen readers, simple terminals and logs. It can do all that the full-screen console can.

Runs in its own process, alone (approver_key/isolation.py). A question has a number, which it keeps for as long as the console is
open; arrivals and settled questions are reported when they happen. An approval is asked for after all of the question was
printed, and counts for exactly that.

    1 send-mail, asked by claude, expires in 4:41
    > approve 1

Not here: the screen (app.py), what a question says (cards/), the key (key_session.py).
"""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import errno
import functools
import json
import os
import select
import signal
import sys
import termios
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final, Literal, TextIO

from rich.text import Text

from aileron.cards.decision_flow import ONLY_WITH_PREVIEW, Review, as_told, review_of
from aileron.cards.question import difference_lines, session_of, state_words
from aileron.cards.row import common_asker
from aileron.model.timestamp import local_time
from aileron.model.visible import visible
from aileron.tui import rendering
from aileron.tui.daemon_client import DaemonClient, GoneError, RequestRefused
from aileron.tui.key_session import KeySession, SecurityKeyHooks
from aileron.tui.sending import (
    Notice,
    in_a_prompt,
    is_withdrawal,
    offered,
    page_of,
    send,
    signed,
    unforeseen,
    withdraw,
)
from aileron.tui.waiting import PendingEntry, PendingList, matches, seconds_left

if TYPE_CHECKING:
    from aileron.cards.card import Card
    from aileron.model.preview import Preview
    from aileron.model.secret import Secret
    from aileron.tui.story import History

__all__ = ["Plain"]

_LOOK_S: Final = 2.0
"""Seconds between two checks of the queue while the person types nothing."""
_MOST_LINE: Final = 8192
_FEW: Final = 20
"""Number of runs or events that are listed, one screen, unless the person asks for more."""
_PROMPT: Final = "> "
_LEAST_ROW: Final = 24
"""Minimum number of cells of a request's title; with fewer, requests look the same."""
_HELP: Final = """\
list, filter [WORDS]   list what is waiting
show N                 show the card
proof N                show how it runs, and what you sign
preview N              load the current state (approver only)
approve N [N …]        approve, after typing the word shown; several if alike
deny N [N …] [REASON]  deny; a reason is sent to the agent, and signed
stop N [N …] [REASON]  deny and end the agent's session
edit N                 edit the arguments in your editor
for N USES MINUTES     allow the same for a while, without approval
ask N QUESTION         ask the agent
diff N                 compare with an approved call
raw N                  show JSON
cancel N               withdraw it
record N               show what it did, and every request sent
open N                 print the address of its page
activity [COUNT]       tell what happened, run by run
ledger [COUNT]         list recent events
run N                  show run N of the list printed last
grants, sessions, status
revoke ID, end ID      revoke a grant, end a session
unlock, lock, vault    unlock or lock the key; unlock or lock the vault
quit"""


class Plain:
    """The console of one home, line by line. `run` returns after the command `quit` or at the end of input."""

    def __init__(
        self,
        daemon: DaemonClient,
        *,
        ask: Callable[[str], Secret],
        edit: Callable[[str], str],
        take: Callable[[], None],
        who_else: Callable[[], str | None],
        no_echo: Callable[[], contextlib.AbstractContextManager[None]],
        security_keys: SecurityKeyHooks | None = None,
        out: TextIO | None = None,
    ) -> None:
        self._daemon: Final = daemon
        self._ask: Final = ask
        self._edit_text: Final = edit
        self._take: Final = take
        self._out: Final = out or sys.stdout
        self._no_echo: Final = no_echo
        self._key_session: Final = KeySession(
            daemon.home / "approver.json",
            ask=ask,
            who_else=who_else,
            no_echo=no_echo,
            security_keys=self._telling(security_keys),
        )
        self._waiting: Final = PendingList()
        self._numbers: dict[str, int] = {}
        self._edits: dict[str, str] = {}
        self._previews: dict[tuple[str, str], Preview] = {}
        self._listed: list[str | None] = []
        """Ids of the runs in the last printed list, in the order of its numbers."""
        self._wanted = ""
        self._untold: set[str] = set()
        """Ids of settled questions whose outcome the daemon has not reported."""
        self._typed = b""
        """Bytes of the next input line that have already arrived."""
        self._has_looked = False
        self._is_signed = True
        self._is_lost = False
        self._commands: Final[dict[str, Callable[[str], None]]] = {
            "list": self._list,
            "show": self._on_one(self._show),
            "preview": self._on_one(self._read_preview),
            "approve": self._on_alike,
            "deny": self._on_some(ends_session=False),
            "stop": self._on_some(ends_session=True),
            "edit": self._on_one(self._edit),
            "for": self._on_one(self._grant),
            "ask": self._on_one(self._ask_back),
            "proof": self._on_one(self._proof),
            "diff": self._on_one(self._difference),
            "cancel": self._on_one(self._cancel),
            "raw": self._on_one(self._raw),
            "record": self._on_one(self._record),
            "open": self._on_one(self._open),
            "filter": self._filter,
            "activity": self._activity,
            "ledger": self._ledger,
            "run": self._run,
            "grants": self._grants,
            "sessions": self._sessions,
            "status": self._status,
            "revoke": self._revoke,
            "end": self._end,
            "unlock": self._unlock,
            "lock": self._lock,
            "vault": self._vault,
            "help": lambda _: self._say(_HELP),
        }

    def run(self) -> int:
        """Run until the person quits. Return 0."""
        signal.signal(signal.SIGCONT, self._went_on)
        self._key_session.look()
        self._try(self._daemon.start)
        self._try(self._look)
        self._try(functools.partial(self._list, ""))
        self._say("type help for a list of commands")
        try:
            while (line := self._line()) is not None:
                word, _, rest = line.strip().partition(" ")
                if word in ("quit", "q", "exit"):
                    break
                if not word:
                    continue
                self._forget()
                command = self._commands.get(word)
                if command is None:
                    self._say(f"unknown command {visible(word):.40}: type help")
                else:
                    self._try(functools.partial(command, rest.strip()))
        finally:
            self._key_session.close()
        return 0

    def _went_on(self, _number: int, _frame: object) -> None:
        """Handle SIGCONT, after the console was stopped: lock the key, since others could open the terminal meanwhile.

        See approver_key/isolation.py. `_forget` prints the message later: a signal handler can interrupt a write, during which
        io allows no other write.
        """
        if self._key_session.is_open:
            self._key_session.close("the console was suspended")
        self._take()

    # reading and saying

    def _line(self) -> str | None:
        """Wait for the next line that the person types and return it; None at the end of input. Report events while waiting."""
        self._write(_PROMPT)
        while True:
            if b"\n" in self._typed or select.select([sys.stdin], [], [], _LOOK_S)[0]:
                return self._typed_line()
            if self._forget():
                self._write(_PROMPT)
            self._try(functools.partial(self._look, prompt=_PROMPT), prompt=_PROMPT)

    def _typed_line(self) -> str | None:
        """Return the next typed line without reporting events; None at the end of input."""
        while b"\n" not in self._typed:
            try:
                piece = os.read(sys.stdin.fileno(), _MOST_LINE)
            except OSError as error:
                if error.errno != errno.EIO:  # the terminal has gone, pty(7): the end of input
                    raise
                piece = b""
            if not piece:
                break
            self._typed += piece
        line, end, self._typed = self._typed.partition(b"\n")
        return line.decode("utf-8", "replace") if line or end else None

    def _forget(self) -> bool:
        """Print why the key was locked, if the person did not lock it, and discard previews that may no longer be read.

        Return whether it was.
        """
        why = self._key_session.why_locked()
        if why is None:
            return False
        if not self._key_session.may_read:
            self._previews.clear()
        self._say(f"\nthe approver's key is locked: {why}")
        return True

    def _lend_terminal(self) -> None:
        """Lock the key before another program gets the terminal, so that a process that opens the terminal meanwhile cannot
        decide with the key.
        """
        if self._key_session.is_open:
            self._lock("")

    def _forget_typed(self) -> None:
        """Discard input that was typed or pasted before the prompt, because it is no answer to the prompt."""
        self._typed = b""
        with contextlib.suppress(termios.error):
            termios.tcflush(sys.stdin, termios.TCIFLUSH)

    def _say(self, text: str) -> None:
        self._write(text + "\n")

    def _write(self, text: str) -> None:
        self._out.write(text)
        self._out.flush()

    def _rows(self, rows: Iterable[Text]) -> None:
        for row in rows:
            self._say(row.plain.rstrip())

    def _complain(self, words: str) -> None:
        """Print an error, folded between words, so that a command in it can be read."""
        for row in rendering.further(f"! {words}", self._width()):
            self._say(row)

    def _try(self, work: Callable[[], None], prompt: str = "") -> None:
        """Run the work. Report an error instead of ending the console."""
        from aileron.model.failure import AileronError

        try:
            work()
            if self._is_lost:
                self._say("the daemon is back")
            self._is_lost = False
        except GoneError as error:
            if not self._is_lost or not prompt:
                self._complain(f"the daemon does not answer ({visible(str(error))}): nothing can be decided")
            self._is_lost = True
        except (RequestRefused, AileronError, ValueError) as error:
            self._complain(visible(str(error)))
        except KeyboardInterrupt:
            self._say("\nnot decided")
        except Exception as error:  # noqa: BLE001 - where a command ends: whatever the daemon answered, the console stays
            self._complain(unforeseen(error))

    # the queue

    def _look(self, prompt: str = "") -> None:
        """Report new and settled questions, one line each.

        `prompt` is already on the screen and is printed again below the lines.
        """
        approver = self._daemon.approver()
        self._is_signed, self._key_session.key_id = approver.status != "none", approver.key_id or None
        is_first, self._has_looked = not self._has_looked, True
        news = self._waiting.take(self._daemon.waiting())
        said = []
        for name in news.new:
            self._numbers[name] = len(self._numbers) + 1
            if not is_first:
                said.append(f"new: {self._title(self._waiting[name])}")
        for name in news.gone:
            said += self._settled(name)
        if said:
            self._say(("\n" if prompt else "") + "\n".join(said))
            self._write(prompt)

    def _settled(self, name: str) -> list[str]:
        """Return lines about the outcome of a settled question.

        If the daemon does not report it, say so once, and ask again later.
        """
        before = self._waiting[name]
        try:
            self._waiting.settle(name, self._daemon.outcome(name).status)
        except RequestRefused as error:
            if name in self._untold:
                return []
            self._untold.add(name)
            why = rendering.shown(str(error), self._width())
            return [f"settled: {self._title(before)}", f"! outcome not known: {why}"]
        self._untold.discard(name)
        is_pushed_out = name not in self._waiting
        became = before if is_pushed_out else self._waiting[name]
        return [] if became == before else [f"settled: {self._title(became)}"]

    def _title(self, entry: PendingEntry, *, has_asker: bool = True) -> str:
        left = seconds_left(entry.expires_at)
        when = (
            f" · expires in {rendering.duration(left)}" if entry.is_open and left is not None else f" · {entry.state}"
        )
        number, end = self._numbers.get(entry.id, 0), f" · {entry.asker}{when}" if has_asker else when
        row = rendering.cut(
            f"{number} {entry.listed.text if entry.is_open else entry.row}",
            max(self._width() - rendering.cells(end), _LEAST_ROW),
        )
        return f"{row}{end}"

    def _list(self, _: str) -> None:
        self._look()
        found = [entry for entry in self._waiting.open if matches(entry, self._wanted)]
        waiting = sorted(found, key=lambda entry: entry.expires_at)
        asker = common_asker(entry.listed for entry in waiting) if len(waiting) > 1 else None
        if asker is not None:
            self._say(f"all asked by {asker}")
        for entry in waiting:
            self._say(self._title(entry, has_asker=asker is None))
        if not waiting:
            self._say("nothing matches" if self._wanted else "nothing waiting")
        if self._wanted:
            self._say(f"! filtered: {visible(self._wanted)} (type filter to show all)")
        if not self._is_signed:
            self._say("! decisions are not signed: any process of this user can make them (fix: aileron approver init)")

    def _filter(self, wanted: str) -> None:
        self._wanted = wanted
        self._list("")

    def _on_one(self, work: Callable[[str, str], None]) -> Callable[[str], None]:
        """Make a command about one question, given by its number or the end of its id."""

        def command(rest: str) -> None:
            number, _, more = rest.partition(" ")
            name = self._needed(number)
            self._forget_previews_but({name})
            work(name, more.strip())

        return command

    def _needed(self, number: str) -> str:
        """Return the id of the question with this number or end of an id. Raises ValueError if there is none."""
        if (name := self._named(number)) is None:
            raise ValueError(f"no request {number[:40]!r}: type list")
        return name

    def _forget_previews_but(self, names: set[str]) -> None:
        """Discard the previews of all questions except `names`, unless a key that may read previews is open."""
        if not self._key_session.may_read:
            self._previews = {key: preview for key, preview in self._previews.items() if key[0] in names}

    def _named(self, number: str) -> str | None:
        """Return the id of the question with this number or end of an id; None unless exactly one question matches."""
        names = [name for name, own in self._numbers.items() if str(own) == number]
        names = names or [name for name in self._numbers if len(number) >= 4 and name.endswith(number)]
        return names[0] if len(names) == 1 else None

    def _on_alike(self, rest: str) -> None:
        """Approve the questions in `rest`, one or several.

        Raises ValueError, and approves nothing, unless each word names a question: an approval takes no reason.
        """
        numbers = rest.split() or [""]
        names = [self._needed(number) for number in numbers]
        twice = next((number for at, number in enumerate(numbers) if names[at] in names[:at]), None)
        if twice is not None:
            raise ValueError(f"{twice} is named twice")
        self._forget_previews_but(set(names))
        if len(names) == 1:
            self._approve(names[0])
        else:
            self._approve_several(names)

    def _on_some(self, *, ends_session: bool) -> Callable[[str], None]:
        """Make a command that denies questions, with the rest of its line as the reason.

        Several questions need a confirmation, because a reason may begin with a number.
        """

        def command(rest: str) -> None:
            words = rest.split()
            names: list[str] = []
            while words and (name := self._named(words[0])) is not None and (not names or self._is_open(name)):
                names.append(name)
                words.pop(0)
            if not names:
                raise ValueError(f"no request {rest.partition(' ')[0][:40]!r}: type list")
            reason = " ".join(words)
            if len(names) > 1 and not self._agreed(names, reason):
                self._say("not decided")
                return
            for name in dict.fromkeys(names):
                self._try(functools.partial(self._deny, name, reason, ends_session=ends_session))

        return command

    def _is_open(self, name: str) -> bool:
        return name in self._waiting and self._waiting[name].is_open

    def _agreed(self, names: list[str], reason: str) -> bool:
        for name in dict.fromkeys(names):
            self._say(self._title(self._waiting[name]))
        self._say(f"reason: {visible(reason) or 'none'}")
        self._forget_typed()
        self._write("To deny all of these, type  yes  (anything else decides nothing): ")
        return (self._typed_line() or "").strip() == "yes"

    # one question

    def _review(self, name: str) -> Review:
        """Return the question, or the person's edit of the question, with its preview if that was read."""
        review = review_of(self._daemon.question(name), is_signed=self._is_signed, edit=self._edits.get(name))
        return review.with_preview(self._preview_of(review)) if review.waits else review

    def _preview_of(self, review: Review) -> Preview | None:
        return self._previews.get((review.id, review.plan_digest))

    def _show(self, name: str, _: str) -> None:
        self._print(self._review(name))

    def _print(self, review: Review) -> Card:
        """Print the complete question, and return its card."""
        card, width, left = review.card(local_time), self._width(), seconds_left(review.question.expires_at)
        self._say("")
        self._rows(rendering.essential_rows(card, width))
        if review.closed == state_words("completed"):
            self._say(f"✓ {review.closed}")
        elif review.closed is not None:
            self._complain(visible(review.closed))
        elif left is not None:
            self._say(f"expires in {rendering.duration(left)}")
        self._rows(rendering.body_rows(card.sections, width, is_whole=True)[0])
        self._say(f"▸ proof {self._numbers[review.id]}: how it runs, and what you sign")
        return card

    def _proof(self, name: str, _: str) -> None:
        """Print the proof, that is, what is signed and how the action runs. A decision does not require reading it."""
        self._rows(rendering.body_rows(self._review(name).card(local_time).proof, self._width(), is_whole=True)[0])

    def _read_preview(self, name: str, _: str) -> None:
        self._print(self._read_for(self._review(name)))

    def _read_for(self, review: Review) -> Review:
        """Read the current state, and return the review with that state."""
        from aileron.approver_key.signing import PREVIEW_S, PreviewAsked

        if not review.has_preview:
            raise ValueError("no preview: this action does not load any current state")
        purpose = f"to load the current state for {in_a_prompt(review.card(local_time).called)}"
        passkeys = offered(self._daemon, self._key_session, "approve", review.question.kind)
        with self._key_session.reader(purpose, review.id, passkeys) as by:
            asked = PreviewAsked(by, review.id, review.plan_digest)
        answer = self._daemon.preview(review.id, asked.body, PREVIEW_S)
        try:
            preview = asked.opened(answer)
        except ValueError:
            raise ValueError("the daemon sent a preview that cannot be read") from None
        self._previews[review.id, review.plan_digest] = preview
        return review.with_preview(preview)

    # decisions

    def _approve(self, name: str) -> None:
        """Print the complete question, and approve exactly what was printed if the person types the confirmation word."""
        review = self._with_state(self._review(name))
        word = self._print(review).word
        was_open = self._key_session.may_read
        if review.closed is not None:
            raise ValueError("this can no longer be decided")
        if review.why_no_yes is not None:
            raise ValueError(f"not approved: {review.why_no_yes}")
        if self._is_yes("approve", word, [review], was_open=was_open):
            self._decide(review, "approve", None)

    def _approve_several(self, names: list[str]) -> None:
        """Print what several questions have in common and how they differ.

        If the person types the confirmation word, approve each, up to the first failure.
        """
        from aileron.cards.apart import why_apart_unread
        from aileron.cards.together import Apart, card_of_several

        reviews = [self._review(name) for name in names]
        if (why := why_apart_unread(reviews, local_time)) is not None:
            raise ValueError(why)
        reviews = [self._with_state(review) for review in reviews]
        card = card_of_several(reviews, local_time)
        if isinstance(card, Apart):
            raise ValueError(card.why)
        self._print_several(card, reviews)
        was_open, done = self._key_session.may_read, 0
        if not self._is_yes(f"approve all {len(reviews)}", card.word, reviews, was_open=was_open):
            return
        for review in reviews:
            if not self._decide(review, "approve", None):
                break
            done += 1
        self._say(f"{'! ' if done < len(reviews) else ''}{done} of {len(reviews)} approved")

    def _with_state(self, review: Review) -> Review:
        """Return the review with its current state; the state is read first if an approval needs it."""
        return self._read_for(review) if review.is_unread else review

    def _print_several(self, card: Card, reviews: list[Review]) -> None:
        width = self._width()
        self._say("")
        self._rows(rendering.essential_rows(card, width))
        lefts = [left for review in reviews if (left := seconds_left(review.question.expires_at)) is not None]
        if lefts:
            self._say(f"the first expires in {rendering.duration(min(lefts))}")
        self._rows(rendering.body_rows(card.sections, width, is_whole=True)[0])
        numbers = ", ".join(f"proof {self._numbers[review.id]}" for review in reviews)
        self._say(f"▸ {numbers}: how each runs, and what you sign")

    def _is_yes(self, does: str, word: str | None, reviews: list[Review], *, was_open: bool) -> bool:
        """Ask the person to type `word`, or `yes` if None, and return whether the printed questions can be approved.

        They cannot if the person types anything else, or if a signal locked the key or discarded a preview after printing.
        """
        word = word or "yes"
        self._forget_typed()
        self._write(f"To {does}, type  {word}  (anything else: not decided): ")
        if (self._typed_line() or "").strip() != word:
            self._say("not decided")
            return False
        is_as_printed = all(self._preview_of(review) is review.preview for review in reviews)
        if not is_as_printed or self._key_session.may_read != was_open:
            self._say("! the key was locked since this was printed: not decided, look again")
            return False
        return True

    def _deny(self, name: str, reason: str, *, ends_session: bool) -> None:
        review = self._review(name).with_preview(None)
        session = session_of(review.question)
        if is_withdrawal(reason, is_signed=self._is_signed, has_key=self._key_session.is_open):
            is_done = self._withdraw(name)
        else:
            is_done = self._decide(review, "deny", reason or None)
        if is_done and ends_session and session is not None:
            self._daemon.end_session(session)
            self._say("session ended")

    def _decide(self, review: Review, decision: Literal["approve", "deny"], reason: str | None) -> bool:
        """Sign the decision, send it, and print the result. Return whether the daemon accepted the decision."""
        card, called = review.card(local_time), self._called(review.id)
        if decision == "deny" and self._is_signed and not self._key_session.is_open:  # an approval has all of it above
            self._rows(rendering.essential_rows(card, self._width()))
        decided = review.decided(decision, reason)
        passkeys = offered(self._daemon, self._key_session, decision, review.question.kind)
        made = signed(self._key_session, decided, is_signed=self._is_signed, called=card.called, passkeys=passkeys)
        try:
            said = (
                made
                if isinstance(made, Notice)
                else send(self._daemon, review.id, made, is_a_run=review.is_run, called=called)
            )
        except GoneError as error:
            self._say(f"! no answer ({visible(str(error))}): it is not known whether this was decided")
            self._say(f"{called}, now: {visible(state_words(self._daemon.outcome(review.id).status))}")
            return False
        self._say(("" if said.is_done else "! ") + visible(said.words))
        return said.is_done

    def _withdraw(self, name: str) -> bool:
        """Withdraw the question, which is a denial without a signature. Return whether that succeeded."""
        said = withdraw(self._daemon, name, called=self._called(name))
        self._say(("" if said.is_done else "! ") + visible(said.words))
        return said.is_done

    def _telling(self, hooks: SecurityKeyHooks | None) -> SecurityKeyHooks | None:
        """Return the security key hooks, changed to print before the prompt what Enter alone does; or None."""
        if hooks is None:
            return None

        def offer(question: str) -> Secret:
            from aileron.approver_key.security_key import OFFER

            self._say(OFFER)
            return hooks.offer(question)

        return dataclasses.replace(hooks, offer=offer)

    def _called(self, name: str) -> str:
        if name not in self._waiting:  # so many were settled since that it is no longer listed
            return f"{self._numbers[name]} {visible(name)}"
        entry = self._waiting[name]
        return f"{self._numbers[name]} {entry.row} · {entry.asker}"

    def _edit(self, name: str, _: str) -> None:
        plan = self._review(name).plan
        if plan is None:
            raise ValueError("only runs have arguments to edit")
        self._lend_terminal()
        try:
            text = self._edit_text(json.dumps(plan.args, indent=2, ensure_ascii=True) + "\n")
        except (ValueError, KeyboardInterrupt):
            with self._no_echo():  # if an editor was killed, the person who typed in it types on
                raise
        wanted = json.loads(text)
        if not isinstance(wanted, dict) or wanted == plan.args:
            raise ValueError("no changes")
        self._edits[name] = self._daemon.edit(name, wanted)
        self._print(self._review(name))

    def _grant(self, name: str, rest: str) -> None:
        review = self._review(name)
        uses, _, minutes = rest.partition(" ")
        if review.plan is None or review.card(local_time).word is not None:
            raise ValueError("not available: this cannot be undone, so each run is approved separately")
        if review.plan.changes_only_seen:
            raise ValueError(ONLY_WITH_PREVIEW)
        if not (uses.isdigit() and minutes.strip().isdigit()):
            raise ValueError("usage: for N USES MINUTES, for example: for 1 3 15")
        self._daemon.grant(review.plan, int(uses), int(minutes) * 60)
        self._look()

    def _ask_back(self, name: str, question: str) -> None:
        if not question:
            raise ValueError("usage: ask N QUESTION")
        self._daemon.ask_back(name, question)
        self._say("asked; delivered at the agent's next check (show has the answer)")

    def _cancel(self, name: str, _: str) -> None:
        self._say(visible(self._daemon.cancel(name).status))

    def _difference(self, name: str, _: str) -> None:
        review = self._review(name)
        found = difference_lines(review.question, review.edited, None, local_time)
        lines = found if isinstance(found, list) else [found or "no earlier approval to compare with"]
        self._rows(list(rendering.difference_rows(lines, self._width())))

    def _raw(self, name: str, _: str) -> None:
        self._say(as_told(self._daemon.question(name)).as_json)

    def _record(self, name: str, _: str) -> None:
        from aileron.cards.record import record_of

        run = self._daemon.question(name).audit_id
        if not run:
            raise ValueError("no run yet")
        became = record_of(self._daemon.record(run), self._daemon.outcome(name))
        self._rows(rendering.record_rows(became, self._width()))

    def _open(self, name: str, _: str) -> None:
        self._say(page_of(self._daemon.status().web, name) or "no web page for this request")

    # the rest

    def _activity(self, count: str) -> None:
        """Print the stories by session, then the last hour in numbers."""
        from aileron.tui.story import told_by_session
        from aileron.tui.story_rows import hour_lines, story_text, told_row
        from aileron.tui.story_source import newest_hour, result_of

        self._history.take(newest_hour(self._daemon))
        for run in self._history.without_result(_FEW):
            self._history.came_back(run, result_of(self._daemon, run))
        sessions = {session.id: session for session in self._daemon.sessions()}
        stories = self._history.stories({entry.id: entry.row for entry in self._waiting.entries})[: _count_in(count)]
        told, self._listed = told_by_session(stories, sessions), []
        for group in told:
            self._say(told_row(group, self._width()).plain)
            for story in group.stories:
                self._listed.append(story.run)
                number = f"{len(self._listed)} "
                for row in story_text(story, self._width() - len(number)).plain.split("\n"):
                    self._say(f"{number}{row}".rstrip())
                    number = " " * len(number)
        for line in hour_lines(self._history.hour(sessions, datetime.datetime.now(datetime.UTC))):
            self._say(line)

    def _ledger(self, count: str) -> None:
        events = self._daemon.newest(_count_in(count))
        self._listed = [None if event.get("run") is None else str(event["run"]) for event in events]
        for number, event in enumerate(events, start=1):
            self._say(f"{number} {rendering.event_row(event, self._width() - len(str(number)) - 1).plain}")

    def _run(self, number: str) -> None:
        """Print the record of the run with this number in the last list of `activity` or `ledger`."""
        from aileron.cards.record import record_of

        at = int(number) if number.isdecimal() and len(number) < 5 else 0
        run = self._listed[at - 1] if 0 < at <= len(self._listed) else None
        if run is None:
            raise ValueError(f"no run {number[:40]!r}: type activity or ledger")
        self._rows(rendering.record_rows(record_of(self._daemon.record(run)), self._width()))

    def _grants(self, _: str) -> None:
        for grant in self._daemon.grants():
            self._rows(rendering.grant_rows(grant, self._width()))

    def _sessions(self, _: str) -> None:
        for session in self._daemon.sessions():
            self._rows(rendering.session_rows(session, self._width()))

    def _status(self, _: str) -> None:
        self._say(
            rendering.system_text(self._daemon.status(), self._daemon.approver(), self._key_word(), self._width()).plain
        )

    def _revoke(self, name: str) -> None:
        self._daemon.revoke(name)
        self._say("revoked")

    def _end(self, name: str) -> None:
        self._daemon.end_session(name)
        self._say("ended")

    def _unlock(self, _: str) -> None:
        self._key_session.look()
        if self._key_session.not_kept is not None:
            raise ValueError(f"the passphrase is asked for each time: {self._key_session.not_kept}")
        self._key_session.open("to decide for 15 minutes")
        self._say(self._key_word())

    def _lock(self, _: str) -> None:
        self._key_session.close()
        self._previews.clear()
        self._say(self._key_word())

    def _vault(self, _: str) -> None:
        if self._daemon.status().vault.locked:
            self._lend_terminal()
            with contextlib.suppress(UnicodeDecodeError):
                with self._key_session.asking("vault"):
                    text = self._ask("Vault passphrase").reveal().decode()
                self._daemon.unlock_vault(text)
        else:
            self._daemon.lock_vault()
        self._say("locked" if self._daemon.status().vault.locked else "open")

    def _key_word(self) -> str:
        left = f"{rendering.duration(self._key_session.left_s)} left"
        if self._key_session.is_open:
            return f"the key is open, {left}"
        if self._key_session.may_read:
            return f"previews are open, {left}; each decision asks for the passphrase"
        why = self._key_session.not_kept
        return "the key is locked" if why is None else f"the passphrase is asked for each time: {why}"

    @functools.cached_property
    def _history(self) -> History:
        from aileron.tui.story import History

        return History()

    def _width(self) -> int:
        with contextlib.suppress(OSError, ValueError):
            return max(os.get_terminal_size(self._out.fileno()).columns, 40)
        return 100


def _count_in(text: str) -> int:
    """Return the count that the person typed, or the default."""
    return int(text) if text.isdecimal() and len(text) < 5 else _FEW
