"""Tests that docs/reference/frames.md states what the code does."""

from __future__ import annotations

import re
from typing import Any, get_args

import msgspec
import pytest

from aileron_sandbox import frames
from aileron_sandbox.frames import codec
from tests.support.plain_host import ROOT

PAGE = (ROOT / "docs" / "reference" / "frames.md").read_text(encoding="utf-8")
MESSAGES: dict[str, Any] = {kind.__struct_config__.tag: kind for kind in get_args(frames.Message)}


def documented() -> dict[str, set[str]]:
    """Return the fields of each message by its section, optional ones with a question mark."""
    found: dict[str, set[str]] = {}
    for section in re.split(r"^### ", PAGE, flags=re.MULTILINE)[1:]:
        name = section.split("`")[1]
        section = section.partition("\n## ")[0]
        found.setdefault(name, set()).update(re.findall(r"^\| `(\w+\??)` \|", section, re.MULTILINE))
    return found


@pytest.mark.parametrize("tag", sorted(MESSAGES))
def test_every_field_of_every_message_is_documented(tag: str) -> None:
    """The page lists exactly the fields, and which of them may be omitted."""
    fields = msgspec.structs.fields(MESSAGES[tag])
    expected = {field.encode_name + ("" if field.required else "?") for field in fields}
    assert documented()[tag] == expected


def test_every_documented_message_exists() -> None:
    """This is the reverse of the test above."""
    assert sorted(documented()) == sorted(MESSAGES)


@pytest.mark.parametrize(
    ("words", "value"),
    [
        ("| header | {} bytes |", frames.MAX_HEADER_BYTES),
        ("| body | {} bytes |", frames.MAX_BODY_BYTES),
        ("| nesting of values | {} containers |", frames.MAX_DEPTH),
        ("| values in an output that travels as the body | {} |", codec.MAX_OUTPUT_VALUES),
        ("| requests open at once | {} |", frames.MAX_IN_FLIGHT),
        ("Protocol version {}.", frames.PROTOCOL_VERSION),
    ],
)
def test_the_limits_of_frames_are_documented(words: str, value: int) -> None:
    """The page has the numbers of the code."""
    assert words.format(f"{value:,}") in PAGE


def test_the_documented_example_is_a_valid_conversation_of_frames() -> None:
    """Each frame decodes to the header shown above it, in an order that both sessions accept."""
    example = PAGE.partition("```text\n")[2].partition("```")[0]
    host, jail = frames.HostSession(), frames.JailSession()
    for shown in example.strip().split("\n\n"):
        title, *rows = shown.splitlines()
        direction, described = title[0], title[2:]
        decoder = frames.Decoder(frames.ToJail if direction == ">" else frames.FromJail)
        decoder.feed(bytes.fromhex("".join(rows)))
        frame = decoder.next_frame()
        assert frame is not None
        assert decoder.is_between_frames
        header, _, body = described.partition(" + body ")
        assert msgspec.json.decode(msgspec.json.encode(frame.message)) == msgspec.json.decode(header)
        assert (frame.body or b"").decode() == body.strip("'")
        sender, receiver = (host, jail) if direction == ">" else (jail, host)
        sender.sending(frame.message)
        receiver.received(frame)
    assert host.is_over
