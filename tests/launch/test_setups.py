"""Tests of what each agent is started with, as values: no process is started and no file is read."""

from __future__ import annotations

import json
import shlex
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aileron.launch.agent import AileronServer, Gateway, LaunchRequest, Setup
from aileron.launch.agents import AGENTS
from aileron.model.failure import AileronError

SERVER = AileronServer(("/opt/aileron/bin/aileron-mcp",), "/home/mira/.aileron")
TOKEN = "ail_" + "t" * 43
URL = "http://localhost:8721"
PLAIN = Gateway(URL)
KEPT = Gateway(URL, frozenset({"anthropic", "openai"}))
NAMES = list(AGENTS)
NASTY = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1, max_size=40)


def setup(
    name: str,
    *arguments: str,
    gateway: Gateway | None = PLAIN,
    server: AileronServer = SERVER,
    files: Mapping[str, str] | None = None,
    variables: Mapping[str, str] | None = None,
    **environment: str,
) -> Setup:
    """Return the setup of one launch of an agent in mira's home. The environment gets `variables` too."""
    found = {Path(path): text for path, text in (files or {}).items()}
    return AGENTS[name].setup(
        LaunchRequest(
            server, TOKEN, gateway, {"HOME": "/home/mira", **(variables or {}), **environment}, arguments, found
        )
    )


def codex_keys(of: Setup) -> dict[str, Any]:
    """Return the `-c` options as the one table that they make when laid over each other."""
    options = list(of.arguments)
    text = "\n".join(options[at + 1] for at, word in enumerate(options) if word == "-c")
    return tomllib.loads(text)


def claude_server(of: Setup) -> dict[str, Any]:
    """Return what `--mcp-config` says about Aileron's server."""
    (option,) = [word for word in of.arguments if word.startswith("--mcp-config=")]
    entry: dict[str, Any] = json.loads(option.partition("=")[2])["mcpServers"]["aileron"]
    return entry


def pi_told(of: Setup) -> dict[str, Any]:
    """Return what the extension reads."""
    told: dict[str, Any] = json.loads(of.variables["AILERON_PI"])
    return told


# All agents


@pytest.mark.abuse_case("A9")
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("gateway", [None, PLAIN, KEPT], ids=["no gateway", "plain", "kept"])
def test_no_argument_holds_the_token(name: str, gateway: Gateway | None) -> None:
    """Every user of the machine can read the arguments of every process."""
    words = ("run",) if name == "goose" else ()

    assert TOKEN not in " ".join(setup(name, *words, gateway=gateway).arguments)


@pytest.mark.parametrize("name", NAMES)
def test_a_printed_setup_shows_no_token(name: str) -> None:
    """The repr of a launch request has neither token nor key."""
    asked = LaunchRequest(SERVER, TOKEN, KEPT, {"HOME": "/h", "OPENAI_API_KEY": "sk-mine"})

    assert TOKEN not in repr(asked) + repr(AGENTS[name].setup(asked))
    assert "sk-mine" not in repr(asked)


@pytest.mark.parametrize("name", NAMES)
def test_the_users_arguments_come_last_and_unchanged(name: str) -> None:
    """The agent's last option wins, so the user's does."""
    words = ("run", "--flag", "a b", "-c", "x=1", "--", "--not-ours")

    assert setup(name, *words).arguments[-len(words) + 1 :] == words[1:]
    assert setup(name, *words).arguments.count("run") == 1


@pytest.mark.parametrize("name", NAMES)
def test_a_setup_without_a_gateway_sets_no_model_address(name: str) -> None:
    """A launch with a gateway sets one."""
    without, with_one = (setup(name, "run", gateway=gateway) for gateway in (None, PLAIN))

    assert URL not in json.dumps([without.arguments, dict(without.variables)])
    assert URL in json.dumps([with_one.arguments, dict(with_one.variables)])


@pytest.mark.parametrize("name", NAMES)
def test_the_users_model_key_is_replaced_only_if_the_vault_has_a_key(name: str) -> None:
    """Otherwise the agent keeps the key that the user set."""
    own = {"ANTHROPIC_API_KEY": "sk-a", "OPENAI_API_KEY": "sk-o", "CODEX_API_KEY": "sk-c"}
    plain, kept = (setup(name, "run", gateway=gateway, variables=own) for gateway in (PLAIN, KEPT))

    assert not own.keys() & (plain.variables.keys() | set(plain.unset))
    assert "sk-" not in json.dumps([kept.arguments, dict(kept.variables)])
    if name in ("claude", "opencode", "goose"):
        assert TOKEN in json.dumps(dict(kept.variables))


@pytest.mark.parametrize("name", NAMES)
@given(path=NASTY, home=NASTY)
def test_any_path_is_quoted_correctly_for_each_agent_or_refused(name: str, path: str, home: str) -> None:
    """A path that was quoted for an agent reads back unchanged."""
    server = AileronServer(("/" + path, "-P"), "/" + home)
    if name == "goose" and ("=" in path or ("'" in path and ('"' in path or "\\" in path))):
        with pytest.raises(AileronError, match="install Aileron under another path"):
            setup(name, "run", server=server)
        return
    of = setup(name, "run", server=server)
    match name:
        case "claude":
            entry = claude_server(of)
            command = [entry["command"], *entry["args"]]
        case "codex":
            entry = codex_keys(of)["mcp_servers"]["aileron"]
            command = [entry["command"], *entry["args"]]
            assert entry["env"] == {"AILERON_HOME": "/" + home}
        case "opencode":
            command = json.loads(of.variables["OPENCODE_CONFIG_CONTENT"])["mcp"]["aileron"]["command"]
        case "goose":
            command = shlex.split(of.arguments[2].removeprefix("aileron:"))
        case _:
            entry = pi_told(of)["server"]
            command = [entry["command"], *entry["args"]]

    assert tuple(command) == server.command


@pytest.mark.parametrize("name", NAMES)
def test_loopback_is_excluded_from_the_users_http_proxy(name: str) -> None:
    """The setup changes only if a proxy is set; the user's own exceptions stay."""
    through = setup(name, "run", http_proxy="http://proxy:3128", no_proxy="intranet")
    without_one = setup(name, "run")

    assert through.variables["no_proxy"] == "intranet,localhost,127.0.0.1,::1" == through.variables["NO_PROXY"]
    assert "no_proxy" not in without_one.variables
    assert "no_proxy" not in setup(name, "run", http_proxy="http://proxy:3128", NO_PROXY="*").variables


# Snippets to paste


def test_every_printed_configuration_snippet_is_valid_in_its_files_format() -> None:
    """Each parses, and states the same: this program, this home, no token."""
    server = AileronServer(("/opt/a b/aileron-mcp",), "/home/mïra/é")
    texts = {name: agent.snippet(server).text for name, agent in AGENTS.items()}
    claude = json.loads(texts["claude"])["mcpServers"]["aileron"]
    codex = tomllib.loads(texts["codex"])["mcp_servers"]["aileron"]
    opencode = json.loads(texts["opencode"])["mcp"]["aileron"]
    goose = _yaml(texts["goose"])["extensions"]["aileron"]
    pi = json.loads(texts["pi"])["mcpServers"]["aileron"]

    assert [claude["command"], codex["command"], opencode["command"][0], goose["cmd"], pi["command"]] == [
        server.command[0]
    ] * 5
    homes = [claude["env"], codex["env"], opencode["environment"], goose["envs"], pi["env"]]
    assert homes == [{"AILERON_HOME": server.home}] * 5
    assert (goose["enabled"], goose["timeout"], goose["args"]) == (True, 300, [])


def _yaml(text: str) -> dict[str, Any]:
    """Parse the part of YAML 1.2 that is written: maps by indentation, whose leaves are JSON or plain words."""
    root: dict[str, Any] = {}
    within = [(-1, root)]
    for line in text.splitlines():
        indent = len(line) - len(line.lstrip(" "))
        key, _, value = line.strip().partition(":")
        while indent <= within[-1][0]:
            within.pop()
        if value:
            try:
                within[-1][1][key] = json.loads(value)
            except ValueError:
                within[-1][1][key] = value.strip()
        else:
            inner: dict[str, Any] = {}
            within[-1][1][key] = inner
            within.append((indent, inner))
    return root


# Claude Code


def test_claude_gets_one_mcp_server_and_permission_for_only_its_tools() -> None:
    """Variables are named, not spelled out; the options end where the user's begin."""
    of = setup("claude", "a prompt that is no file")

    assert claude_server(of)["env"] == {
        "AILERON_HOME": "${AILERON_HOME}",
        "AILERON_SESSION_TOKEN": "${AILERON_SESSION_TOKEN}",
    }
    assert of.arguments[1:] == ("--allowedTools=mcp__aileron", "a prompt that is no file")
    assert of.variables == {"ANTHROPIC_BASE_URL": URL}


def test_claude_sends_the_session_token_if_the_vault_has_the_key() -> None:
    """The token is not in ANTHROPIC_API_KEY, about which claude would ask; claude's own key is not sent with it."""
    of = setup("claude", gateway=KEPT, ANTHROPIC_API_KEY="sk-mine")

    assert of.variables["ANTHROPIC_AUTH_TOKEN"] == TOKEN
    assert of.unset == ("ANTHROPIC_API_KEY",)


def test_a_model_address_set_by_the_user_stays_and_is_noted() -> None:
    """The user's key is kept too. The gateway's address from an outer launch does not count as the user's."""
    theirs = setup("claude", gateway=KEPT, ANTHROPIC_BASE_URL="https://proxy.example.com")
    inner = setup("claude", gateway=KEPT, ANTHROPIC_BASE_URL=f"{URL}/v1")

    near = setup("claude", ANTHROPIC_BASE_URL=f"{URL}0")

    assert dict(theirs.variables) == dict(near.variables) == {}
    assert theirs.unset == ()
    assert "ANTHROPIC_BASE_URL is set" in theirs.notes[0]
    assert inner.variables["ANTHROPIC_BASE_URL"] == URL


# Codex CLI


def test_codex_requires_the_mcp_server_and_may_call_it_without_asking() -> None:
    """codex follows changes, gets the token by its name, and has no setting about its other tools."""
    keys = codex_keys(setup("codex", "exec"))
    server = keys["mcp_servers"]["aileron"]

    assert server["required"] is True
    assert server["default_tools_approval_mode"] == "approve"
    assert server["env_vars"] == ["AILERON_SESSION_TOKEN"]
    assert keys["features"] == {"mcp_tool_list_changed": True}
    assert keys["openai_base_url"] == f"{URL}/v1"
    assert set(keys) == {"mcp_servers", "features", "openai_base_url"}


def test_codex_gets_a_provider_if_the_vault_has_the_key() -> None:
    """The provider takes the token from the environment."""
    keys = codex_keys(setup("codex", gateway=KEPT))

    assert keys["model_provider"] == "aileron"
    provider = keys["model_providers"]["aileron"]
    assert (provider["base_url"], provider["env_key"]) == (f"{URL}/v1", "AILERON_SESSION_TOKEN")


@pytest.mark.parametrize(
    ("file", "text", "words"),
    [
        ("config.toml", 'openai_base_url = "https://proxy.example.com/v1"', "openai_base_url"),
        ("config.toml", 'model_provider = "azure"', "'azure'"),
        ("auth.json", '{"OPENAI_API_KEY": null, "tokens": {"access_token": "secret"}}', "signed in"),
    ],
)
@pytest.mark.parametrize("directory", ["/home/mira/.codex", "/elsewhere"])
def test_codex_keeps_the_model_provider_that_the_user_chose(file: str, text: str, words: str, directory: str) -> None:
    """The user chose a provider, an address or an account; the note has no secret of the account."""
    home = {} if directory.startswith("/home") else {"CODEX_HOME": directory}
    of = setup("codex", files={f"{directory}/{file}": text}, variables=home)

    assert "openai_base_url" not in codex_keys(of)
    assert words in of.notes[0]
    assert "secret" not in of.notes[0]


def test_codex_with_a_key_in_a_variable_is_not_treated_as_signed_in() -> None:
    """The variable takes precedence over the account, and a damaged account file is ignored."""
    auth = {"/home/mira/.codex/auth.json": '{"tokens": {"access_token": "x"}}', "/home/mira/.codex/config.toml": "= ="}

    assert "openai_base_url" in codex_keys(setup("codex", files=auth, CODEX_API_KEY="sk"))


# opencode


def test_opencode_gets_a_server_beside_the_users_configuration() -> None:
    """Other keys and other servers stay."""
    own = {"theme": "x", "mcp": {"other": {"type": "local", "command": ["o"]}}, "provider": {"anthropic": {"a": 1}}}
    of = setup("opencode", OPENCODE_CONFIG_CONTENT=json.dumps(own))
    found = json.loads(of.variables["OPENCODE_CONFIG_CONTENT"])

    assert found["mcp"].pop("aileron")["enabled"] is True
    assert found == own
    assert (of.variables["ANTHROPIC_BASE_URL"], of.variables["OPENAI_BASE_URL"]) == (f"{URL}/v1", f"{URL}/v1")


def test_opencode_gets_providers_if_the_vault_has_their_keys() -> None:
    """An address of the user's there stays: the session's token is not sent to it."""
    own = {"provider": {"openai": {"options": {"baseURL": "https://proxy.example.com"}}}}
    of = setup("opencode", gateway=KEPT, OPENCODE_CONFIG_CONTENT=json.dumps(own))
    providers = json.loads(of.variables["OPENCODE_CONFIG_CONTENT"])["provider"]

    assert providers["anthropic"]["options"] == {"baseURL": f"{URL}/v1", "apiKey": TOKEN}
    assert providers["openai"]["options"] == {"baseURL": "https://proxy.example.com"}
    assert any("OPENCODE_CONFIG_CONTENT sets an address for openai" in note for note in of.notes)
    assert "ANTHROPIC_BASE_URL" not in of.variables


def test_opencode_keeps_a_server_of_the_user_that_has_the_name_of_aileron_s_server() -> None:
    """The user's server stays, and a note says so."""
    own = {"mcp": {"aileron": {"type": "local", "command": ["theirs"]}}}
    of = setup("opencode", OPENCODE_CONFIG_CONTENT=json.dumps(own))

    assert json.loads(of.variables["OPENCODE_CONFIG_CONTENT"]) == own
    assert "is left unchanged" in of.notes[0]


@pytest.mark.parametrize("text", ["{ // a comment\n}", "[]", '{"mcp": 1}', '{"provider": {"anthropic": []}}'])
def test_opencode_is_not_started_if_its_configuration_cannot_be_extended(text: str) -> None:
    """The error names the variable to change."""
    with pytest.raises(AileronError, match="OPENCODE_CONFIG"):
        setup("opencode", gateway=KEPT, OPENCODE_CONFIG_CONTENT=text)


# goose


def test_goose_gets_its_extension_option_after_its_subcommand() -> None:
    """`goose` without arguments means `goose session`."""
    option = ("--with-extension", "aileron:/opt/aileron/bin/aileron-mcp")

    assert setup("goose", "run", "-t", "hi").arguments == ("run", *option, "-t", "hi")
    assert setup("goose", "session", "--name", "x").arguments == ("session", *option, "--name", "x")
    assert setup("goose").arguments == ("session", *option)


@pytest.mark.parametrize("words", [("configure",), ("session", "list"), ("serve",), ("--version",)])
def test_goose_subcommands_without_the_extension_option_start_unchanged(words: tuple[str, ...]) -> None:
    """They do not have the option."""
    assert setup("goose", *words).arguments == words


@pytest.mark.parametrize(
    ("text", "is_theirs"),
    [
        ("extensions:\n  aileron:\n    enabled: true\n    type: stdio\n", True),
        ("extensions:\n  aileron:\n    type: stdio\n  other:\n    enabled: false\n", True),
        ("extensions:\n  aileron:\n    enabled: false\n    type: stdio\n", False),
        ("extensions:\n  other:\n    name: aileron\n", False),
        ("", False),
    ],
)
def test_goose_keeps_a_server_of_the_user_that_has_the_name_of_aileron_s_server(text: str, is_theirs: bool) -> None:
    """Two servers of one name would make goose exit; a disabled one does not count."""
    of = setup("goose", "run", files={"/home/mira/.config/goose/config.yaml": text})

    assert ("--with-extension" not in of.arguments) is is_theirs
    assert ("is left unchanged" in " ".join(of.notes)) is is_theirs


def test_goose_keeps_the_model_address_in_its_configuration() -> None:
    """The address counts for its own provider only; a variable of another name counts as well."""
    file = {"/x/goose/config.yaml": "GOOSE_MODEL: m\nOPENAI_HOST: https://proxy.example.com\n"}
    configured = setup("goose", "run", gateway=KEPT, files=file, XDG_CONFIG_HOME="/x")
    named = setup("goose", "run", OPENAI_BASE_URL="https://proxy.example.com/v1")

    assert dict(configured.variables) == {"ANTHROPIC_HOST": URL, "ANTHROPIC_API_KEY": TOKEN}
    assert dict(named.variables) == {"ANTHROPIC_HOST": URL}


# pi


def test_pi_gets_an_extension_and_the_token_in_a_variable() -> None:
    """The extension's file exists; the token is not in its configuration, but in its own variable."""
    of = setup("pi", "-p", "hi")

    assert of.arguments[0] == "-e"
    assert Path(of.arguments[1]).is_file()
    assert pi_told(of)["providers"] == {
        "anthropic": {"baseUrl": URL, "keyFromToken": False},
        "openai": {"baseUrl": f"{URL}/v1", "keyFromToken": False},
    }
    assert pi_told(setup("pi", gateway=KEPT))["providers"]["openai"]["keyFromToken"] is True
    assert TOKEN not in json.dumps(dict(setup("pi", gateway=KEPT).variables))


def test_pi_keeps_no_compiled_copy_of_the_extension_in_a_public_folder() -> None:
    """The variable JITI_FS_CACHE turns the compiler's cache off; the user's own value stays."""
    assert setup("pi").variables["JITI_FS_CACHE"] == "false"
    assert "JITI_FS_CACHE" not in setup("pi", JITI_FS_CACHE="true").variables


@pytest.mark.parametrize(
    "text",
    ['{"providers": {"openai": {"baseUrl": "https://p"}}}', '{ // mine\n "providers": {"openai": {"baseUrl": 1}}}'],
)
def test_pi_keeps_the_model_address_in_its_configuration(text: str) -> None:
    """The file may have comments."""
    of = setup("pi", files={"/agent/models.json": text}, PI_CODING_AGENT_DIR="/agent")

    assert set(pi_told(of)["providers"]) == {"anthropic"}
    assert "openai" in of.notes[0]


def test_pi_subcommands_start_without_the_extension() -> None:
    """They load no extension."""
    assert setup("pi", "mcp", "list").arguments == ("mcp", "list")
