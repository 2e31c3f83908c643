"""Starting the daemon, and every way in which it can fail: reported at once, with the fix."""

from __future__ import annotations

import os
import shutil
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Collection
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import pytest

import aileron
import aileron_sandbox
from aileron.client import Client, DaemonUnreachable
from aileron.home import Home
from aileron.model.timestamp import utc
from tests.support.descendants import read_descendants
from tests.support.home import DaemonHome

pytestmark = [pytest.mark.jail, pytest.mark.usefixtures("real_processes")]


def test_the_daemon_starts_with_the_first_request_and_stops_when_told(bare_home: DaemonHome) -> None:
    """A request starts the daemon; after the stop, its sockets and announcement are gone."""
    before = bare_home.daemon_pid
    assert before is None

    assert bare_home.must("GET", "/healthz") == {"status": "ok"}
    pid = bare_home.daemon_pid
    bare_home.stop()

    assert pid is not None
    assert not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    assert sorted(path.name for path in (bare_home.path / "run").iterdir()) == ["daemon.lock"]


def test_the_sockets_are_private_and_no_process_can_read_the_daemons_memory(bare_home: DaemonHome) -> None:
    """Directories have mode 0700, sockets 0600, and other processes of the user cannot open the daemon's memory."""
    bare_home.must("GET", "/healthz")
    run = bare_home.path / "run"

    assert stat.S_IMODE(run.stat().st_mode) == 0o700
    assert {stat.S_IMODE((run / name).stat().st_mode) for name in ("agent.sock", "cell.sock", "operator.sock")} == {
        0o600
    }
    assert stat.S_IMODE((bare_home.path / "ledger.db").stat().st_mode) == 0o600
    # An undumpable process's /proc entries belong to root, proc_pid(5).
    assert os.stat(f"/proc/{bare_home.daemon_pid}/environ").st_uid == 0
    limits = Path(f"/proc/{bare_home.daemon_pid}/limits").read_text().splitlines()
    assert next(line for line in limits if "core file" in line).split()[4] == "0"


def test_the_reported_start_time_is_not_after_the_daemon_was_ready(bare_home: DaemonHome) -> None:
    """The time of the first request would be wrong: it comes later, and imports most modules."""
    Client(bare_home.path).start()
    ready = utc(time.time())

    assert bare_home.must("GET", "/v1/status")["started_at"] <= ready


def test_after_a_kill_the_next_request_starts_another_daemon(bare_home: DaemonHome) -> None:
    """Stale sockets and a stale announcement do not matter, because the lock ended with the process."""
    bare_home.must("GET", "/healthz")
    first = bare_home.daemon_pid
    bare_home.kill()

    bare_home.must("GET", "/healthz")

    assert bare_home.daemon_pid not in (None, first)


def test_callers_that_start_the_daemon_simultaneously_are_all_answered(bare_home: DaemonHome) -> None:
    """Only one daemon gets the lock, and it may not listen yet when the others exit in its favour."""
    for _ in range(3):
        with ThreadPoolExecutor(4) as pool:
            clients = [Client(bare_home.path) for _ in range(4)]
            answers = list(pool.map(lambda client: client.request("GET", "/v1/status"), clients))
        bare_home.stop()

        assert [answer.status for answer in answers] == [200] * 4


def test_an_unknown_setting_keeps_the_daemon_from_starting(bare_home: DaemonHome) -> None:
    """The error names the key and the nearest known one."""
    bare_home.configure("[egress]\nprivat = []\n")

    with pytest.raises(DaemonUnreachable, match=r"unknown key 'privat' in \[egress\]; did you mean 'private'"):
        bare_home.ask("GET", "/healthz")


def test_a_home_that_others_can_read_keeps_the_daemon_from_starting(bare_home: DaemonHome) -> None:
    """The error has the chmod that fixes it; after that, the daemon starts."""
    bare_home.path.mkdir(mode=0o755)
    bare_home.path.chmod(0o755)

    with pytest.raises(DaemonUnreachable, match=rf"chmod 700 {bare_home.path}"):
        bare_home.ask("GET", "/healthz")

    bare_home.path.chmod(0o700)
    assert bare_home.must("GET", "/healthz") == {"status": "ok"}


def test_a_home_that_is_a_file_keeps_the_daemon_from_starting(bare_home: DaemonHome) -> None:
    """The error names the path and the problem, without a traceback."""
    bare_home.path.write_text("", encoding="utf-8")

    with pytest.raises(DaemonUnreachable, match=str(bare_home.path)):
        bare_home.ask("GET", "/healthz")


def test_a_home_whose_path_is_too_long_for_a_socket_is_refused_before_the_start(tmp_path: Path) -> None:
    """A socket's path (sun_path) has at most 108 bytes."""
    with pytest.raises(DaemonUnreachable, match="AILERON_HOME"):
        Client(tmp_path / ("x" * 120)).request("GET", "/healthz")


def test_a_client_reads_a_refusal_that_arrives_while_it_is_still_sending_the_body(tmp_path: Path) -> None:
    """The daemon refuses the request before it has read the body, which must not end in a broken pipe."""
    with socket.socket(socket.AF_UNIX) as listener, ThreadPoolExecutor(1) as pool:
        home = Home(tmp_path)
        home.run.mkdir(mode=0o700)
        listener.bind(str(home.operator_socket))
        listener.listen()

        def refuse() -> None:
            connection, _ = listener.accept()
            with connection:
                seen = b""
                while b"\r\n\r\n" not in seen:
                    seen += connection.recv(1 << 10)
                connection.sendall(b"HTTP/1.1 423 Locked\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{}")

        refused = pool.submit(refuse)
        answer = Client(tmp_path).ask("POST", "/v1/actions/x/run", {"args": {"text": "x" * (4 << 20)}})
        refused.result()

    assert (answer.status, answer.body) == (423, {})


def test_an_import_error_before_the_log_is_opened_is_reported_to_the_caller(
    bare_home: DaemonHome, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The error reaches the caller, because no log was opened yet."""
    (tmp_path / "msgspec.py").write_text("raise ImportError('msgspec is broken here')", encoding="utf-8")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))

    with pytest.raises(DaemonUnreachable, match="msgspec is broken here"):
        bare_home.ask("GET", "/healthz")


def test_an_import_error_at_the_first_request_is_answered_with_an_error_and_logged(
    bare_home: DaemonHome, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """They are imported for the first request: it gets an error, the log has the reason, and the daemon ends."""
    (tmp_path / "hypercorn.py").write_text("raise ImportError('hypercorn is broken here')", encoding="utf-8")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))

    answer = bare_home.ask("GET", "/healthz")

    assert answer.status == 500
    assert answer.body["error"]["class"] == "internal_error"
    assert "aileron daemon logs" in answer.body["error"]["message"]
    assert "hypercorn is broken here" in (bare_home.path / "logs" / "daemon.log").read_text(encoding="utf-8")


@pytest.mark.parametrize("is_replaced", [True, False], ids=["replaced", "as it was"])
def test_a_running_daemon_imports_nothing_of_a_newer_installation(
    bare_home: DaemonHome, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, is_replaced: bool
) -> None:
    """Most modules are imported after `ready`, and another version may be installed by then."""
    for package in (Path(aileron.__file__).parent, Path(aileron_sandbox.__file__).parent):
        shutil.copytree(package, tmp_path / package.name)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    client = Client(bare_home.path)
    client.start()
    begun = psutil.Process(bare_home.daemon_pid)
    installed = tmp_path / "aileron" / "__init__.py"
    if is_replaced:
        shutil.copy2(installed, tmp_path / "new.py")
        (tmp_path / "new.py").replace(installed)

    answer = client.ask("GET", "/healthz")

    if is_replaced:
        assert (answer.status, answer.body["error"]["class"]) == (500, "internal_error")
        assert "aileron was installed again" in answer.body["error"]["message"]
        assert "aileron daemon restart" in answer.body["error"]["message"]
        begun.wait(30)
        assert client.request("GET", "/healthz").status == 200, "the next command starts the new one"
    else:
        assert answer.status == 200


def test_a_daemon_started_by_a_command_does_not_keep_the_commands_secret_variables(
    bare_home: DaemonHome, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The secret was meant for the command that started the daemon; other variables are kept."""
    monkeypatch.setenv("AILERON_VAULT_PASSPHRASE", "correct horse battery")
    monkeypatch.setenv("AILERON_SIGNING_KEY", "a-publishers-key")
    monkeypatch.setenv("AILERON_TEST_CONTROL", "passes")
    bare_home.must("GET", "/healthz")
    if os.geteuid() != 0:
        pytest.skip("the daemon is undumpable: only root may read its environment")

    environment = Path(f"/proc/{bare_home.daemon_pid}/environ").read_bytes()

    assert b"AILERON_TEST_CONTROL=passes" in environment
    assert b"correct horse" not in environment
    assert b"a-publishers-key" not in environment
    below = read_descendants(bare_home.daemon_pid, lambda process: Path(f"/proc/{process.pid}/environ").read_bytes())
    assert below, "a template was started"
    assert not any(below.values())


_WITHOUT_NAMESPACES = """
import errno, sys
import pyseccomp
filter = pyseccomp.SyscallFilter(pyseccomp.ALLOW)
filter.add_rule(pyseccomp.ERRNO(errno.EPERM), "unshare")
filter.load()
from pathlib import Path
from aileron.client import Client, DaemonUnreachable
try:
    Client(Path(sys.argv[1])).request("GET", "/healthz")
except DaemonUnreachable as error:
    print(error)
"""


def test_without_user_namespaces_the_daemon_refuses_to_start_with_the_fix(bare_home: DaemonHome) -> None:
    """A container with a default seccomp profile is like this: no jail, so no daemon, and the error says what to change."""
    done = subprocess.run(
        [sys.executable, "-c", _WITHOUT_NAMESPACES, str(bare_home.path)],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )

    assert "confinement failed at namespaces and root: EPERM" in done.stdout
    assert "user namespaces" in done.stdout
    # The refused start is not on record: this is the first daemon that started.
    recorded = [event["type"] for event in bare_home.must("GET", "/v1/audit")["events"]]
    assert recorded == ["daemon.started", "genesis"]


def test_the_template_process_starts_after_few_imports() -> None:
    """The template prepares runs while the daemon imports its other modules."""
    before = "import sys; from aileron.daemon import begin; print(*sys.modules)"

    imported = subprocess.run([sys.executable, "-c", before], capture_output=True, text=True, timeout=60, check=True)

    named = {name for name in imported.stdout.split() if name.startswith(("aileron.", "anyio"))}
    assert named == {
        "aileron.api",
        "aileron.api.failures",
        "aileron.daemon",
        "aileron.daemon.begin",
        "aileron.daemon.installation",
        "aileron.daemon.rendezvous",
        "aileron.files",
        "aileron.home",
        "aileron.model",
        "aileron.model.failure",
        "aileron.model.json_value",
    }


def test_a_damaged_vault_is_reported_in_the_status(bare_home: DaemonHome) -> None:
    """The status has all other facts as well, for a person who looks for the problem."""
    bare_home.unlock()
    bare_home.stop()
    (bare_home.path / "vault.json").write_text("{}")

    status = bare_home.must("GET", "/v1/status")

    assert "is damaged or was changed" in status["vault"]["problem"]
    assert status["version"]


FIRST_USED_LATER = {
    *(
        "hypercorn",
        "starlette",
        "h11",
        "h2",
        "wsproto",
        "httpcore2",
        "cryptography",
        "jinja2",
        "fido2",
        "tomlkit",
        "email",
    ),
    *(
        "aileron.api.routes",
        "aileron.approver_key",
        "aileron.egress",
        "aileron.secret_stores",
        "aileron.executor.execute",
    ),
    *("aileron.gateway", "aileron.logins", "aileron.mcp", "aileron.oauth", "aileron.registry", "aileron.cards"),
    *(
        "aileron.runs",
        "aileron.vault",
        "aileron.web",
        "aileron.daemon.consent_service.build_consents",
        "aileron.daemon.installed",
    ),
    *("aileron.daemon.notify", "aileron.daemon.packages", "aileron.daemon.rooms", "aileron.daemon.secrets"),
}
"""Packages and modules that no start of a daemon imports."""
USED_SELDOM = {
    *(
        "aileron.approver_key.isolation",
        "aileron.approver_key.security_key",
        "aileron.importing",
        "aileron.mcp.server",
        "aileron.oauth.assertion",
        "asyncssh",
    ),
    *("cryptography", "fido2", "jinja2", "jsonschema", "nacl", "rich", "tomlkit", "typer"),
}
"""Packages and modules that the rooms do without, too; `cryptography` until the vault is unlocked or a decision is verified."""
MOST_IMPORTED = 320
"""Modules that a start may import, Python's own included: there were 900."""


def test_the_daemon_is_ready_before_it_imports_most_modules(bare_home: DaemonHome, tmp_path: Path) -> None:
    """A start does not wait for imports that it does not use: they follow with the first request."""
    ready, told = os.pipe()
    with (tmp_path / "stderr").open("wb") as before_the_log:
        process = subprocess.Popen(
            [sys.executable, "-X", "importtime", "-m", "aileron.daemon", str(bare_home.path), str(told)],
            stderr=before_the_log,
            pass_fds=[told],
        )
    os.close(told)
    with open(ready, "rb") as pipe:
        assert pipe.read() == b"ready"
    at_start = _imported(tmp_path / "stderr") + _imported(bare_home.path / "logs" / "daemon.log")

    bare_home.must("GET", "/healthz")
    later = _imported(bare_home.path / "logs" / "daemon.log")
    bare_home.stop()
    process.wait(30)

    assert [name for name in at_start if _is_one_of(name, FIRST_USED_LATER)] == []
    assert len(at_start) <= MOST_IMPORTED
    assert {"aileron.daemon.rooms", "starlette", "hypercorn"} <= set(later)
    assert [name for name in later if _is_one_of(name, USED_SELDOM)] == []


def _imported(path: Path) -> list[str]:
    """Return the modules that `-X importtime` reported in this file."""
    lines = path.read_text(encoding="utf-8").splitlines()
    return [line.rpartition("|")[2].strip() for line in lines if line.startswith("import time:")][1:]


def _is_one_of(module: str, names: Collection[str]) -> bool:
    return any(module == name or module.startswith(f"{name}.") for name in names)


@pytest.mark.parametrize(
    "begun", ["aileron.__main__.main()", "aileron.daemon.__main__.main([sys.argv[1]])"], ids=["command", "daemon"]
)
def test_a_process_skips_garbage_collection_at_its_exit(tmp_path: Path, begun: str) -> None:
    """The kernel frees all memory; a search for reference cycles would take a quarter of a short command."""
    code = (
        "import atexit, gc, sys; "
        "atexit.register(lambda: print(gc.get_freeze_count() > 10_000, len(gc.get_objects()) < 1_000)); "
        f"import {begun.partition('.main(')[0]}; {begun}"
    )
    (tmp_path / "file").write_text("", encoding="utf-8")  # not a valid home, so that a daemon reports it and ends

    ended = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "file")],
        env={**os.environ, "AILERON_HOME": str(tmp_path / "file")},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert ended.stdout.splitlines()[-1:] == ["True True"], ended
