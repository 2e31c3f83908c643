"""Parts of injected tools: a request's text with its places, events, names, memory, and responses in any pieces."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aileron.gateway.inject.anthropic_messages import MessagesAsk
from aileron.gateway.inject.chat import ChatAsk
from aileron.gateway.inject.document import MAX_PARTS, MAX_VALUES, Document, Edit, TooManyError, encoded, spliced
from aileron.gateway.inject.events import MAX_EVENT_BYTES, EventError, Events
from aileron.gateway.inject.exchange import WIRES, Injection
from aileron.gateway.inject.memory import MAX_BYTES, MAX_ENTRIES, MAX_SESSIONS, Entry, Memories, Memory
from aileron.gateway.inject.responses import ResponsesAsk
from aileron.gateway.inject.wire import MAX_NAME, Called, Tool, added_usage, named
from aileron.model.json_value import JSONObject
from tests.gateway.conftest import Provider, gateway
from tests.gateway.shapes import ANSWERS, Answer
from tests.gateway.test_inject import NAME, ScriptedTools
from tests.support.shaped import shaped

TEXTS = st.text(max_size=8)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=12,
)
OBJECTS = st.dictionaries(TEXTS, VALUES, max_size=5)
STYLES = st.sampled_from([{}, {"indent": 1}, {"ensure_ascii": False}, {"separators": (" , ", "\n:\t")}])


@given(OBJECTS, STYLES)
def test_a_json_document_finds_the_position_of_each_member(value: dict[str, Any], style: dict[str, Any]) -> None:
    """The spaces and escapes make no difference: the text between two places is that of the value."""
    text = json.dumps(value, **style)
    document = Document.of(text)
    for name, expected in value.items():
        found = document.find(name)
        assert found is not None
        assert (found.value, json.loads(text[found.start : found.end])) == (expected, expected)
        for element in found.elements:
            assert json.loads(text[element.start : element.end]) == element.value


@given(OBJECTS, STYLES, st.lists(st.integers(), min_size=1, max_size=3))
def test_appending_to_a_json_document_leaves_the_rest_unchanged(
    value: dict[str, Any], style: dict[str, Any], more: list[int]
) -> None:
    """Every byte outside the appended items is equal."""
    value = {**value, "tools": [1]}
    text = json.dumps(value, **style)
    document = Document.of(text)
    changed = spliced(text, [document.append("tools", [str(number) for number in more])])

    assert json.loads(changed) == {**value, "tools": [1, *more]}
    added = "," + ",".join(map(str, more))
    assert len(changed) == len(text) + len(added)
    assert changed.replace(added, "", 1) == text or added in text


@given(st.binary(max_size=64) | st.text(alphabet='{}[]",:\\ 01aeE.-ntfu', max_size=24).map(str.encode))
def test_any_bytes_are_parsed_as_a_json_document_or_raise_value_error(data: bytes) -> None:
    """Every accepted text is also an object to Python's json."""
    try:
        document = Document.of(data.decode())
    except ValueError:
        return
    assert isinstance(json.loads(data), dict)
    assert document.start <= document.end


@pytest.mark.parametrize(
    "text", ['{"a":1,"a":2}', '{"a":NaN}', '{"a":-Infinity}', "[]", "{} x", '{"a":1', "", "[" * 100_000, '{"a":' + "[" * 100_000]
)  # fmt: skip
def test_ambiguous_json_is_refused(text: str) -> None:
    """The cases: a repeated name, invalid numbers, text behind the object, no end, endless nesting."""
    with pytest.raises(ValueError, match=r"."):
        Document.of(text)


@pytest.mark.parametrize(
    ("most", "made"),
    [
        (MAX_PARTS, lambda count: '{"messages":[' + ",".join(["{}"] * count) + "]}"),
        (MAX_PARTS, lambda count: "{" + ",".join(f'"{number}":1' for number in range(count)) + "}"),
        (MAX_VALUES - 2, lambda count: '{"a":{"b":[' + ",".join(["1"] * count) + "]}}"),
    ],
)  # fmt: skip
def test_the_number_of_values_in_a_json_document_is_bounded(most: int, made: Callable[[int], str]) -> None:
    """The maximum is accepted. More would become hundreds of megabytes of small objects."""
    assert Document.of(made(most)).get("a") != []
    with pytest.raises(TooManyError, match="more than"):
        Document.of(made(most + 1))


def test_two_overlapping_edits_of_a_json_document_raise_an_error() -> None:
    """Applying both would give a request that neither edit intended."""
    with pytest.raises(ValueError, match="two edits"):
        spliced("abc", [Edit(0, 2, ""), Edit(1, 3, "")])


@given(
    st.lists(st.sampled_from([b"data: 1\n\n", b"event: a\r\ndata: x\r\n\r\n", b": c\n\n", b"data: a\ndata: b\n\n"])),
    st.data(),
)
def test_any_split_of_a_stream_gives_the_same_events(parts: list[bytes], data: st.DataObject) -> None:
    """All events together are exactly the bytes of the stream."""
    stream = b"".join(parts)
    at = data.draw(st.lists(st.integers(0, len(stream)), max_size=6).map(sorted))
    pieces = [stream[start:end] for start, end in zip([0, *at], [*at, len(stream)], strict=True)]
    events = Events()
    found = [event for piece in pieces for event in events.feed(piece)]

    assert found == Events().feed(stream)
    assert [event.raw for event in found] == parts
    assert events.rest == b""


def test_a_streamed_event_without_an_end_is_refused() -> None:
    """The event is refused before it fills the memory."""
    with pytest.raises(EventError, match=str(MAX_EVENT_BYTES)):
        Events().feed(b"x" * (MAX_EVENT_BYTES + 1))


@given(
    st.lists(st.text("abc_", min_size=1, max_size=70), max_size=6, unique=True),
    st.frozensets(st.text("abc_", max_size=4).map("aileron_".__add__), max_size=6),
)
def test_tool_names_are_valid_unique_and_stable(names: list[str], theirs: frozenset[str]) -> None:
    """Names have at most 64 characters, differ from the program's, are sorted, and are the same each time."""
    tools = [Tool(name, "", {}) for name in names]
    found = named(tools, theirs)

    assert found == named(list(reversed(tools)), theirs)
    assert sorted(tool.name for tool in found.values()) == sorted(names)
    assert list(found) == sorted(found)
    assert not theirs & found.keys()
    assert all(len(name) <= MAX_NAME and name.startswith("aileron") for name in found)


def test_the_token_counts_of_two_model_responses_are_added_at_every_level() -> None:
    """Values other than numbers are those of the later round."""
    first: JSONObject = {"in": 1, "of": {"cached": 2}, "tier": "a", "none": None, "yes": True}
    other: JSONObject = {"in": 3, "of": {"cached": 4, "new": 5}, "tier": "b", "none": 1, "yes": False}
    assert added_usage(first, other) == {"in": 4, "of": {"cached": 6, "new": 5}, "tier": "b", "none": 1, "yes": False}


def test_the_memory_of_earlier_injected_calls_is_bounded_and_forgets_unused_entries() -> None:
    """The bounds are on bytes, entries and sessions."""
    memory = Memory()
    memory.put("kept", Entry(("x",)))
    for number in range(2 * MAX_ENTRIES):
        memory.get("kept")
        memory.put(str(number), Entry(("y",)))
    assert memory.get("kept") == Entry(("x",))
    assert memory.get("0") is None
    memory.put("half", Entry(("z" * (MAX_BYTES // 2 + 1),)))
    memory.put("other half", Entry(("z" * (MAX_BYTES // 2 + 1),)))
    assert (memory.get("half"), memory.get("other half") is None) == (None, False)
    memory.put("too long", Entry(("z" * (MAX_BYTES + 1),)))
    assert memory.get("too long") is None

    memories = Memories()
    first = memories.of("first")
    assert memories.of("first") is first
    for number in range(MAX_SESSIONS):
        memories.of(str(number))
    assert memories.of("first") is not first


def test_an_agent_s_cache_mark_stays_on_its_message() -> None:
    """The hidden rounds are inserted before the message that has the mark."""
    memory = Memory()
    asked = MessagesAsk(Document.of('{"messages":[{"role":"user","content":"a"}]}'))
    answer = asked.answer({"aileron_x": Tool("x", "", {})})
    answer.begin_round()
    answer.take({"content": [{"type": "text", "text": "b"}], "stop_reason": "end_turn"})
    (said,) = answer.end_round().said
    for key, entry in asked.entry(answer, ('{"hidden":1}', said), ()).items():
        memory.put(key, entry)
    block = {"type": "text", "text": "b", "cache_control": {"type": "ephemeral"}}
    turns = [
        {"role": "user", "content": "a"},
        {"role": "assistant", "content": [block]},
        {"role": "user", "content": "c"},
    ]
    sent = json.loads(MessagesAsk(Document.of(json.dumps({"messages": turns}))).body({}, memory))
    assert sent["messages"][1:3] == [{"hidden": 1}, {"role": "assistant", "content": [block]}]


def test_a_stored_conversation_gets_only_the_results_of_injected_calls_in_its_latest_turn() -> None:
    """An id may be used again; a turn without injected calls removes the results of an earlier one."""
    memory, tools = Memory(), {"aileron_x": Tool("x", "", {})}
    own = {"type": "function_call", "id": "fc", "call_id": "c2", "name": "own", "arguments": "{}"}

    def turn(conversation: str, ours: str | None) -> None:
        asked = ResponsesAsk(Document.of(json.dumps({"conversation": conversation, "input": "a"})))
        answer = asked.answer(tools)
        answer.begin_round()
        hidden = [] if ours is None else [{**own, "call_id": ours, "name": "aileron_x"}]
        answer.take({"id": "r", "status": "completed", "output": shaped([*hidden, own])})
        entries = asked.entry(answer, (), [_answered(call) for call in answer.end_round().calls])
        if ours is None:
            memory.doubt(entries)
        for key, entry in entries.items() if ours else ():
            memory.add(key, entry)

    def sent(conversation: str) -> list[str]:
        output = {"type": "function_call_output", "call_id": "c2", "output": "own"}
        ask = ResponsesAsk(Document.of(json.dumps({"conversation": conversation, "input": [output]})))
        return [item["call_id"] for item in json.loads(ask.body(tools, memory))["input"]]

    turn("conv_1", "old")
    turn("conv_1", "new")
    turn("conv_2", "other")
    assert (sent("conv_1"), sent("conv_2"), sent("conv_3")) == (["new", "c2"], ["other", "c2"], ["c2"])
    turn("conv_1", None)
    assert (sent("conv_1"), sent("conv_2")) == (["c2"], ["other", "c2"])
    turn("conv_1", "newest")
    assert sent("conv_1") == ["newest", "c2"]


def test_a_conversation_stored_at_the_provider_gets_only_the_results_of_injected_calls() -> None:
    """The provider already has the calls. Cases: a further round, and a turn with both kinds of calls."""
    tools = {"aileron_x": Tool("x", "", {})}
    asked = ResponsesAsk(Document.of('{"conversation":"conv_1","input":"a"}'))
    answer = asked.answer(tools)
    answer.begin_round()
    ours = {"type": "function_call", "id": "fc_1", "call_id": "c1", "name": "aileron_x", "arguments": "{}"}
    theirs = {**ours, "id": "fc_2", "call_id": "c2", "name": "own"}
    answer.take({"id": "resp_1", "status": "completed", "output": shaped([ours, theirs])})
    found = answer.end_round()
    assert (found.said, found.theirs, [call.id for call in found.calls]) == ((), ("c2",), ["c1"])

    results = [_answered(found.calls[0])]
    assert json.loads(asked.body(tools, Memory(), asked.results(results)))["input"] == [
        {"role": "user", "content": "a"},
        {"type": "function_call_output", "call_id": "c1", "output": "done"},
    ]
    memory = Memory()
    for key, entry in asked.entry(answer, (), results).items():
        memory.put(key, entry)
    output = {"type": "function_call_output", "call_id": "c2", "output": "own"}
    following = ResponsesAsk(Document.of(json.dumps({"conversation": "conv_1", "input": [output]})))
    sent = json.loads(following.body(tools, memory))["input"]
    assert [item["call_id"] for item in sent] == ["c1", "c2"]


def _answered(call: Called) -> Any:
    from aileron.gateway.inject.wire import Answered

    return Answered(call, "done", False)


def test_a_message_with_ambiguous_json_gets_no_results_of_injected_calls() -> None:
    """A repeated name in its JSON is ambiguous: the history is left as the program sent it."""
    asked = MessagesAsk(Document.of('{"messages":[{"role":"user","content":"a"}]}'))
    answer = asked.answer({"aileron_x": Tool("x", "", {})})
    answer.begin_round()
    blocks = [
        {"type": "tool_use", "id": f"c{n}", "name": name, "input": {}} for n, name in ((1, "aileron_x"), (2, "own"))
    ]
    answer.take({"id": "m", "content": shaped(blocks), "stop_reason": "tool_use"})
    found = answer.end_round()
    memory = Memory()
    for key, entry in asked.entry(answer, found.said, [_answered(found.calls[0])]).items():
        memory.put(key, entry)

    own = json.dumps({"role": "assistant", "content": blocks[1:]})
    for twice, sent in ((', "role":"user"', ["c2"]), ("", ["c1", "c2"])):
        result = f'{{"role":"user", "content":[{{"type":"tool_result","tool_use_id":"c2","content":"b"}}]{twice}}}'
        following = MessagesAsk(Document.of(f'{{"messages":[{{"role":"user","content":"a"}},{own},{result}]}}'))
        messages = json.loads(following.body({}, memory))["messages"]
        assert [block["id"] for block in messages[1]["content"]] == sent
        assert [block["tool_use_id"] for block in messages[2]["content"]] == sent


@given(st.data())
def test_a_chat_completions_call_in_any_pieces_is_the_same_call(data: st.DataObject) -> None:
    """An injected call and the program's own come together at any split; the program sees only its own, as number 0."""
    asked = ChatAsk(Document.of('{"messages":[{"role":"user","content":"a"}],"stream":true}'))
    answer = asked.answer({"aileron_x": Tool("x", "", {})})
    answer.begin_round()
    arguments = {0: '{"to": "Zürich"}', 1: '{"city": "Bern"}'}
    chunks: list[dict[str, Any]] = [
        {"index": 0, "id": "a", "type": "function", "function": {"name": "aileron_x", "arguments": ""}},
        {"index": 1, "id": "b", "type": "function", "function": {"name": "own", "arguments": ""}},
    ]
    for index, text in arguments.items():
        cut = data.draw(st.integers(0, len(text)))
        chunks += [{"index": index, "function": {"arguments": part}} for part in (text[:cut], text[cut:])]
    stream = (
        b"".join(_chunk({"tool_calls": [piece]}) for piece in chunks) + _chunk({}, "tool_calls") + b"data: [DONE]\n\n"
    )
    told = b"".join(answer.feed(event) for event in Events().feed(stream))
    found = answer.end_round()
    told += answer.end()

    assert [(call.id, call.tool, call.arguments) for call in found.calls] == [("a", "x", arguments[0])]
    seen = [json.loads(event.data) for event in Events().feed(told) if event.data != "[DONE]"]
    calls = [
        call
        for completion in seen
        for choice in completion["choices"]
        for call in choice["delta"].get("tool_calls", [])
    ]
    assert {call["index"] for call in calls} == {0}
    assert "".join(call["function"].get("arguments", "") for call in calls) == arguments[1]
    assert "aileron" not in told.decode()


@pytest.mark.parametrize("name", ["reasoning_content", "content", "arguments"])
def test_a_response_in_very_many_pieces_is_whole(name: str) -> None:
    """Each piece occurs once, in its place: they are joined only when the round ends."""
    answer = (MessagesAsk if name == "content" else ChatAsk)(Document.of('{"messages":[{"role":"user"}]}')).answer({})
    answer.begin_round()
    for event in Events().feed(_start(name)):
        answer.feed(event)
    (event,) = Events().feed(_piece(name))
    for _ in range(_PIECES):
        answer.feed(event)

    assert "".join(answer.end_round().said).count("x") == 1_000 * _PIECES + (name == "reasoning_content")


_PIECES = 2_000


def _start(name: str) -> bytes:
    if name == "content":
        block = {"type": "content_block_start", "index": 0, "content_block": {"type": "thinking", "thinking": ""}}
        return f"data: {json.dumps(block)}\n\n".encode()
    if name == "arguments":
        function = {"name": "own", "arguments": ""}
        return _chunk({"tool_calls": [{"index": 0, "id": "a", "type": "function", "function": function}]})
    return _chunk({name: "x"})


def _piece(name: str) -> bytes:
    text = "x" * 1_000
    if name == "content":
        delta = {"type": "thinking_delta", "thinking": text}
        block = {"type": "content_block_delta", "index": 0, "delta": delta}
        return f"data: {json.dumps(block)}\n\n".encode()
    if name == "arguments":
        return _chunk({"tool_calls": [{"index": 0, "function": {"arguments": text}}]})
    return _chunk({name: text})


def _chunk(delta: dict[str, Any], reason: str | None = None) -> bytes:
    return (
        f"data: {encoded({'id': 'c', 'choices': [{'index': 0, 'delta': delta, 'finish_reason': reason}]})}\n\n".encode()
    )


REAL = {
    "messages, streamed": "/v1/messages",
    "chat completions, streamed": "/v1/chat/completions",
    "responses, streamed": "/v1/responses",
}


@pytest.mark.parametrize("name", ANSWERS)
@pytest.mark.parametrize("path", [path.decode() for path in WIRES])
@pytest.mark.parametrize("stream", [True, False])
def test_a_response_without_an_injected_call_is_unchanged(
    name: str, path: str, stream: bool, provider: Provider
) -> None:
    """Every recorded shape is tried with its own API and the others; status, fields and bytes are kept, if not chunk borders."""
    answer: Answer = ANSWERS[name]
    turns: dict[str, Any] = {"input": "a"} if "responses" in path else {"messages": [{"role": "user", "content": "a"}]}
    body = json.dumps({"model": "m", "stream": stream, **turns}).encode()
    with (
        gateway(provider.settings(), injection=Injection(ScriptedTools())) as port,
        provider.asked(
            port,
            b"POST /inject/%b%b HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%b"
            % (NAME.encode(), path.encode(), len(body), body),
        ) as (client, upstream),
    ):
        upstream.message()
        upstream.say(answer.raw())
        head, told = (
            client.message() if not answer.head.startswith(("HTTP/1.1 204", "HTTP/1.1 304")) else (client.head(), b"")
        )
    assert head.status == int(answer.head.split()[1])
    assert told == (answer.body if answer.chunks is None else b"".join(answer.chunks))
    given = {line.partition(":")[0].lower() for line in answer.head.splitlines()[1:]} - {
        "transfer-encoding",
        "connection",
        "keep-alive",
        "content-length",
    }
    assert {field.decode() for field, _ in head.fields} - {"transfer-encoding", "content-length", "connection"} == given
