"""Tools in requests: the providers' own SDKs on all three APIs, streamed and not, and a model that follows a script.

The door is scripted here; tests/daemon/test_injected_tools.py does the same with a daemon, its actions and a person.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import threading
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Any

import anthropic
import anyio
import httpx
import httpx2
import openai
import pytest

from aileron.gateway.inject import exchange, rounds
from aileron.gateway.inject.anthropic_messages import MessagesAnswer, MessagesAsk
from aileron.gateway.inject.document import MAX_PARTS, Document
from aileron.gateway.inject.events import Event
from aileron.gateway.inject.exchange import Injection
from aileron.gateway.inject.wire import Tool, Wire
from aileron.model.failure import AileronError, FailureClass
from aileron.model.json_value import JSONObject
from tests.gateway.conftest import DEADLINE_S, KEY, TOKEN, Head, Line, Provider, gateway, refusal, refused
from tests.gateway.model import Fail, Model, Say, Search, Step, Think, Turn, Use, usage_of
from tests.gateway.programs import PROGRAMS, close_all
from tests.support.waiting import wait_until_async

NAME = "ail_" + "n" * 43
SESSION = "ses-1"
SCHEMA: JSONObject = {"type": "object", "properties": {"to": {"type": "string"}}}
HOWS = list(PROGRAMS)
_TURN = b'{"role":"user","content":"a"}'
_NO_JSON = "the body is no JSON object that has each name once"
_TOO_MANY = f"it has more than {MAX_PARTS} members, or elements in one of them"
STREAMED = [how for how in HOWS if "streamed" in how]


@dataclasses.dataclass
class ScriptedTools:
    """A door behind the seam: tools by name, and the answer to each call."""

    answers: dict[str, Callable[[dict[str, Any]], Awaitable[tuple[str, bool]]]] = dataclasses.field(
        default_factory=dict
    )
    called: list[tuple[str, str, str, dict[str, Any]]] = dataclasses.field(default_factory=list)
    notes: list[tuple[str, ...]] = dataclasses.field(default_factory=list)
    names: list[str] = dataclasses.field(default_factory=lambda: ["send_mail", "look"])

    def session_of(self, name: str) -> str:
        """Return the session of the one known address."""
        if name != NAME:
            raise AileronError(FailureClass.UNAUTHORIZED, "no session has this address")
        return SESSION

    def is_injected(self, session: str) -> bool:
        """Return whether this is the known session."""
        return session == SESSION

    async def offered(self, session: str, room: int) -> Sequence[Tool]:
        """Return all tools, or none if there is no room for them."""
        assert session == SESSION
        tools = [Tool(name, f"Does {name}.", SCHEMA) for name in self.names]
        return tools if len(tools) <= room else []

    async def call(self, session: str, wire: Wire, tool: str, arguments: dict[str, Any]) -> tuple[str, bool]:
        """Return the test's answer; by default the arguments."""
        self.called.append((session, wire, tool, arguments))
        if tool in self.answers:
            return await self.answers[tool](arguments)
        return f"{tool} was given {json.dumps(arguments)}", False

    async def added(self, session: str, wire: Wire, names: Sequence[str]) -> None:
        """Note the added tools."""
        self.notes.append(("added", session, wire, *names))

    async def passed(self, session: str, wire: Wire, why: str) -> None:
        """Note the request that was passed on, and the reason."""
        self.notes.append(("passed", session, wire, why))


@pytest.fixture(autouse=True)
def programs_closed() -> Iterator[None]:
    """Close the connections of all programs after a test."""
    yield
    close_all()


@contextlib.contextmanager
def served(model: Model, tools: ScriptedTools, keep_alive_s: float = 30.0) -> Iterator[str]:
    """Start a gateway, and yield the address of a session whose requests get tools."""
    settings = _settings(model.port)
    with gateway(settings, injection=Injection(tools, keep_alive_s=keep_alive_s)) as port:
        yield f"http://127.0.0.1:{port}/inject/{NAME}"


@contextlib.contextmanager
def injected(*turns: Turn, stop: str | None = None) -> Iterator[tuple[Model, ScriptedTools, str]]:
    """Start a model that follows these turns, and a gateway to it. Yield the model, the added tools, and a session's address."""
    tools = ScriptedTools()
    with Model(*turns, stop=stop) as model, served(model, tools) as url:
        yield model, tools, url


def passed_on(provider: Provider, tools: ScriptedTools, request: bytes) -> tuple[Head, bytes]:
    """Send a request past an injection, and check that the answer comes back. Return what the provider got."""
    with (
        gateway(provider.settings(), injection=Injection(tools)) as port,
        provider.asked(port, request) as (client, upstream),
    ):
        message = upstream.message()
        upstream.say(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
        assert client.message()[1] == b"ok"
    return message


def _settings(port: int) -> Any:
    from aileron.config import GatewaySettings, Settings, Upstream

    url = f"http://127.0.0.1:{port}"
    return Settings(gateway=GatewaySettings(anthropic=Upstream(url), openai=Upstream(url)))


@pytest.mark.parametrize("how", HOWS)
def test_an_injected_call_is_made_and_the_program_sees_one_response(how: str) -> None:
    """The response has the model's words around the call, the token counts of both rounds, and no trace of the call."""
    turns: tuple[Turn, ...] = ([Say("Let me look."), Use("aileron_look", {"to": "Zürich"})], [Say("It is sunny.")])
    with injected(*turns) as (model, tools, url):
        turn = PROGRAMS[how](url).ask("How is the weather?")

        assert model.problems == []
        assert turn.text.split() == "Let me look. It is sunny.".split() or turn.text == "Let me look.It is sunny."
        assert turn.calls == []
        assert turn.used == (usage_of(2), usage_of(2))
        assert turn.stop in ("end_turn", "stop", "completed")
        assert "aileron" not in turn.whole.to_json()
        assert [(tool, args) for _, _, tool, args in tools.called] == [("look", {"to": "Zürich"})]
        assert model.tools(0) == model.tools(1) == ["weather", "aileron_look", "aileron_send_mail"]
        assert b"look was given" in model.bodies[1]
        assert NAME.encode() not in model.raw
        assert [fields["accept-encoding"] for fields in model.fields] == ["identity", "identity"]


@pytest.mark.parametrize("how", HOWS)
def test_a_turn_without_an_injected_call_is_unchanged(how: str) -> None:
    """The program's own tool is called and answered as without the gateway."""
    with injected([Say("Hm."), Use("weather", {"city": "Bern"})], [Say("Rain.")]) as (model, tools, url):
        program = PROGRAMS[how](url)
        turn = program.ask("How is the weather?")
        assert [(call.name, call.args) for call in turn.calls] == [("weather", {"city": "Bern"})]
        assert turn.used == (usage_of(1), usage_of(1))
        assert program.answer({turn.calls[0].id: "rain"}).text == "Rain."

        assert (model.problems, tools.called) == ([], [])


@pytest.mark.parametrize("how", HOWS)
def test_several_calls_in_a_turn_are_made_concurrently(how: str) -> None:
    """Each call waits for the others to start; the results have the order of the calls."""
    both = anyio.Event()
    count = 0

    async def meet(arguments: dict[str, Any]) -> tuple[str, bool]:
        nonlocal count
        count += 1
        if count == 2:
            both.set()
        with anyio.fail_after(DEADLINE_S):
            await both.wait()
        return f"met {arguments['to']}", False

    tools = ScriptedTools(answers={"look": meet})
    turns = [Use("aileron_look", {"to": "one"}), Use("aileron_look", {"to": "two"})], [Say("Both.")]
    with Model(*turns) as model, served(model, tools) as url:
        turn = PROGRAMS[how](url).ask("Look at both.")

        assert (model.problems, turn.text, turn.calls) == ([], "Both.", [])
        assert model.bodies[1].index(b"met one") < model.bodies[1].index(b"met two")


@pytest.mark.parametrize("how", HOWS)
def test_a_turn_with_injected_calls_and_the_program_s_own_calls_gets_both_results(how: str) -> None:
    """The program answers only its own call, and the model then sees both; later requests have the same bytes before them."""
    turns: tuple[Turn, ...] = (
        [Think("first"), Use("aileron_look", {"to": "a"})],
        [Say("Both now."), Use("aileron_look", {"to": "b"}), Use("weather", {"city": "Bern"})],
        [Say("Done.")],
        [Say("Welcome.")],
    )
    with injected(*turns) as (model, tools, url):
        program = PROGRAMS[how](url)
        turn = program.ask("Do both.")
        assert [call.name for call in turn.calls] == ["weather"]
        assert turn.stop in ("tool_use", "tool_calls", "completed")
        turn = program.answer({turn.calls[0].id: "rain"})
        assert (turn.text, turn.calls) == ("Done.", [])
        assert program.ask("Thanks.").text == "Welcome."

        assert model.problems == []
        assert [args["to"] for _, _, _, args in tools.called] == ["a", "b"]
        assert all(text in model.bodies[2] for text in (b'look was given {\\"to\\": \\"b\\"}', b"rain"))
        if "stored" not in how:
            check_prefixes(model)


def check_prefixes(model: Model) -> None:
    """Check that each request repeats the bytes of the one before it up to the end of that conversation."""
    for before, after in zip(model.bodies, model.bodies[1:], strict=False):
        key = b'"input":' if b'"input":' in before else b'"messages":'
        head, rest = before.split(key, 1)
        said = head + key + _array(rest)[:-1]
        assert after.startswith(said), (before, after)


def _array(text: bytes) -> bytes:
    _, end = json.JSONDecoder().raw_decode(text.decode().lstrip())
    return text.decode().lstrip()[:end].encode()


@pytest.mark.parametrize("how", [how for how in HOWS if "stored" not in how])
def test_rounds_of_injected_calls_keep_their_place_in_later_requests(how: str) -> None:
    """Each request begins with the bytes of the one before, so that the provider's prompt cache stays valid."""
    turns: list[Turn] = []
    for number in range(4):
        turns += [
            [Think(f"thought {number}"), Say("One moment."), Use("aileron_look", {"to": str(number)})],
            [Say(f"It is {number}.")],
        ]
    with injected(*turns) as (model, _tools, url):
        program = PROGRAMS[how](url)
        for number in range(4):
            assert f"It is {number}." in program.ask(f"What is {number}?").text

        assert model.problems == []
        check_prefixes(model)
        assert model.bodies[-1].count(b"look was given") == 4


@pytest.mark.parametrize("how", [how for how in HOWS if "stored" not in how])
def test_a_conversation_stays_valid_after_the_gateway_forgets_its_injected_calls(how: str) -> None:
    """A restart of the daemon forgets them: another gateway gets the same conversation."""
    tools = ScriptedTools()
    turns = [Use("aileron_look"), Use("weather", {"city": "B"})], [Say("Done.")]
    with Model(*turns) as model:
        with served(model, tools) as url:
            program = PROGRAMS[how](url)
            turn = program.ask("Look.")
        with served(model, tools) as url:
            again = PROGRAMS[how](url)
            again.history = program.history
            assert again.answer({turn.calls[0].id: "rain"}).text == "Done."
        assert model.problems == []
        assert b"look was given" not in model.bodies[1]


def rewritten(how: str, history: list[Any]) -> list[Any]:
    """Return a history as programs rewrite it from turn to turn: a text as a part, with a cache mark for Messages."""
    kind = {"type": "input_text" if "responses" in how else "text"}
    mark = {"cache_control": {"type": "ephemeral"}} if "messages" in how else {}
    return [
        {**turn, "content": [{**kind, "text": turn["content"], **mark}]}
        if turn.get("role") == "user" and isinstance(turn["content"], str)
        else turn
        for turn in history
    ]


@pytest.mark.abuse_case("A44")
@pytest.mark.parametrize("how", [how for how in HOWS if "stored" not in how])
def test_reused_ids_put_no_injected_calls_into_another_conversation(how: str) -> None:
    """Each conversation gets its own hidden rounds, also if its program rewrites it, and one without them gets none."""
    with injected() as (model, _tools, url):
        asked: dict[str, list[Step]] = {
            "a": [Use("aileron_look", {"to": "Bern"})],
            "b": [Use("aileron_look", {"to": "Basel"})],
            "c": [Say("Hm.")],
        }
        programs = {name: PROGRAMS[how](url) for name in asked}
        calls = {}
        for name, first in asked.items():
            model.script([*first, Use("weather", {"city": "B"})])  # the ids are counted from 0 each time
            (calls[name],) = programs[name].ask(f"Look at {name}.").calls
        assert len({call.id for call in calls.values()}) == 1
        for name, program in programs.items():
            model.script([Say("Done.")])
            program.history = rewritten(how, program.history)
            assert program.answer({calls[name].id: "rain"}).text == "Done."
            assert model.problems == []
            there = {city for city in ("Bern", "Basel") if city.encode() in model.bodies[0]}
            assert there == {"a": {"Bern"}, "b": {"Basel"}, "c": set()}[name]


@pytest.mark.abuse_case("A44")
@pytest.mark.parametrize("how", [how for how in HOWS if "stored" not in how])
def test_conversations_with_equal_last_messages_do_not_get_each_other_s_injected_calls(how: str) -> None:
    """Only the last words are equal, the earlier ones differ; the hidden rounds go to the right conversation."""
    hidden = [Use("aileron_look", {"to": "Bern"})], [Say("Done.")]
    with injected() as (model, _tools, url):
        first, other = PROGRAMS[how](url), PROGRAMS[how](url)
        for program, word, turns in ((first, "one", hidden), (other, "other", ([Say("Done.")],))):
            model.script([Say("Hi.")], *turns)
            program.ask(f"I am {word}.")
            assert program.ask("Check.").text == "Done."
        for program, is_there in ((other, False), (first, True)):
            model.script([Say("Bye.")])
            program.history = rewritten(how, program.history)
            program.ask("Thanks.")
            assert (model.problems, b"Bern" in model.bodies[0]) == ([], is_there)


@pytest.mark.abuse_case("A44")
@pytest.mark.parametrize("how", [how for how in HOWS if "stored" not in how])
@pytest.mark.parametrize("second", [[], [Use("aileron_look", {"to": "Basel"})]], ids=["none", "its own"])
def test_earlier_injected_calls_are_left_out_once_a_second_identical_conversation_exists(
    how: str, second: list[Use]
) -> None:
    """The gateway cannot tell which of them continues. While there was only one, it got its hidden round."""
    with injected() as (model, _tools, url):
        first, other = PROGRAMS[how](url), PROGRAMS[how](url)
        model.script([Use("aileron_look", {"to": "Bern"})], [Say("Done.")], [Say("Bye.")])
        first.ask("Check.")
        first.ask("Thanks.")
        assert b"Bern" in model.bodies[2]
        model.script(*([second] if second else []), [Say("Done.")])
        other.ask("Check.")
        for program in (first, other):
            model.script([Say("Bye.")])
            program.ask("So?")
            assert (model.problems, b"Bern" in model.bodies[0], b"Basel" in model.bodies[0]) == ([], False, False)


@pytest.mark.parametrize("how", HOWS)
def test_an_injected_tool_does_not_take_a_name_that_the_program_uses(how: str) -> None:
    """The injected tool gets another name, by which the model can call it."""
    turns = [Use("aileron2_look", {"to": "x"})], [Use("aileron_look", {"city": "own"})]
    with injected(*turns) as (model, tools, url):
        turn = PROGRAMS[how](url, tools=("aileron_look",)).ask("Look.")

        assert model.tools() == ["aileron_look", "aileron2_look", "aileron_send_mail"]
        assert [(call.name, call.args) for call in turn.calls] == [("aileron_look", {"city": "own"})]
        assert [(tool, args) for _, _, tool, args in tools.called] == [("look", {"to": "x"})]


@pytest.mark.parametrize("how", [how for how in HOWS if how != "messages"])
def test_arguments_that_are_no_object_are_reported_to_the_model(how: str) -> None:
    """The tool is called when the model has corrected them."""
    turns = [Use("aileron_look", '["no')], [Use("aileron_look", {"to": "Bern"})], [Say("Sorry.")]
    with injected(*turns) as (model, tools, url):
        assert PROGRAMS[how](url).ask("Look.").text == "Sorry."
        assert b"no JSON object" in model.bodies[1]
        assert [args for *_, args in tools.called] == [{"to": "Bern"}]
        assert model.problems == []


@pytest.mark.parametrize("how", HOWS)
def test_a_model_that_keeps_calling_injected_tools_is_stopped_at_a_limit(how: str) -> None:
    """The calls of round 24 are not made, and the model is asked once more without a choice of tools."""
    with injected(*[[Use("aileron_look")]] * 24, [Say("Well."), Use("aileron_look")]) as (model, tools, url):
        turn = PROGRAMS[how](url).ask("Look.")

        assert (turn.text, turn.calls) == ("Well.", [])
        assert len(tools.called) == 23
        assert len(model.bodies) == 25
        assert model.asked[24]["tool_choice"] in ("none", {"type": "none"})
        assert "tool_choice" not in model.asked[23]
        assert turn.used == (usage_of(25), usage_of(25))


@pytest.mark.parametrize("how", STREAMED)
def test_a_stream_is_kept_alive_while_a_tool_runs(how: str) -> None:
    """The gateway sends the provider's own keep-alive event, or a comment; the SDKs skip both."""
    told = threading.Event()

    async def slow(_: dict[str, Any]) -> tuple[str, bool]:
        await wait_until_async(told.is_set, "a ping is told")
        return "slow", False

    tools = ScriptedTools(answers={"look": slow})
    model = Model([Use("aileron_look")], [Say("Done.")])
    with model, served(model, tools, keep_alive_s=0.05) as url, Line.to(_port_of(url)) as client:
        client.say(_look(how))
        client.head()
        sign = b'event: ping\ndata: {"type":"ping"}\n\n' if how[0] == "m" else b": aileron\n\n"
        while client.chunk() != sign:
            pass
        told.set()
        rest = b"".join(client.chunks())
    assert all(half in rest for half in (b"Do", b"ne."))


def _port_of(url: str) -> int:
    return int(url.split(":")[2].split("/")[0])


def _look(how: str) -> bytes:
    """Return a streamed request with one message, made by hand."""
    path = {"m": "messages", "c": "chat/completions", "r": "responses"}[how[0]]
    turns = {"input": "Look."} if how[0] == "r" else {"messages": [{"role": "user", "content": "Look."}]}
    return _post(f"/inject/{NAME}/v1/{path}", {"model": "m", "stream": True, **turns})


def _post(path: str, body: Any) -> bytes:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    head = f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: {len(data)}\r\n\r\n"
    return head.encode() + data


@pytest.mark.parametrize("how", STREAMED)
def test_a_program_that_disconnects_cancels_its_waiting_injected_call(how: str) -> None:
    """The gateway sends no further request to the provider."""
    waiting, cancelled = threading.Event(), threading.Event()

    async def wait(_: dict[str, Any]) -> tuple[str, bool]:
        waiting.set()
        try:
            await anyio.sleep_forever()
        except anyio.get_cancelled_exc_class():
            cancelled.set()
            raise
        raise AssertionError("nobody went away")

    tools = ScriptedTools(answers={"look": wait})
    with Model([Use("aileron_look")]) as model, served(model, tools) as url:
        with Line.to(_port_of(url)) as client:
            client.say(_look(how))
            client.head()
            assert waiting.wait(DEADLINE_S)
        assert cancelled.wait(DEADLINE_S)
        assert len(model.bodies) == 1


@pytest.mark.parametrize("how", HOWS)
def test_a_repeated_request_continues_after_the_injected_call_that_was_made(how: str) -> None:
    """The provider fails after an injected call: a retry by the program does not make the call again."""
    turns: list[Turn] = [[Use("aileron_send_mail")], *[Fail("529 Overloaded")] * 3, [Say("Sent.")]]
    with injected(*turns) as (model, tools, url):
        program = PROGRAMS[how](url)
        with pytest.raises((anthropic.APIError, openai.APIError)) as failed:
            program.ask("Send it.")
        assert "The script says so" in str(failed.value)
        program.history = []
        assert program.ask("Send it.").text == "Sent."

        assert (model.problems, len(tools.called)) == ([], 1)
        assert model.bodies[4] == model.bodies[1]


@pytest.mark.parametrize("how", HOWS)
def test_a_temporary_failure_of_the_provider_after_an_injected_call_is_retried(how: str) -> None:
    """The provider sends one 529 between two rounds, and the gateway retries."""
    with injected([Use("aileron_look")], Fail("529 Overloaded"), [Say("Done.")]) as (_model, tools, url):
        assert PROGRAMS[how](url).ask("Look.").text == "Done."
        assert len(tools.called) == 1


@pytest.mark.parametrize("how", HOWS)
def test_a_failure_of_the_provider_before_any_injected_call_is_passed_on(how: str) -> None:
    """The program gets the provider's own error."""
    with Model(Fail("429 Too Many Requests", "rate_limit_error")) as model, served(model, ScriptedTools()) as url:
        with pytest.raises((anthropic.RateLimitError, openai.RateLimitError)):
            PROGRAMS[how](url).ask("Look.")
        assert len(model.bodies) == 1


@pytest.mark.parametrize("how", HOWS)
def test_a_call_in_a_truncated_response_is_not_made(how: str) -> None:
    """The response ended at its token limit, so the call may be incomplete."""
    stop = {"m": "max_tokens", "c": "length", "r": "incomplete"}[how[0]]
    with injected([Say("So"), Use("aileron_look")], stop=stop) as (model, tools, url):
        turn = PROGRAMS[how](url).ask("Look.")
        assert (turn.text, turn.calls, turn.stop, tools.called) == ("So", [], stop, [])
        assert len(model.bodies) == 1


@pytest.mark.parametrize("how", ["messages", "messages, streamed"])
def test_reasoning_blocks_and_provider_tools_are_sent_back_unchanged(how: str) -> None:
    """The scripted model refuses a reasoning block with another signature."""
    turns: tuple[Turn, ...] = (
        [Think("a"), Search(), Say("b"), Think("c"), Use("aileron_look")],
        [Think("d"), Say("e")],
    )
    with Model(*turns) as model, served(model, ScriptedTools()) as url:
        message = PROGRAMS[how](url).ask("Look.").whole
        assert model.problems == []
        kinds = [block.type for block in message.content]
        assert kinds == [
            "thinking",
            "server_tool_use",
            "web_search_tool_result",
            "text",
            "thinking",
            "thinking",
            "text",
        ]
        sent = [block["type"] for block in model.asked[1]["messages"][1]["content"]]
        assert sent == [*kinds[:5], "tool_use"]


@pytest.mark.parametrize(
    ("path", "body", "why"),
    [
        ("/v1/messages", b"{", _NO_JSON),
        ("/v1/messages", b'{"messages":[%b],"tools":[],"tools":[]}' % _TURN, _NO_JSON),
        ("/v1/messages", b'{"messages":"a"}', "messages is no list of objects"),
        ("/v1/chat/completions", b'{"messages":[%b],"n":2}' % _TURN, "n is more than 1"),
        ("/v1/chat/completions", b'{"messages":[%b],"functions":[]}' % _TURN, "it uses functions, the old form of tools"),
        ("/v1/responses", b'{"input":"a","background":true}', "it runs in the background"),
        ("/v1/responses", b'{"input":"a","prompt":{"id":"p"}}', "its tools are those of a stored prompt"),
        ("/v1/messages", b'{"messages":[%b]}' % b",".join([b"{}"] * 200_000), _TOO_MANY),
        ("/v1/responses", b'{"input":1}', "input is neither a text nor a list of objects"),
    ],
)  # fmt: skip
def test_a_malformed_or_unsupported_request_is_passed_on_unchanged(
    provider: Provider, path: str, body: bytes, why: str
) -> None:
    """Every byte and the program's own fields are passed on, and the reason is recorded."""
    tools = ScriptedTools()
    fields = f"Host: x\r\nAccept-Encoding: br\r\nContent-Length: {len(body)}\r\n\r\n"
    seen, sent = passed_on(provider, tools, f"POST /inject/{NAME}{path}?beta=true HTTP/1.1\r\n{fields}".encode() + body)
    assert (seen.start.split()[1], sent) == (path.encode() + b"?beta=true", body)
    assert seen.all(b"accept-encoding") == [b"br"]
    assert tools.notes == [
        ("passed", SESSION, {"/v1/m": "messages", "/v1/c": "chat", "/v1/r": "responses"}[path[:5]], why)
    ]


@pytest.mark.parametrize("path", ["/v1/messages/count_tokens", "/v1/models", "/v1/responses/resp_1", "/v1/messages"])
def test_requests_that_do_not_ask_for_a_model_s_response_are_passed_on_unchanged(provider: Provider, path: str) -> None:
    """Only requests for a model's response get tools, so nothing is recorded for others."""
    tools = ScriptedTools()
    method = "GET" if path != "/v1/messages/count_tokens" else "POST"
    request = f"{method} /inject/{NAME}{path} HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{{}}"
    seen, sent = passed_on(provider, tools, request.encode())
    assert (seen.start.split()[1], sent, tools.notes) == (path.encode(), b"{}", [])


@pytest.mark.parametrize("name", ["ail_" + "x" * 43, "ses-1", "x", ".."])
def test_a_request_to_an_address_without_a_session_is_refused(provider: Provider, name: str) -> None:
    """The provider gets no request."""
    with gateway(provider.settings(), injection=Injection(ScriptedTools())) as port, Line.to(port) as client:
        client.say(_post(f"/inject/{name}/v1/messages", {}))
        assert client.head().status in (401, 404)
    assert not provider.is_called()


@pytest.mark.parametrize(
    ("path", "document"),
    [
        ("/v1/messages", {"content": [{"type": "tool_use", "id": "a", "name": "aileron_look", "input": float("nan")}]}),
        ("/v1/messages", {"content": [{"type": "text", "text": ["a"]}], "stop_reason": "end_turn"}),
        ("/v1/messages", {"content": 7, "stop_reason": "end_turn"}),
        ("/v1/chat/completions", {"choices": 7}),
        ("/v1/chat/completions", {"choices": [{"message": {"tool_calls": 7}}]}),
        ("/v1/chat/completions", {"choices": [{"message": {"tool_calls": [{"function": {"name": ["a"]}}]}}]}),
        ("/v1/chat/completions", {"choices": [{"message": {"content": "a"}, "finish_reason": float("inf")}]}),
        ("/v1/responses", {"output": 7, "status": "completed"}),
        ("/v1/responses", {"output": [{"type": ["a"], "call_id": {}}], "status": {}}),
        ("/v1/responses", {"output": [{"type": "function_call", "name": ["a"]}], "tools": [{"name": ["a"]}]}),
    ],
)
@pytest.mark.parametrize("stream", [True, False])
def test_a_response_with_values_of_wrong_types_is_passed_on_or_refused(
    path: str, document: dict[str, Any], stream: bool, provider: Provider
) -> None:
    """Such a value causes no internal error, and no tool is called for it."""
    tools = ScriptedTools()
    turns: dict[str, Any] = {"input": "a"} if "responses" in path else {"messages": [{"role": "user", "content": "a"}]}
    said = _told(path, document) if stream else json.dumps(document).encode()
    kind = b"text/event-stream" if stream else b"application/json"
    with (
        gateway(provider.settings(), injection=Injection(tools)) as port,
        provider.asked(port, _post(f"/inject/{NAME}{path}", {"stream": stream, **turns})) as (client, upstream),
    ):
        upstream.message()
        upstream.say(b"HTTP/1.1 200 OK\r\nContent-Type: %b\r\nContent-Length: %d\r\n\r\n%b" % (kind, len(said), said))
        is_odd = b"NaN" in said or b"Infinity" in said
        if stream:
            assert client.head().status == 200
            with pytest.raises((EOFError, ConnectionError)) if is_odd else contextlib.nullcontext():
                assert b"".join(client.chunks()) == said
        elif is_odd:
            status, error, words = refusal(client)[:3]
            assert (status, error, "cannot be understood" in words) == (502, "network_error", True)
        else:
            head, body = client.message()
            assert (head.status, body) == (200, said)
    assert tools.called == []


def _told(path: str, document: dict[str, Any]) -> bytes:
    """Return the document as one API's events, as far as possible."""
    events: list[dict[str, Any]] = [{"type": "response.completed", "response": document}]
    if path == "/v1/messages":
        events = [{"type": "message_start", "message": document}]
        blocks = document["content"] if isinstance(document["content"], list) else [document["content"]]
        events += [{"type": "content_block_start", "index": 0, "content_block": block} for block in blocks]
        events += [{"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": ["b"]}}]
        events += [{"type": "message_delta", "delta": {"stop_reason": document.get("stop_reason")}}]
    elif path == "/v1/chat/completions":
        choices = document["choices"]
        events = [
            {
                "choices": [{**choice, "delta": choice["message"]} for choice in choices]
                if isinstance(choices, list)
                else choices
            }
        ]
    return b"".join(f"data: {json.dumps(event)}\n\n".encode() for event in events)


@pytest.mark.parametrize("how", HOWS)
def test_the_number_of_calls_in_a_turn_is_bounded(how: str) -> None:
    """Beyond 32 a call is refused in its result; beyond 256 the response breaks off."""
    with injected([Use("aileron_look")] * 40, [Say("Done.")]) as (model, tools, url):
        assert PROGRAMS[how](url).ask("Look.").text == "Done."
        assert (len(tools.called), model.bodies[1].count(b"at most 32 calls"), model.problems) == (32, 8, [])
    with injected(*[[Use("aileron_look")] * 257] * 3) as (model, tools, url):
        with pytest.raises((anthropic.APIError, openai.APIError, httpx.HTTPError, httpx2.HTTPError)):
            PROGRAMS[how](url).ask("Look.")
        assert tools.called == []


@pytest.mark.parametrize("how", STREAMED)
def test_the_total_size_of_the_events_of_a_streamed_response_is_bounded(
    how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Above the bound the response breaks off, and its calls are not made, whatever the size of each event."""
    monkeypatch.setattr(exchange, "MAX_ROUND_BYTES", 10_000)
    turn: Turn = [Say("a" * 20_000), Use("aileron_look")]
    with injected(*[turn] * 3) as (_model, tools, url):
        with pytest.raises((anthropic.APIError, openai.APIError, httpx.HTTPError, httpx2.HTTPError)):
            PROGRAMS[how](url).ask("Look.")
        assert tools.called == []


_LONG = "word " * 200_000
_WORK = {
    "the request is read": (Document, "of", False),
    "the request of a round is put together": (MessagesAsk, "body", False),
    "an event is read": (MessagesAnswer, "feed", True),
    "the answer is read": (MessagesAnswer, "take", False),
    "the answer is taken apart": (MessagesAnswer, "end_round", False),
    "the events of an answer are taken apart": (MessagesAnswer, "end_round", True),
    "the answer is put together": (MessagesAnswer, "whole", False),
}


@pytest.mark.parametrize("what", _WORK)
def test_other_clients_are_served_while_a_long_message_is_parsed(what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Parsing here waits until another client has its response, which would deadlock on the event loop."""
    owner, name, stream = _WORK[what]
    reached, go = threading.Event(), threading.Event()
    work = getattr(owner, name)

    def waits(*given: Any, **named: Any) -> Any:
        is_long = all(len(event.raw) > exchange.IN_THREAD_BYTES for event in given if isinstance(event, Event))
        if is_long and not reached.is_set():
            reached.set()
            assert go.wait(DEADLINE_S), "nobody else was answered"
        return work(*given, **named)

    body = {"model": "m", "stream": stream, "messages": [{"role": "user", "content": _LONG}]}
    with Model([Say(_LONG), Use("aileron_look")], [Say(_LONG)]) as model, served(model, ScriptedTools()) as url:
        with Line.to(_port_of(url)) as first, Line.to(_port_of(url)) as second:
            monkeypatch.setattr(owner, name, waits)
            first.say(_post(f"/inject/{NAME}/v1/messages", body))
            assert reached.wait(DEADLINE_S)
            second.say(b"GET /nothing HTTP/1.1\r\nHost: x\r\n\r\n")
            assert refusal(second)[0] == 404
            go.set()
            answered = b"".join(first.chunks()) if first.head().all(b"transfer-encoding") else first.some()
            assert answered
        assert model.problems == []


def test_the_size_of_an_unstreamed_response_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """A response above the bound is a 502; one within it is passed on."""
    for most, status in ((100_000, 200), (20_000, 502)):
        monkeypatch.setattr(exchange, "MAX_WHOLE_BYTES", most)
        turns = {"messages": [{"role": "user", "content": "Look."}]}
        with (
            Model([Say("a" * 20_000)]) as model,
            served(model, ScriptedTools()) as url,
            Line.to(_port_of(url)) as client,
        ):
            client.say(_post(f"/inject/{NAME}/v1/messages", {"model": "m", **turns}))
            assert client.head().status == status


@pytest.mark.parametrize("how", HOWS)
def test_the_size_of_a_request_with_the_results_of_injected_calls_is_bounded(
    how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Instead of a request above the limit, no further call is made, and the response breaks off."""
    monkeypatch.setattr(exchange, "MAX_BODY_BYTES", 30_000)
    turn: Turn = [Say("a" * 20_000), Use("aileron_look")]
    with injected(*[turn] * 6) as (model, tools, url):
        with pytest.raises((anthropic.APIError, openai.APIError, httpx.HTTPError, httpx2.HTTPError)):
            PROGRAMS[how](url).ask("Look.")
        assert len(tools.called) == 2
        assert len(model.asked) == 2


def test_requests_of_a_session_without_tools_are_unchanged(provider: Provider) -> None:
    """Other sessions of the gateway have tools; body and fields here are the program's own."""
    tools = ScriptedTools()
    body = b'{"messages" : [ {"role":"user","content":"\\u00e9"} ],  "model":"m" }'
    request = b"POST /v1/messages HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)
    assert passed_on(provider, tools, request)[1] == body
    assert tools.notes == []


def test_a_request_keeps_its_bytes_around_the_added_tools(provider: Provider) -> None:
    """Spaces, escapes and numbers stay as the program wrote them."""
    body = b'{ "messages" : [ {"role":"user","content":"\\u00e9 \xc3\xa9"} ],  "temperature": 1.0e0 }'
    head, sent = passed_on(
        provider,
        ScriptedTools(names=["look"]),
        b"POST /inject/%b/v1/messages HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%b"
        % (NAME.encode(), len(body), body),
    )
    assert head.all(b"accept-encoding") == [b"identity"], (
        "a program that says nothing of it gets any that the API likes"
    )
    assert sent.startswith(body[:-1])
    assert json.loads(sent[len(body) - 1 :].replace(b",", b"{", 1))["tools"][0]["name"] == "aileron_look"


def test_a_call_made_before_a_program_disconnected_is_not_repeated() -> None:
    """A call was answered and another waits when it leaves; a repeated request continues with the first one's result, and the
    model is told that the outcome of the second is unknown.
    """
    waiting, cancelled = threading.Event(), threading.Event()

    async def wait(_: dict[str, Any]) -> tuple[str, bool]:
        waiting.set()
        try:
            await anyio.sleep_forever()
        finally:
            cancelled.set()
        raise AssertionError("nobody went away")

    tools = ScriptedTools(answers={"look": wait})
    both = [Use("aileron_send_mail", {"to": "x"}), Use("aileron_look")]
    with Model(both, [Say("I see.")]) as model, served(model, tools) as url:
        with Line.to(_port_of(url)) as client:
            client.say(_look("messages, streamed"))
            client.head()
            assert waiting.wait(DEADLINE_S)
            assert "send_mail" in [tool for _, _, tool, _ in tools.called]
        assert cancelled.wait(DEADLINE_S)
        with Line.to(_port_of(url)) as client:
            client.say(_look("messages, streamed"))
            client.head()
            assert b"I see"[:2] in b"".join(client.chunks())

        assert sorted(tool for _, _, tool, _ in tools.called) == ["look", "send_mail"]
        first, second = model.asked[1]["messages"][-1]["content"]
        assert first["content"].startswith("send_mail was given")
        assert "it is not known what became of it" in second["content"]
        assert model.problems == []


def test_two_identical_concurrent_requests_are_independent() -> None:
    """The second neither continues nor ends the rounds of the first, so its own call is made too."""
    waiting, go = threading.Event(), threading.Event()

    async def wait(_: dict[str, Any]) -> tuple[str, bool]:
        waiting.set()
        await wait_until_async(go.is_set, "it goes on")
        return "waited", False

    tools = ScriptedTools(answers={"look": wait})
    turns = (
        [Use("aileron_send_mail")],
        [Use("aileron_look")],
        [Use("aileron_send_mail")],
        [Say("Second.")],
        [Say("First.")],
    )
    with Model(*turns) as model, served(model, tools) as url:
        with Line.to(_port_of(url)) as first, Line.to(_port_of(url)) as second:
            first.say(_look("messages, streamed"))
            first.head()
            assert waiting.wait(DEADLINE_S)  # one round of it is remembered, and the next runs
            second.say(_look("messages, streamed"))
            second.head()
            assert b"Sec" in b"".join(second.chunks())
            go.set()
            assert b"Fir" in b"".join(first.chunks())
        assert [tool for _, _, tool, _ in tools.called] == ["send_mail", "look", "send_mail"]
        assert len(model.asked[2]["messages"]) == 1
        assert model.problems == []


def test_one_session_cannot_use_all_memory_for_held_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    """A session gets half of it at most, and all of it is free again afterwards."""
    monkeypatch.setattr(exchange, "MAX_HELD_BYTES", 1000)
    injection = Injection(ScriptedTools())
    for _ in range(2):
        with (
            injection.holding("one") as first,
            injection.holding("other") as other,
            injection.holding("third") as third,
        ):
            first.add(500)
            with pytest.raises(AileronError, match="of this session"):
                first.add(1)
            other.add(500)
            with pytest.raises(AileronError, match="of all sessions"):
                third.add(1)


def test_requests_to_an_upstream_with_a_key_in_the_vault_need_the_session_token_too(provider: Provider) -> None:
    """The session's address alone is not enough, and neither address nor token is sent to the provider."""
    tools = ScriptedTools()
    body = json.dumps({"messages": [{"role": "user", "content": "a"}]}).encode()
    with gateway(provider.settings(secret=True), injection=Injection(tools)) as port:
        for key, status in (("sk-own", 401), (TOKEN, 200)):
            with Line.to(port) as client:
                head = f"POST /inject/{NAME}/v1/messages HTTP/1.1\r\nHost: x\r\nx-api-key: {key}\r\n"
                client.say(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
                if status == 200:
                    with provider.answering() as upstream:
                        seen, sent = upstream.message()
                        upstream.say(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")
                assert client.head().status == status
    assert seen.all(b"x-api-key") == [KEY]
    assert not any(secret in repr((seen, sent)) for secret in (NAME, TOKEN))


@pytest.mark.parametrize("where", ["?from={}", "\r\nReferer: http://localhost/inject/{}"])
def test_a_request_with_the_session_s_secret_address_in_a_query_or_field_is_refused(
    provider: Provider, where: str
) -> None:
    """Requests with a session's token there are refused in the same way."""
    query, _, field = where.format(NAME).partition("\r\n")
    lines = (f"POST /inject/{NAME}/v1/messages{query} HTTP/1.1", "Host: x", field, "Content-Length: 2")
    request = "\r\n".join([line for line in lines if line] + ["", "{}"])
    with gateway(provider.settings(), injection=Injection(ScriptedTools())) as port:
        assert refused(port, provider, request.encode())[:2] == (401, "unauthorized")


def test_a_request_that_is_too_long_for_tools_is_passed_on_unchanged(
    provider: Provider, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The whole body arrives, and the reason is recorded."""
    monkeypatch.setattr(rounds, "MAX_BODY_BYTES", 1000)
    tools = ScriptedTools()
    body = json.dumps({"messages": [{"role": "user", "content": "x" * 100_000}]}).encode()
    assert passed_on(provider, tools, _post(f"/inject/{NAME}/v1/messages", body))[1] == body
    assert tools.notes == [("passed", SESSION, "messages", "the body has more than 1000 bytes")]


def test_the_total_size_of_held_requests_is_bounded(provider: Provider, monkeypatch: pytest.MonkeyPatch) -> None:
    """A request that does not fit is `busy`, which SDKs retry."""
    monkeypatch.setattr(exchange, "MAX_HELD_BYTES", 1000)
    body = json.dumps({"messages": [{"role": "user", "content": "x" * 1000}]}).encode()
    with gateway(provider.settings(), injection=Injection(ScriptedTools())) as port:
        assert refused(port, provider, _post(f"/inject/{NAME}/v1/messages", body))[:2] == (429, "busy")
