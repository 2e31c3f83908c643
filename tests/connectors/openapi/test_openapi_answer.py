"""From a service's answer to an output, or to a failure that says what the service said."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from aileron_connector.openapi.answer import PAGE_BYTES
from aileron_connector.openapi.saying import MAX_FACTS_BYTES, MAX_WORDS, said
from aileron_connector.testing import Reply
from tests.connectors.openapi.packed import answered, parameter

JSON = "application/json"


def says(body: Any, status: int = 200, content_type: str = JSON, **headers: str) -> list[Reply]:
    """One answer; what is not bytes is JSON."""
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    named = [("content-type", content_type)] if content_type else []
    return [Reply(status, data, (*named, *((name.replace("_", "-"), value) for name, value in headers.items())))]


def declares(schema: Any = True, content: str = JSON, status: str = "200", **more: Any) -> dict[str, Any]:
    """An operation with one response."""
    return {"responses": {status: {"content": {content: {"schema": schema}}}}, **more}


def failed(of: dict[str, Any], answer: list[Reply], /, method: str = "get") -> tuple[str, dict[str, Any]]:
    """Words and details of an `external_api_error`."""
    failure = answered(of, answer, method=method).failure
    assert failure.failure_class == "external_api_error"
    return failure.message, failure.details


# What was asked for


def test_json_is_the_output() -> None:
    """An object as it is, a list as `items`, anything else as it is."""
    assert answered(declares(), says({"a": 1})).output == {"a": 1}
    assert answered(declares(), says([1])).output == {"items": [1]}
    assert answered(declares(), says("ok")).output == "ok"


@pytest.mark.parametrize(("status", "body"), [(204, b""), (205, b"x"), (200, b""), (202, b""), (304, b"")])
def test_no_body_is_the_status(status: int, body: bytes) -> None:
    """Whatever the document says about one."""
    assert answered(declares({"type": "object"}), says(body, status)).output == {"status": status}


@pytest.mark.parametrize(
    ("responses", "status", "fits"),
    [
        ({"200": "A", "2XX": "B", "default": "B"}, 200, True),
        ({"200": "B", "2XX": "A", "default": "B"}, 201, True),
        ({"200": "B", "2xx": "A"}, 201, True),
        ({"default": "A"}, 201, True),
        ({"default": "B"}, 201, False),
        ({"200": "A", "default": "B"}, 201, True),
        ({"200": "B"}, 201, True),
        ({"200": "B", "2XX": "A"}, 200, False),
    ],
)
def test_the_response_is_that_of_the_status_then_of_its_class(responses: Any, status: int, fits: bool) -> None:
    """Then `default`, if it is not that of errors; of a status that the document does not know, nothing is said."""
    kinds = {"A": {"type": "object"}, "B": {"type": "array"}}
    of = {"responses": {key: {"content": {JSON: {"schema": kinds[kind]}}} for key, kind in responses.items()}}
    done = answered(of, says({}, status))
    assert (getattr(done.answer, "output", None) == {}) is fits


@pytest.mark.parametrize(("method", "status"), [("get", 200), ("post", 201)])
def test_an_answer_that_does_not_fit_is_given_and_says_where(method: str, status: int) -> None:
    """Reads and writes alike give their answer: the request is over, and a lost answer makes somebody repeat it."""
    of = declares({"properties": {"id": {"type": "integer"}}}, status=str(status))

    assert answered(of, says({"id": "x", "n": 1}, status), method=method).output == {
        "id": "x",
        "n": 1,
        "does_not_fit": ".id is not an integer (by the service's document)",
    }
    assert answered(of, says({"id": 7, "n": 1}, status), method=method).output == {"id": 7, "n": 1}


@pytest.mark.parametrize(
    ("schema", "answer", "output"),
    [
        (
            {"type": "object"},
            [1],
            {"items": [1], "does_not_fit": "the whole is not an object (by the service's document)"},
        ),
        (
            {"type": "object"},
            "s",
            {"value": "s", "does_not_fit": "the whole is not an object (by the service's document)"},
        ),
        (
            {"properties": {"does_not_fit": {"type": "string"}}},
            {"does_not_fit": 7},
            {"does_not_fit": 7, "aileron_does_not_fit": ".does_not_fit is not a string (by the service's document)"},
        ),
    ],
)
def test_the_mark_stands_beside_any_answer(schema: Any, answer: Any, output: Any) -> None:
    """An answer that is no object gets one for it, and the mark never replaces the service's own key."""
    assert answered(declares(schema), says(answer)).output == output


@pytest.mark.parametrize("method", ["get", "post"])
@pytest.mark.parametrize("body", [b"<html>", b"[" * 2000, b'{"a": ', b"\xff"])
def test_what_is_not_json_although_it_should_be(method: str, body: bytes) -> None:
    """A page of a proxy, for instance: it is given as text."""
    output = answered(declares(), says(body, content_type="text/html"), method=method).output
    assert output == {
        "text": body.decode("utf-8", "replace"),
        "content_type": "text/html",
        "does_not_fit": "the answer is not JSON, but says that it is text/html",
    }
    output = answered(declares(), says(b"\x89PNG\0", content_type="image/png"), method=method).output
    assert output["base64"] == "iVBORwA="
    assert "not JSON" in output["does_not_fit"]


NUMBER = "is a number that is given as text"
NO_CHARACTER = "is no character"
DEEP = b"[" * 70 + b"]" * 70


@pytest.mark.parametrize(
    ("body", "told", "where"),
    [
        (b'{"a": {"b": 1180591620717411303424}}', {"a": {"b": "1180591620717411303424"}}, f".a.b {NUMBER}"),
        (b'{"a": -9223372036854775809}', {"a": "-9223372036854775809"}, f".a {NUMBER}"),
        (b'{"a": 1%s}' % (b"0" * 5000), {"a": "1" + "0" * 5000}, f".a {NUMBER}"),
        (b'{"a": [-1.5e400]}', {"a": ["-1.5e400"]}, f".a[0] {NUMBER}"),
        (b'{"a": NaN, "b": -Infinity}', {"a": "NaN", "b": "-Infinity"}, f".a {NUMBER}; .b {NUMBER}"),
        (rb'{"a": "x\ud83d"}', {"a": "x\ufffd"}, f".a has what {NO_CHARACTER}"),
        (rb'{"\ude00": 1, "\ud83d": 2}', {"\ufffd": 1, "\ufffd\ufffd": 2}, f"has a key with what {NO_CHARACTER}"),
        (b'{"a": "x\xff"}', {"a": "x\ufffd"}, f".a has what {NO_CHARACTER}"),
        (rb'{"a": "\ud83d\ude00", "b": 18446744073709551615}', {"a": "\U0001f600", "b": 2**64 - 1}, ""),
    ],
)
@pytest.mark.parametrize("method", ["get", "post"])
def test_what_no_frame_can_carry_does_not_lose_the_answer(method: str, body: bytes, told: Any, where: str) -> None:
    """Numbers come as their digits, halves of characters as U+FFFD; where is said, and the schema is asked about the number."""
    schema = {"properties": {"a": {"type": ["number", "string", "array", "object"]}}}
    output = answered(declares(schema), says(body), method=method).output
    assert where in output.pop("does_not_fit", "")
    assert output == told


def test_numbers_that_no_frame_can_carry_still_fit_the_schema() -> None:
    """A number that is given as text is what the document says: only its form is marked."""
    schema = {"properties": {"a": {"type": "integer", "minimum": 0}, "b": {"type": "number"}}}
    output = answered(declares(schema), says(b'{"a": 100000000000000000000, "b": 1e400}')).output
    assert output == {
        "a": "100000000000000000000",
        "b": "1e400",
        "does_not_fit": f".a {NUMBER}; .b {NUMBER}",
    }


def test_json_that_is_nested_deeper_than_a_frame_is_text_from_there_on() -> None:
    """Nothing of it is lost."""
    output = answered(declares(), says(DEEP)).output
    assert "is nested too deeply" in output["does_not_fit"]
    depth, inner = 0, output["items"]
    while isinstance(inner, list):
        depth, inner = depth + 1, inner[0]
    assert (inner.count("["), depth + inner.count("[")) == (70 - depth, 70)


@pytest.mark.parametrize("content_type", ["", "text/html", "application/octet-stream", "application/vnd.x+json", "x"])
def test_json_of_another_content_type_is_still_json(content_type: str) -> None:
    """If the document says JSON."""
    assert answered(declares({"type": "object"}), says({"a": 1}, content_type=content_type)).output == {"a": 1}


def test_a_byte_order_mark_is_no_reason() -> None:
    """Some services of Windows begin with one."""
    assert answered(declares(), says(b"\xef\xbb\xbf{}")).output == {}


def test_of_several_media_types_the_answers_own_counts() -> None:
    """By name, then by a range of names."""
    of = {
        "responses": {
            "200": {"content": {"text/csv": {}, "image/*": {}, JSON: {"schema": {"type": "array"}}}},
        }
    }
    assert answered(of, says(b"a,b", content_type="text/csv; charset=latin-1")).output["text"] == "a,b"
    assert answered(of, says(b"\x89", content_type="image/png")).output["base64"] == "iQ=="
    assert answered(of, says(b"{}")).output["does_not_fit"].startswith("the whole is not an array")


def test_text_is_text_in_its_charset() -> None:
    """Lines of JSON too."""
    done = answered({}, says("ü\n".encode("latin-1"), content_type="text/plain; charset=latin-1"))
    assert done.output == {"text": "ü\n", "content_type": "text/plain; charset=latin-1"}
    done = answered({}, says(b"{}\n{}\n", content_type="application/x-ndjson"))
    assert done.output["text"] == "{}\n{}\n"


@pytest.mark.parametrize("charset", ["idna", "hex", "unicode_escape", "utf-7", "nothing", "a\tb"])
def test_no_charset_is_a_failure(charset: str) -> None:
    """Also those that decode to halves of characters."""
    done = answered({}, says(rb"\ud800 \xff" + b"+2AA-\xff", content_type=f"text/plain; charset={charset}"))
    assert isinstance(done.output["text"], str)


def test_text_that_does_not_fit_is_cut() -> None:
    """And it says how much is missing."""
    done = answered({}, says("ü".encode() * (1 << 20), content_type="text/plain"))
    assert len(done.output["text"]) + done.output["left_out"] == 1 << 20
    assert len(done.output["text"].encode()) > (1 << 20) - 5000


def test_bytes_are_base64_as_far_as_they_fit() -> None:
    """What does not fit is an error that says so, and a second request is not advised if the first did something."""
    data = bytes(range(256)) * 3000
    done = answered({}, says(data, content_type="image/png"))
    assert done.output == {"content_type": "image/png", "bytes": 768_000, "base64": base64.b64encode(data).decode()}

    failure = answered({}, says(data * 2, content_type="image/png")).failure
    assert (failure.failure_class, failure.details) == ("resource_limit_exceeded", {"limit": "output"})
    assert "1536000 bytes" in failure.message
    failure = answered({}, says(data * 2, content_type="image/png"), method="post").failure
    assert "carried out" in failure.message
    failure = answered({}, says(data * 12, content_type="image/png"), method="post").failure
    assert "larger than 8388608 bytes; the request itself was carried out" in failure.message


def test_a_head_request_returns_headers() -> None:
    """Some of them."""
    done = answered(
        {}, [Reply(200, b"", (("Content-Length", "7"), ("ETag", '"x"'), ("Set-Cookie", "s")))], method="head"
    )
    assert done.output == {"status": 200, "headers": {"content-length": "7", "etag": '"x"'}}


# Lists


LISTING = {"fields": ["id", "user.login", "labels.name"], "argument": "fields"}
MEMBER = {
    "id": 1,
    "text": "x" * 500,
    "user": {"login": "ada", "url": "u"},
    "labels": [{"name": "a", "color": "c"}, {"color": "d"}],
}
PICKED = {"id": 1, "user": {"login": "ada"}, "labels": [{"name": "a"}, {}]}


def test_a_large_list_tells_some_fields_of_its_members() -> None:
    """A small one tells all."""
    of = declares(**{"x-aileron-list": LISTING})
    assert answered(of, says([MEMBER] * 3)).output == {"items": [MEMBER] * 3}
    assert answered(of, says([MEMBER] * 20)).output == {"items": [PICKED] * 20, "fields": LISTING["fields"]}


def test_a_page_is_not_a_large_list() -> None:
    """8 KiB are one page; a byte more is not."""
    of = declares(**{"x-aileron-list": LISTING})
    page = b'[{"id":1,"text":"%s"}]' % (b"x" * (PAGE_BYTES - 20))
    assert len(page) == PAGE_BYTES
    assert "fields" not in answered(of, says(page)).output
    assert "fields" in answered(of, says(page + b" ")).output


def test_the_caller_chooses_fields() -> None:
    """Exactly these, also of a small list; or all."""
    of = declares(**{"x-aileron-list": LISTING})
    done = answered(of, says([MEMBER]), fields=["user", "user.login", "none.such"])
    assert done.output == {"items": [{"user": MEMBER["user"]}], "fields": ["user", "user.login", "none.such"]}
    assert answered(of, says([MEMBER] * 20), fields=["*"]).output == {"items": [MEMBER] * 20}


def test_a_list_inside_of_an_answer_is_found_by_its_keys() -> None:
    """And what stands beside it stays."""
    of = declares(**{"x-aileron-list": {**LISTING, "at": ["data", "rows"]}})
    answer = {"data": {"rows": [MEMBER] * 20, "total": 20}, "fields": "taken"}
    assert answered(of, says(answer)).output == {
        "data": {"rows": [PICKED] * 20, "total": 20},
        "fields": "taken",
        "aileron_fields": LISTING["fields"],
    }
    assert answered(of, says({"data": None, "x": "y" * 9000})).output == {"data": None, "x": "y" * 9000}


def test_null_where_an_object_could_be_stays() -> None:
    """That there is none is an answer."""
    of = declares(**{"x-aileron-list": LISTING})
    assert answered(of, says([{"user": None}]), fields=["user.login"]).output["items"] == [{"user": None}]


def test_what_does_not_fit_a_frame_is_left_out_at_the_end() -> None:
    """As little as possible."""
    of = declares(**{"x-aileron-list": {**LISTING, "at": ["rows"]}})
    many = [{**MEMBER, "id": number, "text": "x" * 1000} for number in range(2000)]

    for answer, at in (many, "items"), ({"rows": many}, "rows"):
        output = answered(of, says(answer), fields=["*"]).output
        assert [one["id"] for one in output[at]] == list(range(len(output[at])))
        assert len(output[at]) + output["left_out"] == 2000
        assert 850 < len(output[at]) < 1048
    assert answered(of, says(many)).output == {
        "items": [{**PICKED, "id": number} for number in range(2000)],
        "fields": LISTING["fields"],
    }
    output = answered({}, says([[]] * 200_000)).output
    assert len(output["items"]) + output["left_out"] == 200_000


def test_what_is_no_list_and_does_not_fit_is_an_error() -> None:
    """That says how large it was."""
    failure = answered({}, says({"a": "x" * (2 << 20)})).failure
    assert (failure.failure_class, failure.details) == ("resource_limit_exceeded", {"limit": "output"})
    of = declares(**{"x-aileron-list": {"at": ["rows"]}})
    assert answered(of, says({"a": "x" * (2 << 20), "rows": []})).failure.failure_class == "resource_limit_exceeded"


def test_after_a_write_the_beginning_of_what_does_not_fit_is_given() -> None:
    """A caller cannot ask for the rest without repeating the write."""
    output = answered({}, says({"id": 7, "a": "x" * (2 << 20)}), method="post").output
    assert output["text"].startswith('{"id": 7')
    assert output["left_out"] > 1 << 20
    assert "more than can be returned" in output["does_not_fit"]


# The next page


PAGED = declares(parameters=[parameter("page", schema={"type": "integer"})])


def test_the_next_page_is_arguments() -> None:
    """Beside a list and in an object, under a key that is free."""
    link = '<https://api.example.com/v1/items?page=2>; rel="next"'
    assert answered(PAGED, says([1], link=link), page=1).output == {"items": [1], "next": {"page": 2}}
    assert answered(PAGED, says({"a": 1}, link=link)).output == {"a": 1, "next": {"page": 2}}
    assert answered(PAGED, says({"next": 1}, link=link)).output == {"next": 1, "aileron_next": {"page": 2}}


def test_a_next_page_that_arguments_cannot_name_is_only_said() -> None:
    """`more` is true."""
    link = "</v1/items?cursor=x>; rel=next"
    assert answered(PAGED, says([1], link=link)).output == {"items": [1], "more": True}


def test_the_next_page_may_be_named_in_the_answer() -> None:
    """Where the document says so; what a header says goes before it, and fields that were chosen do not hide it."""
    links = {"next": {"operationId": "x", "parameters": {"page": "$response.body#/rows/0/id"}}}
    of = {**PAGED, "responses": {"200": {"links": links}}, "x-aileron-list": {"at": ["rows"], "argument": "fields"}}
    rows = {"rows": [{"id": 2, "a": 1}]}

    told = answered(of, says(rows), fields=["a"]).output
    assert told == {"rows": [{"a": 1}], "fields": ["a"], "next": {"page": 2}}
    assert answered(of, says(rows), page=2).output == rows
    assert answered(of, says(rows, link="<?page=9>; rel=next")).output == {**rows, "next": {"page": 9}}


# What was not


def test_a_refusal_says_what_the_service_said() -> None:
    """Its status, when to come back, and its words; the rest in the details."""
    words, details = failed({}, says({"message": "Slow\ndown"}, 429, Retry_After="7"))
    assert words == "the service answered with status 429: Slow down"
    assert details == {"status": 429, "retry_after_s": 7, "answer": {"message": "Slow\ndown"}}


def test_404_at_a_path_without_arguments_hints_at_the_address() -> None:
    """At such a path, no argument of a caller can be what is not found. Other refusals give no hint."""
    message, _ = failed({}, says({"message": "no"}, 404))
    assert message.endswith(
        "404: no; if every operation answers so, the address is wrong: import the document with --server URL"
    )
    assert "--server" not in failed({}, says({"message": "no"}, 403))[0]
    one = {"parameters": [parameter("id", "path")]}
    lookup = answered(one, says({"message": "no"}, 404), path="/items/{id}", id="7")
    assert lookup.failure.message == "the service answered with status 404: no"


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        ({"message": "no"}, "no"),
        ({"error": "no"}, "no"),
        ({"error": {"message": "no", "code": 7}}, "no"),
        ({"error": "invalid_grant", "error_description": "expired"}, "invalid_grant; expired"),
        ({"errors": ["a", "b"]}, "a; b"),
        ({"errors": [{"message": "a"}, {"detail": "b"}]}, "a; b"),
        ({"errors": {"name": ["is short", "is bad"]}}, "name: is short; name: is bad"),
        ({"detail": "no"}, "no"),
        (
            {"detail": [{"loc": ["body", "n"], "msg": "field required", "type": "missing"}]},
            "body.n: field required",
        ),
        ({"message": "Failed", "errors": [{"field": "t", "code": "missing"}]}, "Failed; t missing"),
        ([{"message": "no"}], "no"),
        ("no", "no"),
        ({"status": 3}, ""),
        ({"title": "no", "detail": [{"msg": "b"}]}, "no; b"),
        ({"message": {"a": 1}}, ""),
        (None, ""),
    ],
)
def test_words_are_found_where_services_put_them(answer: Any, words: str) -> None:
    """The shapes that are common."""
    message, details = failed({}, says(answer, 400))
    assert message == "the service answered with status 400" + (f": {words}" if words else "")
    assert details == {"status": 400, "answer": answer}


@pytest.mark.parametrize(
    ("problem", "words"),
    [
        (
            {"title": "Out of credit", "detail": "30 left", "type": "https://x/oc"},
            "Out of credit: 30 left (https://x/oc)",
        ),
        ({"title": "Forbidden", "type": "about:blank"}, "Forbidden"),
    ],
)
def test_problem_details_are_told_whole(problem: dict[str, Any], words: str) -> None:
    """RFC 9457."""
    message, details = failed({}, says(problem, 403, "application/problem+json"))
    assert message == f"the service answered with status 403: {words}"
    assert details == {"status": 403, "problem": problem}


@pytest.mark.parametrize(
    ("body", "content_type", "words", "facts"),
    [
        (b"no such\r\nthing", "text/plain", ": no such thing", {"text": "no such\r\nthing"}),
        (b"<html>no", "text/html", "", {"text": "<html>no"}),
        (b'{"message": "no"}', "", ": no", {"answer": {"message": "no"}}),
        (b"\x89PNG", "image/png", "", {}),
        (b"no", "", "", {}),
        (b"", "text/plain", "", {}),
        (b"not json", JSON, ": not json", {"text": "not json"}),
    ],
)
def test_only_json_and_text_are_passed_on(body: bytes, content_type: str, words: str, facts: dict[str, Any]) -> None:
    """Of text that is markup, no words."""
    assert failed({}, says(body, 500, content_type)) == (
        f"the service answered with status 500{words}",
        {"status": 500, **facts},
    )


def test_what_a_service_says_is_bounded() -> None:
    """In words and in facts, however long it is."""
    message, details = failed({}, says({"message": "x" * 10_000}, 500))
    assert len(message) < MAX_WORDS + 50
    assert len(details["text"]) == MAX_FACTS_BYTES
    assert failed({}, says(b"x" * (10 << 20), 500, "text/plain"))[1]["text"] == "x" * MAX_FACTS_BYTES


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(
                ["message", "error", "errors", "detail", "title", "type", "loc", "msg", "code", "field", "x"]
            ),
            inner,
            max_size=5,
        )
    ),
)


@given(anything | st.binary(max_size=50), st.sampled_from([JSON, "text/plain", "", "application/problem+json"]))
@settings(suppress_health_check=[HealthCheck.too_slow])
def test_whatever_a_service_says_is_one_line(answer: Any, content_type: str) -> None:
    """Of printable characters, and facts that are bounded."""
    data = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
    words, facts = said(data, content_type, data.decode("utf-8", "replace"))
    assert len(words) <= MAX_WORDS
    assert words.isprintable()
    assert len(facts) <= 1
    assert len(json.dumps(facts, ensure_ascii=False).encode()) < 2 * MAX_FACTS_BYTES


@pytest.mark.parametrize(
    ("location", "place"),
    [
        ("https://u:p@other.example.com:8443/a?key=s3cret#f", "https://other.example.com:8443/a"),
        ("/login?next=x", "https://api.example.com/login"),
        ("../b", "https://api.example.com/b"),
        ("mailto:a", ""),
        ("https://[", ""),
        ("", ""),
    ],
)
@pytest.mark.parametrize("status", [300, 308])
def test_a_redirect_is_an_error_that_says_where_it_leads(location: str, place: str, status: int) -> None:
    """Without what could have a key in it, and nobody goes there."""
    message, details = failed({}, [Reply(status, b"", (("Location", location),))])
    where = f"redirects to {place}, which is not followed" if place else "names no place where the answer is"
    assert message == f"the service {where} (status {status})"
    assert details == {"status": status, **({"location": place} if place else {})}


def test_a_redirect_after_a_write_says_that_it_may_be_done() -> None:
    """Many services answer so: done, look there."""
    told = {
        method: failed({}, [Reply(303, b"", (("Location", "/orders/17"),))], method=method)[0]
        for method in ("get", "post", "delete")
    }
    assert ["may have done" in told[method] for method in ("get", "post", "delete")] == [False, True, True]


def test_nothing_of_an_answer_goes_into_the_log(capfd: pytest.CaptureFixture[str]) -> None:
    """Neither of one that fits nor of others."""
    for reply in says({"a": "s3cret"}), says(b"s3cret"), says({"message": "s3cret"}, 500):
        assert answered(declares(), reply).logs == ()
    assert capfd.readouterr() == ("", "")
