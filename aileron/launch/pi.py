"""pi. The server and the gateway are registered by an extension (`-e pi_extension.js`), which lasts as long as the
session and writes no file.

Pure. No option and no variable of pi can specify a server or an address; its files can, and so can an extension that
is given on the command line. The extension reads one variable, AILERON_PI, with the server and addresses to register;
the token is in its own variable. A server with Aileron's name in the user's `mcp.json` overrides the extension's, and
is started with the same environment. The extension would override an address in `models.json`, so a provider with an
address there is left alone.

Tools are declared directly (`exposure: direct`). If the tools could be called only from scripts (`codemode`), an
agent's calls would be visible later and in fewer places.

JITI_FS_CACHE=false: otherwise the loader of extensions would store a copy of this extension in /tmp under a
predictable name, and run that.

Source: docs/reference/agents.md. Not here: projects' own files; pi decides whether to trust them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TypedDict

from aileron.launch.agent import (
    CALL_S,
    HOME_VARIABLE,
    NAME,
    Agent,
    AileronServer,
    CellNeeds,
    Executes,
    KeyFile,
    LaunchRequest,
    Setup,
    Snippet,
    home_of,
    not_through,
    providers_of_json,
    without_proxy,
)

__all__ = ["PI"]

_EXTENSION = Path(__file__).with_name("pi_extension.js")
_VARIABLE = "AILERON_PI"
_WITHOUT_SESSION = {"install", "remove", "uninstall", "update", "list", "config", "auth", "mcp"}
_PATHS = {"anthropic": "", "openai": "/v1"}
"""Path to append to the gateway's address, by provider. One of pi's libraries adds `/v1` itself."""


def _reads(environment: Mapping[str, str]) -> tuple[Path, ...]:
    directory = _directory(environment)
    return (directory / "models.json", directory / "auth.json")


def _directory(environment: Mapping[str, str]) -> Path:
    return Path(environment.get("PI_CODING_AGENT_DIR") or home_of(environment) / ".pi" / "agent")


def _setup(asked: LaunchRequest) -> Setup:
    if _WITHOUT_SESSION.intersection(asked.arguments[:1]):
        return Setup(
            asked.arguments, {}, (), (f"`pi {asked.arguments[0]}` does not start a session, so it has no actions",)
        )
    providers, notes = _providers(asked)
    told = {"name": NAME, "server": _entry(asked.server, {HOME_VARIABLE: asked.server.home}), "providers": providers}
    variables = {_VARIABLE: json.dumps(told), **without_proxy(asked)}
    if "JITI_FS_CACHE" not in asked.environment:
        variables["JITI_FS_CACHE"] = "false"
    from_vault = frozenset(name for name, told_of_one in providers.items() if told_of_one["keyFromToken"])
    return Setup(("-e", str(_EXTENSION), *asked.arguments), variables, (), notes, from_vault)


class _Provider(TypedDict):
    """The address of a provider, and whether its key comes from the vault, as the extension reads them."""

    baseUrl: str
    keyFromToken: bool


def _providers(asked: LaunchRequest) -> tuple[dict[str, _Provider], tuple[str, ...]]:
    if asked.gateway is None:
        return {}, ()
    path, _ = _reads(asked.environment)
    own = _with_address(asked.files.get(path, ""))
    providers: dict[str, _Provider] = {
        provider: {"baseUrl": asked.gateway.url + behind, "keyFromToken": asked.has_kept_key(provider)}
        for provider, behind in _PATHS.items()
        if provider not in own
    }
    return providers, tuple(
        not_through(f"pi's models.json sets an address for {name}") for name in _PATHS if name in own
    )


def _with_address(text: str) -> set[str]:
    """Return the providers for which the user set an address in models.json."""
    try:
        found = json.loads(text) if text.strip() else {}
        providers = found.get("providers", {})
        return {name for name, provider in providers.items() if "baseUrl" in provider}
    except (ValueError, AttributeError, TypeError):  # comments in it: then any provider that it names might have one
        return {name for name in _PATHS if re.search(rf'"{name}"\s*:', text)}


def _entry(server: AileronServer, environment: Mapping[str, str]) -> dict[str, object]:
    program, *arguments = server.command
    return {
        "command": program,
        "args": arguments,
        "env": dict(environment),
        "timeout": CALL_S,
        "exposure": "direct",
    }


def _snippet(server: AileronServer) -> Snippet:
    entry = _entry(server, {HOME_VARIABLE: server.home})
    return Snippet("~/.pi/agent/mcp.json", json.dumps({"mcpServers": {NAME: entry}}, indent=2, ensure_ascii=False))


def _cell(environment: Mapping[str, str]) -> CellNeeds:
    directory = _directory(environment)
    keys = {"anthropic": ("ANTHROPIC_API_KEY", "ANTHROPIC_OAUTH_TOKEN"), "openai": ("OPENAI_API_KEY",)}
    return CellNeeds(
        directories=(directory,),
        readable=(home_of(environment) / ".agents",),
        fixed=(directory / "bin",),
        prefixes=("PI_", "ANTHROPIC_", "OPENAI_", "JITI_"),
        keys={provider: (names, ()) for provider, names in keys.items()},
        key_files=(KeyFile(_reads(environment)[1], providers_of_json),),
        variables={"PI_SKIP_VERSION_CHECK": "1"},
        executes=(
            *(
                Executes(str(directory / name), "commands, servers, packages and commands for keys")
                for name in ("settings.json", "mcp*.json", "models*.json", "auth.json", "trust.json")
            ),
            *(
                Executes(str(directory / name), "code that it loads")
                for name in (
                    "extensions/**",
                    "hooks/**",
                    "tools/**",
                    "npm/**",
                    "git/**",
                    "commands/**",
                    "packages/**",
                    "node_modules/**",
                    "package.json",
                    "bin/**",
                    "*.sh",
                    "*.py",
                    "*.js",
                    "*.mjs",
                    "*.ts",
                )
            ),
            *(
                Executes(str(directory / name), "instructions for later sessions")
                for name in (
                    "AGENTS*",
                    "CLAUDE*",
                    "SYSTEM.md",
                    "APPEND_SYSTEM.md",
                    "skills/**",
                    "prompts/**",
                    "agents/**",
                )
            ),
        ),
        hosts=("api.anthropic.com", "api.openai.com"),
    )


PI = Agent("pi", "pi", "pi", "npm install -g @earendil-works/pi-coding-agent", _reads, _setup, _snippet, _cell)
