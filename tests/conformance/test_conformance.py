"""The official conformance suite against `/mcp`: only expected checks fail, and the page says what was found."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conformance.home import served
from tests.conformance.install import INSPECTOR_VERSION, NODE_VERSION, SUITE_VERSION, Tools
from tests.conformance.page import PAGE, reasons, table_of, tables
from tests.conformance.suite import EXPECTED, REVISIONS, WHY, Run, baseline, judged, ran
from tests.support.home import DaemonHome

pytestmark = [pytest.mark.jail, pytest.mark.slow, pytest.mark.timeout(600)]
"""Ten minutes: if nothing is cached, the first test installs the suite."""


@pytest.fixture(scope="module")
def url(home: DaemonHome) -> Iterator[str]:
    """Return the address at which the suite finds the daemon."""
    with served(home) as address:
        yield address


@pytest.fixture(scope="module")
def runs(tools: Tools, url: str, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Run]:
    """Run each requirement set once."""
    return {each: judged(tools, url, tmp_path_factory.mktemp("suite"), each) for each in REVISIONS}


@pytest.mark.parametrize("revision", REVISIONS)
def test_only_expected_checks_fail(runs: dict[str, Run], revision: str) -> None:
    """The suite's own verdict and each check agree; a check that is expected to fail and passes is a failure, too."""
    run = runs[revision]

    assert run.code == 0, run.said
    failed = {check for scenario in run.scenarios.values() for check in scenario.failed}
    assert failed == {check for check in EXPECTED if check.partition(":")[0] in run.scenarios}


@pytest.mark.parametrize("words", ["--spec-version 2025-06-18 --suite all", "--suite pending"])
def test_only_expected_checks_fail_for_an_older_revision_and_unscored_scenarios(
    tools: Tools, url: str, tmp_path: Path, words: str
) -> None:
    """Expected failures have the same reasons over the wire of 2025-06-18, and if the suite is asked to judge what it
    would only run.
    """
    code, said = ran(tools, url, tmp_path, *words.split(), "--expected-failures", str(baseline(tmp_path, EXPECTED)))

    assert code == 0, said


def test_every_expected_failure_belongs_to_a_scenario(runs: dict[str, Run]) -> None:
    """Every reason is for a scenario that some requirement set has."""
    seen = {scenario for run in runs.values() for scenario in run.scenarios}

    assert {check.partition(":")[0] for check in EXPECTED} <= seen


def test_the_conformance_suites_tool_calls_are_recorded_as_runs_of_its_session(
    runs: dict[str, Run], home: DaemonHome
) -> None:
    """The runs are recorded for the suite's session, so no fake answered in their place."""
    assert {run.code for run in runs.values()} == {0}
    sessions = home.must("GET", "/v1/sessions")["sessions"]
    (suite,) = [each["id"] for each in sessions if each["agent"] == "conformance"]
    asked = home.must("GET", "/v1/audit?type=run.requested&limit=1000")["events"]

    for action in ("test-simple-text", "test-logging-tool", "test-trigger-tool-change", "greet"):
        run = next(event["run"] for event in asked if (event["action"], event["session"]) == (action, suite))
        assert {"run.started", "run.finished"} <= {event["type"] for event in home.events(run)}, action


def test_the_daemon_logs_no_error_during_the_conformance_suite(runs: dict[str, Run], home: DaemonHome) -> None:
    """The suite sends many invalid messages, and the daemon expects all of them: the log has no traceback."""
    assert runs
    log = (home.path / "logs" / "daemon.log").read_text(encoding="utf-8")

    assert [line for line in log.splitlines() if re.search("Traceback|ERROR|foresaw", line)] == []


def test_an_unexpected_failure_or_an_unexpected_pass_fails_the_conformance_run(
    tools: Tools, url: str, tmp_path: Path
) -> None:
    """An expected failure that passes fails the run, too. This is the positive control of the suite's verdict."""
    without = baseline(tmp_path, [])
    unexpected = ran(tools, url, tmp_path, "--scenario", "prompts-list", "--expected-failures", str(without))
    passing = ran(tools, url, tmp_path, "--scenario", "tools-list", "--expected-failures", str(without))
    with_one = baseline(tmp_path, ["tools-list:tools-list"])
    stale = ran(tools, url, tmp_path, "--scenario", "tools-list", "--expected-failures", str(with_one))

    assert (unexpected[0], passing[0], stale[0]) == (1, 0, 1), unexpected[1] + passing[1] + stale[1]


def test_the_conformance_page_matches_the_suites_results(runs: dict[str, Run]) -> None:
    """Every table of the page matches; `python -m tests.conformance.page` writes them."""
    page = PAGE.read_text(encoding="utf-8")

    assert {heading: table_of(page, heading) for heading in tables(runs)} == tables(runs)


def test_the_conformance_page_lists_the_pinned_versions_and_each_reason_for_an_expected_failure() -> None:
    """The page has the pinned versions and each reason."""
    page = PAGE.read_text(encoding="utf-8")

    for version in (SUITE_VERSION, INSPECTOR_VERSION, NODE_VERSION):
        assert f"`{version}`" in page, version
    assert table_of(page, "Reasons") == reasons()
    assert set(EXPECTED.values()) == set(WHY)
