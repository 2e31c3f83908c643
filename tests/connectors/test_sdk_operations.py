"""Operations of the SDK: arguments, outputs, failures, each in a process of its own."""

from __future__ import annotations

import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from aileron_sandbox.frames import AuditEvent, Failed, Log, Progress, Result
from tests.support.plain_host import ConnectorProcess, PlainHost, Report, invoke
from tests.support.shaped import shaped

PRELUDE = """
from __future__ import annotations
import datetime, enum, os, sys
from dataclasses import dataclass
from typing import Annotated, Any
import msgspec
from aileron_connector import *
"""

Run = Callable[..., Report]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Return a function that writes a connector and runs one operation of it: run(source, op, **args)."""

    def run_it(source: str, op: str = "x", **args: Any) -> Report:
        return PlainHost(written(tmp_path, source), hosts=[]).call(op, **args)

    return run_it


def written(folder: Path, source: str) -> Path:
    """Write the connector to a file that serves when run; return its path."""
    program = folder / "connector.py"
    program.write_text(PRELUDE + textwrap.dedent(source) + '\nif __name__ == "__main__":\n    run()\n')
    return program


TYPED = """
@op
def x(title: str, limit: Annotated[int, msgspec.Meta(ge=1, le=5)] = 3, ratio: float = 0.5,
      when: datetime.datetime | None = None, *, deep: bool = False) -> dict[str, Any]:
    return {"title": title, "limit": limit, "ratio": ratio, "when": when, "deep": deep}

@op
def loose(a, **rest):
    return {"a": a, "rest": rest}
"""


def test_an_operation_with_a_login_is_called_like_any_other(run: Run) -> None:
    """The argument `login` matters only to the build."""
    reads = "@op(login='read_only')\ndef x(a: int) -> int:\n    return a + 1\n"
    assert run(reads, a=1).output == 2


def test_arguments_arrive_by_name_with_their_types(run: Run) -> None:
    """Defaults fill in, an integer serves as a float, an RFC 3339 string as a datetime."""
    report = run(TYPED, title="ü", ratio=2, when="2026-03-01T10:00:00+01:00")
    expected = {"title": "ü", "limit": 3, "ratio": 2.0, "when": "2026-03-01T10:00:00+01:00", "deep": False}
    assert expected == report.output


@pytest.mark.parametrize(
    ("args", "argument", "words"),
    [
        ({}, "title", "argument 'title' is missing"),
        ({"title": 5}, "title", "argument 'title': expected `str`, got `int`"),
        ({"title": None}, "title", "argument 'title': expected `str`, got `null`"),
        ({"title": "t", "limit": "1"}, "limit", "argument 'limit': expected `int`, got `str`"),
        ({"title": "t", "limit": 1.0}, "limit", "argument 'limit': expected `int`, got `float`"),
        ({"title": "t", "limit": True}, "limit", "argument 'limit': expected `int`, got `bool`"),
        ({"title": "t", "limit": 6}, "limit", "argument 'limit': expected `int` <= 5"),
        ({"title": "t", "when": "soon"}, "when", "argument 'when': invalid RFC3339 encoded datetime"),
        ({"title": "t", "tilte": "t"}, "tilte", "unknown argument 'tilte'; expected title, limit, ratio, when, deep"),
    ],
)
def test_a_wrong_argument_is_bad_input_and_named(run: Run, args: dict[str, Any], argument: str, words: str) -> None:
    """Types are strict: no "1" for 1, no 1.0 for 1, no True for 1. A misspelt optional argument is an error too."""
    failed = run(TYPED, **args).failure
    assert failed == Failed(failure_class="bad_input", message=words, details={"argument": argument})


def test_an_operation_may_accept_arguments_that_it_does_not_declare(run: Run) -> None:
    """Call-time arguments and the step's own inputs are merged; `**rest` accepts those that the operation does not name."""
    assert run(TYPED, "loose", a=1, b=[2]).output == {"a": 1, "rest": {"b": [2]}}


def test_the_failure_for_an_unknown_operation_lists_the_known_operations(run: Run) -> None:
    """A caller can therefore correct a typing mistake."""
    failed = run(TYPED, "y").failure
    assert failed.failure_class == "unknown_op"
    assert failed.message == "there is no operation 'y'; this connector has loose, x"
    assert failed.details == {"operations": ["loose", "x"]}


def test_an_output_of_structs_dates_enums_or_tuples_becomes_json(run: Run) -> None:
    """Structs, dataclasses, enums, dates and tuples have a JSON form."""
    report = run("""
        class S(msgspec.Struct):
            a: int
        @dataclass
        class D:
            b: datetime.date
        class E(enum.Enum):
            C = "c"
        @op
        def x() -> Any:
            return [S(1), D(datetime.date(2026, 3, 1)), E.C, (1, 2), {7: None}, "ü\\n"]
    """)
    assert report.output == [{"a": 1}, {"b": "2026-03-01"}, "c", [1, 2], {"7": None}, "ü\n"]


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ("b'bytes'", "bytes"),
        ("object()", "object"),
        ("{'rows': [1, {'data': b'x'}]}", ".rows[1].data is of type bytes"),
    ],
)
def test_an_output_without_a_json_form_is_the_connectors_mistake(run: Run, value: str, words: str) -> None:
    """The failure names the operation and the place; nothing is converted by guess."""
    failed = run(f"@op\ndef x():\n    return {value}").failure
    assert failed.failure_class == "connector_runtime_error"
    assert "operation 'x' returned a value that is not JSON" in failed.message
    assert words in failed.message


@pytest.mark.parametrize(
    ("value", "output"),
    [
        (
            "{'units': 10**20, 'rate': float('nan'), 'name': 'x\\ud83d'}",
            {
                "units": "100000000000000000000",
                "rate": "nan",
                "name": "x\ufffd",
                "does_not_fit": ".units is a number that is given as text; .rate is a number that is given as text; "
                ".name has what is no character, which is given as U+FFFD",
            },
        ),
        ("[1, 2**70]", {"value": [1, str(2**70)], "does_not_fit": "[1] is a number that is given as text"}),
        ("[1, 2**64 - 1, '\\U0001f600']", [1, 2**64 - 1, "\U0001f600"]),
    ],
)
def test_values_of_an_output_that_no_frame_can_carry_are_converted_with_a_note(
    run: Run, value: str, output: Any
) -> None:
    """The operation has been done: numbers become text and lone surrogates U+FFFD, and their places are noted."""
    assert run(f"@op\ndef x() -> Any:\n    return {value}").output == output


def test_a_large_output_arrives_and_a_too_large_one_is_a_failure(run: Run) -> None:
    """Half a MiB travels in the body; more than one MiB exceeds the limit `output`."""
    source = "@op\ndef x(size: int):\n    return 'x' * size"
    assert run(source, size=500_000).output == "x" * 500_000
    failed = run(source, size=1 << 20).failure
    assert (failed.failure_class, failed.details) == ("resource_limit_exceeded", {"limit": "output"})
    assert "the output of x does not fit" in failed.message


@pytest.mark.parametrize(
    ("statement", "failure_class", "message", "details"),
    [
        ("raise BadInput('no such day', argument='day')", "bad_input", "no such day", {"argument": "day"}),
        (
            "raise ExternalApiError('busy', status=429, retry_after_s=7)",
            "external_api_error",
            "busy",
            {"status": 429, "retry_after_s": 7},
        ),
        ("raise NetworkError('unreachable')", "network_error", "unreachable", {}),
        ("raise ConnectorError('quota', 'used up', details={'left': 0})", "quota", "used up", {"left": 0}),
        ("1 / 0", "connector_runtime_error", "ZeroDivisionError: division by zero", {}),
        ("sys.exit(3)", "connector_runtime_error", "SystemExit: 3", {}),
        ("raise KeyboardInterrupt", "connector_runtime_error", "KeyboardInterrupt: ", {}),
        (
            "bytearray(1 << 62)",
            "resource_limit_exceeded",
            "the connector reached its memory limit",
            {"limit": "memory"},
        ),
        ("raise OSError(28, 'full')", "resource_limit_exceeded", "OSError: [Errno 28] full", {"limit": "scratch"}),
        ("raise OSError(24, 'many')", "resource_limit_exceeded", "OSError: [Errno 24] many", {"limit": "files"}),
        ("raise OSError(27, 'big')", "resource_limit_exceeded", "OSError: [Errno 27] big", {"limit": "file_size"}),
        (
            'raise RuntimeError("can\'t start new thread")',
            "resource_limit_exceeded",
            "RuntimeError: can't start new thread",
            {"limit": "processes"},
        ),
        ("raise OSError(2, 'none')", "connector_runtime_error", "FileNotFoundError: [Errno 2] none", {}),
    ],
)
def test_every_way_in_which_an_operation_fails_has_a_failure_class(
    run: Run, statement: str, failure_class: str, message: str, details: dict[str, Any]
) -> None:
    """Connector errors keep their class, limits have their name, and everything else is the connector's bug."""
    failed = run(f"@op\ndef x():\n    {statement}").failure
    assert failed == Failed(failure_class=failure_class, message=message, details=details)


def test_a_bugs_traceback_is_in_the_log_and_not_in_the_answer(run: Run) -> None:
    """The author finds the line; the agent gets one sentence."""
    report = run("def helper():\n    return {}['nowhere']\n@op\ndef x():\n    return helper()")
    assert report.failure.message == "KeyError: 'nowhere'"
    assert "return {}['nowhere']" in report.printed
    assert "Traceback" in report.printed


def test_a_failure_whose_details_cannot_be_sent_is_sent_without_them(run: Run) -> None:
    """The message is kept, shortened; the host never waits in vain."""
    failed = run("@op\ndef x():\n    raise ConnectorError('quota', 'm' * 10**6, details={'b': b'bytes'})").failure
    assert failed.failure_class == "connector_runtime_error"
    assert failed.message == "m" * 2000
    assert "cannot be sent" in shaped(failed.details)["details"]


def test_progress_or_an_audit_fact_that_no_frame_can_carry_does_not_fail_the_operation(run: Run) -> None:
    """A 64-bit id and a lone surrogate are converted, in an audit fact, in progress and in a failure's details."""
    report = run("""
        @op
        def x() -> None:
            progress(1, message="half \\ud83d")
            audit("sent", id=2**60, to="x\\ud83d", count=2)
            raise ExternalApiError("no", details={"id": 10**20})
    """)
    assert report.told == [
        Progress(done=1, message="half ?"),
        AuditEvent(event="sent", fields={"id": str(2**60), "to": "x\ufffd", "count": 2}),
    ]
    assert report.failure.details == {"id": str(10**20)}


def test_log_lines_and_progress_and_audit_facts_reach_the_host_in_order(run: Run) -> None:
    """They are log lines with fields of any kind, progress, and audit facts."""
    report = run("""
        @op
        def x():
            log.debug("a", n=1, when=datetime.date(2026, 3, 1), odd=object)
            log.info("b")
            log.warning("c")
            log.error("d", deep=[1, {"x": None}])
            progress(1, 2, "half")
            audit("sent", to=3)
    """)
    odd = "<class 'object'>"
    assert report.told == [
        Log(level="debug", message="a", fields={"n": 1, "when": "2026-03-01", "odd": odd}),
        Log(level="info", message="b"),
        Log(level="warning", message="c"),
        Log(level="error", message="d", fields={"deep": [1, {"x": None}]}),
        Progress(done=1, total=2, message="half"),
        AuditEvent(event="sent", fields={"to": 3}),
    ]
    assert report.output is None


def test_a_log_line_never_fails_the_operation(run: Run) -> None:
    """A line that is too long, too large or not UTF-8 is cut with a note, and the result still comes."""
    report = run("""
        @op
        def x():
            log.info("m" * 10**6)
            log.info("large", dump="d" * 10**6)
            log.info("odd \\ud800", value="\\ud800")
            return "done"
    """)
    assert report.output == "done"
    first, second, third = report.told
    assert first == Log(level="info", message="m" * 8192)
    assert isinstance(second, Log)
    assert "at most 65536" in shaped(second.fields)["fields_left_out"]
    assert isinstance(third, Log)
    assert third.message == "odd ?"


def test_text_that_a_connector_prints_goes_to_the_log_and_not_into_the_frames(run: Run) -> None:
    """Printed bytes may look like a frame, and need not be flushed."""
    report = run("""
        @op
        def x():
            print("hello")
            sys.stdout.buffer.write(b"\\x00\\x00\\x00\\x01\\x00\\x00\\x00\\x00\\xc0")
            print("err", file=sys.stderr)
            return "result"
    """)
    assert report.output == "result"
    assert "hello\n" in report.printed
    assert "err\n" in report.printed


def test_a_connector_that_closes_stdout_still_sends_its_output(run: Run) -> None:
    """A connector may do what it likes with descriptors 1 and 2."""
    assert run("@op\ndef x():\n    sys.stdout.close(); sys.stderr = None; return 1").output == 1


def test_talking_to_the_host_outside_an_operation_is_an_error(run: Run) -> None:
    """A module that is being loaded has no invocation: run() has not been called. The error says so."""
    report_of = "try:\n    log.info('too early')\nexcept RuntimeError as error:\n    words = str(error)\n"
    assert "inside an operation" in run(report_of + "@op\ndef x():\n    return words").output


def test_another_thread_cannot_talk_to_the_host(run: Run) -> None:
    """Two writers on one pipe would tear frames."""
    output = run("""
        import threading
        words = []
        def speak():
            try:
                log.info("from a thread")
            except RuntimeError as error:
                words.append(str(error))
        @op
        def x():
            thread = threading.Thread(target=speak)
            thread.start(), thread.join()
            return words
    """).output
    assert output == ["only the thread that called run() may talk to the host"]


@pytest.mark.parametrize(
    ("declaration", "words"),
    [
        ("@op\nasync def x(): pass", "plain function"),
        ("@op\ndef x():\n    yield 1", "plain function"),
        ("@op\ndef x(*args): pass", "are passed by name"),
        ("@op\ndef x(a, /): pass", "are passed by name"),
        ("@op\ndef CamelCase(): pass", "not snake_case"),
        ("@op\ndef _hidden(): pass", "not snake_case"),
        ("@op\ndef x(): pass\n@op\ndef x(): pass", "declared twice"),
        ("@op(login='previewed')\ndef x(*args): pass", "are passed by name"),
        ("@op(login='readonly')\ndef x(): pass", "expected 'read_only' or 'previewed'"),
    ],
)
def test_an_invalid_operation_is_refused_when_declared(run: Run, declaration: str, words: str) -> None:
    """The author sees the error at the first start, and not the caller later."""
    guarded = textwrap.indent(declaration, "    ")
    source = (
        f"said = ''\ntry:\n{guarded}\nexcept ValueError as error:\n    said = str(error)\n@op\ndef told(): return said"
    )
    assert words in run(source, "told").output


def test_a_wrapped_function_keeps_its_own_signature(run: Run) -> None:
    """The arguments of a wrapper made with functools.wraps are checked like those of the wrapped function."""
    source = """
        import functools
        def traced(function):
            @functools.wraps(function)
            def inner(*args, **kwargs):
                return [function(*args, **kwargs)]
            return inner
        @op
        @traced
        def x(n: int = 1):
            return n
    """
    assert run(source, n=2).output == [2]
    assert run(source, m=2).failure.details == {"argument": "m"}


def test_an_unreadable_annotation_is_the_connectors_mistake(run: Run) -> None:
    """The failure class is `connector_runtime_error`, and not that of the caller's mistakes."""
    failed = run("@op\ndef x(a: Nowhere): pass", a=1).failure
    assert failed.failure_class == "connector_runtime_error"
    assert "Nowhere" in failed.message


@pytest.mark.abuse_case("M5")
def test_a_host_with_another_version_of_the_frame_protocol_is_refused_with_a_reason(tmp_path: Path) -> None:
    """The failure names both versions."""
    with ConnectorProcess(written(tmp_path, TYPED), invoke("loose", protocol=2, a=1)) as connector:
        answer = connector.receive_until_over()
        assert isinstance(answer, Failed)
        assert "frames version 2, this connector version 1" in answer.message


def test_a_host_that_goes_away_ends_the_connector(tmp_path: Path) -> None:
    """Code inside `except Exception` cannot prevent it, and the log has the reason."""
    source = """
        @op
        def x():
            while True:
                try:
                    http.request("GET", "https://h/")
                except Exception:
                    pass
    """
    with ConnectorProcess(written(tmp_path, source), invoke("x")) as connector:
        connector.receive()
        connector.close_input()
        assert connector.wait() == 1
        assert "end of frames" in connector.printed()


def test_an_invalid_frame_of_the_host_ends_the_connector(tmp_path: Path) -> None:
    """The connector does not answer a frame that may not follow."""
    source = "@op\ndef x():\n    http.request('GET', 'https://h/')"
    with ConnectorProcess(written(tmp_path, source), invoke("x")) as connector:
        connector.receive()
        connector.send_raw(b"\x00\x00\x00\x00\x00\x00\x00\x00")
        assert connector.wait() == 1
        assert "header of 0 bytes" in connector.printed()


def test_the_process_exits_with_0_after_a_result_or_failure(tmp_path: Path) -> None:
    """The frames say whether the operation succeeded, not the exit code."""
    for op, kind in (("loose", Result), ("nowhere", Failed)):
        with ConnectorProcess(written(tmp_path, TYPED), invoke(op, a=1)) as connector:
            assert isinstance(connector.receive_until_over(), kind)
            assert connector.wait() == 0
