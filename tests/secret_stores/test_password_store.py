"""Secrets in a real password store: Debian's pass and gpg, with a key of the test's own."""

from __future__ import annotations

from collections.abc import Iterator

import anyio
import pytest

from tests.secret_stores.conftest import fetched, fetching, unfetched
from tests.support.password_store import PasswordStore, needs_pass

pytestmark = [pytest.mark.anyio, needs_pass]

PASSWORD, KEY = (
    "canary-in-the-password-store",
    "-----BEGIN PRIVATE KEY-----\nMC4CAQAwBQYDK2Vw\n-----END PRIVATE KEY-----\n",
)


@pytest.fixture(scope="module")
def store() -> Iterator[PasswordStore]:
    """Run a password store with some typical entries."""
    with PasswordStore() as made:
        made.insert("work/mail", f"{PASSWORD}\nuser: me@example.test\nurl: https://mail.example\n")
        made.insert("work/key", KEY)
        made.insert("With spaces/Mail, old", PASSWORD)
        yield made


@pytest.mark.parametrize("entry", ["work/mail", "With spaces/Mail, old"], ids=["lines", "spaces"])
async def test_the_first_line_of_a_pass_entry_is_the_secret(store: PasswordStore, entry: str) -> None:
    """Users of pass keep other facts, such as a user name, in the lines below it."""
    async with fetching(environment=store.environment) as fetcher:
        assert await fetched(fetcher, f"pass:{entry}") == PASSWORD.encode()


async def test_a_private_key_in_a_pass_entry_is_returned_whole(store: PasswordStore) -> None:
    """The first line alone would be the header of the key."""
    async with fetching(environment=store.environment) as fetcher:
        assert await fetched(fetcher, "pass:work/key") == KEY.encode()


@pytest.mark.parametrize("entry", ["work/none", "work"], ids=["nothing", "directory"])
async def test_a_path_without_an_entry_is_reported_as_missing(store: PasswordStore, entry: str) -> None:
    """A directory is missing too: pass itself would print a listing and succeed."""
    async with fetching(environment=store.environment) as fetcher:
        with unfetched("missing", "has no such entry", f"pass insert '{entry}'"):
            await fetched(fetcher, f"pass:{entry}")


async def test_a_locked_gpg_key_fails_at_once(store: PasswordStore) -> None:
    """The fetch neither asks for the passphrase nor waits for one. Control: the same store with an unlocked key."""
    with PasswordStore("a passphrase that nobody types") as locked:
        locked.insert("mail", PASSWORD)
        locked.forget()
        async with fetching(environment=locked.environment) as fetcher:
            began = anyio.current_time()
            with unfetched("locked", "gpg has no key for it that is unlocked", "run `pass show 'mail'` in a terminal"):
                await fetched(fetcher, "pass:mail")
            assert anyio.current_time() - began < 5
    async with fetching(environment=store.environment) as fetcher:
        assert await fetched(fetcher, "pass:work/mail") == PASSWORD.encode()


async def test_the_default_pass_store_is_in_the_user_s_home_directory(
    store: PasswordStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """pass and gpg look there themselves. Without HOME, the password database names the directory."""
    home = store.path / "home"
    home.mkdir()
    for name, there in ((".password-store", "store"), (".gnupg", "gnupg")):
        (home / name).symlink_to(store.path / there)
    async with fetching(environment={"HOME": str(home)}) as fetcher:
        assert await fetched(fetcher, "pass:work/mail") == PASSWORD.encode()
    monkeypatch.setenv("HOME", str(home))
    async with fetching(environment={}) as fetcher:
        assert await fetched(fetcher, "pass:work/mail") == PASSWORD.encode()
        with unfetched("missing", "start the daemon with PASSWORD_STORE_DIR set to it") as seen:
            await fetched(fetcher, "pass:work/none")
    assert str(home) not in seen.value.failure.message


@pytest.mark.abuse_case("S6")
async def test_environment_variables_choose_the_pass_store_and_have_no_other_effect(store: PasswordStore) -> None:
    """Options and extensions for pass and gpg, and a PATH, are not passed on."""
    hostile = {
        "PATH": "/nonexistent",
        "PASSWORD_STORE_GPG_OPTS": "--no-such-option",
        "PASSWORD_STORE_ENABLE_EXTENSIONS": "true",
        "BASH_ENV": "/nonexistent/run-me",
        "LD_PRELOAD": "/nonexistent/load-me.so",
        "AILERON_VAULT_PASSPHRASE": "a canary of the daemon's",
    }
    async with fetching(environment={**store.environment, **hostile}) as fetcher:
        assert await fetched(fetcher, "pass:work/mail") == PASSWORD.encode()
