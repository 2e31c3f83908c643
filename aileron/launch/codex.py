"""Codex CLI. All settings are passed by `-c key=value`, which overrides the user's configuration. The user's own `-c`
options come later and take precedence.

Pure. The keys and their reasons:

- `required`: by default codex waits one second for a server and then begins without its tools; with this key it waits.
- `default_tools_approval_mode = "approve"`: without a terminal codex refuses every tool that is not read-only. The action
  decides whether a person is asked, and Aileron asks. The mode applies to this one server.
- `env_vars`: codex starts servers with an environment of seven variables. This key adds the token's variable by name, so its
  value is not an argument.
- `features.mcp_tool_list_changed`: without it codex does not see an action that is added while it runs. It is given as a
  feature's key, because the option `--enable` fails if a version does not know the name.

The gateway is set by `openai_base_url` if the key is codex's own. If the vault has the key, the gateway is a separate
provider with Aileron's name, which takes the session's token from the environment: codex's own provider reads a key
from there only without a terminal. A codex that is signed in with an account uses another address and another
protocol, which are left alone.

In a cell codex's own sandbox is off: codex uses bubblewrap, for which a cell has no user namespaces, and every
command would fail with `Creating new namespace failed` (seen with 0.169.0). `sandbox_mode` turns it off and keeps its
questions; `--dangerously-bypass-approvals-and-sandbox` would turn them off, too.

Source: docs/reference/agents.md. Not here: profiles, which the user chooses.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping
from pathlib import Path

from aileron.launch.agent import (
    CALL_S,
    HOME_VARIABLE,
    NAME,
    TOKEN_VARIABLE,
    Agent,
    AileronServer,
    CellNeeds,
    Executes,
    LaunchRequest,
    Setup,
    Snippet,
    home_of,
    not_through,
    without_proxy,
)
from aileron.model.json_value import JSONObject

__all__ = ["CODEX"]

_PROVIDER = {"name": "OpenAI through Aileron", "env_key": TOKEN_VARIABLE, "wire_api": "responses"}


def _reads(environment: Mapping[str, str]) -> tuple[Path, ...]:
    home = Path(environment.get("CODEX_HOME") or home_of(environment) / ".codex")
    return (home / "config.toml", home / "auth.json")


def _setup(asked: LaunchRequest) -> Setup:
    keys, notes = _gateway(asked)
    server = {f"mcp_servers.{NAME}.{key}": value for key, value in _server(asked.server).items()}
    server[f"mcp_servers.{NAME}.env_vars"] = [TOKEN_VARIABLE]
    keys = {**server, "features.mcp_tool_list_changed": True, **keys}
    options = [word for key, value in keys.items() for word in ("-c", f"{key}={_toml(value)}")]
    from_vault = frozenset({"openai"} if "model_provider" in keys else ())
    return Setup((*options, *asked.arguments), without_proxy(asked), (), notes, from_vault)


def _server(server: AileronServer) -> dict[str, object]:
    program, *arguments = server.command
    return {
        "command": program,
        "args": arguments,
        "env": {HOME_VARIABLE: server.home},
        "required": True,
        "tool_timeout_sec": CALL_S,
        "default_tools_approval_mode": "approve",
    }


def _gateway(asked: LaunchRequest) -> tuple[dict[str, object], tuple[str, ...]]:
    if asked.gateway is None:
        return {}, ()
    base_url = f"{asked.gateway.url}/v1"
    configured, signed_in = (_parsed(asked.files.get(path)) for path in _reads(asked.environment))
    if "openai_base_url" in configured:
        return {}, (not_through("openai_base_url is set in codex's configuration"),)
    if (provider := configured.get("model_provider", "openai")) != "openai":
        return {}, (not_through(f"model_provider is set to {str(provider)!r} in codex's configuration"),)
    if asked.has_kept_key("openai"):
        return {f"model_providers.{NAME}": {**_PROVIDER, "base_url": base_url}, "model_provider": NAME}, ()
    if signed_in.get("tokens") and not asked.environment.get("CODEX_API_KEY"):
        return {}, (not_through("codex is signed in with an account, which uses an address of its own"),)
    return {"openai_base_url": base_url}, ()


def _parsed(text: str | None) -> JSONObject:
    """Parse TOML or a JSON object. Return an empty dict for any other text, because codex itself reports errors in its files."""
    if text is None:
        return {}
    try:
        found = json.loads(text) if text.lstrip().startswith("{") else tomllib.loads(text)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _snippet(server: AileronServer) -> Snippet:
    import tomlkit

    document = tomlkit.document()
    # Besides the home: variables that a container sets, see docs/how-to/use-aileron-in-a-container.md.
    more = {"env_vars": [TOKEN_VARIABLE, "AILERON_URL", "AILERON_CA_FILE"]}
    document["mcp_servers"] = {NAME: {**_server(server), **more}}
    return Snippet("~/.codex/config.toml", tomlkit.dumps(document).rstrip("\n"))


def _toml(value: object) -> str:
    import tomlkit  # 30 ms, but it quotes every string correctly

    if isinstance(value, dict):
        table = tomlkit.inline_table()
        table.update(value)
        value = table
    return str(tomlkit.item(value).as_string())


def _cell(environment: Mapping[str, str]) -> CellNeeds:
    directory = Path(environment.get("CODEX_HOME") or home_of(environment) / ".codex")
    return CellNeeds(
        directories=(directory,),
        readable=(home_of(environment) / ".agents",),
        fixed=(directory / "packages", directory / "bin"),
        prefixes=("CODEX_", "OPENAI_"),
        keys={"openai": (("OPENAI_API_KEY", "CODEX_API_KEY"), (directory / "auth.json",))},
        arguments=("-c", 'sandbox_mode="danger-full-access"'),
        executes=(
            Executes(str(directory / "*config.toml"), "notify, hooks, MCP servers and providers' commands"),
            *(Executes(str(directory / name), "hooks") for name in ("hooks*", "hooks/**")),
            Executes(str(directory / ".env"), "variables that it sets for itself"),
            *(Executes(str(directory / name), "its own programs") for name in ("packages/**", "bin/**")),
            *(
                Executes(str(directory / name), "programs that its configuration names")
                for name in ("*.sh", "*.py", "*.js", "*.mjs", "*.ts", "scripts/**")
            ),
            Executes(str(directory / "plugins/**"), "plugins"),
            Executes(str(directory / "rules/**"), "commands that run without a question"),
            Executes(str(directory / "shell_snapshots/**"), "a shell script that it loads"),
            *(
                Executes(str(directory / name), "instructions and scripts for later sessions")
                for name in (
                    "AGENTS*.md",
                    "instructions.md",
                    "skills/**",
                    "vendor_imports/**",
                    "prompts/**",
                    "agents/**",
                    "memories*/**",
                    "automations/**",
                )
            ),
        ),
        hosts=("api.openai.com", "chatgpt.com", "auth.openai.com"),
        notes=(
            "codex's own sandbox is off in a cell, which takes its place: for a project that it cannot change, --read-only",
        ),
    )


CODEX = Agent("codex", "Codex CLI", "codex", "npm install -g @openai/codex", _reads, _setup, _snippet, _cell)
