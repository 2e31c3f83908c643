"""opencode. The server is registered by OPENCODE_CONFIG_CONTENT, which overrides its files; the gateway is set by two
variables of its libraries.

Pure. The user's settings in OPENCODE_CONFIG_CONTENT stay, including a server with Aileron's name. ANTHROPIC_BASE_URL
and OPENAI_BASE_URL end in `/v1` here, because its libraries add only the rest of the path. An address in its files
overrides them, so the user's address stays. An address in the configuration would make a provider appear for which
there is no key. If the vault has the key, the provider should appear, so the address is then put into the
configuration, with the session's token.

Source: docs/reference/agents.md. Not here: `permission`, which the user sets; by default it allows calls of tools.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

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
    base_url_of,
    home_of,
    not_through,
    providers_of_json,
    without_proxy,
    xdg_directory,
)
from aileron.model.failure import AileronError, FailureClass
from aileron.model.json_value import JSONObject

__all__ = ["OPENCODE"]

_CONFIGURATION = "OPENCODE_CONFIG_CONTENT"
_BASE_URLS = {"anthropic": "ANTHROPIC_BASE_URL", "openai": "OPENAI_BASE_URL"}


def _reads(environment: Mapping[str, str]) -> tuple[Path, ...]:
    return (_data(environment) / "auth.json",)


def _data(environment: Mapping[str, str]) -> Path:
    return xdg_directory(environment, "XDG_DATA_HOME", ".local/share") / "opencode"


def _setup(asked: LaunchRequest) -> Setup:
    configuration = _of_the_user(asked.environment.get(_CONFIGURATION, ""))
    variables: dict[str, str] = {}
    notes: list[str] = []
    from_vault: set[str] = set()
    for provider, variable in _BASE_URLS.items():
        address, note = base_url_of(asked, variable, "/v1")
        notes += note
        if not address or not asked.has_kept_key(provider):
            variables |= address
            continue
        options = _table(_table(_table(configuration, "provider"), provider), "options")
        if options.setdefault("baseURL", address[variable]) != address[variable]:
            notes.append(not_through(f"{_CONFIGURATION} sets an address for {provider}"))
        elif options.setdefault("apiKey", asked.token) == asked.token:
            from_vault.add(provider)
    servers = _table(configuration, "mcp")
    if NAME in servers:
        notes.append(f"{_CONFIGURATION} already has a server {NAME!r}, which is left unchanged")
    servers.setdefault(NAME, _entry(asked.server, asked.server.environment(asked.token)))
    variables[_CONFIGURATION] = json.dumps(configuration)
    return Setup(asked.arguments, {**variables, **without_proxy(asked)}, (), tuple(notes), frozenset(from_vault))


def _of_the_user(text: str) -> JSONObject:
    try:
        found = json.loads(text) if text.strip() else {}
    except ValueError as error:
        raise _refused(f"is not JSON ({error})") from None
    if not isinstance(found, dict):
        raise _refused("is not a JSON object")
    return found


def _table(within: JSONObject, key: str) -> JSONObject:
    """Return the object that `within` has at `key`; add an empty object if there is none. Raises AileronError if the
    value there is not an object.
    """
    found = within.setdefault(key, {})
    if not isinstance(found, dict):
        raise _refused(f"has a value that is not an object at {key!r}")
    return found


def _refused(why: str) -> AileronError:
    message = (
        f"{_CONFIGURATION} {why}, so nothing can be added to it: put it in a file, and name that file in "
        "OPENCODE_CONFIG"
    )
    return AileronError(FailureClass.INVALID_REQUEST, message)


def _entry(server: AileronServer, environment: Mapping[str, str]) -> JSONObject:
    return {
        "type": "local",
        "command": list(server.command),
        "environment": dict(environment),
        "enabled": True,
        "timeout": CALL_S * 1000,
    }


def _snippet(server: AileronServer) -> Snippet:
    entry = _entry(server, {HOME_VARIABLE: server.home})
    text = json.dumps({"mcp": {NAME: entry}}, indent=2, ensure_ascii=False)
    return Snippet("~/.config/opencode/opencode.json, or opencode.json in a project", text)


def _cell(environment: Mapping[str, str]) -> CellNeeds:
    config = xdg_directory(environment, "XDG_CONFIG_HOME", ".config") / "opencode"
    data = _data(environment)
    state = xdg_directory(environment, "XDG_STATE_HOME", ".local/state") / "opencode"
    named = (Path(path) for name in ("OPENCODE_CONFIG", "OPENCODE_CONFIG_DIR") if (path := environment.get(name)))
    keys = {"anthropic": "ANTHROPIC_API_KEY", "openai": "OPENAI_API_KEY"}
    return CellNeeds(
        directories=(config, data, state),
        readable=(home_of(environment) / ".opencode", home_of(environment) / ".agents", *named),
        fixed=(data / "bin",),
        prefixes=("OPENCODE_", "ANTHROPIC_", "OPENAI_"),
        keys={provider: ((key,), ()) for provider, key in keys.items()},
        key_files=tuple(KeyFile(path, providers_of_json) for path in _reads(environment)),
        variables={"OPENCODE_DISABLE_AUTOUPDATE": "1"},
        executes=(
            *(
                Executes(str(config / name), "MCP servers, formatters and language servers")
                for name in ("opencode.json*", "config.json", "tui.json*")
            ),
            *(
                Executes(str(config / name), "code that it loads")
                for name in (
                    "plugin*/**",
                    "tool*/**",
                    "package.json",
                    "package-lock.json",
                    "bun.lock*",
                    "bunfig.toml",
                    ".npmrc",
                    "node_modules/**",
                    "*.sh",
                    "*.py",
                    "*.js",
                    "*.mjs",
                    "*.ts",
                )
            ),
            *(
                Executes(str(config / name), "instructions and commands for later sessions")
                for name in (
                    "AGENTS.md",
                    "CONTEXT.md",
                    "*.md",
                    "prompt*/**",
                    "rule*/**",
                    "command*/**",
                    "agent*/**",
                    "mode*/**",
                    "skill*/**",
                )
            ),
            Executes(str(data / "bin/**"), "language servers and other programs"),
            Executes(str(data / "auth.json"), "addresses from which it takes settings"),
        ),
        hosts=("api.anthropic.com", "api.openai.com", "opencode.ai", "models.dev"),
    )


OPENCODE = Agent("opencode", "opencode", "opencode", "npm install -g opencode-ai", _reads, _setup, _snippet, _cell)
