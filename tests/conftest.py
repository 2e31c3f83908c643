"""Settings and fixtures of every test: Hypothesis profiles, and no access to the home or desktop of the user who runs it."""

from __future__ import annotations

import gc
import os
import shutil
import signal
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
from hypothesis import HealthCheck, settings

import aileron.passphrase
from tests.support import costs, derived, forks
from tests.support.other_user import checkout
from tests.support.upstream import Authority

pytest_plugins = ("tests.support.fixtures", "tests.support.pinned", "tests.support.shards")

# Collected tests stay until the end: searching them for cycles, again and again as they grow, takes a third of the collection.
gc.disable()

# Machines that run this are shared and noisy: a slow example says nothing about the code.
_CALM = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("default", _CALM, max_examples=100)
# a round; tests/fuzz.py makes as many as there is time for
settings.register_profile("fuzz", _CALM, max_examples=1_000)
settings.register_profile("few", _CALM, max_examples=15)  # with another Python: that it runs, not what holds
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))


def pytest_configure(config: pytest.Config) -> None:
    """Record what each file of tests takes, if the environment asks for it."""
    if costs.FOLDER in os.environ:
        config.pluginmanager.register(costs.Files(Path(os.environ[costs.FOLDER])))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    """Fail a test that took more processor time than its mark `computes_for` allows."""
    began = time.process_time()
    yield
    took_s, bound = time.process_time() - began, item.get_closest_marker("computes_for")
    if bound is not None and took_s > bound.args[0]:
        pytest.fail(f"it computed for {took_s:.1f} s, of at most {bound.args[0]}")


@pytest.fixture(autouse=True, scope="session")
def _no_real_home(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Give tests that forget to name their home an empty one, never the user's."""
    os.environ["AILERON_HOME"] = str(tmp_path_factory.mktemp("nobody") / "home")
    for name in ("AILERON_VAULT_PASSPHRASE", "AILERON_NEW_VAULT_PASSPHRASE"):
        os.environ.pop(name, None)


@pytest.fixture(autouse=True, scope="session")
def _no_real_desktop() -> None:
    """Keep questions of the tests off the desktop of the user who runs them."""
    for name in ("DBUS_SESSION_BUS_ADDRESS", "XDG_RUNTIME_DIR"):
        os.environ.pop(name, None)


@pytest.fixture(autouse=True, scope="session")
def _interruptible() -> None:
    """Restore the handling of SIGINT, SIGQUIT and SIGHUP where it is ignored, as programs that the tests start inherit that.

    A shell that runs the tests in the background ignores SIGINT and SIGQUIT for them, and nohup(1) SIGHUP.
    """
    for number, how in (
        (signal.SIGINT, signal.default_int_handler),
        (signal.SIGQUIT, signal.SIG_DFL),
        (signal.SIGHUP, signal.SIG_DFL),
    ):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, how)


@pytest.fixture(scope="session")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    """Return the authority for certificates of servers that this run starts; trusted only where a test says so."""
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="session")
def readable_python() -> Iterator[Path]:
    """Yield a Python with Aileron that an ordinary user can execute: made for the first test that needs it."""
    folder = Path(tempfile.mkdtemp(prefix="ail-tree-"))
    yield checkout(folder, ("aileron", "sandbox", "connectors/sdk"), ("aileron",))
    shutil.rmtree(folder)


@pytest.fixture(autouse=True, scope="session")
def _derived_once() -> None:
    """Remember derived keys, so that a passphrase and a salt are stretched once in this run (tests/support/derived.py)."""
    derived.remember(derived.folder())


@pytest.fixture(scope="module")
def real_derivation() -> Iterator[None]:
    """Stretch every passphrase for real: for tests of stretching, of its memory and time, and of salts."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(aileron.passphrase, "stretch", derived.STRETCH)
        patched.setattr(aileron.passphrase, "new_salt", derived.NEW_SALT)
        yield


@pytest.fixture(scope="module")
def real_processes(real_derivation: None) -> Iterator[None]:
    """Start daemons and commands as real interpreters: for tests of how one starts, and of what other processes see of it."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(forks, "is_allowed", False)
        yield


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    """Return the only event loop that the daemon runs on (docs/adr/0009-async-library.md)."""
    return "asyncio"


_SMALL: Final = ("frames", "model", "egress", "actions", "registry", "ledger", "audit", "vault", "architecture")
"""Rooms whose tests start few processes: when something there is broken, all else is."""
_LONG: Final = (
    "tui",
    "e2e",
    "faults",
    "daemon",
    "cli",
    "mcp",
    "web",
    "trial",
    "runs",
    "launch",
    "logins",
    "sandbox",
    "cell",
)
"""Rooms whose files take long, the longest first: files that start last should be over soon."""


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Run tests that start jails last in one process, so that a small fault is reported first.

    Shards side by side each take the next file, so files that take long come first.
    """
    if config.option.shards > 1:
        items.sort(key=lambda item: (*_LONG, _room(item)).index(_room(item)))
    else:
        items.sort(key=lambda item: _room(item) not in _SMALL)


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop() -> None:
    """Make the folder that all processes share, and look for garbage again, among what the tests themselves leave."""
    derived.folder()
    gc.freeze()
    gc.enable()


def _room(item: pytest.Item) -> str:
    return Path(str(item.path)).parent.name
