"""Files in which an agent keeps what it obeys later beside what it only remembers: whether the former is what it was.

    obeyed_at(".claude.json", parent, contents)     at the start, and again at the end: what is equal is not listed

Claude Code writes ~/.claude.json in every session: how often it was started, what that cost. The same file names MCP servers,
allowed tools and folders that it trusts. Listed each time, it would be read no more, so it is listed when anything but memories
differs.

Runs in the command, before and after. The contents are hostile. Rules
- Closed is the list of what is only remembered. Every other key, and whatever is not understood, counts as obeyed.
- The text is read as the agent reads it: UTF-8, JSON without `NaN`, of two keys the last.

Source: the file as Claude Code 2.1.332 writes it. Not here: which files there are (aileron/launch), the list (compare.py).
"""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Collection
from typing import Any, Final, NoReturn

from aileron.cell.tree import Bytes
from aileron.model.sha256 import sha256

__all__ = ["STATE_FILES", "obeyed_at"]

_MAX_STATE: Final = 8 << 20
"""8 MiB: years of one have one MiB. What is longer counts as changed, and reading this much takes 0.1 s."""
STATE_FILES: Final = frozenset({".claude.json"})
"""Their names."""
_REMEMBERED: Final = frozenset(
    {
        "cachedChangelog", "changelogLastFetched", "closedIssuesLastChecked", "feedbackSurveyState", "firstStartTime",
        "lastPlanModeUse", "lastReleaseNotesSeen", "memoryUsageCount", "numStartups", "officialMarketplaceAutoInstallFailReason",
        "officialMarketplaceAutoInstallLastAttemptTime", "officialMarketplaceAutoInstallNextRetryTime",
        "officialMarketplaceAutoInstallRetryCount", "pluginUsage", "promptQueueUseCount", "seenNotifications", "skillUsage",
        "subscriptionNoticeCount", "tipLifetimeShownCounts", "tipsHistory", "tipsHistoryByCommand", "toolUsage",
    }
)  # fmt: skip
"""Counts, times, and texts that are only shown."""
_REMEMBERED_OF_PROJECT: Final = frozenset(
    {
        "exampleFiles", "exampleFilesGeneratedAt", "history", "lastAPIDuration", "lastAPIDurationWithoutRetries", "lastCost",
        "lastDuration", "lastFpsAverage", "lastFpsLow1Pct", "lastGracefulShutdown", "lastLinesAdded", "lastLinesRemoved",
        "lastModelUsage", "lastSessionId", "lastSessionMetrics", "lastStartTime", "lastToolDuration",
        "lastTotalCacheCreationInputTokens", "lastTotalCacheReadInputTokens", "lastTotalInputTokens", "lastTotalOutputTokens",
        "lastTotalWebSearchRequests", "lastVersionBase", "projectOnboardingSeenCount",
    }
)  # fmt: skip
"""The same in `projects`, below the path of each."""


def obeyed_at(name: str, parent: int, contents: Bytes) -> str | None:
    """A digest of what may be obeyed later in a state file, and of its permissions. None: it is not known, and equals nothing."""
    content = contents.read(name, parent, _MAX_STATE) if name in STATE_FILES else None
    if content is None:
        return None
    try:
        permissions = stat.S_IMODE(os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode)
        document = json.loads(content.decode(), parse_constant=_refused)
    except (OSError, ValueError, RecursionError):
        return None
    if not isinstance(document, dict):
        return None
    kept = _without(document, _REMEMBERED)
    projects = kept.get("projects")
    if isinstance(projects, dict):
        kept["projects"] = {path: _without(one, _REMEMBERED_OF_PROJECT) for path, one in projects.items()}
    text = f"{permissions:o} {json.dumps(kept)}"
    return sha256(text.encode()).hex()


def _without(value: Any, keys: Collection[str]) -> Any:
    return {key: of for key, of in value.items() if key not in keys} if isinstance(value, dict) else value


def _refused(text: str) -> NoReturn:
    raise ValueError(text)
