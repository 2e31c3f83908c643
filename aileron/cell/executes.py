"""The table of files that can make programs run later, outside the cell: the kinds of files, each with the reason.

An agent in a cell cannot run programs outside the cell. But it can write files that the person's own tools obey afterwards: a
git hook, a Makefile, a settings file of an editor, instructions for the next agent. This cannot be prevented in a project that
the agent can change, so changes to such files are listed. A file's contents are read only if its name alone does not say
whether it can run code, and only to list the keys that run something.

    findings(Candidate("package.json", "file", 0o644, content))  →  (Finding("npm", "scripts: postinstall, test"),)

Runs in the command. Rules
- The names and contents are hostile. A file that cannot be read, or is too long to be read, counts as one that can run code.
- No table has every tool. A file that is in no row counts, too, if its name looks like that of a settings file, unless
  it is in the closed list of files that run nothing.
- A file that is not listed is not proven harmless: each program that the person runs is code.

Pure. Source: the manuals of the tools that are named; gitattributes(5), githooks(5). Not here: which files changed
(changes.py), what a git configuration says (git_config.py). The table is documented in docs/reference/cell-changes.md.
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final, Literal, NamedTuple

from aileron.cell.installed import is_of_tree, tree_of
from aileron.model.visible import visible

__all__ = [
    "INSTALLED",
    "KINDS",
    "Candidate",
    "EntryKind",
    "Execution",
    "Finding",
    "GitPlaces",
    "findings",
    "git_places",
    "matching",
    "rank",
    "spoken",
    "tree_in",
]

EntryKind = Literal["file", "directory", "link", "socket", "pipe", "device"]
INSTALLED: Final = "installed packages"
"""Kind of entries in a package manager's folder. Their detail is that folder's path."""
_STANDS_ALONE: Final = frozenset({"agents", "set-user-ID", "special file", "version control"})
"""Kinds of entries in a package manager's folder that are listed one by one, as git's kinds are, because they take
effect even if the packages are not used.
"""
_MAX_DETAILS: Final = 8
"""Maximum number of keys or names that are shown for one file."""
_MAX_DETAIL: Final = 80
"""Maximum number of characters that are shown of one key or name."""
_MAX_TARGET: Final = 256
"""Maximum number of characters that are shown of a link's target. Usual paths are shorter."""


class Candidate(NamedTuple):
    """A changed entry: its path in the project, its kind, its permission bits, and a link's target."""

    path: str
    kind: EntryKind
    mode: int
    content: Callable[[], bytes | None]
    """Function that returns the contents of a file of at most `tree.MAX_CONTENT` bytes; None if it is longer or
    cannot be read.
    """
    leads_out: str | None = None
    """Target of a symbolic link that leads out of the project."""
    git_kind: str | None = None
    """Kind of the file by its place in a git repository, whose folder may have any name; None if the file is in no
    repository, or if it is only data there.
    """
    tree: str = ""
    """The package manager's folder that contains the entry, as `tree_of` returns it; empty if there is none."""
    above: str = ""
    """Prefix of `path`, such as home/me/.config/fish/, for a folder outside the project, so that the table's patterns
    match there, too.
    """


class Finding(NamedTuple):
    """A reason to list a file: a key of `KINDS`, and the parts of the file that run something."""

    kind: str
    detail: str = ""


class Execution(NamedTuple):
    """A kind of files that can make programs run."""

    files: tuple[str, ...]
    """Globs for the end of a path; `**` stands for all paths below a folder. Empty if the kind is detected in another way."""
    reason: str
    detail: Callable[[bytes], Iterable[str] | None] | None = None
    """Function that returns the parts of a file's content that run something; None if the name alone decides.

    It returns no parts if the file is harmless, None if it cannot be parsed (the file then counts), and one empty
    string if the file counts but has no part to show.
    """


# What files say


def _of_git(content: bytes) -> list[str]:
    """Return the keys of a git configuration that run programs. If there are none, but the configuration is not known
    to be harmless, return one empty string, so that it counts.
    """
    from aileron.cell.git_config import git_keys, is_plain  # takes 2 ms, and only if a configuration has changed

    return [] if is_plain(content) else git_keys(content) or [""]


def _of_attributes(content: bytes) -> list[str]:
    """Return the attributes in a gitattributes file that refer to a command in the git configuration."""
    lines = (line for line in content.decode("utf-8", "replace").split("\n") if not line.lstrip().startswith("#"))
    return list(dict.fromkeys(word for line in lines for word in re.findall(r"\s((?:filter|diff|merge)=\S+)", line)))


def _of_package(content: bytes) -> list[str] | None:
    """Return the names of scripts and of other fields that make a package manager run a program. None if the content
    is no JSON object.
    """
    try:
        document = json.loads(content)
    except (ValueError, RecursionError):
        return None
    if not isinstance(document, dict):
        return None
    scripts = document.get("scripts")
    names = [f"scripts: {', '.join(map(str, scripts))}"] if isinstance(scripts, dict) and scripts else []
    others = ("bin", "gypfile", "husky", "lint-staged", "pnpm", "packageManager", "workspaces")
    return [*names, *(name for name in others if name in document)]


# The table


KINDS: Final[dict[str, Execution]] = {
    "git hook": Execution(
        (
            ".git/**/hooks/*",
            ".git/hooks/*",
            ".husky/**",
            ".githooks/**",
            "applypatch-msg",
            "commit-msg",
            "post-applypatch",
            "post-checkout",
            "post-commit",
            "post-merge",
            "post-receive",
            "post-rewrite",
            "post-update",
            "pre-applypatch",
            "pre-auto-gc",
            "pre-commit",
            "pre-merge-commit",
            "pre-push",
            "pre-rebase",
            "pre-receive",
            "prepare-commit-msg",
            "push-to-checkout",
            "reference-transaction",
            "sendemail-validate",
        ),
        "git runs it at a commit, checkout, merge or push",
    ),
    "git configuration": Execution(
        (".git/config", ".git/config.worktree", ".git/**/config", ".git/**/config.worktree", ".gitconfig"),
        "git runs these commands, or takes code from elsewhere, with its next command",
        _of_git,
    ),
    "git attributes": Execution(
        (".gitattributes", ".git/info/attributes", ".git/**/info/attributes"),
        "git passes files through the commands that its configuration has under these names",
        _of_attributes,
    ),
    "git submodules": Execution((".gitmodules",), "git fetches code from the addresses in it"),
    "git in progress": Execution(
        (
            ".git/**/rebase-merge/**",
            ".git/rebase-merge/**",
            ".git/rebase-apply/**",
            ".git/sequencer/**",
            ".git/**/sequencer/**",
        ),
        "`git rebase --continue` runs the commands in it",
    ),
    "git elsewhere": Execution(
        (
            ".git",
            ".git/commondir",
            ".git/**/commondir",
            ".git/**/gitdir",
            ".git/objects/info/alternates",
            ".git/**/objects/info/alternates",
            ".git/remotes/**",
            ".git/branches/**",
            ".git/modules/**/remotes/*",
            ".git/modules/**/branches/*",
        ),
        "git takes its configuration, hooks, objects or commits from where it leads",
    ),
    "version control": Execution(
        (
            ".hg",
            ".hg/**",
            ".sl",
            ".sl/**",
            ".jj",
            ".jj/**",
            ".svn",
            ".svn/**",
            ".bzr",
            ".bzr/**",
            ".pijul/**",
            "_darcs",
            "_darcs/**",
            "CVS",
            "CVS/**",
            "CVSROOT/**",
            "_MTN/**",
            ".fslckout",
            "_FOSSIL_",
            ".fossil-settings/**",
            ".hgsub",
            ".hgsubstate",
        ),
        "hg, sl, jj, svn or another of its kind runs the hooks and commands in it, or takes code from where it leads",
    ),
    "commit checks": Execution(
        (
            ".pre-commit-config.yaml",
            ".pre-commit-hooks.yaml",
            "lefthook*.y*ml",
            ".lefthook*.y*ml",
            "lefthook*.toml",
            "lefthook*.json",
            ".overcommit.yml",
            ".lintstagedrc*",
            "lint-staged.config.*",
        ),
        "runs at a commit, where its tool is set up",
    ),
    "shell environment": Execution(
        (
            ".envrc",
            ".envrc.local",
            ".direnv/**",
            ".mise.toml",
            "mise.toml",
            "mise.*.toml",
            ".mise/**",
            ".config/mise/**",
            ".tool-versions",
            ".rtx.toml",
            ".nvmrc",
            ".autoenv",
            ".in",
            ".out",
            "*.nix",
        ),
        "a shell or its tools load it in this folder, and run what it names",
    ),
    "variables": Execution(
        (".env", ".env.*", ".flaskenv"), "programs start with the variables in it, which can name code"
    ),
    "shell startup": Execution(
        (
            ".bashrc",
            ".bash_profile",
            ".bash_login",
            ".bash_logout",
            ".profile",
            ".zshrc",
            ".zshenv",
            ".zprofile",
            ".zlogin",
            "config.fish",
            "fish/conf.d/*",
            ".inputrc",
            ".screenrc",
            ".tmux.conf",
            ".vimrc",
            ".exrc",
            "_vimrc",
            ".Rprofile",
            ".irbrc",
            ".pryrc",
            ".ghci",
            ".nvim.lua",
            ".nvimrc",
            ".emacs",
            ".dir-locals.el",
            ".dir-locals-2.el",
            ".ycm_extra_conf.py",
            ".lvimrc",
            ".vimspector.json",
            "coc-settings.json",
            ".iex.exs",
            ".ocamlinit",
            ".Renviron",
            ".RData",
            ".gdbinit",
            ".lldbinit",
        ),
        "a shell, an editor or a debugger runs it when it starts",
    ),
    "make": Execution(
        (
            "Makefile",
            "makefile",
            "Makefile.in",
            "Makefile.am",
            "build.ninja",
            "GNUmakefile",
            "*.mk",
            "justfile",
            "Justfile",
            ".justfile",
            "*.just",
            "Taskfile.y*ml",
            "taskfile.y*ml",
            "Rakefile",
            "*.rake",
            "Snakefile",
            "Fastfile",
            "Dangerfile",
            "wscript",
            "fabfile.py",
            "conf.py",
            "_plugins/**",
            "invoke.y*ml",
            "BUCK",
            ".buckconfig",
            "PKGBUILD",
            "CMakeLists.txt",
            "CMakePresets.json",
            "*.cmake",
            "meson.build",
            "SConstruct",
            "BUILD",
            "BUILD.bazel",
            "WORKSPACE",
            "WORKSPACE.bazel",
            "SConscript",
            "Kconfig",
            "Kbuild",
            "BSDmakefile",
            "configure.in",
            "autogen.sh",
            "*.m4",
            "*.ninja",
            "conanfile.*",
            "xmake.lua",
            "premake*.lua",
            "MODULE.bazel",
            "*.bzl",
            ".bazelrc",
            "configure",
            "configure.ac",
            "dodo.py",
            "tasks.py",
            "manage.py",
            "magefile.go",
            "Earthfile",
            "Procfile",
        ),
        "a build or a task runs the commands in it",
    ),
    "npm": Execution(
        ("package.json",), "npm, pnpm, yarn and bun run these scripts, some of them at install", _of_package
    ),
    "npm configuration": Execution(
        (
            ".npmrc",
            ".yarnrc",
            ".yarnrc.yml",
            ".yarn/**",
            ".pnpmfile.cjs",
            ".pnp.cjs",
            ".pnp.loader.mjs",
            "pnpm-workspace.yaml",
            "bunfig.toml",
            "package-lock.json",
            "npm-shrinkwrap.json",
            "yarn.lock",
            "pnpm-lock.yaml",
            "bun.lock",
            "bun.lockb",
            "deno.json",
            "deno.jsonc",
        ),
        "decides which packages are installed, from where, and what runs meanwhile",
    ),
    "javascript configuration": Execution(
        (
            "*.config.js",
            "*.config.cjs",
            "*.config.mjs",
            "*.config.ts",
            "*.config.mts",
            "*.config.cts",
            ".eslintrc*",
            ".prettierrc*",
            ".babelrc*",
            ".stylelintrc*",
            ".postcssrc*",
            ".swcrc",
            ".nycrc*",
            ".c8rc*",
            ".releaserc*",
            ".commitlintrc*",
            "nodemon.json",
            "tsconfig*.json",
            "jsconfig.json",
            "gulpfile.*",
            "Gruntfile.*",
            ".mocharc.*",
            "karma.conf.*",
            "webpack.mix.js",
            "*.setup.js",
            "*.setup.ts",
            "*.workspace.js",
            "*.workspace.ts",
        ),
        "a tool runs it as code when it starts",
    ),
    "python build": Execution(
        (
            "pyproject.toml",
            "setup.py",
            "setup.cfg",
            "tox.ini",
            "tox.toml",
            ".pylintrc",
            ".flake8",
            ".coveragerc",
            "ruff.toml",
            ".ruff.toml",
            "pyrightconfig.json",
            ".pytest.ini",
            "mypy.ini",
            "noxfile.py",
            "pytest.ini",
            "pdm.toml",
            "poetry.toml",
            "uv.toml",
            "hatch.toml",
            "requirements*.txt",
            "constraints*.txt",
            "Pipfile",
            "Pipfile.lock",
            "poetry.lock",
            "uv.lock",
            "pdm.lock",
            "pip.conf",
        ),
        "pip, a build or a test runner runs what it names, or installs it",
    ),
    "python startup": Execution(
        (
            "conftest.py",
            "sitecustomize.py",
            "usercustomize.py",
            "*.pth",
            "pyvenv.cfg",
            "bin/activate*",
            ".pdbrc",
            "__pycache__/*.pyc",
        ),
        "Python or pytest runs it without being asked for it",
    ),
    "rust": Execution(
        ("build.rs", ".cargo/**", "Cargo.toml", "Cargo.lock", "rust-toolchain", "rust-toolchain.toml"),
        "cargo runs it, or what it names, at a build",
    ),
    "jvm": Execution(
        (
            "gradlew",
            "gradlew.bat",
            "gradle/wrapper/*",
            "*.gradle",
            "buildSrc/**",
            "project/*.scala",
            "*.gradle.kts",
            "gradle.properties",
            "mvnw",
            "mvnw.cmd",
            ".mvn/**",
            "pom.xml",
            "build.xml",
            "build.sbt",
            "project/*.sbt",
            "project/build.properties",
        ),
        "Gradle, Maven, Ant or sbt runs it, or what it names, at a build",
    ),
    "other builds": Execution(
        (
            "go.mod",
            "go.sum",
            "go.work",
            "Gemfile",
            "Gemfile.lock",
            "config.ru",
            "Guardfile",
            "project.clj",
            "*.gemspec",
            ".rspec",
            "composer.json",
            "composer.lock",
            "mix.exs",
            "Package.swift",
            "Directory.Build.props",
            "Directory.Build.targets",
            "*.csproj",
            "*.fsproj",
            "*.vbproj",
            "*.vcxproj",
            "*.props",
            "*.targets",
            "*.podspec",
            "profiles.clj",
            "Cask",
            "Eask",
            "Eldev",
            "*.sln",
            "NuGet.config",
            "nuget.config",
            "build.zig",
            "build.zig.zon",
            "dune-project",
            "dune",
            "dune-workspace",
            "*.opam",
            "cpanfile",
            "Makefile.PL",
            "Build.PL",
            "dist.ini",
            ".formatter.exs",
            ".credo.exs",
            "config/*.exs",
            "mix.lock",
            "*.cabal",
            "cabal.project*",
            "Setup.hs",
            "stack.yaml",
            "hie.yaml",
            "Project.toml",
            "Manifest.toml",
            "build.sc",
            "phpunit.xml*",
            "phpstan*.neon*",
            ".php-cs-fixer*.php",
            "*.nimble",
            "*.rockspec",
            "rebar.config",
            "deps.edn",
            "shard.yml",
            "pubspec.y*ml",
            "Podfile",
            "Brewfile",
        ),
        "a build runs it, or installs what it names",
    ),
    "automation": Execution(
        (
            ".github/workflows/**",
            ".github/actions/**",
            ".gitlab-ci.yml",
            ".gitlab/**",
            ".circleci/**",
            "Jenkinsfile",
            "azure-pipelines.yml",
            ".azure-pipelines/**",
            "bitbucket-pipelines.yml",
            ".travis.yml",
            ".drone.yml",
            ".woodpecker.yml",
            ".woodpecker/**",
            ".buildkite/**",
            "appveyor.yml",
            ".appveyor.yml",
            ".forgejo/workflows/**",
            ".gitea/workflows/**",
            ".github/dependabot.yml",
            "renovate.json",
            "cloudbuild.yaml",
        ),
        "a server runs it with the project's secrets once it is pushed",
    ),
    "containers": Execution(
        (
            "Dockerfile",
            "Dockerfile.*",
            "*.dockerfile",
            "Containerfile",
            "docker-compose*.y*ml",
            "compose.y*ml",
            "compose.*.y*ml",
            ".devcontainer/**",
            ".devcontainer.json",
            ".dockerignore",
            "Vagrantfile",
            "Tiltfile",
            "skaffold.yaml",
            "*.tf",
            "Chart.yaml",
            "docker-bake.*",
            "ansible.cfg",
            "serverless.yml",
        ),
        "a container or a machine is built from it, with the folders that it asks for",
    ),
    "editor": Execution(
        (
            ".vscode/**",
            "*.code-workspace",
            ".idea/**",
            "*.iml",
            ".fleet/**",
            ".zed/**",
            ".nova/**",
            ".sublime-project",
            "*.sublime-project",
            ".editorconfig",
            ".project",
            ".settings/**",
            ".helix/**",
            ".vs/**",
        ),
        "an editor runs the tasks in it, or uses the programs that it names",
    ),
    "agents": Execution(
        (
            ".mcp.json",
            "mcp.json",
            ".claude/**",
            ".claude.json",
            "CLAUDE.md",
            "CLAUDE.local.md",
            "AGENTS.md",
            "AGENTS.override.md",
            "AGENT.md",
            "GEMINI.md",
            ".gemini/**",
            ".codex/**",
            ".cursor/**",
            ".cursorrules",
            ".cursorignore",
            ".windsurf/**",
            ".windsurfrules",
            ".clinerules",
            ".clinerules/**",
            ".roo/**",
            ".roorules",
            ".continue/**",
            ".aider*",
            "CONVENTIONS.md",
            ".opencode/**",
            "opencode.json",
            "opencode.jsonc",
            ".goose/**",
            ".goosehints",
            ".pi/**",
            ".amp/**",
            ".kiro/**",
            ".junie/**",
            ".agents/**",
            "SKILL.md",
            ".github/copilot-instructions.md",
            ".github/instructions/**",
            ".github/prompts/**",
            ".github/agents/**",
            ".github/chatmodes/**",
            ".crush.json",
            "crush.json",
        ),
        "the next agent obeys it, or starts the servers and hooks that it names",
    ),
    "desktop": Execution(
        ("*.desktop", "*.service", "*.timer", "*.socket", "crontab", ".directory", "*.AppImage"),
        "a desktop or a service manager starts what it names",
    ),
    "settings": Execution((), "a tool that reads a file of this name may run what it names; Aileron does not know it"),
    "executable": Execution((), "it has a permission bit that lets it be run"),
    "set-user-ID": Execution((), "whoever runs it does so as its owner or group"),
    "link out of the project": Execution((), "what is written or read through it is outside of the project"),
    "hard link": Execution((), "the same file has other names, which can be outside of the project"),
    "special file": Execution((), "a socket, pipe or device waits for whoever opens it"),
    INSTALLED: Execution((), "whoever uses the folder runs what is in it"),
}
"""Mapping of each kind to its files and the reason. The first kinds are shown first. docs/reference/cell-changes.md
has the same order.
"""


# Repositories under any name


class _GitPlace(NamedTuple):
    """A node in a tree of the paths that git acts on in a repository: the kind of a file at that path, and the nodes
    below by name. `*` stands for every other name.
    """

    kind: str | None = None
    names: Mapping[str, _GitPlace] = {}


def _everything(kind: str) -> _GitPlace:
    """Return the node (_GitPlace) of a folder in which git acts on every file. A link in the folder's place counts as
    the same kind, because it leads to such a folder.
    """
    return _GitPlace(kind, {"*": _GitPlace(kind)})


_REPOSITORY: Final = _GitPlace(
    names={
        **{name: _GitPlace("git configuration") for name in ("config", "config.worktree")},
        **{name: _GitPlace("git elsewhere") for name in ("commondir", "gitdir")},
        **{name: _everything("git elsewhere") for name in ("remotes", "branches")},
        **{name: _everything("git in progress") for name in ("rebase-merge", "rebase-apply", "sequencer")},
        "hooks": _everything("git hook"),
        "info": _GitPlace(names={"attributes": _GitPlace("git attributes")}),
        "objects": _GitPlace(names={"info": _GitPlace(names={"alternates": _GitPlace("git elsewhere")})}),
    }
)


class GitPlaces(NamedTuple):
    """The nodes (_GitPlace) of an entry in the git repositories that contain it: several if one repository is inside
    another.
    """

    places: tuple[_GitPlace, ...] = ()
    tree: str = ""
    """The package manager's folder that contains the entry (installed.py); empty if there is none."""

    @property
    def kind(self) -> str | None:
        """Kind of a file or link that has these nodes; None if git does not act on it."""
        return next((place.kind for place in self.places if place.kind is not None), None)

    def of(self, name: str) -> GitPlaces:
        """Return the nodes of the entry `name` in a folder, if these are the folder's nodes."""
        found = (place.names.get(name) or place.names.get("*") for place in self.places)
        return GitPlaces(tuple(place for place in found if place is not None), self.tree)


def git_places(above: GitPlaces, path: str, has: Callable[[str], bool], had: Callable[[str], bool] | None) -> GitPlaces:
    """Return the nodes of the folder `path` in git repositories, given the nodes (`above`) of the folder that
    contains it. `has` and `had` return whether a name is in the folder now, and was in it before the agent started.
    `had` is None if the folder did not exist.

    Git treats a folder with HEAD as a repository. Its objects and refs, and with them the configuration and the
    hooks, can be in a folder without HEAD, to which a `commondir` leads, gitrepository-layout(5).
    """
    is_repository = has("HEAD") or (has("objects") and has("refs"))
    places = (*above.places, _REPOSITORY) if is_repository else above.places
    return GitPlaces(places, above.tree or tree_of(path, has, had))


# Files that are in no row of the table


_DATA: Final = (
    *(f"{folder}/{name}" for folder in (".hg", ".sl") for name in (
        "00changelog.i", "bookmarks*", "branch", "cache/**", "dirstate*", "last-message.txt", "store/00*", "store/data/**",
        "store/dh/**", "store/fncache", "store/lock", "store/meta/**", "store/phaseroots", "store/undo*", "undo*", "wcache/**",
    )),
    *(f".jj/{name}" for name in (
        "working_copy/**", "repo/index/**", "repo/op_heads/**", "repo/op_store/**", "repo/store/type", "repo/store/extra/**",
        "repo/store/git/**", "repo/submodule_store/**",
    )),
    ".svn/pristine/**", ".svn/tmp/**", ".svn/format", ".bzr/checkout/dirstate", ".bzr/repository/**", "_darcs/pristine.hashed/**",
    "_darcs/patches/**", "_darcs/inventories/**", ".pijul/pristine/**", ".pijul/changes/**",
)  # fmt: skip
"""Files of version control that are only data. A bare repository below such a path is still recognised by its contents."""
_PASSIVE: Final = (
    ".gitignore", ".gitkeep", ".keep", ".mailmap", ".git-blame-ignore-revs", ".hgignore", ".bzrignore", ".cvsignore", ".ignore",
    ".rgignore", ".fdignore", ".npmignore", ".eslintignore", ".prettierignore", ".stylelintignore", ".helmignore",
    ".gcloudignore", ".vercelignore", ".markdownlintignore", ".DS_Store", ".nojekyll", ".coverage", ".coverage.*",
    ".eslintcache", ".stylelintcache",
    *(f"{name}/**" for name in (
        ".git", ".pytest_cache", ".mypy_cache", ".ruff_cache", ".hypothesis", ".nyc_output", ".ipynb_checkpoints",
        ".github/ISSUE_TEMPLATE", ".github/PULL_REQUEST_TEMPLATE",
    )),
)  # fmt: skip
"""Hidden files that are known to run nothing: ignore patterns, marker files, caches and reports. Files in .git that git obeys
have their own rows in KINDS."""
_LIKE_SETTINGS: Final = (
    r"(?:.*/)?(?:"
    r"\.(?:[^/]+/)*[^/]+"  # hidden, or in a hidden folder
    r"|[A-Za-z_-]{2,}rc"
    r"|[^/]+[.-](?:config|conf|rc|settings)\.[^/.]+|[^/]+\.(?:config|conf|settings|rc)"
    r"|[A-Z][a-z]+file|(?!(?:README|LICEN[CS]E|COPYING|COPYRIGHT|NOTICE|AUTHORS|CONTRIBUTORS|MAINTAINERS|CHANGELOG|CHANGES|NEWS"
    r"|HISTORY|TODO|INSTALL|HACKING|THANKS|CREDITS|PATENTS|VERSION|CONTRIBUTING|CODEOWNERS|OWNERS|HEAD)$)[A-Z]{3,}"
    r")"
    r"|[^/]+\.(?:toml|ini|cfg|cnf|json[c5]?|ya?ml|xml|properties|plist|kdl|hcl|ron|lock|nix|neon|edn|exs|rake)"  # at the top
)
"""Pattern of paths that look like settings files. At the top of a project, any file in a settings format counts, by its
extension.
"""


def _is_like_settings(path: str) -> bool:
    """Return whether a path that matches no row of KINDS looks like a tool's settings file."""
    return re.fullmatch(_LIKE_SETTINGS, path, re.DOTALL) is not None and _passive().fullmatch(path) is None


@functools.cache
def _passive() -> re.Pattern[str]:
    return matching((*_PASSIVE, *_DATA))


@functools.cache
def _data() -> re.Pattern[str]:
    return matching(_DATA)


def _pattern(glob: str) -> str:
    """Return the text of a regular expression for a glob: `*` matches within a name, `**` any folders or, at the end,
    all paths below.
    """
    parts = [
        "(?:.*/)?" if part == "**" else "[^/]*".join(map(re.escape, part.split("*"))) + "/" for part in glob.split("/")
    ]
    if glob.endswith("/**"):
        parts[-1] = ".+/"
    return "".join(parts).removesuffix("/")


def matching(globs: Iterable[str]) -> re.Pattern[str]:
    """Return a pattern for `fullmatch` that matches paths whose end matches one of the globs, as in `KINDS`."""
    return re.compile(f"(?:.*/)?(?:{'|'.join(map(_pattern, globs))})", re.DOTALL)


_ORDER: Final = {kind: number for number, kind in enumerate(KINDS)}
_SAMPLE: Final = r"(?:.*/)?\.git/(?:.*/)?hooks/[^/]+\.sample"


def _is_sample(candidate: Candidate) -> bool:
    """Return whether the entry is a sample hook of `git init`. git runs no sample, githooks(5), and a dozen would
    hide the hooks that it runs.
    """
    is_sample = re.fullmatch(_SAMPLE, candidate.path, re.DOTALL) is not None
    return is_sample or (candidate.git_kind == "git hook" and candidate.path.endswith(".sample"))


@functools.cache
def _rules() -> tuple[tuple[str, Execution, re.Pattern[str]], ...]:
    """Return KINDS with compiled patterns. They are compiled on the first call, in 25 ms, so that no agent waits for this before
    it starts.
    """
    return tuple((kind, rule, matching(rule.files)) for kind, rule in KINDS.items() if rule.files)


@functools.cache
def _any() -> re.Pattern[str]:
    return matching(glob for rule in KINDS.values() for glob in rule.files)


def findings(candidate: Candidate) -> tuple[Finding, ...]:
    """Return the reasons why an entry can make a program run later, in the order of `KINDS`; empty for most files."""
    found = tuple(_found(candidate))
    if not candidate.tree:
        return found
    if any(finding.kind in _STANDS_ALONE or finding.kind.startswith("git ") for finding in found):
        return found
    is_installed = is_of_tree(candidate.path, candidate.tree, is_link_out=candidate.leads_out is not None)
    return (Finding(INSTALLED, candidate.tree),) if is_installed else found


def tree_in(found: Iterable[Finding]) -> str:
    """Return the package manager's folder under which a change with these findings is counted; empty if the change is
    listed by itself.
    """
    return next((finding.detail for finding in found if finding.kind == INSTALLED), "")


def rank(found: Iterable[Finding]) -> int:
    """Return the sort key of a change in a list: the position of its first finding's kind in `KINDS`. A change without
    findings comes last.
    """
    return next((_ORDER[finding.kind] for finding in found), len(_ORDER))


def spoken(found: Iterable[Finding]) -> str:
    """Return the reasons why a file can run code as one text that is safe to print: `npm (scripts: test), executable`."""
    return ", ".join(finding.kind + (f" ({visible(finding.detail)})" if finding.detail else "") for finding in found)


def _found(candidate: Candidate) -> Iterator[Finding]:
    if candidate.kind == "file" and not candidate.mode & 0o6000 and _is_sample(candidate):
        return
    if candidate.kind in ("file", "link"):
        whole = candidate.above + candidate.path
        is_known = _any().fullmatch(whole) is not None and _data().fullmatch(whole) is None
        for kind, rule, pattern in _rules() if is_known or candidate.git_kind else ():
            if kind == candidate.git_kind or (is_known and pattern.fullmatch(whole)):
                yield from _by_content(candidate, kind, rule)
        if not is_known and not candidate.git_kind and _is_like_settings(candidate.path):
            yield Finding("settings")
    if candidate.kind == "file" and candidate.mode & 0o111:
        yield Finding("executable")
    if candidate.kind == "file" and candidate.mode & 0o6000:
        yield Finding("set-user-ID")
    if candidate.leads_out is not None:
        yield Finding("link out of the project", _cut(candidate.leads_out, _MAX_TARGET))
    if candidate.kind in ("socket", "pipe", "device"):
        yield Finding("special file", candidate.kind)


def _by_content(candidate: Candidate, kind: str, rule: Execution) -> Iterator[Finding]:
    if rule.detail is None or candidate.kind == "link":
        yield Finding(kind)
        return
    content = candidate.content()
    details = None if content is None else rule.detail(content)
    if details is None:
        yield Finding(kind, "cannot be read")
        return
    shown = [_cut(detail) for detail in details]
    if shown:
        more = f" and {len(shown) - _MAX_DETAILS} more" if len(shown) > _MAX_DETAILS else ""
        yield Finding(kind, ", ".join(dict.fromkeys(shown[:_MAX_DETAILS])) + more)


def _cut(text: str, most: int = _MAX_DETAIL) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"
