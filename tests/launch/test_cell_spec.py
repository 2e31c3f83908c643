"""Tests of what a cell shows, as values: which places of a home it has, which it has not, and which options are refused."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from aileron.cell.executes import matching
from aileron.launch.agents import AGENTS
from aileron.launch.cell_spec import CellOptions, CellRefused
from aileron.launch.credential_places import SECRET_IN_HOME
from aileron.launch.in_cell import LaunchSession
from aileron.launch.ways import resolved_below
from aileron.model.placeholder import CELL_PLACEHOLDER
from tests.launch.machines import Place

NAMES = list(AGENTS)
CREDENTIALS = [
    ".ssh/id_ed25519", ".gnupg/secring", ".aws/credentials", ".netrc", ".git-credentials", ".config/gh/hosts.yml", ".npmrc",
    ".docker/config.json", ".kube/config", ".mozilla/firefox/x/logins.json", ".local/share/keyrings/login.keyring",
    ".cargo/credentials.toml", ".bash_history", ".aileron/vault.json", "Documents/letter.txt", ".cache/pip/x",
]  # fmt: skip


@pytest.fixture
def place(tmp_path: Path) -> Place:
    """Make a new home."""
    return Place(tmp_path)


# The home


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("secret", CREDENTIALS)
def test_a_credential_in_the_home_directory_is_hidden(place: Place, name: str, secret: str) -> None:
    """Only listed paths of the home exist in the cell, such as the project beside it."""
    file = place.file(secret)
    cell = place.cell(name)

    assert place.shows(cell, file) == "nothing"
    assert place.shows(cell, place.project / "x") == "writable"
    assert cell.policy.home == str(place.home)


@pytest.mark.parametrize("name", NAMES)
def test_an_agent_can_write_its_own_settings_and_not_those_of_other_agents(place: Place, name: str) -> None:
    """The agent's module lists them, and missing ones are created; other agents' settings are hidden."""
    cell = place.cell(name)
    needs = {agent_name: agent.cell(place.environment) for agent_name, agent in AGENTS.items()}
    others = [path for agent_name, need in needs.items() if agent_name != name for path in need.directories]

    assert all(place.shows(cell, path / "x") == "writable" for path in needs[name].directories)
    assert all(place.shows(cell, path / "x") == "nothing" for path in others)
    assert {missing.path for missing in cell.missing if missing.is_directory} == {
        str(path) for path in needs[name].directories
    }
    assert cell.executes == needs[name].executes


def test_settings_moved_by_an_environment_variable_are_shown_at_their_new_place(place: Place) -> None:
    """A variable such as CLAUDE_CONFIG_DIR moves them; claude's state file then is in that folder too."""
    moved = place.home / "elsewhere"
    cell = place.cell(CLAUDE_CONFIG_DIR=str(moved))

    assert place.shows(cell, moved / "settings.json") == "writable"
    assert place.shows(cell, place.home / ".claude") == "nothing"
    assert [missing.is_directory for missing in cell.missing] == [True]


def test_settings_that_are_symbolic_links_are_mounted_at_the_links_path(place: Place) -> None:
    """The link's target is mounted at the link's path; other files beside the target stay hidden."""
    kept = place.home / "dotfiles" / "claude"
    kept.mkdir(parents=True)
    (place.home / ".claude").symlink_to(kept)
    cell = place.cell()

    assert [bind.source for bind in cell.policy.binds if bind.target == f"{place.home}/.claude"] == [str(kept)]
    assert place.shows(cell, place.home / "dotfiles" / "other") == "nothing"


def test_settings_that_are_symbolic_links_are_noted_for_the_person(place: Place) -> None:
    """A note tells the person where they are; settings without a link cause no note."""
    kept = place.home / "dotfiles" / "claude"
    kept.mkdir(parents=True)
    (place.home / ".claude").symlink_to(kept)

    assert f"{place.home}/.claude leads to {kept}, which the agent can write" in place.cell().notes
    assert [note for note in place.cell("codex").notes if "leads to" in note] == []


@pytest.mark.parametrize(
    ("target", "why"),
    [
        (".ssh", "a place of credentials"),
        (".ssh/keys", "a place of credentials"),
        (".config", "a place of credentials"),
        ("/usr/share", "a place of the system"),
        ("/opt", "a place of the system"),
        (".aileron", "which a cell does not show"),
        ("Documents", ""),
    ],
)
def test_settings_linked_to_a_folder_without_settings_are_refused(place: Place, target: str, why: str) -> None:
    """An agent may have replaced ~/.claude by a link to a folder that it wants to write. Other links work."""
    for name in (".ssh/keys", ".config/gh", "Documents", "dotfiles"):
        (place.home / name).mkdir(parents=True)
    (place.home / ".claude").symlink_to(place.home / "dotfiles" / "claude")
    (place.home / "dotfiles" / "claude").symlink_to(target if target.startswith("/") else place.home / target)

    if not why:
        assert place.shows(place.cell(), place.home / ".claude" / "x") == "writable"
        return
    with pytest.raises(CellRefused, match=why) as refused:
        place.cell()
    assert refused.value.fix


def test_settings_in_a_folder_that_an_earlier_cell_could_write_are_refused(place: Place) -> None:
    """A link there that leads out of the folder may be an agent's; one that stays inside is harmless."""
    dotfiles = place.home / "dotfiles"
    (dotfiles / "one").mkdir(parents=True)
    (place.home / "Documents").mkdir()
    (place.home / ".claude").symlink_to(dotfiles / "claude")
    (dotfiles / "claude").symlink_to("one")
    assert place.shows(place.cell(earlier=(dotfiles,)), place.home / ".claude" / "x") == "writable"

    (dotfiles / "claude").unlink()
    (dotfiles / "claude").symlink_to("../Documents")
    with pytest.raises(CellRefused, match="by a link in a folder that an agent in a cell could write"):
        place.cell(earlier=(dotfiles,))


@pytest.mark.parametrize("agent", ["claude", "codex"])
@pytest.mark.parametrize("is_on_the_way", [False, True])
def test_a_project_with_the_settings_of_any_agent_is_refused(place: Place, agent: str, is_on_the_way: bool) -> None:
    """An agent could edit them, or replace a link to them. The folder beside the settings is a valid project."""
    dotfiles, beside = place.home / "dotfiles", place.home / "beside"
    for path in (dotfiles, beside, place.home / "kept"):
        path.mkdir()
    (place.home / ".claude").symlink_to(dotfiles / "claude")
    if is_on_the_way:
        (dotfiles / "claude").symlink_to(place.home / "kept")
    else:
        (dotfiles / "claude").mkdir()

    assert place.shows(place.cell(agent, folder=beside), beside / "x") == "writable"
    with pytest.raises(CellRefused, match=r"contains .* settings") as refused:
        place.cell(agent, folder=dotfiles)
    assert refused.value.fix == "cd into the folder of one project"


def test_a_link_in_an_agents_settings_makes_no_further_file_visible_in_a_cell(place: Place) -> None:
    """Otherwise an agent could choose what its next cell shows. A note names the option for a link of the person's."""
    letter = place.file("Documents/letter.txt")
    (place.home / ".claude").mkdir()
    (place.home / ".claude" / "mine").symlink_to(letter)
    (place.home / ".claude" / "local").symlink_to(letter.parent)
    cell = place.cell()

    assert place.shows(cell, letter) == "nothing"
    assert [note for note in cell.notes if note.endswith(f"--allow-read {letter}")]
    allowed = place.cell(options=CellOptions(allow_read=(str(letter.parent),)))
    assert [note for note in allowed.notes if "not shown" in note] == []


@pytest.mark.parametrize("how", ["link", "pyvenv", "program"])
def test_programs_that_an_agent_left_in_a_project_make_no_further_folder_visible_in_a_cell(
    place: Place, how: str
) -> None:
    """Neither a link in a directory of PATH nor the path in a virtual environment shows a folder of the home."""
    private = place.home / "private"
    place.program(private / "bin" / "python3")
    (private / "lib").mkdir()
    scripts = place.project / ".venv" / "bin"
    scripts.mkdir(parents=True)
    (scripts / "python3").symlink_to(private / "bin" / "python3" if how != "pyvenv" else "/usr/bin/python3")
    (place.project / ".venv" / "pyvenv.cfg").write_text(f"home = {private}/bin\n" if how == "pyvenv" else "")
    program = scripts / "claude" if how == "program" else None
    if program is not None:
        place.program(program)
    cell = place.cell(program=program, PATH=f"{scripts}:{place.environment['PATH']}", VIRTUAL_ENV=str(scripts.parent))

    assert place.shows(cell, private / "lib" / "x") == "nothing"
    assert place.shows(cell, private / "bin" / "python3") == "nothing"


def test_a_python_of_pyenv_or_uv_is_shown_with_the_projects_virtual_environment(place: Place) -> None:
    """A Python installed by pyenv or uv is no secret, and the environment does not work without it."""
    python = place.program(place.home / ".pyenv" / "versions" / "3.11" / "bin" / "python3")
    scripts = place.project / ".venv" / "bin"
    scripts.mkdir(parents=True)
    (scripts / "python3").symlink_to(python)
    (place.project / ".venv" / "pyvenv.cfg").write_text(f"home = {python.parent}\n")
    cell = place.cell(PATH=f"{scripts}:{place.environment['PATH']}")

    assert place.shows(cell, python) == "read-only"
    assert place.shows(cell, scripts / "python3") == "writable"


ENVIRONMENTS = [
    (".venv", ".local/share/uv/python/cpython-3.12/bin/python3.12"),
    ("env", ".pyenv/versions/3.11/bin/python3"),
    ("packages/one/venv", "miniconda3/bin/python3"),
    (".tox/py312", ".asdf/installs/python/3.12/bin/python3"),
]


@pytest.mark.parametrize(("name", "python"), ENVIRONMENTS)
def test_the_python_of_a_projects_virtual_environment_is_shown_even_if_it_is_not_in_path(
    place: Place, name: str, python: str
) -> None:
    """The cell shows the Python that its link or pyvenv.cfg names; otherwise a tool would replace the environment."""
    program = place.program(place.home / python)
    scripts = place.project / name / "bin"
    scripts.mkdir(parents=True)
    assert place.shows(place.cell(), program) == "nothing"
    (scripts.parent / "pyvenv.cfg").write_text(f"home = {program.parent}\n")
    assert place.shows(place.cell(), program) == "read-only"

    (scripts.parent / "pyvenv.cfg").unlink()
    (scripts / "python").symlink_to(program)
    cell = place.cell()
    assert place.shows(cell, program) == "read-only"
    assert [note for note in cell.notes if "not shown" in note] == []


def test_the_persons_links_to_a_virtual_environments_python_are_shown(place: Place) -> None:
    """A link such as ~/python3 to a Python of uv's is shown, without the files beside it."""
    program = place.program(place.home / ".local/share/uv/python/cpython-3.12/bin/python3.12")
    (place.home / "python3").symlink_to(program)
    scripts = place.project / ".venv" / "bin"
    scripts.mkdir(parents=True)
    (scripts / "python").symlink_to(place.home / "python3")
    cell = place.cell()

    assert (str(place.home / "python3"), str(program)) in cell.policy.links
    assert not [path for path, _ in place.cell(folder=place.file("other/x").parent).policy.links if "python3" in path]


def test_a_virtual_environment_that_an_option_shows_comes_with_its_python(place: Place) -> None:
    """A note names the option that shows the target if .venv is a link, and that option shows its Python as well."""
    python = place.program(place.home / "pythons" / "3.12" / "bin" / "python3")
    kept = place.program(place.home / ".virtualenvs" / "app" / "bin" / "tool").parents[1]
    (kept / "pyvenv.cfg").write_text(f"home = {python.parent}\n")
    (place.project / ".venv").symlink_to(kept)
    cell = place.cell()
    allowed = place.cell(options=CellOptions(allow_read=(str(kept),)))

    assert [note for note in cell.notes if note.endswith(f"--allow-read {kept}")]
    assert place.shows(cell, python) == "nothing"
    assert place.shows(allowed, python) == "read-only"
    assert [note for note in allowed.notes if "not shown" in note] == []


def test_pythons_installed_by_uv_are_shown_in_a_cell_only_if_uv_itself_is_shown(place: Place) -> None:
    """Otherwise uv would install another Python in each session. Variables can move their folder."""
    moved = place.program(place.home / "pythons" / "cpython-3.12" / "bin" / "python3.12")
    data = place.program(place.home / "data" / "uv" / "python" / "cpython-3.12" / "bin" / "python3.12")
    assert place.shows(place.cell(UV_PYTHON_INSTALL_DIR=str(place.home / "pythons")), moved) == "nothing"

    place.program(place.bin / "uv")
    assert place.shows(place.cell(UV_PYTHON_INSTALL_DIR=str(place.home / "pythons")), moved) == "read-only"
    assert place.shows(place.cell(XDG_DATA_HOME=str(place.home / "data")), data) == "read-only"


@pytest.mark.parametrize("how", ["pyvenv", "link of an environment", "link", "package"])
def test_a_projects_link_to_a_path_hidden_in_the_cell_is_noted(place: Place, how: str) -> None:
    """The note names the option that shows it, and is gone with that option. A program of many names is one note."""
    program = place.program(place.home / "mine" / "bin" / "python3")
    (place.home / "mine" / "lib").mkdir()
    scripts = place.project / ".venv" / "bin"
    scripts.mkdir(parents=True)
    tree = place.home / "mine"
    if how == "pyvenv":
        (scripts.parent / "pyvenv.cfg").write_text(f"home = {program.parent}\n")
    elif how == "link of an environment":
        for name in ("python", "python3"):
            (scripts / name).symlink_to(program)
    else:
        link = place.project / ("node_modules/@x/y" if how == "package" else "data")
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(tree)
    (note,) = [note for note in place.cell().notes if "which is not shown" in note]

    assert note.endswith(f"; if it is yours: --allow-read {tree}")
    assert [
        note for note in place.cell(options=CellOptions(allow_read=(str(tree),))).notes if "not shown" in note
    ] == []


def lay(place: Place, where: str, target: Path) -> None:
    """Make a link to the target, as an agent can: in its settings, the project, an environment, or a file of git."""
    if where == "git":
        (place.project / ".git").write_text(f"gitdir: {target}\n")
        return
    folder = place.home / ".claude" if where == "settings" else place.project / ".venv" / "bin"
    folder.mkdir(parents=True)
    if where == "pyvenv":
        (folder.parent / "pyvenv.cfg").write_text(f"home = {target}\n")
    else:
        (folder / "python").symlink_to(target)


@pytest.mark.abuse_case("CP6")
@pytest.mark.parametrize("where", ["settings", "project", "pyvenv", "git"])
@pytest.mark.parametrize(
    "target",
    [".ssh", ".config", ".aws/x", "dotfiles/ssh", "backup/.gnupg", "app/.env.local", "keys/id_ed25519", "", ".aileron"],
)
def test_no_note_recommends_showing_a_folder_with_credentials(place: Place, where: str, target: str) -> None:
    """An agent may have made the link so that the person exposes its target. Other folders get the option."""
    for name in (".config/gh", "dotfiles/ssh", "documents"):
        (place.home / name).mkdir(parents=True)
    (place.home / ".ssh").symlink_to(place.home / "dotfiles" / "ssh")
    (place.home / target).mkdir(parents=True, exist_ok=True)
    lay(place, where, place.home / target)
    notes = [note for note in place.cell().notes if "not shown" in note]
    assert notes
    assert not [note for note in notes if "--allow" in note]


@pytest.mark.abuse_case("CP6")
@pytest.mark.parametrize("where", ["settings", "project", "pyvenv", "git"])
def test_a_note_recommends_showing_a_folder_without_credentials(place: Place, where: str) -> None:
    """The note quotes the folder's name for a shell."""
    documents = place.home / "my documents"
    documents.mkdir()
    lay(place, where, documents)

    assert [note for note in place.cell().notes if note.endswith((f"read '{documents}'", f"write '{documents}'"))]


@pytest.mark.parametrize("how", ["in PATH", "PATH", "through", "pyvenv", "VIRTUAL_ENV", "PYENV_ROOT", ".pyenv"])
def test_files_that_an_agent_left_in_an_earlier_project_make_no_other_path_visible_in_a_cell(
    place: Place, how: str
) -> None:
    """A link out of that project is ignored, unless no agent was in a cell there: then it is the person's own."""
    private, other = place.home / "private", place.home / "other"
    tool = place.program(private / "bin" / "tool")
    (private / "lib").mkdir()
    (other / "bin").mkdir(parents=True)
    path, variables = other / "bin", {}
    if how == "in PATH":
        (path / "tool").symlink_to(tool)
    elif how == "through":
        (path / "tool").symlink_to(tool)
        (place.bin / "tool").symlink_to(path / "tool")
        path = place.bin
    elif how == "pyvenv":
        (other / "pyvenv.cfg").write_text(f"home = {private}/bin\n")
    elif how == "PATH":
        path.rmdir()
        path.symlink_to(private / "bin")
    else:
        (other / "moved").symlink_to(private)
        if how == ".pyenv":
            (place.home / ".pyenv").symlink_to(other / "moved")
        else:
            variables[how] = str(other / "moved")
        (place.bin / "tool").symlink_to(place.program(private / "shims" / "tool"))
        path = place.bin
    variables["PATH"] = f"{path}:{place.environment['PATH']}"

    assert place.shows(place.cell(variables=variables), tool) == "read-only"
    assert place.shows(place.cell(earlier=(other,), variables=variables), tool) == "nothing"


@pytest.mark.parametrize("folder", ["project", "home"])
def test_a_fifo_in_place_of_a_file_does_not_block_the_launch(place: Place, folder: str) -> None:
    """An agent replaced pyvenv.cfg by a FIFO; opening it would wait for a writer."""
    python = place.program(place.home / ".pyenv" / "versions" / "3.11" / "bin" / "python3")
    scripts = (place.project if folder == "project" else place.home) / "environment" / "bin"
    scripts.mkdir(parents=True)
    file = scripts.parent / "pyvenv.cfg"
    variables = {"PATH": f"{scripts}:{place.environment['PATH']}"}
    os.mkfifo(file)
    assert place.shows(place.cell(variables=variables), python) == "nothing"

    file.unlink()
    file.write_text(f"home = {python.parent}\n")
    assert place.shows(place.cell(variables=variables), python) == "read-only"


# Keys of the gateway


def test_a_key_that_the_gateway_has_is_not_in_the_cell(place: Place) -> None:
    """The cell has neither the variable nor the file with the key; without a gateway key it has both."""
    file = place.file(".codex/auth.json", "{}")
    variables = {"OPENAI_API_KEY": "sk-mine", "CODEX_API_KEY": "sk-mine"}
    kept = place.cell("codex", kept=frozenset({"openai"}), variables=variables)
    own = place.cell("codex", variables=variables)

    assert place.shows(kept, file) == "made"
    assert "sk-mine" not in str(dict(kept.environment))
    assert place.shows(own, file) == "writable"
    assert own.environment["OPENAI_API_KEY"] == "sk-mine"


KEY_FILES: dict[str, tuple[str, Callable[[list[str]], str]]] = {
    "opencode": (
        ".local/share/opencode/auth.json",
        lambda names: json.dumps({name: {"type": "api", "key": f"sk-{name}"} for name in names}),
    ),
    "pi": (
        ".pi/agent/auth.json",
        lambda names: json.dumps({name: {"type": "api_key", "key": f"sk-{name}"} for name in names}),
    ),
    "goose": (
        ".config/goose/secrets.yaml",
        lambda names: "".join(f"{name.upper()}_API_KEY: sk-{name}\n" for name in names),
    ),
}


@pytest.mark.parametrize("name", KEY_FILES)
def test_a_file_of_keys_is_not_in_the_cell_if_the_gateway_has_all_its_keys(place: Place, name: str) -> None:
    """The file is hidden only if the gateway has all of its keys, as the agent needs the others."""
    path, written = KEY_FILES[name]
    both = frozenset({"anthropic", "openai"})

    def seen(names: list[str], kept: frozenset[str]) -> tuple[str, list[str]]:
        file = place.file(path, written(names))
        cell = place.cell(name, kept=kept)
        return place.shows(cell, file), [note for note in cell.notes if note.startswith(str(file))]

    assert seen(["anthropic", "openai"], both) == ("made", [])
    assert seen(["anthropic"], frozenset({"anthropic"})) == ("made", [])
    assert seen(["openai"], frozenset({"anthropic"})) == ("writable", [])
    assert seen(["anthropic", "openai"], frozenset()) == ("writable", [])
    assert seen([], both) == ("writable", [])
    shown, (note,) = seen(["anthropic", "mistral"], both)
    assert shown == "writable"
    assert "mistral" in note.lower()
    assert "the key for anthropic" in note


@pytest.mark.parametrize("name", KEY_FILES)
@pytest.mark.parametrize("text", ["{", "- sk-anthropic", "&a {x: *a}"])
def test_an_unreadable_file_of_keys_is_not_in_the_cell_if_the_vault_has_a_gateway_key(
    place: Place, name: str, text: str
) -> None:
    """The file may contain a key that the vault has too. If the vault has none, the agent gets the file."""
    file = place.file(KEY_FILES[name][0], text)
    kept = place.cell(name, kept=frozenset({"anthropic"}))

    assert place.shows(kept, file) == "made"
    assert f"{file} is not understood, so it is not shown: see what is wrong with it" in kept.notes
    assert place.shows(place.cell(name), file) == "writable"


@pytest.mark.parametrize(
    ("name", "file", "variables"),
    [
        ("claude", ".claude/.credentials.json", {"ANTHROPIC_BASE_URL": "https://p.example.com"}),
        ("codex", ".codex/auth.json", {}),
        ("goose", ".config/goose/secrets.yaml", {"ANTHROPIC_HOST": "https://p.example.com"}),
        ("pi", ".pi/agent/auth.json", {}),
        ("opencode", ".local/share/opencode/auth.json", {"ANTHROPIC_BASE_URL": "https://p.example.com"}),
    ],
)
def test_a_key_sent_to_an_address_that_the_person_chose_stays_with_the_agent(
    place: Place, name: str, file: str, variables: dict[str, str]
) -> None:
    """The gateway adds its key only to requests that pass through it, not to an address that the person chose."""
    path = place.file(file, "{}" if name == "codex" else KEY_FILES.get(name, KEY_FILES["pi"])[1](["anthropic"]))
    kept = frozenset({"openai" if name == "codex" else "anthropic"})
    key = "OPENAI_API_KEY" if name == "codex" else "ANTHROPIC_API_KEY"
    through = place.cell(name, kept=kept, variables={key: "sk-mine"})
    place.file(".codex/config.toml", 'model_provider = "azure"\n')
    place.file(".pi/agent/models.json", '{"providers": {"anthropic": {"baseUrl": "https://p.example.com"}}}')
    around = place.cell(name, kept=kept, variables={key: "sk-mine", **variables})

    assert (place.shows(through, path), place.shows(around, path)) == ("made", "writable")
    assert through.environment.get(key) != "sk-mine"
    assert around.environment[key] == "sk-mine"


@pytest.mark.parametrize("name", NAMES)
def test_the_placeholder_for_the_session_token_is_the_same_in_every_session(place: Place, name: str) -> None:
    """The cell never contains the session's real token."""
    cell = place.cell(name, kept=frozenset({"anthropic", "openai"}), AILERON_SESSION_TOKEN="ail_" + "t" * 43)

    assert cell.environment["AILERON_SESSION_TOKEN"] == CELL_PLACEHOLDER
    assert cell.environment["AILERON_HOME"] == "/run/aileron"
    assert "ail_ttt" not in str(dict(cell.environment)) + str(cell.arguments)
    assert len(CELL_PLACEHOLDER) == 4 + 43


# Variables


@pytest.mark.parametrize(
    "name",
    ["SSH_AUTH_SOCK", "DBUS_SESSION_BUS_ADDRESS", "DISPLAY", "WAYLAND_DISPLAY", "XAUTHORITY", "TMUX", "AWS_SECRET_ACCESS_KEY",
     "GITHUB_TOKEN", "NPM_TOKEN", "GH_TOKEN", "AILERON_VAULT_PASSPHRASE", "DATABASE_URL", "HTTP_PROXY", "LD_PRELOAD"],
)  # fmt: skip
def test_an_environment_variable_on_no_list_is_not_passed_to_the_agent(place: Place, name: str) -> None:
    """Only variables of the allowlists and the agent's own are passed."""
    cell = place.cell(
        variables={
            name: "canary",
            "LC_ALL": "C.UTF-8",
            "CLAUDE_CODE_MAX_OUTPUT_TOKENS": "1",
            "JAVA_HOME": "/usr/lib/jvm",
        }
    )

    assert name not in cell.environment
    assert "canary" not in str(dict(cell.environment))
    assert cell.environment["LC_ALL"] == "C.UTF-8"
    assert cell.environment["CLAUDE_CODE_MAX_OUTPUT_TOKENS"] == "1"
    assert cell.environment["JAVA_HOME"] == "/usr/lib/jvm"


HELD_BACK = {
    "MCP_GITHUB_TOKEN": "t",
    "MCP_HEADERS": "x",
    "BASH_ENV": "/home/you/env",
    "BASH_FUNC_ls%%": "() { :; }",
    "LC_GIT_TOKEN": "t",
    "ANTHROPIC_CUSTOM_HEADERS": "X-Key: k",
    "ANTHROPIC_FOUNDRY_API_KEY": "k",
    "CLAUDE_CODE_OAUTH_REFRESH_TOKEN": "r",
    "CLAUDE_CODE_CLIENT_KEY_PASSPHRASE": "p",
    "CLAUDE_CODE_SHELL_PREFIX": "/home/you/wrap",
    "CLAUDE_ENV_FILE": "/home/you/env.sh",
    "CLAUDE_SOMETHING_AUTH": "u:p",
    "CLAUDE_PROXY": "http://mira:pw@proxy.example.com:8080",
    "ANTHROPIC_METADATA": "authorization: Bearer 0123456789",
    "NODE_OPTIONS": "--max-old-space-size=4096 --require /home/you/hook.js",
    "MAVEN_OPTS": "-Xmx2g -Dhttps.proxyPassword=pw",
    "GOFLAGS": "-toolexec=/home/you/x",
    "RUST_LOG": "ghp_0123456789abcdefghij",
    "GITHUB_TOKEN": "t",
    "ENV": "/home/you/env",
    "PROMPT_COMMAND": "x",
    "PYTHONSTARTUP": "/home/you/x.py",
    "PERL5OPT": "-Mx",
    "GIT_SSH_COMMAND": "ssh -i key",
}
"""Variables that are held back because of their name or value."""
PASSED = {
    "CLAUDE_CODE_MAX_OUTPUT_TOKENS": "32000",
    "MAX_THINKING_TOKENS": "1024",
    "MCP_TIMEOUT": "60000",
    "BASH_DEFAULT_TIMEOUT_MS": "1000",
    "CLAUDE_CODE_SKIP_BEDROCK_AUTH": "1",
    "CLAUDE_CODE_API_KEY_HELPER_TTL_MS": "60000",
    "DISABLE_PROMPT_CACHING": "true",
    "ANTHROPIC_MODEL": "claude-x",
    "LC_TIME": "C.UTF-8",
    "NODE_OPTIONS": "--max-old-space-size=4096",
    "MAVEN_OPTS": "-Xmx2g",
    "GOFLAGS": "-mod=mod",
    "PYTHONPATH": "src",
}


@pytest.mark.abuse_case("CP7")
@pytest.mark.parametrize("name", HELD_BACK)
def test_a_variable_with_a_credential_or_code_is_not_passed(place: Place, name: str) -> None:
    """The name may be on a list, or start like the agent's own. --allow-env passes the variable, without a note."""
    given = {name: HELD_BACK[name]}
    cell = place.cell(variables=given)
    allowed = place.cell(options=CellOptions(allow_env=(name,)), variables=given)

    assert name not in cell.environment
    assert HELD_BACK[name] not in cell.environment.values() or len(HELD_BACK[name]) < 4
    assert allowed.environment[name] == HELD_BACK[name]
    assert [note for note in allowed.notes if "not passed" in note] == []
    assert [
        note for note in cell.notes if "--allow-env" in note and HELD_BACK[name] in note and len(HELD_BACK[name]) > 3
    ] == []


def test_an_agents_variables_are_passed_and_withheld_ones_are_noted(place: Place) -> None:
    """Numbers and switches pass even if named after tokens or keys, and so does the agent's own key; notes have no values."""
    cell = place.cell(variables=PASSED, ANTHROPIC_API_KEY="sk-ant-0123456789abcdef0123")
    held = place.cell(ANTHROPIC_CUSTOM_HEADERS="X-Key: 12345", GITHUB_TOKEN="t")

    assert {name: cell.environment.get(name) for name in PASSED} == PASSED
    assert cell.environment["ANTHROPIC_API_KEY"] == "sk-ant-0123456789abcdef0123"
    assert [note for note in cell.notes if "not passed" in note] == []
    (note,) = [note for note in held.notes if "not passed" in note]
    assert note.endswith("run code: ANTHROPIC_CUSTOM_HEADERS; --allow-env NAME passes one")


def test_an_allowed_variable_is_passed(place: Place) -> None:
    """Variables that lead out of the cell and Aileron's own are refused with a note, even if allowed."""
    given = {"GITHUB_TOKEN": "t", "SSH_AUTH_SOCK": "/tmp/agent", "AILERON_VAULT_PASSPHRASE": "p"}
    cell = place.cell(options=CellOptions(allow_env=(*given, "UNSET")), variables=given)

    assert cell.environment["GITHUB_TOKEN"] == "t"
    assert "SSH_AUTH_SOCK" not in cell.environment
    assert "AILERON_VAULT_PASSPHRASE" not in cell.environment
    assert "SSH_AUTH_SOCK is never passed into a cell" in cell.notes
    assert "UNSET is not set, so there is nothing to pass" in cell.notes


def test_the_proxy_variables_point_to_the_cells_proxy_except_for_loopback(place: Place) -> None:
    """They replace the person's own proxy settings."""
    cell = place.cell(HTTPS_PROXY="http://proxy.corp:8080", NO_PROXY="corp")

    assert cell.environment["HTTPS_PROXY"] == cell.environment["https_proxy"] == "http://127.0.0.1:3128"
    assert cell.environment["NO_PROXY"] == "localhost,127.0.0.1,::1"
    assert ("tunnel", 3128) in cell.policy.tcp_listeners
    assert ("gateway", 8721) in cell.policy.tcp_listeners
    assert dict(cell.policy.unix_listeners) == {
        "mcp": "/run/aileron/run/mcp.sock",
        "agent": "/run/aileron/run/agent.sock",
    }


def test_codex_is_told_not_to_make_its_own_sandbox_in_a_cell(place: Place) -> None:
    """A cell allows no nested sandbox. A note tells the person; an option of theirs comes later, and wins."""
    cell = place.cell("codex")
    at = cell.arguments.index('sandbox_mode="danger-full-access"')

    assert cell.arguments[at - 1] == "-c"
    assert at < cell.arguments.index("run")
    assert any("own sandbox is off" in note for note in cell.notes)


@pytest.mark.parametrize("option", ["--dangerously-skip-permissions", "--permission-mode=plan"])
def test_a_non_interactive_claude_that_would_ask_for_permissions_is_noted(place: Place, option: str) -> None:
    """The note names the option that leaves decisions to the cell, which Aileron never sets itself."""
    cell = place.cell(arguments=("-p", "x"))

    assert [note for note in cell.notes if note.endswith("-- --dangerously-skip-permissions")]
    assert "--dangerously-skip-permissions" not in cell.arguments
    for arguments in (("-p", "x", option), ("x",)):
        assert [note for note in place.cell(arguments=arguments).notes if "would ask" in note] == []


# Programs


def test_a_program_in_the_persons_home_directory_is_shown_with_its_packages(place: Place) -> None:
    """PATH has a link to the program; the packages around its target are shown read-only, and no other folder."""
    target = place.program(place.home / "lib" / "node_modules" / "@x" / "agent" / "bin" / "agent.js")
    (place.bin / "claude").unlink()
    (place.bin / "claude").symlink_to(target)
    cell = place.cell()

    assert cell.program == str(place.bin / "claude")
    assert place.shows(cell, place.bin / "claude") == "read-only"
    assert place.shows(cell, place.home / "lib" / "node_modules" / "@x" / "agent-linux-x64") == "read-only"
    assert place.shows(cell, place.home / "lib" / "other") == "nothing"


def test_a_program_outside_of_path_is_shown_if_the_person_names_it(place: Place) -> None:
    """The person names it by `--program`."""
    cell = place.cell(program=place.program(place.home / "build" / "claude"))

    assert place.shows(cell, cell.program) == "read-only"
    assert place.shows(cell, place.home / "build" / "notes") == "nothing"


@pytest.mark.parametrize(
    ("directory", "there", "not_there"),
    [
        (".cargo/bin", [".rustup/toolchains/x"], [".cargo/credentials.toml", ".cargo/registry"]),
        (".nvm/versions/node/v22/bin", [".nvm/versions/node/v22/lib", ".nvm/nvm.sh"], [".nvm/.cache", ".npmrc"]),
        (".pyenv/shims", [".pyenv/versions/3.11/lib"], [".config/pip/pip.conf"]),
        (".bun/bin", [], [".bun/install/cache"]),
        ("go/bin", [], ["go/pkg/mod"]),
        (".local/share/uv/tools/ruff/bin", [".local/share/uv/python/x"], [".local/share/uv/credentials"]),
        (".volta/bin", [".volta/tools/image"], [".volta/log"]),
    ],
)
def test_a_toolchain_is_shown_without_its_credentials(
    place: Place, directory: str, there: list[str], not_there: list[str]
) -> None:
    """Every toolchain of the table shows its programs only if it is in PATH."""
    for name in (*there, *not_there):
        place.file(f"{name}/file" if "." not in name.rpartition("/")[2] else name)
    place.program(place.home / directory / "tool")
    cell = place.cell(PATH=f"{place.home / directory}:{place.environment['PATH']}")
    without = place.cell()

    for name in (directory, *there):
        assert place.shows(cell, place.home / name) == "read-only", name
        assert place.shows(without, place.home / name) == "nothing", name
    for name in not_there:
        assert place.shows(cell, place.home / name) == "nothing", name


def test_a_python_environment_comes_with_its_python(place: Place) -> None:
    """pyvenv.cfg names that Python."""
    python = place.home / "pythons" / "3.11"
    place.program(python / "bin" / "python3")
    place.program(place.home / "venv" / "bin" / "tool")
    place.file("venv/pyvenv.cfg", f"home = {python}/bin\n")
    cell = place.cell(PATH=f"{place.home}/venv/bin:{place.environment['PATH']}")

    assert place.shows(cell, place.home / "venv" / "lib") == "read-only"
    assert place.shows(cell, python / "lib") == "read-only"


def test_a_home_directory_or_credentials_in_path_are_not_shown_in_a_cell(place: Place) -> None:
    """A home in PATH is never shown whole, and a folder of credentials only by an option that names it."""
    place.program(place.home / ".ssh" / "bin" / "tool")
    cell = place.cell(PATH=f"{place.home}:{place.home}/.ssh/bin:{place.aileron}:{place.environment['PATH']}")

    assert place.shows(cell, place.home / "x") == "nothing"
    assert place.shows(cell, place.home / ".ssh" / "bin" / "tool") == "nothing"
    assert place.shows(cell, place.aileron / "vault.json") == "nothing"


def test_programs_in_a_project_are_writable_except_those_of_the_agent_and_of_aileron(place: Place) -> None:
    """A virtual environment in the project can be changed there; agent and Aileron stay read-only."""
    place.program(place.project / ".venv" / "bin" / "tool")
    (place.project / ".venv" / "pyvenv.cfg").write_text("")
    ours = place.project / "aileron-venv"
    ours.mkdir()
    agent = place.program(place.project / "node_modules" / "agent" / "cli.js")
    cell = place.cell(
        program=agent, installation=(str(ours),), PATH=f"{place.project}/.venv/bin:{place.environment['PATH']}"
    )

    assert place.shows(cell, place.project / ".venv" / "lib" / "x") == "writable"
    assert place.shows(cell, ours / "bin") == "read-only"
    assert place.shows(cell, agent) == "read-only"
    assert sum("stays read-only" in note for note in cell.notes) == 2


# The project


def test_a_project_can_be_read_only(place: Place) -> None:
    """The agent's own settings stay writable with `--read-only`."""
    cell = place.cell(options=CellOptions(read_only=True))

    assert place.shows(cell, place.project / "x") == "read-only"
    assert place.shows(cell, place.home / ".claude") == "writable"


def test_an_overlay_makes_the_project_itself_read_only(place: Place) -> None:
    """Changes are kept aside, and the folder cannot be written past the overlay."""
    cell = place.cell(options=CellOptions(overlay=True))

    assert place.shows(cell, place.project) == "read-only"
    assert str(place.project) not in cell.writable
    assert cell.roots[0] == (str(place.project), ())


def test_every_writable_folder_is_compared_after_the_session(place: Place) -> None:
    """The project comes first. Of the agent's own settings, only files that can execute code are compared."""
    (place.home / "out").mkdir()
    cell = place.cell(options=CellOptions(allow_write=(f"{place.home}/out",)))
    roots = dict(cell.roots)

    assert next(iter(roots)) == str(place.project)
    assert roots[f"{place.home}/out"] == ()
    assert {"settings*.json", "hooks/**", "CLAUDE.md"} <= set(roots[f"{place.home}/.claude"])
    is_of_interest = matching(roots[f"{place.home}/.claude"]).fullmatch
    obeyed = (
        "statusline.sh",
        "x/y.sh",
        "shell-snapshots/s",
        "session-env/a/b",
        "local/claude",
        "plugins/p",
        "agents/a.md",
    )
    assert all(
        is_of_interest(name) for name in (*obeyed, "commands/c.md", "skills/s/SKILL.md", "projects/p/memory/MEMORY.md")
    )
    assert not any(is_of_interest(name) for name in ("history.jsonl", "projects/p/session.jsonl", "todos/t.json"))
    assert roots[f"{place.home}/.claude.json"] == (".claude.json",)


@pytest.mark.parametrize(
    ("folder", "why"),
    [
        ("", "your home"),
        ("..", "your home"),
        ("/", "your home"),
        ("/usr", "a place of the system"),
        ("/proc/self", "a place of the system"),
        ("/tmp", "a place of the system"),
        (".aileron", "Aileron's home"),
        (".ssh/keys", "a place of credentials"),
        (".config/gh", "a place of credentials"),
        (".claude", "the agent's own settings"),
    ],
)
def test_a_folder_that_cannot_be_a_project_is_refused(place: Place, folder: str, why: str) -> None:
    """The error names the reason and what to do."""
    path = place.home / folder if not folder.startswith("/") else Path(folder)
    if not path.exists():
        path.mkdir(parents=True)
    home_is_below = folder == "/tmp" and str(place.home).startswith("/tmp/")

    with pytest.raises(CellRefused) as refused:
        place.cell(folder=path)
    assert ("your home" if home_is_below else why) in refused.value.what
    assert refused.value.fix == "cd into the folder of one project"


def test_a_project_that_contains_ailerons_home_is_refused(place: Place) -> None:
    """AILERON_HOME may be a folder of the project."""
    place.aileron = place.project / "state"
    place.aileron.mkdir()

    with pytest.raises(CellRefused, match="Aileron's home"):
        place.cell()


def test_a_repository_that_begins_above_the_project_is_noted(place: Place) -> None:
    """The note names the option that shows it; with that option there is no note."""
    (place.home / "src" / ".git").mkdir()
    option = f"--allow-write {place.home}/src"

    assert [note for note in place.cell().notes if option in note]
    allowed = place.cell(options=CellOptions(allow_write=(f"{place.home}/src",)))
    assert [note for note in allowed.notes if "git" in note] == []


def git(*words: str, folder: Path) -> None:
    """Run the real git, without any person's settings."""
    nobody = {"GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_SYSTEM": "/dev/null", "PATH": os.environ["PATH"]}
    said = ["-c", "user.name=m", "-c", "user.email=m@example.com", "-c", "protocol.file.allow=always"]
    subprocess.run(["git", *said, *words], cwd=folder, check=True, env=nobody, capture_output=True, timeout=60)


@pytest.mark.parametrize("kind", ["worktree", "submodule"])
def test_the_repository_of_a_git_worktree_is_noted(place: Place, kind: str) -> None:
    """The note names the common directory, which contains the worktree's own. Submodules are treated alike."""
    main, module = place.home / "main", place.home / "module"
    for made in (main, module):
        made.mkdir()
        git("init", "-q", folder=made)
        git("commit", "-q", "--allow-empty", "-m", "x", folder=made)
    place.project.rmdir()
    if kind == "worktree":
        git("worktree", "add", "-q", str(place.project), folder=main)
        folder, outside = place.project, main / ".git"
    else:
        git("submodule", "add", "-q", str(module), "part", folder=main)
        folder, outside = main / "part", main / ".git" / "modules" / "part"
        place.project.mkdir()

    option = f"so git does not work: --allow-write {outside}"
    assert [note for note in place.cell(folder=folder).notes if note.endswith(option)]
    (folder / ".git").unlink()
    (folder / ".git").mkdir()
    assert [note for note in place.cell(folder=folder).notes if "git" in note] == []


def test_a_note_says_that_the_git_repository_named_in_a_project_does_not_name_that_project(place: Place) -> None:
    """An agent can write a .git file that names another repository, to have the person expose it."""
    other = place.home / "other"
    other.mkdir()
    git("init", "-q", folder=other)
    (place.project / ".git").write_text(f"gitdir: {other}/.git\n")
    (note,) = (note for note in place.cell().notes if "git" in note)

    assert note.startswith(f"the file .git of this folder names {other}/.git, which does not name this folder")
    assert note.endswith(f"if it is the repository of this folder: --allow-write {other}/.git")


# What a person allows


def test_options_show_further_folders_read_only_or_writable(place: Place) -> None:
    """A folder is shown read-only or writable; a link as option means its target."""
    read, write = place.home / "data", place.home / "out"
    read.mkdir()
    write.mkdir()
    (place.home / "link").symlink_to(read)
    cell = place.cell(options=CellOptions(allow_read=(f"{place.home}/link",), allow_write=(str(write),)))

    assert place.shows(cell, read / "x") == "read-only"
    assert place.shows(cell, write / "x") == "writable"
    assert str(write) in cell.writable


def test_a_part_of_a_project_can_be_made_read_only(place: Place) -> None:
    """The option for the deeper path takes precedence."""
    (place.project / "vendor").mkdir()
    cell = place.cell(options=CellOptions(allow_read=(str(place.project / "vendor"),)))

    assert place.shows(cell, place.project / "vendor" / "x") == "read-only"
    assert place.shows(cell, place.project / "x") == "writable"


@pytest.mark.parametrize("writable", [False, True])
def test_no_option_shows_ailerons_home(place: Place, writable: bool) -> None:
    """The home, a folder inside it and one around it are all refused."""
    place.file(".aileron/run/x")
    for path in (place.aileron, place.aileron / "run", place.home, place.root):
        option = CellOptions(allow_write=(str(path),)) if writable else CellOptions(allow_read=(str(path),))
        with pytest.raises(CellRefused, match="Aileron's home"):
            place.cell(options=option)


def test_an_option_that_names_a_missing_path_is_refused(place: Place) -> None:
    """The launch does not create the path."""
    with pytest.raises(CellRefused, match="no such file"):
        place.cell(options=CellOptions(allow_read=(f"{place.home}/nothing",)))


def test_a_folder_of_credentials_is_shown_only_by_an_option_that_names_it(place: Place) -> None:
    """A prominent warning says so; an option for a folder around it masks it."""
    key = place.file(".config/gh/hosts.yml")
    other = place.file(".config/tool/settings")
    named = place.cell(options=CellOptions(allow_read=(str(key.parent),)))
    wide = place.cell(options=CellOptions(allow_read=(f"{place.home}/.config",)))

    assert place.shows(named, key) == "read-only"
    assert [note for note in named.notes if note.startswith("WARNING:") and str(key.parent) in note]
    assert place.shows(wide, other) == "read-only"
    assert place.shows(wide, key) == "masked"
    assert [note for note in wide.notes if note.startswith("WARNING:")] == []


def test_credentials_behind_a_link_are_masked_at_their_target(place: Place) -> None:
    """~/.ssh may be a link into a repository that the person allows."""
    key = place.file("dotfiles/ssh/id_ed25519")
    (place.home / ".ssh").symlink_to(key.parent)
    cell = place.cell(options=CellOptions(allow_read=(f"{place.home}/dotfiles",)))

    assert place.shows(cell, key) == "masked"


@pytest.mark.parametrize("name", SECRET_IN_HOME)
def test_every_known_place_of_credentials_is_masked_in_a_folder_that_an_option_shows(place: Place, name: str) -> None:
    """The whole table is tried, in a home whose other folders are allowed."""
    file = place.file(f"{name}/x")
    above = place.home / name.partition("/")[0]
    is_in_a_wider_one = above != place.home / name
    options = CellOptions(allow_read=(str(above),)) if is_in_a_wider_one else CellOptions()

    assert place.shows(place.cell(options=options), file) == ("masked" if is_in_a_wider_one else "nothing")


def test_certificates_named_by_an_environment_variable_are_shown(place: Place) -> None:
    """TLS connections would fail without them."""
    bundle = place.file("certificates/ca.pem")
    cell = place.cell(SSL_CERT_FILE=str(bundle))

    assert place.shows(cell, bundle) == "read-only"
    assert cell.environment["SSL_CERT_FILE"] == str(bundle)


@pytest.mark.parametrize("variable", ["SSL_CERT_FILE", "SSL_CERT_DIR", "NODE_EXTRA_CA_CERTS"])
@pytest.mark.parametrize("what", ["file", "folder", "link to a file", "link to a folder"])
def test_certificates_in_the_home_directory_are_shown_only_if_they_are_regular_files(
    place: Place, variable: str, what: str
) -> None:
    """An agent could have made a link or folder there to choose what is shown. A note names the option to allow it."""
    letter = place.file("Documents/letter.txt")
    named = place.home / "other" / "ca"
    named.parent.mkdir()
    if what == "file":
        named.write_text("")
    elif what == "folder":
        named.mkdir()
    else:
        named.symlink_to(letter if what == "link to a file" else letter.parent)
    cell = place.cell(variables={variable: str(named)})

    is_shown = what == "file"
    allowed = place.cell(options=CellOptions(allow_read=(os.path.realpath(named),)), variables={variable: str(named)})
    assert [note for note in allowed.notes if "not shown" in note] == []
    assert place.shows(allowed, named) == "read-only"
    assert place.shows(cell, named) == ("read-only" if is_shown else "nothing")
    assert bool([note for note in cell.notes if f"--allow-read {os.path.realpath(named)}" in note]) is not is_shown


@pytest.mark.parametrize("variable", ["SSL_CERT_FILE", "SSL_CERT_DIR"])
def test_a_certificate_folder_outside_the_home_is_shown_if_ssl_cert_dir_names_it(place: Place, variable: str) -> None:
    """A link to one works too, unless an agent in an earlier cell could have made it."""
    company, link = place.root / "company" / "ca", place.root / "link"
    company.mkdir(parents=True)
    link.symlink_to(company)
    expected = "read-only" if variable == "SSL_CERT_DIR" else "nothing"

    assert place.shows(place.cell(variables={variable: str(company)}), company) == expected
    assert place.shows(place.cell(variables={variable: str(link)}), link) == expected
    (place.root / "shared").mkdir()
    (place.root / "shared" / "ca").symlink_to(company)
    named = {variable: str(place.root / "shared" / "ca")}
    assert place.shows(place.cell(earlier=(place.root / "shared",), variables=named), named[variable]) == "nothing"


def test_git_in_a_cell_has_the_persons_name_and_no_credentials(place: Place) -> None:
    """The cell gets a new configuration with only the person's harmless settings."""
    cell = place.cell(
        git_settings={"user.name": "Mira", "credential.helper": "store", "core.sshcommand": "x", "alias.x": "!y"}
    )
    content = dict(cell.policy.files)[f"{place.home}/.gitconfig"]

    assert content == b'[user]\n\tname = "Mira"\n'


@pytest.mark.parametrize("how", ["by itself", "XDG_CONFIG_HOME", "named"])
@pytest.mark.parametrize("name", ["ignore", "attributes"])
def test_git_ignores_the_same_files_in_a_cell_as_outside(place: Place, how: str, name: str) -> None:
    """The cell has the patterns, without commands, from git's default place, a variable's, and the person's settings."""
    files = {"by itself": f".config/git/{name}", "XDG_CONFIG_HOME": f"moved/git/{name}", "named": f"my-{name}"}
    patterns = place.file(files[how], "*.local\n*.bin filter=lfs -text\n")
    key = {"ignore": "core.excludesfile", "attributes": "core.attributesfile"}[name]
    variables = {"XDG_CONFIG_HOME": f"{place.home}/moved"} if how == "XDG_CONFIG_HOME" else {}
    cell = place.cell(git_settings={key: f"~/my-{name}"} if how == "named" else {}, variables=variables)
    files_made = dict(cell.policy.files)

    assert files_made[str(patterns)] == (
        b"*.local\n*.bin filter=lfs -text\n" if name == "ignore" else b"*.local\n*.bin  -text\n"
    )
    assert (f'"{patterns}"'.encode() in files_made.get(f"{place.home}/.gitconfig", b"")) is (how == "named")


@pytest.mark.parametrize("how", ["link", "configuration", "credentials", "too long"])
def test_a_git_settings_file_that_an_agent_could_have_chosen_is_not_shown(place: Place, how: str) -> None:
    """An agent in an earlier cell could write the link or setting that names it; elsewhere it is the person's."""
    letter = place.file(".ssh/id" if how == "credentials" else "letter", "x" * (70_000 if how == "too long" else 7))
    dotfiles = place.home / "dotfiles"
    dotfiles.mkdir()
    settings, said = {"core.excludesfile": str(letter)}, {"core.excludesfile": str(place.file("dotfiles/gitconfig"))}
    if how == "link":
        (dotfiles / "ignore").symlink_to(letter)
        settings, said = {"core.excludesfile": str(dotfiles / "ignore")}, {}
    by_agent = place.cell(git_settings=settings, git_files=said, earlier=(dotfiles,))
    by_person = place.cell(git_settings=settings, git_files=said)

    assert b"x" * 7 not in b"".join(content for _, content in by_agent.policy.files)
    assert [note for note in by_agent.notes if "of your git is not shown" in note]
    is_fine = how in ("link", "configuration")
    assert (b"x" * 7 in [content for _, content in by_person.policy.files]) is is_fine


def test_no_path_is_mounted_twice_in_a_cell(place: Place) -> None:
    """Redundant mounts are dropped, and wider paths come first."""
    cell = place.cell(PATH=f"{place.bin}:{place.bin}:{place.environment['PATH']}")
    targets = [bind.target for bind in cell.policy.binds]

    assert len(targets) == len(set(targets))
    assert [target.count("/") for target in targets[2:]] == sorted(target.count("/") for target in targets[2:])
    assert all(os.path.realpath(bind.source) == bind.source for bind in cell.policy.binds)


def test_resolving_many_names_of_a_folder_together_gives_the_same_paths_as_one_by_one(tmp_path: Path) -> None:
    """The names are a file, a link, a path below a link, a cycle of links, and a missing one."""
    home = tmp_path.resolve() / "home"
    (home / "real" / "below").mkdir(parents=True)
    (home / "linked").symlink_to("real")
    (home / "real" / "out").symlink_to(tmp_path)
    (home / "circle").symlink_to("circle")
    (home / "dangling").symlink_to("/nowhere/else")
    names = [
        "real",
        "real/below",
        "linked",
        "linked/below",
        "linked/out/x",
        "linked/out",
        "circle",
        "circle/x",
        "dangling/x",
        "a/b",
    ]

    assert list(resolved_below(str(home), names)) == [os.path.realpath(home / name) for name in names]


def test_no_repr_of_a_cells_specification_shows_a_possible_secret(place: Place) -> None:
    """A cell's environment and its session's token are there to be used, but not to be printed."""
    cell, session = place.cell(LANG="canary-value"), LaunchSession("ses-1", "ail_canary")

    assert (cell.environment["LANG"], session.token) == ("canary-value", "ail_canary")
    assert "canary" not in f"{cell} {cell!r} {session} {session!r}"
    assert str(place.project) in repr(cell)
