"""The guess of an operation's effect from its method and words. It is cautious, and the author checks it.

Pure. A safe method reads, unless the operation's name begins with a verb that writes or its path ends in one. All other
operations wait for a person, so that a wrong guess only makes a card less or more prominent, and never causes an unseen
effect. A POST whose name or path says that it only reads gets the effect `read`, but still waits, because a name must
not open the gate.

Source: RFC 9110 section 9.2.1; docs/reference/action-file.md (Effects).

>>> effect_of("delete", "orgs_remove_member", "/orgs/{org}/members/{user}")
<Effect.DELETE: 'delete'>
>>> effect_of("post", "create_refund", "/refunds")
<Effect.PAY: 'pay'>
>>> effect_of("post", "query_tables", "/tables/query"), needs_person("post", Effect.READ)
(<Effect.READ: 'read'>, True)
"""

from __future__ import annotations

import re
import urllib.parse
from typing import Final, NamedTuple, assert_never

from aileron.actions.operation_names import guessed_effect
from aileron.model.manifest import Effect

__all__ = ["effect_of", "needs_person"]


class _Words(NamedTuple):
    """Words of operations with one effect, separated by spaces."""

    anywhere: str = ""
    """Words that suggest the effect wherever they stand in the name or in the last segment of the path."""
    last: str = ""
    """Verbs that, as the last segment of a path, never name an object.

    Of 3,900 GET operations in known documents, six end in such a segment, and five of these do write.
    """


def _words_with(effect: Effect) -> _Words:
    match effect:
        case Effect.READ:
            return _Words()
        case Effect.CREATE:
            return _Words(last="add create insert upsert")
        case Effect.CHANGE:
            return _Words(
                "activate assign change disable edit enable mark merge modify move patch rename replace rotate set "
                "transition update upsert",
                "activate approve disable enable execute reboot reject reset restart start stop subscribe trigger update",
            )
        case Effect.SEND:
            return _Words(
                "announce broadcast dispatch email emails forward invitation invitations invite invites mail message "
                "messages notification notifications notify publish reply send share sms tweet",
                "publish send",
            )
        case Effect.DELETE:
            return _Words(
                "cancel clear delete deactivate destroy drop erase purge remove reset revoke terminate wipe",
                "cancel deactivate delete destroy erase logout purge remove revoke terminate uninstall unsubscribe wipe",
            )
        case Effect.PAY:
            return _Words(
                "buy capture charge charges checkout pay payment payments payout payouts purchase purchases refund "
                "refunds topup topups transfer transfers",
                "buy pay",
            )
        case _:
            assert_never(effect)


_ANYWHERE: Final = {effect: frozenset(_words_with(effect).anywhere.split()) for effect in Effect}
_ENDS: Final = {verb: effect for effect in Effect for verb in _words_with(effect).last.split()}
_BEGINS: Final = _ENDS.keys() - set("activate add approve reject reset restart start stop subscribe trigger".split())
"""Verbs that, at the start of a name with several words, say what the operation does. Other verbs also begin names of
things, such as `start_time`.
"""
_OF_METHODS: Final = {"delete": Effect.DELETE, "put": Effect.CHANGE, "patch": Effect.CHANGE}
_LOOKS: Final = frozenset("count filter find get list lookup paginate query read retrieve search".split())
"""Words at the start of the name, or at the end of the path, of a POST that only reads and has a body for a long query."""
_ASKS: Final = frozenset("count lookup paginate query search".split())
"""Words in `_LOOKS` that also mean reading at the end of a name: `users_search` reads, but a `mailing_list` is an object."""
_DOES: Final = frozenset(
    "add apply archive begin book close commit confirm copy do draft execute export flag generate import insert install invoke "
    "launch lock make new open order perform post provision put queue record register request run save schedule "
    "start stop store submit subscribe sync toggle track trigger unlock upload write".split()
)
"""Words that prevent a POST from counting as reading, whatever other words it has: `find_or_create`, `search_and_replace`."""
_WORD: Final = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z0-9]+")
_WRITES: Final = frozenset(Effect) - {Effect.READ}


def effect_of(method: str, name: str, path: str) -> Effect:
    """Return the heaviest effect that the method, the name or the end of the path suggests."""
    if method in ("get", "head"):
        return _effect_of_reading(name, path)
    words = set(name.split("_")) | set(_last_words(path))
    said = [effect for effect in Effect if words & _ANYWHERE[effect] or _OF_METHODS.get(method) is effect]
    if path.endswith("}"):
        said.append(Effect.CHANGE)
    if said:
        return max(said, key=tuple(Effect).index)
    return Effect.READ if _looks(name.split("_"), _last_words(path)) else Effect.CREATE


def _looks(name: list[str], end: list[str]) -> bool:
    """Return whether a POST only reads: some word of its name or path's end says so, and no word there says otherwise."""
    if any(word in _DOES or word in _ENDS or guessed_effect(word) in _WRITES for word in (*name, *end)):
        return False
    return name[0] in _LOOKS or name[-1] in _ASKS or end[-1] in _LOOKS - {"list"}


def _effect_of_reading(name: str, path: str) -> Effect:
    """Return the effect of an operation whose method is safe: READ, unless a verb in its name or path suggests another
    effect.

    The verb can be at the start of the name, be the last segment of the path, or start the words of that segment or of a
    constant query.
    """
    said = guessed_effect(name)
    if said in _WRITES:
        return said
    end = _segment(path).rpartition(".")[2].rpartition(":")[2]
    if end.lower() in _ENDS:
        return _ENDS[end.lower()]
    values = [value for _, value in urllib.parse.parse_qsl(urllib.parse.urlsplit(path).query)]
    for words in (name.partition("_")[2].split("_"), _words(end), *map(_words, values)):
        if words and words[0] in _BEGINS:
            return _ENDS[words[0]]
    return Effect.READ


def needs_person(method: str, effect: Effect) -> bool:
    """Return whether a person must decide first: yes, unless the operation reads and has a safe method."""
    return method not in ("get", "head") or effect is not Effect.READ


def _last_words(path: str) -> list[str]:
    return _last_segment(path).replace("-", "_").replace(":", "_").split("_")


def _last_segment(path: str) -> str:
    return _segment(path).lower()


def _segment(path: str) -> str:
    """Return the last segment of the path that is not a parameter; it says what the request is about."""
    named = [segment for segment in re.split(r"[?#]", path)[0].split("/") if segment and "{" not in segment]
    return named[-1] if named else ""


def _words(text: str) -> list[str]:
    """Split `sendMessage`, `send-message` or `send_message` into words."""
    return [word.lower() for word in _WORD.findall(text)]
