"""goose. The server is registered by `--with-extension`, which adds it to the user's extensions; the gateway is set
by OPENAI_HOST and ANTHROPIC_HOST.

Pure. The option belongs to the subcommands `run` and `session` (the default if none is given), so it is put after that
word. The other subcommands do not have it, and are started unchanged. Two extensions of the same name make goose fail.
So if its configuration has an extension with Aileron's name, that extension is used, and is started with the same
environment. goose splits the option's value by itself: it knows both kinds of quotes, but not one inside the other, and
takes a word with `=` for a variable. A path that contains these characters is refused.

Its configuration is YAML. Only the beginnings of its lines are read here, as goose writes them; no file is written.

Source: docs/reference/agents.md. Not here: GOOSE_MODE, which the user sets.
"""

from __future__ import annotations

import json
import re
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
    without_proxy,
    xdg_directory,
)
from aileron.model.failure import AileronError, FailureClass

__all__ = ["GOOSE"]

_TAKE_EXTENSIONS = {"run", "session", "s"}
_OF_SESSION = {"list", "remove", "export", "import", "diagnostics", "help"}
_HOSTS = {
    "openai": ("OPENAI_HOST", "OPENAI_API_KEY", ("OPENAI_BASE_URL",)),
    "anthropic": ("ANTHROPIC_HOST", "ANTHROPIC_API_KEY", ()),
}
"""Names of goose's environment variables for each provider: the variable with its address, the variable with its key,
and other variables that set the address.
"""
_OWN = re.compile(rf"^ +{NAME}:\s*$(?P<rest>(?:\n(?! {{0,2}}\S).*)*)", re.MULTILINE)
"""Pattern of the extension with Aileron's name in goose's configuration, with its lines, which goose indents by more
than two spaces.
"""
_SECRET = re.compile(r"([A-Za-z_]\w*):(?:\s|$)", re.ASCII)
_NO_SECRET = re.compile(r"\s|#|---\s*$|$")
"""Pattern of lines that do not begin a secret: a value below its name, a comment, the start of a document, or an empty line.
"""
_IS_OFF = re.compile(r"^\s+enabled:\s*false\s*$", re.MULTILINE)


def _reads(environment: Mapping[str, str]) -> tuple[Path, ...]:
    if root := environment.get("GOOSE_PATH_ROOT"):
        directory = Path(root) / "config"
    else:
        directory = Path(environment.get("XDG_CONFIG_HOME") or home_of(environment) / ".config") / "goose"
    return (directory / "config.yaml", directory / "secrets.yaml")


def _setup(asked: LaunchRequest) -> Setup:
    path, _ = _reads(asked.environment)
    configured = asked.files.get(path, "")
    variables: dict[str, str] = {}
    notes: list[str] = []
    for provider in _HOSTS:
        of_one, note = _host(asked, provider, configured)
        variables |= of_one
        notes += note
    from_vault = frozenset(provider for provider, (_, key, _) in _HOSTS.items() if key in variables)
    arguments, note = _with_extension(asked, configured)
    return Setup(arguments, {**variables, **without_proxy(asked)}, (), (*note, *notes), from_vault)


def _with_extension(asked: LaunchRequest, configured: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    subcommand, *rest = asked.arguments or ("session",)
    if subcommand not in _TAKE_EXTENSIONS or (subcommand != "run" and _OF_SESSION.intersection(rest[:1])):
        note = f"goose supports servers with `run` and `session` only: {subcommand!r} starts without actions"
        return asked.arguments, (note,) if not subcommand.startswith("-") else ()
    if (own := _OWN.search(configured)) and not _IS_OFF.search(own["rest"]):
        note = f"goose's configuration already has a server {NAME!r}, which is left unchanged"
        return (subcommand, *rest), (note,)
    return (subcommand, "--with-extension", f"{NAME}:{_quoted(asked.server.command)}", *rest), ()


def _quoted(command: tuple[str, ...]) -> str:
    if "=" in command[0]:
        raise _unusable(command[0], "=")
    return " ".join(_quoted_word(word) for word in command)


def _quoted_word(word: str) -> str:
    if re.fullmatch(r"[\w@%+:,./-]+", word, re.ASCII):
        return word
    if "'" not in word:
        return f"'{word}'"
    if '"' not in word and "\\" not in word:
        return f'"{word}"'
    raise _unusable(word, "quotes of both kinds, or of one and a backslash,")


def _unusable(path: str, what: str) -> AileronError:
    message = f"goose cannot start {path!r}, because it contains {what}: install Aileron under another path"
    return AileronError(FailureClass.INVALID_REQUEST, message)


def _host(asked: LaunchRequest, provider: str, configured: str) -> tuple[dict[str, str], tuple[str, ...]]:
    variable, key, others = _HOSTS[provider]
    if asked.gateway is not None:
        for other in (variable, *others):
            if re.search(rf"^{other}:", configured, re.MULTILINE):
                return {}, (not_through(f"{other} is set in goose's configuration"),)
        for other in others:
            if asked.says(other):
                return {}, (not_through(f"{other} is set"),)
    address, notes = base_url_of(asked, variable)
    return ({**address, key: asked.token} if address and asked.has_kept_key(provider) else address), notes


def _providers_of_secrets(text: str) -> frozenset[str] | None:
    """Return the providers whose keys are in secrets.yaml, and for an unknown provider the name of the key's variable.
    Return None if the file cannot be read. goose writes names of variables, each with its value on the same line or below.
    """
    if text.strip() in ("", "{}"):
        return frozenset()
    names = set()
    for line in text.splitlines():
        if match := _SECRET.match(line):
            names.add(match[1])
        elif not _NO_SECRET.match(line):
            return None
    of_providers = {key: provider for provider, (_, key, _) in _HOSTS.items()}
    return frozenset(of_providers.get(name, name) for name in names)


def _snippet(server: AileronServer) -> Snippet:
    program, *arguments = server.command
    lines = [
        "extensions:",
        f"  {NAME}:",
        "    enabled: true",
        "    type: stdio",
        f"    name: {NAME}",
        "    description: Actions through Aileron",
        # JSON is YAML, except for escaped characters beyond the BMP, which are not escaped here.
        f"    cmd: {json.dumps(program, ensure_ascii=False)}",
        f"    args: {json.dumps(arguments, ensure_ascii=False)}",
        f"    envs: {json.dumps({HOME_VARIABLE: server.home}, ensure_ascii=False)}",
        f"    timeout: {CALL_S}",
    ]
    return Snippet("~/.config/goose/config.yaml", "\n".join(lines))


def _cell(environment: Mapping[str, str]) -> CellNeeds:
    if root := environment.get("GOOSE_PATH_ROOT"):
        config, data, state = (Path(root) / name for name in ("config", "data", "state"))
    else:
        config = xdg_directory(environment, "XDG_CONFIG_HOME", ".config") / "goose"
        data = xdg_directory(environment, "XDG_DATA_HOME", ".local/share") / "goose"
        state = xdg_directory(environment, "XDG_STATE_HOME", ".local/state") / "goose"
    return CellNeeds(
        directories=(config, data, state),
        readable=(home_of(environment) / ".agents",),
        prefixes=("GOOSE_", "OPENAI_", "ANTHROPIC_"),
        keys={provider: ((key,), ()) for provider, (_, key, _) in _HOSTS.items()},
        key_files=(KeyFile(_reads(environment)[1], _providers_of_secrets),),
        variables={"GOOSE_DISABLE_KEYRING": "1"},
        executes=(
            *(
                Executes(str(config / name), "extensions and variables")
                for name in ("config.y*ml", "init-config.yaml", "profiles.yaml", "secrets.yaml", "plugins/**")
            ),
            *(
                Executes(str(config / name), "what runs without a question")
                for name in ("permission.yaml", "permissions/**")
            ),
            Executes(str(config / "*_providers/**"), "providers"),
            *(
                Executes(str(config / name), "programs that its configuration names")
                for name in ("hooks/**", "*.sh", "*.py", "*.js", "*.mjs", "*.ts")
            ),
            *(
                Executes(str(config / name), "instructions and commands for later sessions")
                for name in (
                    ".goosehints",
                    "AGENTS.md",
                    "memory/**",
                    "recipes/**",
                    "skills/**",
                    "prompts/**",
                    "agents/**",
                    "commands/**",
                )
            ),
            Executes(str(data / "**"), "apps, plugins and schedules"),
        ),
        hosts=("api.openai.com", "api.anthropic.com"),
        notes=("goose cannot reach the keyring in a cell: it looks for keys in its variables and in secrets.yaml",),
    )


GOOSE = Agent("goose", "goose", "goose", "npm install -g @aaif/goose-acp", _reads, _setup, _snippet, _cell)
