"""What could have been sent to a host: all that is bound for it and was until lately, open and locked."""

from __future__ import annotations

import gc
import weakref

import msgspec
import pytest

from aileron.model.credential import OAuthGrant, Reach
from aileron.model.failure import FailureClass
from aileron.model.secret import Secret
from aileron.vault import Binding, Vault
from aileron.vault.sendable import KEPT_S, MOST, MOST_OF_ONE
from tests.vault.conftest import API_KEY, BASIC, CANARY, OTHER, PASSPHRASE, refused
from tests.vault.test_vault_grants import GRANT, SIGNED_IN, tokens

HOST, ELSEWHERE, PROVIDER = "mail.example:443", "other.example:443", "login.example:443"
BOUND = msgspec.structs.replace(BASIC, reach=Reach(hosts=(HOST,), wire="basic"))
NEXT = b"the-next-secret-of-the-account"


@pytest.fixture
def opened(absent: Vault) -> Vault:
    """Open, with one secret bound for one host."""
    absent.create(Secret(PASSPHRASE))
    absent.set_secret("mail", Secret(CANARY))
    absent.set_secret("tickets", Secret(OTHER))
    absent.bind(BOUND)
    return absent


def sent(vault: Vault, host: str) -> list[bytes]:
    """The values, in order."""
    return [each.secret.reveal() for each in vault.sendables(host).known]


def test_what_is_bound_for_a_host_could_be_sent_there_and_nothing_else(opened: Vault):
    """By whichever connector; with the user name, as that is part of what goes on the wire."""
    (known,) = opened.sendables(HOST).known
    assert (known.kind, known.secret.reveal(), known.username) == ("basic", CANARY, BASIC.username)
    assert (sent(opened, ELSEWHERE), opened.may_be_bound(HOST), opened.may_be_bound(ELSEWHERE)) == ([], True, False)


def test_a_binding_of_which_nobody_kept_what_it_reaches_could_be_sent_anywhere(opened: Vault):
    """While it is locked too: then nothing is asked at all."""
    assert API_KEY.reach is None
    opened.bind(API_KEY)
    assert (sent(opened, ELSEWHERE), opened.may_be_bound(ELSEWHERE)) == ([OTHER], True)
    opened.lock()
    with refused(FailureClass.VAULT_LOCKED):
        opened.sendables("somewhere.example:443")


def test_a_locked_vault_says_what_it_would_have_to_know(opened: Vault):
    """By the file, and by what was known while it was open: a file that says less takes nothing from that."""
    opened.lock()
    with refused(FailureClass.VAULT_LOCKED) as refusal:
        opened.sendables(HOST)
    assert (HOST in refusal.message, "aileron vault unlock" in refusal.message) == (True, True)
    assert sent(opened, ELSEWHERE) == []
    with refused(FailureClass.VAULT_LOCKED):
        Vault(opened.path).sendables(HOST)
    opened.path.write_bytes(b"{}")
    with refused(FailureClass.HASH_MISMATCH):
        opened.sendables(ELSEWHERE)
    opened.path.unlink()
    with refused(FailureClass.VAULT_LOCKED):
        opened.sendables(HOST)


def test_the_tokens_of_a_sign_in_go_to_their_hosts_and_both_to_the_provider(opened: Vault):
    """The access token where it is used; the refresh token where it is renewed, which a connector may be granted too."""
    opened.bind_sign_in(SIGNED_IN, tokens().sealed())
    assert sent(opened, "api.example:443") == [b"access-token-1"]
    assert sent(opened, PROVIDER) == [b"access-token-1", b"refresh-token-1"]


def test_a_renewed_token_is_remembered_and_a_note_of_a_renewal_changes_nothing(opened: Vault):
    """The one before, for a day."""
    opened.bind_sign_in(SIGNED_IN, tokens().sealed())
    opened.note_renewal(SIGNED_IN.name, 1_750_000_100_000)
    assert sent(opened, "api.example:443") == [b"access-token-1"]
    opened.put_tokens(SIGNED_IN.name, tokens("access-token-2", "refresh-token-2"), GRANT)
    assert sent(opened, "api.example:443") == [b"access-token-2", b"access-token-1"]


@pytest.mark.parametrize("how", ["rotated", "revoked", "bound anew for less", "another user"])
def test_what_a_change_ends_is_remembered(opened: Vault, how: str):
    """Whatever ended it."""
    match how:
        case "rotated":
            opened.set_secret("mail", Secret(NEXT))
        case "revoked":
            opened.revoke(BOUND.name)
        case "bound anew for less":
            opened.bind(msgspec.structs.replace(BOUND, reach=Reach(hosts=(ELSEWHERE,), wire="basic")), replace=True)
        case _:
            opened.bind(msgspec.structs.replace(BOUND, username="other"), replace=True)
    assert CANARY in sent(opened, HOST)


def test_what_is_remembered_is_so_behind_a_lock_and_under_a_new_key(opened: Vault):
    """Locked, it is known that there was something, and not what; a vault's new key opens what the old one sealed."""
    opened.revoke(BOUND.name)
    opened.lock()
    assert opened.may_be_bound(HOST)
    opened.unlock(Secret(PASSPHRASE))
    assert CANARY in sent(opened, HOST)
    opened.rotate(Secret(PASSPHRASE), Secret(PASSPHRASE + b"2"))
    assert CANARY in sent(opened, HOST)
    opened.lock()
    opened.unlock(Secret(PASSPHRASE + b"2"))
    assert CANARY in sent(opened, HOST)


def test_nothing_is_remembered_for_ever(opened: Vault, monkeypatch: pytest.MonkeyPatch):
    """A day, and no longer."""
    now = 1000.0
    monkeypatch.setattr("aileron.vault.vault._now_s", lambda: now)
    opened.set_secret("mail", Secret(NEXT))
    now += KEPT_S - 1
    assert sent(opened, HOST) == [NEXT, CANARY]
    now += 1
    assert sent(opened, HOST) == [NEXT]


def test_no_more_than_so_many_are_remembered(opened: Vault):
    """The newest of each binding, and the newest of all."""
    for number in range(MOST_OF_ONE + 3):
        opened.set_secret("mail", Secret(b"value-number-%d" % number))
    assert len(sent(opened, HOST)) == 1 + MOST_OF_ONE
    for number in range(MOST // MOST_OF_ONE + 2):
        binding = _numbered(number)
        for version in range(MOST_OF_ONE + 1):
            opened.set_secret(binding.secret, Secret(b"value-%d-of-%d" % (version, number)))
            if version == 0:
                opened.bind(binding)
    bound = len(opened.bindings())
    assert len(sent(opened, HOST)) == bound + MOST


def _numbered(number: int) -> Binding:
    name = type(BASIC.name)("basic", f"s{number}", "me")
    return msgspec.structs.replace(BOUND, name=name, secret=f"s{number}")


def test_the_same_value_is_given_until_something_changes_and_none_outlives_the_key(opened: Vault):
    """What egress makes of it is kept by it: once for each change, and gone when the vault is locked."""
    known = opened.sendables(HOST)
    assert opened.sendables(HOST) is known
    opened.set_secret("tickets", Secret(NEXT))
    assert opened.sendables(HOST) is not known
    kept = weakref.ref(opened.sendables(HOST))
    opened.lock()
    gc.collect()
    assert kept() is None


def test_tokens_that_were_overwritten_by_hand_are_no_tokens(opened: Vault):
    """They are lent to nobody, so none is looked for; what was there before is."""
    opened.bind_sign_in(SIGNED_IN, tokens().sealed())
    opened.set_secret(SIGNED_IN.secret, Secret(b"not a set of tokens"))
    assert sent(opened, "api.example:443") == [b"access-token-1"]
    assert isinstance(SIGNED_IN.grant, OAuthGrant)
