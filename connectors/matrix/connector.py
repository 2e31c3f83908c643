"""Connector for one Matrix account: the operations of its OpenAPI document, service/document.json, and three operations
with simpler arguments for agents.

Runs inside the jail. The connector asks the host to send requests and to add the token; the connector never has the token.
Everything that is read was written by other people and is passed on as data.

Rules
- The transaction id of a request is the invocation's idempotency key, so a server executes a repeated request only
  once. No caller can set it.
- Messages are sent as plain text only. An HTML form (`formatted_body`) could differ from the text that the person approved.

Source: Matrix specification 1.15, client-server API: search, rich replies, annotations, transaction identifiers.
"""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

from msgspec import Meta

from aileron_connector import op, openapi, run

SENDING: Final = {"send_message": "txn_id", "send_reaction": "txn_id", "redact_event": "txn_id"}
"""Operations that take a transaction id, each with its argument for that id."""

service: Final = openapi.declare("service", idempotency=SENDING)

Text = Annotated[str, Meta(min_length=1, max_length=16000)]
Words = Annotated[str, Meta(min_length=1, max_length=500)]
Reaction = Annotated[str, Meta(min_length=1, max_length=100)]
Limit = Annotated[int, Meta(ge=1, le=50)]


@op
def search_messages(
    search_term: Words,
    rooms: list[str] | None = None,
    senders: list[str] | None = None,
    order_by: Literal["recent", "rank"] = "recent",
    limit: Limit = 10,
    next_batch: Words | None = None,
) -> dict[str, Any]:
    """Find messages with these words, newest first by default. `next` has the arguments for the next page."""
    chosen = {"rooms": rooms, "senders": senders, "limit": limit}
    wanted = {
        "search_term": search_term,
        "order_by": order_by,
        "filter": {name: value for name, value in chosen.items() if value},
    }
    page = {} if next_batch is None else {"next_batch": next_batch}
    answer = service.call("search", {"search_categories": {"room_events": wanted}, **page})
    found = answer["search_categories"].get("room_events", {})
    told = {"messages": [hit["result"] for hit in found.get("results", []) if "result" in hit]}
    return {**told, "total": found.get("count"), **({"next": answer["next"]} if "next" in answer else {})}


@op
def reply_to_message(room_id: str, event_id: str, body: Text) -> Any:
    """Send a message that replies to another message."""
    relation = {"m.in_reply_to": {"event_id": event_id}}
    return service.call(
        "send_message", {"room_id": room_id, "msgtype": "m.text", "body": body, "m_relates_to": relation}
    )


@op
def react_to_message(room_id: str, event_id: str, reaction: Reaction) -> Any:
    """React to a message with a key such as 👍."""
    relation = {"rel_type": "m.annotation", "event_id": event_id, "key": reaction}
    return service.call("send_reaction", {"room_id": room_id, "m_relates_to": relation})


if __name__ == "__main__":
    run()
