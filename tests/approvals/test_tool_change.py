"""Differences in a tool that its server changed, and how many of them are reported."""

from __future__ import annotations

import json

from aileron.approvals.tool_change import MAX_CHANGES, ToolReport, reported, tool_changes
from aileron.model.consent import MAX_CHANGE_CHARACTERS
from aileron.model.failure import Boundary, Failure, FailureClass


def test_a_tool_change_lists_only_the_values_that_differ() -> None:
    """The values 1, true and "1" look alike but are three different values."""
    before = {"description": "Adds.", "inputSchema": {"required": ["a"], "properties": {"a": {"minimum": 1}, "b": {}}}}
    now = {
        "description": "Adds.\u200b",
        "inputSchema": {"required": ["a", "c"], "properties": {"a": {"minimum": True}}},
    }

    found = [
        (change.where, change.before, change.after) for change in tool_changes(json.dumps(before), json.dumps(now))
    ]

    assert found == [
        ("description", "Adds.", "Adds.\u200b"),
        ("inputSchema.required", '["a"]', '["a","c"]'),
        ("inputSchema.properties.a.minimum", "1", "true"),
        ("inputSchema.properties.b", "{}", None),
    ]


def test_a_long_list_of_tool_changes_is_truncated_and_says_so() -> None:
    """The bounds are on number and length, and all changes widen."""
    now = {"description": "x" * 10_000, **{f"key{number}": number for number in range(MAX_CHANGES)}}

    found = tool_changes('{"description":"y"}', json.dumps(now))

    assert len(found) == MAX_CHANGES + 1
    assert "whole definition" in str(found[-1].after)
    assert all(change.widens and len(change.after or "") <= MAX_CHANGE_CHARACTERS for change in found)


def test_only_an_external_api_error_with_reason_tool_changed_reports_a_change() -> None:
    """A failure of any other class or reason is an ordinary failure."""
    said = {"reason": "tool_changed", "before": '{"a":1}', "now": '{"a":2}'}

    def failure(kind: FailureClass, **details: object) -> Failure:
        return Failure(failure_class=kind, message="", boundary=Boundary.EXTERNAL, details={**said, **details})

    report = reported(failure(FailureClass.EXTERNAL_API_ERROR))
    assert report is not None
    assert (report.how, report.before, report.now) == ("changed", '{"a":1}', '{"a":2}')
    assert reported(failure(FailureClass.EXTERNAL_API_ERROR, reason="tool_error")) is None
    assert reported(failure(FailureClass.HASH_MISMATCH)) is None


def test_every_accepted_report_of_a_tool_change_can_be_compared() -> None:
    """A document nested to just below the interpreter's limit could be read, but then not compared."""

    def report(levels: int) -> ToolReport | None:
        before, now = (f'{{"a":{"[" * levels}{leaf}{"]" * levels}}}' for leaf in "12")
        details = {"reason": "tool_changed", "before": before, "now": now}
        return reported(
            Failure(
                failure_class=FailureClass.EXTERNAL_API_ERROR, message="", boundary=Boundary.EXTERNAL, details=details
            )
        )

    found = {levels: report(levels) for levels in range(150, 1100)}
    told = [
        tool_report
        for tool_report in found.values()
        if tool_report is not None and tool_report.before is not None and tool_report.now is not None
    ]

    assert all(len(tool_changes(str(tool_report.before), str(tool_report.now))) == 1 for tool_report in told)
    assert (getattr(found[150], "how", None), getattr(found[300], "how", None)) == ("changed", "untold")
