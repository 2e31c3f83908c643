"""Claude Code. The server is registered by `--mcp-config`, which adds it to the user's servers; the gateway is set by
ANTHROPIC_BASE_URL.

Pure. `--allowedTools mcp__aileron` lets Claude Code call actions without a question of its own: the action decides
whether a person is asked, and Aileron asks. The option allows nothing else. Both options take several values, so they
are given as `--name=value`, and the words after them are not taken as further values.

`alwaysLoad`: without this setting Claude Code does not wait for a server that is not ready at once, for example because
the server has to start the daemon. The model then does not get the server's tools in the first turn.

With the vault's key, ANTHROPIC_AUTH_TOKEN is the session's token. In ANTHROPIC_API_KEY it would cause a question at a terminal
each time.

Claude Code's own questions before commands stay in a cell: only the user can decide that the cell is enough, by an
option of Claude Code or by their settings. A note names the option.

In a cell Claude Code gets its folder, and ~/.claude.json, which it replaces by a rename, and writes in place if that fails
(EBUSY, seen with 2.1.329). Its lock for that file is in the cell's home, where a Claude Code outside does not see it.

Source: docs/reference/agents.md. Not here: the user's settings file, whose `env` overrides the variables set here.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from aileron.launch.agent import (
    HOME_VARIABLE,
    NAME,
    TOKEN_VARIABLE,
    Agent,
    AileronServer,
    CellNeeds,
    Executes,
    LaunchRequest,
    OwnQuestions,
    Setup,
    Snippet,
    base_url_of,
    home_of,
    without_proxy,
)

__all__ = ["CLAUDE"]

_VARIABLES = (
    "BASH_DEFAULT_TIMEOUT_MS", "BASH_MAX_OUTPUT_LENGTH", "BASH_MAX_TIMEOUT_MS", "MAX_MCP_OUTPUT_TOKENS",
    "MAX_STRUCTURED_OUTPUT_RETRIES", "MAX_THINKING_TOKENS", "MCP_CONNECTION_NONBLOCKING", "MCP_OAUTH_CALLBACK_PORT",
    "MCP_TIMEOUT", "MCP_TOOL_TIMEOUT", "SLASH_COMMAND_TOOL_CHAR_BUDGET", "USE_BUILTIN_RIPGREP",
)  # fmt: skip
"""Variables passed by complete name, because other variables with these prefixes are not Claude's (BASH_ENV) or
contain MCP servers' tokens.
"""
_BASE_URL = "ANTHROPIC_BASE_URL"


def _reads(_: Mapping[str, str]) -> tuple[Path, ...]:
    return ()


def _setup(asked: LaunchRequest) -> Setup:
    # Only the variables' names: it inserts the values when it starts the server.
    server = _entry(asked.server, {name: f"${{{name}}}" for name in (HOME_VARIABLE, TOKEN_VARIABLE)})
    arguments = (f"--mcp-config={json.dumps(server)}", f"--allowedTools=mcp__{NAME}", *asked.arguments)
    variables, notes = base_url_of(asked, _BASE_URL)
    if not variables or not asked.has_kept_key("anthropic"):
        return Setup(arguments, {**variables, **without_proxy(asked)}, (), notes)
    variables["ANTHROPIC_AUTH_TOKEN"] = asked.token
    unset = ("ANTHROPIC_API_KEY",)
    return Setup(arguments, {**variables, **without_proxy(asked)}, unset, notes, frozenset({"anthropic"}))


def _snippet(server: AileronServer) -> Snippet:
    text = json.dumps(_entry(server, {HOME_VARIABLE: server.home}), indent=2, ensure_ascii=False)
    return Snippet("~/.claude.json, or .mcp.json in a project", text)


def _entry(server: AileronServer, environment: Mapping[str, str]) -> dict[str, object]:
    program, *arguments = server.command
    entry = {"type": "stdio", "command": program, "args": arguments, "env": dict(environment), "alwaysLoad": True}
    return {"mcpServers": {NAME: entry}}


def _cell(environment: Mapping[str, str]) -> CellNeeds:
    own = environment.get("CLAUDE_CONFIG_DIR")
    directory = Path(own) if own else home_of(environment) / ".claude"
    state = (directory if own else home_of(environment)) / ".claude.json"
    return CellNeeds(
        directories=(directory,),
        files=() if own else (state,),
        fixed=(directory / "local",),
        names=_VARIABLES,
        prefixes=("ANTHROPIC_", "CLAUDE_", "DISABLE_"),
        keys={
            "anthropic": (
                ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "CLAUDE_CODE_OAUTH_TOKEN"),
                (directory / ".credentials.json",),
            )
        },
        # As root it refuses some options unless it is told that it is in a sandbox; and its program is read-only here.
        variables={"IS_SANDBOX": "1", "DISABLE_AUTOUPDATER": "1"},
        executes=(
            Executes(str(directory / "settings*.json"), "hooks, status line, key helpers and variables"),
            Executes(str(state), "MCP servers"),
            Executes(str(directory / "hooks/**"), "programs of hooks"),
            Executes(str(directory / "plugins/**"), "plugins"),
            Executes(str(directory / "remote-settings.json"), "hooks and variables"),
            *(
                Executes(str(directory / name), "shell scripts that it loads")
                for name in ("shell-snapshots/**", "session-env/**")
            ),
            Executes(str(directory / "local/**"), "its own program"),
            *(
                Executes(str(directory / name), "programs that its settings name, as of a status line")
                for name in ("*.sh", "*.py", "*.js", "*.mjs", "*.ts", "scripts/**", "bin/**")
            ),
            *(
                Executes(str(directory / name), "instructions and commands for later sessions")
                for name in (
                    "CLAUDE.md",
                    "rules/**",
                    "commands/**",
                    "agents/**",
                    "skills/**",
                    "output-styles/**",
                    "workflows/**",
                    "projects/**/memory/**",
                    "agent-memory/**",
                    "loop.md",
                    "scheduled_tasks.json",
                )
            ),
        ),
        own_questions=OwnQuestions(
            ("-p", "--print"),
            ("--dangerously-skip-permissions", "--permission-mode", "--permission-prompt-tool"),
            "with -p, claude refuses each command that it would ask about, in a cell too; to rely on the cell instead: "
            "-- --dangerously-skip-permissions",
        ),
        hosts=("api.anthropic.com", "platform.claude.com", "claude.ai"),
    )


CLAUDE = Agent(
    "claude", "Claude Code", "claude", "npm install -g @anthropic-ai/claude-code", _reads, _setup, _snippet, _cell
)
