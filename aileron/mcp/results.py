r"""Conversion of the daemon's answers into results of tool calls. Each result has the same facts twice, as text and as
structured content.

Some agents show their model only `structuredContent`, others only the text. So both contain everything: a sentence about
what happened and what to tell the person (`message`), a sentence about what to do next (`next_step`), and the facts. Runs
in the daemon; pure. Reasons, questions and messages of failures come from people, connectors and upstreams: in the
sentences, their hidden characters are shown as escapes and their length is bounded; in the facts they are plain data.

Rules
- `isError` is set if the request has ended without a result, and if the call itself was refused.
- A result with an unknown outcome has `do_not_retry`.
- A result whose JSON is longer than PAGE_BYTES is divided into pages, never inside a character. The joined pages are that JSON.
- All other parts of an answer are bounded too. A part that is too long is truncated, or is replaced by a note that it
  was left out.

Source: docs/reference/mcp.md; MCP specification, "Tools". Not here: the list of tools (tools.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from aileron.mcp.agent_port import CallState, Offered
from aileron.mcp.tools import ACCOUNT, asks_first, schema_of
from aileron.model.failure import AileronError, Failure, FailureClass
from aileron.model.json_value import JSON, JSONObject, dict_of, list_of
from aileron.model.names import tool_name
from aileron.model.outcome import RunStatus
from aileron.model.visible import visible, visible_json

__all__ = ["PAGE_BYTES", "ToolResult", "cancelled", "found_list", "pages_of", "pending_list", "refused", "state_result"]

PAGE_BYTES: Final = 8 << 10
"""Maximum size of a page of a result's JSON in bytes of UTF-8, as written in the answer. All measured agents show their
models more of one answer: codex 12,000 characters if it does not know the model, pi 20,000, the others more
(docs/reference/agents.md). With the sentences and the other facts, an answer stays below all these limits.
"""
_MAX_WORDS: Final = 2000
"""Maximum number of characters of untrusted text inside a sentence: a paragraph, not a page."""
_MAX_SAID: Final = 4000
"""Maximum number of characters of a reason or a question, equal to the limit of the stored text."""
_MAX_FACT_BYTES: Final = 2 << 10
"""Maximum size in bytes of a failure without its message, and of arguments that a person edited: the room that an
answer has besides a page of the result.
"""
_MAX_DESCRIPTION: Final = 600
"""Maximum number of characters of a found action's description. Five descriptions leave room for the actions' schemas."""
_MAX_TITLE: Final = 100
"""Maximum number of characters of a found action's title. An intent is a phrase."""
_MAX_LISTED: Final = 25
"""Maximum number of questions in one list, which take 8 KiB. Further questions are only counted."""

_COPIED: Final = ("action", "approval_id", "audit_id", "run_id", "review_url", "expires_at", "held_until")
_DO_NOT_REPEAT: Final = "Do not call the action again for this."


class ToolResult(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a tool call: a text, the same content as JSON (facts), and whether the result counts as an error."""

    text: str
    facts: JSONObject
    is_error: bool


_NEXT: Final[dict[FailureClass, str]] = {
    FailureClass.INVALID_REQUEST: "Correct the call and try again.",
    FailureClass.BAD_INPUT: "Correct the arguments and call again.",
    FailureClass.NOT_FOUND: "Check the name or the id; list_pending shows what waits for a person.",
    FailureClass.UNAUTHORIZED: "This session has ended or is not known. Tell the person to start you again.",
    FailureClass.VAULT_LOCKED: "Ask the person to run: aileron vault unlock. Then call again.",
    FailureClass.BINDING_REQUIRED: "Tell the person what the message says; call again once they have done it.",
    FailureClass.BINDING_FAILED: "Tell the person what the message says; call again once they have done it.",
    FailureClass.APPROVAL_DENIED: "A person denied this. Do not ask for the same again.",
    FailureClass.CONSENT_REQUIRED: "Tell the person what the message says; only they can agree. Call again once they have.",
    FailureClass.IDEMPOTENCY_CONFLICT: "Call with the arguments of the first call, or without its key.",
    FailureClass.OUTCOME_UNKNOWN: (
        "Do not call it again: it may have happened. Tell the person to look at the service, and at: aileron audit list."
    ),
    FailureClass.ACTION_DISABLED: "A person switched it off. Tell them, and do not look for a way round.",
    FailureClass.ALREADY_DECIDED: "Ask check_action_status how it ended.",
    FailureClass.APPROVAL_EXPIRED: "Ask the person whether they still want it before you call the action again.",
    FailureClass.CANCELLED: "Call the action again only if it is still wanted.",
    FailureClass.BUSY: "Wait a few seconds, then call again.",
}
_NEXT_RETRIABLE: Final = "This may pass: you may call again later, a few times at most. Otherwise tell the person."
_NEXT_OTHERWISE: Final = "Tell the person what the message says; calling again will not help by itself."


def state_result(state: CallState, *, page: int = 1, first: str = "") -> ToolResult:
    """Return the state of a run or a question as the result of a tool call. `page` is the page of the run's result to
    return, from 1. The text `first` is put before the message.

    Raises AileronError(bad_input) for a page that does not exist.
    """
    status = RunStatus(state["status"])
    asked = state.get("approval_id") or state.get("audit_id") or state.get("run_id")
    facts: JSONObject = {"status": status.value, "message": "", "next_step": "", "id": asked}
    facts |= {name: state[name] for name in _COPIED if state.get(name) is not None}
    if not status.is_final:
        facts["poll_after_ms"] = state.get("poll_after_ms") or 2000
    for name, said in (("reason", state.get("reason")), ("question", state.get("question"))):
        if said:
            facts[name] = _cut(said, _MAX_SAID)
    if (executed := state.get("executed_arguments")) is not None:
        facts["executed_arguments"] = _fitting(executed)
    if error := state.get("error"):
        facts["error"] = _error(error)
    if status is RunStatus.UNKNOWN or _class(facts) is FailureClass.OUTCOME_UNKNOWN:
        facts["do_not_retry"] = True
    message, facts["next_step"] = _sentences(status, facts, state.get("message", ""))
    facts["message"] = f"{first} {message}".lstrip()
    if status is RunStatus.COMPLETED:
        _put_result(facts, state.get("result"), page)
    elif page != 1:
        raise AileronError(FailureClass.BAD_INPUT, f"there is no page {page}: it is {status.value} and has no result")
    return _told(facts, is_error=status.is_final and status is not RunStatus.COMPLETED)


def refused(failure: Failure, *, status: RunStatus | None = None) -> ToolResult:
    """Return the result of a refused tool call, in which nothing was done. For a call of an action, `status` is `failed`."""
    facts: JSONObject = {} if status is None else {"status": status.value}
    error = _error(msgspec.to_builtins(failure))
    facts |= {"message": _words(failure.message), "next_step": _after_failure(error)}
    facts["error"] = error
    if failure.failure_class is FailureClass.OUTCOME_UNKNOWN:
        facts["do_not_retry"] = True
    return _told(facts, is_error=True)


def cancelled(state: CallState) -> ToolResult:
    """Return the result of cancel_action after a question was withdrawn."""
    facts: JSONObject = {
        "status": state["status"],
        "message": "It was withdrawn. Nothing was done, and nobody can approve it now.",
        "next_step": "Call the action again only if it is wanted after all.",
        "id": state.get("approval_id"),
    }
    facts |= {name: state[name] for name in _COPIED if state.get(name) is not None}
    return _told(facts, is_error=False)


def pending_list(questions: list[CallState]) -> ToolResult:
    """Return the session's undecided requests as a result, at most _MAX_LISTED of them."""
    shown: list[JSON] = [
        {
            "id": question.get("approval_id"),
            **{name: question[name] for name in (*_COPIED, "status", "created_at") if question.get(name) is not None},
        }
        for question in questions[:_MAX_LISTED]
    ]
    count = len(questions)
    message = "Nothing that you asked for waits for a person." if not count else f"{count} waiting for a person."
    next_step = (
        "Go on." if not count else "Ask check_action_status about one with its id, or withdraw it with cancel_action."
    )
    facts: JSONObject = {"message": message, "next_step": next_step, "count": count, "pending": shown}
    return _told(facts, is_error=False)


def found_list(found: Sequence[Offered], total: int) -> ToolResult:
    """Return the result of find_action. `found` are the best of `total` matching actions. As many as fit into
    PAGE_BYTES are described completely, the others only by name and title.
    """
    if not found:
        message = f"None of {total} actions fits these words."
        next_step = "Try other words: the service's name, or another verb. If nothing fits, tell the person."
        return _told({"message": message, "next_step": next_step, "count": 0, "actions": []}, is_error=False)
    room = PAGE_BYTES
    actions: list[JSON] = []
    more: list[JSON] = []
    for number, entry in enumerate(found):
        whole = _found(entry)
        if not number and _size(whole) > room:
            schema = dict_of(whole.pop("input_schema"))
            whole["arguments"] = [*sorted(dict_of(schema["properties"]))[:_MAX_LISTED]]
            whole["left_out"] = (
                f"input_schema: {_size(schema)} bytes. A call with arguments that do not fit says which."
            )
        brief = {"name": whole["name"], "title": whole["title"]}
        if not more and _size(whole) <= room:
            actions.append(whole)
            room -= _size(whole) + 1
        elif _size(brief) <= room + _MAX_FACT_BYTES:
            more.append(brief)
            room -= _size(brief) + 1
    next_step = "Call run_action with the name and the arguments of the one that fits. If none does, try other words."
    if more:
        next_step += " For the arguments of one in `more`, search for its name."
    facts: JSONObject = {
        "message": f"{len(actions) + len(more)} of {total} actions, the likeliest first.",
        "next_step": next_step,
        "count": len(actions) + len(more),
        "actions": actions,
    }
    return _told({**facts, "more": more} if more else facts, is_error=False)


def _found(entry: Offered) -> JSONObject:
    action = entry.action
    return {
        "name": tool_name(action.name),
        "title": _cut(action.intent, _MAX_TITLE),
        "description": _cut(action.body.strip(), _MAX_DESCRIPTION),
        "asks_a_person": asks_first(entry),
        "input_schema": schema_of(entry),
    }


def _size(value: JSON) -> int:
    return len(msgspec.json.encode(value))


def pages_of(result: JSON) -> tuple[str, ...]:
    """Return the pages of a result's JSON: one page if it has at most PAGE_BYTES, else pieces cut between characters. Each
    piece has at most PAGE_BYTES once it is itself encoded as a JSON string.
    """
    document = msgspec.json.encode(result)
    if len(document) <= PAGE_BYTES:
        return (document.decode(),)
    pieces = []
    start = 0
    while start < len(document):
        end = _end_of_page(document, start)
        pieces.append(document[start:end].decode())
        start = end
    return tuple(pieces)


def _end_of_page(document: bytes, start: int) -> int:
    end = min(start + PAGE_BYTES, len(document))
    while (over := end - start + _escapes(document, start, end) - PAGE_BYTES) > 0:
        end -= (over + 1) // 2  # removing a byte removes at most one escape
    while end < len(document) and document[end] & 0xC0 == 0x80:  # a continuation byte: RFC 3629, section 3
        end -= 1
    return end


def _escapes(document: bytes, start: int, end: int) -> int:
    """Return by how many bytes `document[start:end]` grows if it is encoded as a JSON string. Its control characters are
    already escaped.
    """
    return document.count(b'"', start, end) + document.count(b"\\", start, end)


def _put_result(facts: JSONObject, result: JSON, page: int) -> None:
    pages = pages_of(result)
    if not 1 <= page <= len(pages):
        raise AileronError(FailureClass.BAD_INPUT, f"there is no page {page}: the result has {len(pages)}")
    if len(pages) == 1:
        facts["result"] = result
        return
    facts |= {"page": page, "pages": len(pages)}
    if page < len(pages):
        facts["next_page"] = page + 1
        facts["next_step"] = (
            f"result_json is page {page} of {len(pages)} of the result's JSON. If you need the next, call check_action_status "
            f"with this id and page {page + 1}."
        )
    else:
        facts["next_step"] = f"result_json is the last of {len(pages)} pages of the result's JSON."
    facts["result_json"] = pages[page - 1]


def _sentences(status: RunStatus, facts: JSONObject, message: str) -> tuple[str, str]:
    """Return a sentence about what happened in a run or question, and one about what to do next. For a waiting request,
    the daemon's `message` is passed on unchanged.
    """
    match status:
        case RunStatus.COMPLETED:
            edited = " A person changed the arguments first: executed_arguments is what ran."
            return "The action completed." + (edited if "executed_arguments" in facts else ""), "Use the result."
        case RunStatus.PENDING_APPROVAL:
            return _waiting(facts, message)
        case RunStatus.APPROVED:
            return _approved(facts)
        case RunStatus.RUNNING:
            return "It has begun and is not over yet; it goes on whether anybody waits or not.", _poll(facts)
        case RunStatus.FAILED:
            error = dict_of(facts.get("error"))
            words = _words(str(error.get("message", "no reason is on record")))
            return f"The action failed: {words}", _after_failure(error)
        case RunStatus.DENIED:
            reason = _quoted(_words(str(facts["reason"]))) if "reason" in facts else ", and gave no reason."
            advice = (
                "Do not ask for the same again. If the reason says what to change, you may ask once with that changed."
            )
            return f"A person denied this{reason} Nothing was done.", advice
        case RunStatus.EXPIRED:
            return "Nobody decided in time, so nothing was done.", _NEXT[FailureClass.APPROVAL_EXPIRED]
        case RunStatus.CANCELLED:
            return "It was withdrawn before it ran. Nothing was done.", _NEXT[FailureClass.CANCELLED]
        case RunStatus.UNKNOWN:
            words = "It was interrupted after it began, so it may or may not have happened."
            return words, _NEXT[FailureClass.OUTCOME_UNKNOWN]


def _waiting(facts: JSONObject, message: str) -> tuple[str, str]:
    asked = facts["id"]
    if "question" in facts:
        asks = f'Nothing has happened yet. The person who decides asks you: "{_words(str(facts["question"]))}"'
        return asks, f"Call check_action_status with id {asked} and your answer; then they decide."
    return message, (
        "Tell the person what you asked for, and pass this message on. Then do other work, or end your turn. "
        f"Later call check_action_status with id {asked} (wait_for_action waits for a while). "
        f"{_DO_NOT_REPEAT} Do not try to approve it: that is done where you have no access."
    )


def _approved(facts: JSONObject) -> tuple[str, str]:
    message = "A person approved it, and it has not begun yet."
    if "held_until" in facts:
        message += f" It is held until {facts['held_until']}, and can be cancelled until then."
    if "error" in facts:
        message += f" It cannot begin now: {_words(str(dict_of(facts['error']).get('message', '')))}"
    return message, _poll(facts)


def _poll(facts: JSONObject) -> str:
    return f"Call check_action_status with id {facts['id']} later, or wait_for_action. {_DO_NOT_REPEAT}"


def _next(failure_class: FailureClass | None, retriable: bool) -> str:
    known = _NEXT.get(failure_class) if failure_class is not None else None
    return known or (_NEXT_RETRIABLE if retriable else _NEXT_OTHERWISE)


def _after_failure(error: JSONObject) -> str:
    """Return a sentence that tells the agent what to do after a failure, such as how to choose one of several credentials."""
    failure_class = _class({"error": error})
    details = dict_of(error.get("details"))
    nearest, choices = list_of(details.get("nearest")), list_of(details.get("choices"))
    if failure_class is FailureClass.NOT_FOUND and nearest:
        return f"If you meant one of {', '.join(map(str, nearest))}: call run_action with it. Else search with find_action."
    if failure_class is not FailureClass.BINDING_REQUIRED or not choices:
        return _next(failure_class, bool(error.get("retriable")))
    listed = _cut(", ".join(map(str, choices)), _MAX_WORDS)
    return (
        f"Ask the person whose account to use, if they did not say. Then call again with {ACCOUNT}, one of: {listed}."
    )


def _class(facts: JSONObject) -> FailureClass | None:
    try:
        return FailureClass(str(dict_of(facts.get("error")).get("class")))
    except ValueError:
        return None


def _error(error: Failure | JSONObject) -> JSONObject:
    """Return a failure as JSON for the facts of a result. The class, `retriable` and the boundary are always complete;
    the other parts are bounded.
    """
    plain: JSONObject = {"retriable": False, **msgspec.to_builtins(error)}
    facts: JSONObject = {name: plain.pop(name) for name in ("class", "retriable", "boundary") if name in plain}
    facts["message"] = _cut(str(plain.pop("message", "")), _MAX_SAID)
    return facts | _fitting({name: value for name, value in plain.items() if value not in (None, {}, [])})


def _fitting(values: JSONObject) -> JSONObject:
    """Return the facts of a failure in the same order, with at most _MAX_FACT_BYTES in total. A value that does not fit
    is replaced by a note with its size; if no more notes fit, the last note has the number of facts left out.
    """
    room = _MAX_FACT_BYTES
    shown: JSONObject = {}
    for name, value in values.items():
        size = len(msgspec.json.encode({name: value}))
        if size > room:
            value = f"(left out: {size} bytes; a person sees it with `aileron audit show`)"
            size = len(msgspec.json.encode({name: value}))
        if size > room:
            return shown | {"…": f"({len(values) - len(shown)} more; a person sees them with `aileron audit show`)"}
        shown[name] = value
        room -= size
    return shown


def _quoted(reason: str) -> str:
    """Return a person's reason as the quoted end of a sentence, without adding a full stop if it ends in one."""
    return f': "{reason}"' if reason.endswith((".", "!", "?", "…")) else f': "{reason}".'


def _words(text: str) -> str:
    return _cut(visible(_cut(text, _MAX_WORDS)), _MAX_WORDS)


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[:most]} … ({len(text) - most} more characters)"


def _told(facts: JSONObject, *, is_error: bool) -> ToolResult:
    text = f"{facts['message']}\n{facts['next_step']}\n\n{_json(facts)}"
    return ToolResult(text=text, facts=facts, is_error=is_error)


def _json(value: JSONObject) -> str:
    """Return JSON in which hidden characters are written as escapes, so that a terminal does not interpret them."""
    return visible_json(msgspec.json.encode(value).decode())
