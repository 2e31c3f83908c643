"""A check of an agent's state file: it finds changes to settings that the agent obeys later, and ignores records such
as counts.

    obeyed_at(".claude.json", parent, contents)     at the start, and again at the end: equal digests are not listed

Claude Code writes ~/.claude.json in every session: the number of starts, what they cost. The same file contains MCP
servers, allowed tools and trusted folders. If it were listed after every session, a person would ignore it, so it is
listed only if something other than such records differs.

Runs in the command, before the agent's start and after its end. The contents are hostile. Rules
- The list of keys that are only records is closed. Every other key, and content that cannot be parsed, counts as settings.
- The text is read as the agent reads it: UTF-8, JSON without `NaN`, the last of two equal keys.

Source: the file as Claude Code 2.1.332 writes it. Not here: the files of each agent (aileron/launch), the list (compare.py).
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
"""Maximum size of a state file in bytes: 8 MiB, read in 0.1 s. After years of use it has 1 MiB. A longer file counts as
changed.
"""
STATE_FILES: Final = frozenset({".claude.json"})
"""Names of the files in which an agent keeps both records, such as counts, and settings that it obeys later."""
_REMEMBERED: Final = frozenset(
    {
        "cachedChangelog", "changelogLastFetched", "closedIssuesLastChecked", "feedbackSurveyState", "firstStartTime",
        "lastPlanModeUse", "lastReleaseNotesSeen", "memoryUsageCount", "numStartups", "officialMarketplaceAutoInstallFailReason",
        "officialMarketplaceAutoInstallLastAttemptTime", "officialMarketplaceAutoInstallNextRetryTime",
        "officialMarketplaceAutoInstallRetryCount", "pluginUsage", "promptQueueUseCount", "seenNotifications", "skillUsage",
        "subscriptionNoticeCount", "tipLifetimeShownCounts", "tipsHistory", "tipsHistoryByCommand", "toolUsage",
    }
)  # fmt: skip
"""Top-level keys of a state file that an agent records but does not obey: counts, times, and texts that are only shown."""
_REMEMBERED_OF_PROJECT: Final = frozenset(
    {
        "exampleFiles", "exampleFilesGeneratedAt", "history", "lastAPIDuration", "lastAPIDurationWithoutRetries", "lastCost",
        "lastDuration", "lastFpsAverage", "lastFpsLow1Pct", "lastGracefulShutdown", "lastLinesAdded", "lastLinesRemoved",
        "lastModelUsage", "lastSessionId", "lastSessionMetrics", "lastStartTime", "lastToolDuration",
        "lastTotalCacheCreationInputTokens", "lastTotalCacheReadInputTokens", "lastTotalInputTokens", "lastTotalOutputTokens",
        "lastTotalWebSearchRequests", "lastVersionBase", "projectOnboardingSeenCount",
    }
)  # fmt: skip
"""Keys of each project in a state file's `projects` that an agent records but does not obey."""


def obeyed_at(name: str, parent: int, contents: Bytes) -> str | None:
    """Return a hex digest of a state file's permissions and of its content without the keys that the agent does not
    obey. None if the content cannot be read or understood; the caller must then count the file as changed.
    """
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
        kept["projects"] = {path: _without(project, _REMEMBERED_OF_PROJECT) for path, project in projects.items()}
    text = f"{permissions:o} {json.dumps(kept)}"
    return sha256(text.encode()).hex()


def _without(value: Any, keys: Collection[str]) -> Any:
    return {key: of for key, of in value.items() if key not in keys} if isinstance(value, dict) else value


def _refused(text: str) -> NoReturn:
    raise ValueError(text)
