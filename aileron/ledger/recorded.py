"""Events, decoded as the types with which they were written.

Pure. Trusts no record: an old record may lack facts that its type has now, a newer version may write a word that this
version does not know, and anybody who can write the file can write anything. Such an event is decoded nevertheless, and
`problem` says what is wrong. A caller that only displays the event uses the facts that it has; a caller that decides by
it calls `checked`, which raises.

>>> class Note(msgspec.Struct, tag_field="type", tag="note"):
...     word: str
>>> recorded({"type": "note", "seq": 7, "at_us": 0, "word": "so"}, Note)
Recorded(seq=7, at_us=0, event=Note(word='so'), problem=None)
>>> recorded({"type": "note", "seq": 8, "at_us": 0}, Note).problem
'Object missing required field `word`'

Not here: the types (audit/events.py).
"""

from __future__ import annotations

from typing import Any, Generic, TypeVar

import msgspec

from aileron.model.failure import AileronError, FailureClass
from aileron.model.json_value import JSONObject

__all__ = ["E", "Recorded", "recorded", "tag_of"]

E = TypeVar("E", bound=msgspec.Struct)


class Recorded(msgspec.Struct, Generic[E], frozen=True):
    """An event with the number and the time (microseconds since the epoch) of its row.

    `problem` says how the event deviates from its type: a missing fact is then None, and a fact of another type keeps its value.
    """

    seq: int
    at_us: int
    event: E
    problem: str | None = None

    def checked(self) -> E:
        """Return the event, for a caller that depends on all its facts; raise an error if a fact is missing or invalid.

        Raises AileronError(hash_mismatch) if the event has a problem.
        """
        if self.problem is not None:
            raise AileronError(
                FailureClass.HASH_MISMATCH,
                f"row {self.seq} of the ledger is not as it was written ({self.problem}): run `aileron audit verify`",
            )
        return self.event


def recorded(facts: JSONObject, kind: type[E]) -> Recorded[E]:
    """Return the event with these facts, which include `seq` and `at_us`."""
    seq: Any = facts["seq"]  # the check of the chain compares both with the row's columns
    at_us: Any = facts["at_us"]
    try:
        return Recorded(seq, at_us, msgspec.convert(facts, kind))
    except msgspec.ValidationError as error:
        return Recorded(seq, at_us, _as_it_is(facts, kind), str(error))


def tag_of(kind: type[msgspec.Struct]) -> str:
    """Return the tag that identifies this event type in the ledger's records."""
    return str(kind.__struct_config__.tag)


def _as_it_is(facts: JSONObject, kind: type[E]) -> E:
    fields = msgspec.structs.fields(kind)
    return kind(**{field.name: _fact(facts, field) for field in fields})


def _fact(facts: JSONObject, field: msgspec.structs.FieldInfo) -> Any:
    if field.encode_name not in facts:
        made = None if field.default_factory is msgspec.NODEFAULT else field.default_factory()
        return made if field.default is msgspec.NODEFAULT else field.default
    try:
        return msgspec.convert(facts[field.encode_name], field.type)
    except msgspec.ValidationError:
        return facts[field.encode_name]
