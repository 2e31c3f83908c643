"""The secrets that could have been sent to a host: all that are, or recently were, bound for it, open and locked."""

from __future__ import annotations

import gc
import weakref
from pathlib import Path

import msgspec
import pytest

from aileron.model.credential import OAuthGrant, Reach
from aileron.model.failure import FailureClass
from aileron.model.secret import Secret
from aileron.oauth.minting import UNSAID_S
from aileron.vault import Binding, Vault
from aileron.vault.sendable import KEPT_S, MOST, MOST_OF_ONE, Own
from tests.vault.conftest import API_KEY, BASIC, CANARY, OTHER, PASSPHRASE, refused
from tests.vault.test_vault_grants import GRANT, SIGNED_IN, tokens

pytestmark = pytest.mark.abuse_case("E36")

HOST, ELSEWHERE, PROVIDER = "mail.example:443", "other.example:443", "login.example:443"
BOUND = msgspec.structs.replace(BASIC, reach=Reach(hosts=(HOST,), wire="basic"))
NEXT = b"the-next-secret-of-the-account"


@pytest.fixture
def opened(absent: Vault) -> Vault:
    """Return an open vault with one secret bound for one host."""
    absent.create(Secret(PASSPHRASE))
    absent.set_secret("mail", Secret(CANARY))
    absent.set_secret("tickets", Secret(OTHER))
    absent.bind(BOUND)
    return absent


class Now:
    """The time of the vault's clock, in s."""

    s = 1000.0


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> Now:
    """Replace the vault's clock by one that stands still until a test sets it."""
    clock = Now()
    monkeypatch.setattr("aileron.vault.vault.since_boot", lambda: clock.s)
    return clock


def copied(vault: Vault) -> bytes:
    """Return the bytes that `vault backup` writes."""
    return vault.backup().data


def put_back(vault: Vault, copy: bytes) -> None:
    """Restore the copy as `vault restore` does."""
    found = vault.copy(copy, Secret(PASSPHRASE), "the copy")
    try:
        vault.put_back(found, 0)
    finally:
        found.wipe()


def sent(vault: Vault, host: str) -> list[bytes]:
    """Return the values that could have been sent to the host, in order."""
    return [each.secret.reveal() for each in vault.sendables(host).known]


def test_a_secret_counts_as_possibly_sent_only_to_the_host_it_is_bound_for(opened: Vault) -> None:
    """The connector does not matter. The user name is part of what is sent."""
    (known,) = opened.sendables(HOST).known
    assert (known.kind, known.secret.reveal(), known.username) == ("basic", CANARY, BASIC.username)
    assert (sent(opened, ELSEWHERE), opened.may_be_bound(HOST), opened.may_be_bound(ELSEWHERE)) == ([], True, False)


def test_a_secret_without_a_recorded_reach_counts_as_possibly_sent_to_any_host(opened: Vault) -> None:
    """A locked vault refuses every host then, and binding it again for one host does not change the past."""
    assert API_KEY.reach is None
    opened.bind(API_KEY)
    assert (sent(opened, ELSEWHERE), opened.may_be_bound(ELSEWHERE)) == ([OTHER], True)
    opened.bind(msgspec.structs.replace(API_KEY, reach=BOUND.reach), replace=True)
    assert (sent(opened, ELSEWHERE), opened.may_be_bound(ELSEWHERE)) == ([OTHER], True)
    opened.lock()
    with refused(FailureClass.VAULT_LOCKED):
        opened.sendables("somewhere.example:443")


def test_a_locked_vault_says_for_which_hosts_it_must_be_unlocked(opened: Vault) -> None:
    """The hosts come from the file and from what the vault knew when it was open, so a file with fewer removes none."""
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


def test_an_access_token_counts_as_sent_to_its_hosts_and_both_tokens_to_the_provider(opened: Vault) -> None:
    """The access token is used at the hosts; both are sent to the provider, which a connector may also reach."""
    opened.bind_sign_in(SIGNED_IN, tokens().sealed())
    assert sent(opened, "api.example:443") == [b"access-token-1"]
    assert sent(opened, PROVIDER) == [b"access-token-1", b"refresh-token-1"]


@pytest.mark.parametrize(
    "client",
    [
        "client-1 at https://login.example",
        "client-1 at https://login.example for https://mail.example/mcp",
        "registered at https://other.example/r at https://login.example/token for https://mail.example",
        "a client at https://other.example/ for all at https://login.example for https://mail.example",
    ],
)
def test_the_provider_s_host_is_that_of_the_token_endpoint_however_the_application_is_described(
    opened: Vault, client: str
) -> None:
    """The provider is the address of the token endpoint, not that of a registration, a resource, or one that looks like an ID."""
    reach = Reach(hosts=("api.example:443",), wire="oauth2", client=client)
    opened.bind_sign_in(msgspec.structs.replace(SIGNED_IN, reach=reach), tokens().sealed())

    assert reach.token_url in ("https://login.example", "https://login.example/token")
    assert sent(opened, PROVIDER) == [b"access-token-1", b"refresh-token-1"]
    assert sent(opened, ELSEWHERE) == []


def test_a_renewal_keeps_the_former_token_among_the_possibly_sent_secrets(opened: Vault) -> None:
    """The former token stays for a day. Noting that a renewal begins changes nothing."""
    opened.bind_sign_in(SIGNED_IN, tokens().sealed())
    opened.note_renewal(SIGNED_IN.name, 1_750_000_100_000)
    assert sent(opened, "api.example:443") == [b"access-token-1"]
    opened.put_tokens(SIGNED_IN.name, tokens("access-token-2", "refresh-token-2"), GRANT)
    assert sent(opened, "api.example:443") == [b"access-token-2", b"access-token-1"]


@pytest.mark.parametrize("how", ["rotated", "revoked", "bound anew for less", "another user"])
def test_a_secret_whose_binding_ended_still_counts_as_possibly_sent(opened: Vault, how: str) -> None:
    """Each way in which a binding can end is tried."""
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


def test_formerly_bound_secrets_are_remembered_after_a_lock_and_a_rotation(opened: Vault) -> None:
    """A locked vault knows only that there was one; a new key opens the values that the old one sealed."""
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


@pytest.mark.parametrize("is_open", [True, False])
@pytest.mark.parametrize("has_its_key", [True, False])
def test_a_restored_copy_does_not_forget_the_recent_secrets(opened: Vault, is_open: bool, has_its_key: bool) -> None:
    """The service still has the recent secret: it is searched for, unless the vault was locked under another key."""
    first = copied(opened)
    opened.set_secret("mail", Secret(NEXT))
    if not has_its_key:
        opened.rotate(Secret(PASSPHRASE), Secret(PASSPHRASE + b"2"))
    if not is_open:
        opened.lock()
    put_back(opened, first)
    assert opened.is_locked
    assert (opened.may_be_bound(HOST), opened.may_be_bound(ELSEWHERE)) == (True, False)
    opened.unlock(Secret(PASSPHRASE))
    assert opened.may_be_bound(HOST)
    assert set(sent(opened, HOST)) == ({CANARY, NEXT} if is_open or has_its_key else {CANARY})
    assert sent(opened, ELSEWHERE) == []


@pytest.mark.parametrize("is_known", ["open", "by the file", "from before", "by no file"])
def test_secrets_of_a_replaced_vault_still_count_as_possibly_sent_to_their_hosts(
    opened: Vault, tmp_path: Path, is_known: str, now: Now
) -> None:
    """A vault with another key replaces the file: old secrets are searched for if they can be opened. Otherwise
    the host counts as one with a binding, for a day.
    """
    empty = Vault(tmp_path / "empty.json")
    empty.create(Secret(PASSPHRASE))
    if is_known != "open":
        opened.lock()
    vault = Vault(opened.path) if is_known == "by the file" else opened
    if is_known == "by no file":
        opened.path.write_bytes(b"{}")
    if is_known == "from before":  # put in its place by hand
        opened.path.write_bytes(empty.path.read_bytes())
    else:
        put_back(vault, empty.path.read_bytes())
    assert (vault.may_be_bound(HOST), vault.may_be_bound(ELSEWHERE)) == (True, False)
    with refused(FailureClass.VAULT_LOCKED):
        vault.sendables(HOST)
    vault.unlock(Secret(PASSPHRASE))
    assert sent(vault, HOST) == ([CANARY] if is_known == "open" else [])
    now.s += KEPT_S - 1
    assert (vault.may_be_bound(HOST), vault.may_be_bound(ELSEWHERE)) == (True, False)
    now.s += 1
    assert (vault.may_be_bound(HOST), sent(vault, HOST)) == (False, [])


def test_secrets_of_a_vault_that_is_restored_later_count_as_possibly_sent_again(opened: Vault, tmp_path: Path) -> None:
    """Among them is a value that was replaced before another vault took its place."""
    opened.set_secret("mail", Secret(NEXT))
    own, empty = copied(opened), Vault(tmp_path / "empty.json")
    empty.create(Secret(PASSPHRASE))
    opened.lock()
    put_back(opened, empty.path.read_bytes())
    opened.unlock(Secret(PASSPHRASE))
    assert sent(opened, HOST) == []
    opened.lock()
    put_back(opened, own)
    opened.unlock(Secret(PASSPHRASE))
    assert set(sent(opened, HOST)) == {CANARY, NEXT}


def test_two_values_of_a_secret_with_equal_version_numbers_both_count_as_possibly_sent(absent: Vault) -> None:
    """Another second value, set after a restore, gets the version number of the first one; both could have been sent."""
    vault = Vault(absent.path, clock=iter(range(1_750_000_000, 1_760_000_000)).__next__)
    vault.create(Secret(PASSPHRASE))
    vault.set_secret("mail", Secret(CANARY))
    vault.bind(BOUND)
    first = copied(vault)
    vault.set_secret("mail", Secret(NEXT))
    second = copied(vault)
    put_back(vault, first)
    vault.unlock(Secret(PASSPHRASE))
    vault.set_secret("mail", Secret(OTHER))
    put_back(vault, second)
    vault.unlock(Secret(PASSPHRASE))
    assert {CANARY, OTHER, NEXT} <= set(sent(vault, HOST))


def test_replaced_secrets_are_remembered_for_one_day(opened: Vault, now: Now) -> None:
    """The bound is exact."""
    opened.set_secret("mail", Secret(NEXT))
    now.s += KEPT_S - 1
    assert sent(opened, HOST) == [NEXT, CANARY]
    now.s += 1
    assert sent(opened, HOST) == [NEXT]


def test_replaced_tokens_without_an_expiry_are_remembered_for_an_hour(opened: Vault, now: Now) -> None:
    """Tokens without an expiry are replaced every ten minutes: after an hour the first is still remembered."""
    got = [f"canary-token-{number}".encode() for number in range(7)]
    for token in got:
        now.s += UNSAID_S
        opened.remember_token(BOUND.name, Secret(token))

    assert UNSAID_S * (len(got) - 1) >= 3600
    assert set(got) < set(sent(opened, HOST))


def test_the_number_of_remembered_secrets_is_bounded(opened: Vault) -> None:
    """The newest are kept, for each binding and in all."""
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


def test_secrets_that_settings_name_count_as_possibly_sent_to_their_hosts(opened: Vault, now: Now) -> None:
    """They come from its settings: for an open vault, a locked one, one never opened in this process, and for former settings.
    A secret that is not stored goes nowhere.
    """
    opened.send_also([Own("anthropic", "tickets", ELSEWHERE), Own("openai", "absent", "third.example:443")])
    assert (sent(opened, ELSEWHERE), opened.may_be_bound(ELSEWHERE)) == ([OTHER], True)
    assert (sent(opened, "third.example:443"), opened.may_be_bound("third.example:443")) == ([], False)
    assert [binding.name for binding in opened.bindings()] == [BOUND.name]
    opened.set_secret("tickets", Secret(NEXT))
    assert sent(opened, ELSEWHERE) == [NEXT, OTHER]
    opened.lock()
    another = Vault(opened.path)
    assert (opened.may_be_bound(ELSEWHERE), another.may_be_bound(ELSEWHERE)) == (True, False)
    another.send_also([Own("anthropic", "tickets", ELSEWHERE)])
    assert another.may_be_bound(ELSEWHERE)
    with refused(FailureClass.VAULT_LOCKED):
        another.sendables(ELSEWHERE)
    opened.send_also([])
    assert opened.may_be_bound(ELSEWHERE)
    opened.unlock(Secret(PASSPHRASE))
    assert sent(opened, ELSEWHERE) == [OTHER, NEXT]
    opened.send_also([Own("openai", "tickets", "third.example:443")])
    opened.send_also([])
    assert sent(opened, "third.example:443") == [NEXT]
    now.s += KEPT_S
    assert (opened.may_be_bound(ELSEWHERE), opened.may_be_bound("third.example:443")) == (False, False)


def test_possibly_sent_secrets_are_returned_as_the_same_object_until_a_change_or_a_lock(opened: Vault) -> None:
    """Egress caches its needles for the object, so an equal but new object would cost time."""
    known = opened.sendables(HOST)
    assert opened.sendables(HOST) is known
    opened.set_secret("tickets", Secret(NEXT))
    assert opened.sendables(HOST) is not known
    kept = weakref.ref(opened.sendables(HOST))
    opened.lock()
    gc.collect()
    assert kept() is None


def test_a_value_set_by_hand_in_place_of_tokens_does_not_count_as_possibly_sent(opened: Vault) -> None:
    """The new value is lent to nobody; responses are still searched for the former tokens."""
    opened.bind_sign_in(SIGNED_IN, tokens().sealed())
    opened.set_secret(SIGNED_IN.secret, Secret(b"not a set of tokens"))
    assert sent(opened, "api.example:443") == [b"access-token-1"]
    assert isinstance(SIGNED_IN.grant, OAuthGrant)
