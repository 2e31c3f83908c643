"""The text of a connector's manifest: what is read, and what is refused with a line."""

from __future__ import annotations

import contextlib
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aileron.egress.url import parse_url
from aileron.model.failure import AileronError, Boundary, FailureClass
from aileron.model.manifest import ConnectorManifest, HostFunction, LimitsSpec
from aileron.model.names import HostPort
from aileron.registry.manifest import WASI_NAMES, parse_connector_manifest
from tests.registry.conftest import refusal as failure_of

Text = Callable[..., str]
PIN = "sha256:" + "ab" * 32
VERSION_MARK = chr(64)  # an interface of the component model may carry its version behind it
BIND = "bind the publisher's own with `aileron connector build DIR --client-id ID --client-secret-file FILE`"
OAUTH2 = """
[capabilities.credential.oauth2]
authorize_url = "https://accounts.example.com/authorize"
token_url = "https://accounts.example.com/token"
client_id = "123.apps.example.com"
client_secret = "not-really-secret"
scopes = ["https://example.com/mail.send", "openid"]
"""


def parse(text: str) -> ConnectorManifest:
    """Parse the manifest as an installed one."""
    return parse_connector_manifest(text.encode(), file="manifest.toml")


def refusal(text: str) -> str:
    """Return the message with which the manifest is refused."""
    failure = failure_of(parse, text)
    assert (failure.failure_class, failure.boundary) == (FailureClass.INVALID_REQUEST, Boundary.CONNECTOR_MANIFEST)
    return failure.message


def test_a_complete_manifest_is_read(manifest_text: Text) -> None:
    """Every field arrives as a value."""
    found = parse(
        manifest_text(
            ('version = "1.2.0"', f'version = "1.2.0-rc.1+sha.abc"\npublisher = "Acme"\nprovenance_hash = "{PIN}"'),
            ("[capabilities.network]", '[connector.idempotency]\ndefault = "not_idempotent"\n\n[capabilities.network]'),
            ('scope = "Send mail"', 'scope = "Send mail"\nheader = "X-API-Key"\nformat = "Token {key}"'),
        )
        + "[limits]\nmemory_mb = 128\ntimeout_s = 60\nsubprocess = true\n"
        + '[provides]\nintents = ["send_email"]\n'
    )

    assert (str(found.name), found.version, found.publisher) == ("github://acme/mail", "1.2.0-rc.1+sha.abc", "Acme")
    assert (found.provenance_hash, found.idempotent_by_default) == (PIN, False)
    assert found.hosts == (HostPort("mail.example.com", 443),)
    assert found.imports == {HostFunction.HTTP, HostFunction.LOG}
    assert found.credential is not None
    assert (found.credential.kind, found.credential.scope) == ("api_key", "Send mail")
    assert (found.credential.header, found.credential.format, found.credential.query) == (
        "X-API-Key",
        "Token {key}",
        None,
    )
    assert found.limits == LimitsSpec(memory_mb=128, timeout_s=60, subprocess=True)
    assert found.intents == ("send_email",)


def test_a_host_without_a_port_means_port_443(manifest_text: Text) -> None:
    """The two spellings mean the same host, so a manifest with both has it twice."""
    bare = manifest_text(("mail.example.com:443", "mail.example.com"))
    twice = manifest_text(('"mail.example.com:443"', '"mail.example.com:443", "mail.example.com"'))

    assert parse(bare).hosts == parse(manifest_text()).hosts == (HostPort("mail.example.com", 443),)
    with pytest.raises(AileronError, match="each once"):
        parse(twice)


def test_a_minimal_manifest_requests_nothing() -> None:
    """A name and a version give no network, no credential, no host function, and default limits."""
    found = parse('[connector]\nname = "hub://a/b"\nversion = "1.0.0"\n')

    assert (found.hosts, found.credential, found.oauth2, found.imports) == ((), None, None, frozenset())
    assert (found.limits, found.idempotent_by_default) == (LimitsSpec(), True)


def test_an_oauth2_manifest_is_read_with_its_provider(manifest_text: Text) -> None:
    """The provider is the publisher's application, as in the examples of the format."""
    found = parse(manifest_text(('"api_key"', '"oauth2"')) + OAUTH2)

    assert found.oauth2 is not None
    assert found.oauth2.client_id == "123.apps.example.com"
    assert found.oauth2.client_secret == "not-really-secret"
    assert found.oauth2.scopes == ("https://example.com/mail.send", "openid")


@pytest.mark.parametrize(("name", "function"), WASI_NAMES.items())
def test_host_function_names_of_the_component_model_are_understood(
    manifest_text: Text, name: str, function: HostFunction | None
) -> None:
    """The names may carry a version. Names for time and randomness request nothing."""
    for spelled in (name, f"{name}{VERSION_MARK}0.2.0"):
        found = parse(manifest_text(('"log"', f'"{spelled}"')))
        assert found.imports == {HostFunction.HTTP, *([function] if function else [])}


WRONG = [
    ("[connector]", "[conector]", ":1: unknown key 'conector'; did you mean 'connector'?"),
    ('version = "1.2.0"', "", ":1: missing key 'version' (string) in [connector]"),
    ('version = "1.2.0"', 'version = "01.2.0"', ":3: version: '01.2.0' is not a SemVer version"),
    ('version = "1.2.0"', 'version = "latest"', ":3: version: 'latest' is not a SemVer version"),
    ("github://acme/mail", "github://acme", ":2: name: 'github://acme' names no repository"),
    ("github://acme/mail", "github://acme/../mail", ":2: name: 'github://acme/../mail': path segment '..'"),
    ("github://acme/mail", "github://аcme/mail", ":2: name: 'github://аcme/mail': path segment"),  # Cyrillic a
    (
        'version = "1.2.0"',
        'version = "1.2.0"\nprovenance_hash = "sha256:abc123..."',
        ":4: provenance_hash: 'sha256:abc",
    ),
    ('version = "1.2.0"', 'version = "1.2.0"\nidempotency = {default = "no"}', ":4: default 'no' is not one of idem"),
    ("mail.example.com:443", "mail", ":6: hosts: 'mail' has no port"),
    ("mail.example.com:443", "Mail.example.com", ":6: hosts: 'Mail.example.com' is not a lower-case host name"),
    ("mail.example.com:443", "*.example.com", ":6: hosts: '*.example.com' has no port"),
    ("mail.example.com:443", "*.example.com:443", ":6: hosts: '*.example.com:443': wildcards are not allowed"),
    ("mail.example.com:443", "*", ":6: hosts: '*' has no port"),
    ("mail.example.com:443", "mail.example.com:0", ":6: hosts: 'mail.example.com:0': port '0'"),
    ("mail.example.com:443", "Mail.example.com:443", ":6: hosts: 'Mail.example.com' is not a lower-case host name"),
    ("mail.example.com:443", "0x7f.1:443", "looks like an IP address but is not four decimal octets"),
    ("mail.example.com:443", "bound-at-build", ":6: hosts is the placeholder 'bound-at-build': build it with"),
    (
        '["mail.example.com:443"]',
        "[]",
        ':6: hosts is empty; expected 1 to 32, such as ["api.example.com:443"], or leave out [capabilities.network]',
    ),
    ('["mail.example.com:443"]', '["a.b:1", "a.b:1"]', ":6: hosts has 'a.b:1' twice; write each once"),
    ('["mail.example.com:443"]', str([f"h{n}.x:1" for n in range(33)]), ":6: hosts has 33 entries; expected 1 to 32"),
    ("hosts", "host", ":6: unknown key 'host' in [capabilities.network]; did you mean 'hosts'?"),
    ('"api_key"', '"token"', ":9: kind 'token' is not one of api_key, basic, oauth2, login"),
    ('scope = "Send mail"', "", ":8: missing key 'scope' (string) in [capabilities.credential]"),
    ('"Send mail"', '" "', ":10: scope is empty"),
    (
        'scope = "Send mail"',
        'scope = "x"\nfile = "vault://mail"',
        ":11: unknown key 'file' in [capabilities.credential]",
    ),
    ('scope = "Send mail"', 'scope = "x"\nheader = "Host"', ":11: header 'Host' is not a header field name"),
    ('scope = "Send mail"', 'scope = "x"\nheader = "Proxy-Authorization"', ":11: header 'Proxy-Authorization' is not"),
    ('scope = "Send mail"', 'scope = "x"\nheader = "A: b"', ":11: header 'A: b' is not a header field name"),
    ('scope = "Send mail"', 'scope = "x"\nheader = "A\\r\\nB"', ":11: 'header' holds a hidden character: U+000D"),
    (
        'scope = "Send mail"',
        'scope = "x"\nformat = "Bearer"',
        ":11: format 'Bearer' must be printable ASCII with {key}",
    ),
    ('scope = "Send mail"', 'scope = "x"\nformat = "{key}{key}"', ":11: format '{key}{key}' must be"),
    ('scope = "Send mail"', 'scope = "x"\nformat = "{key.real}"', ":11: format '{key.real}' must be"),
    ('scope = "Send mail"', 'scope = "x"\nformat = "Bärer {key}"', "must be printable ASCII"),
    ('scope = "Send mail"', 'scope = "x"\nquery = "a&b"', ":11: query 'a&b' is not a parameter name"),
    (
        'scope = "Send mail"',
        'scope = "x"\nquery = "key"\nheader = "X-Key"',
        "query and header together: a key is sent in",
    ),
    ('"api_key"\n', '"basic"\nheader = "X-Key"\n', ":10: header needs kind = \"api_key\", but this is 'basic'"),
    ('"api_key"', '"oauth2"', ':9: kind = "oauth2" and [capabilities.credential.oauth2] must be used together'),
    (
        '"http", ',
        "",
        ':5: [capabilities.network] without "http", "tcp" or "websocket" in [capabilities.runtime] imports',
    ),
    ('"log"', '"lag"', ":13: unknown host function 'lag'; did you mean 'log'?"),
    ('"log"', '"wasi:filesystem/types"', ":13: unknown host function 'wasi:filesystem/types'"),
    ('"log"]', '"log"]\n[limits]\nmemory_mb = 1025', ":15: memory_mb = 1025 is not between 1 and 1024"),
    ('"log"]', '"log"]\n[limits]\ntimeout_s = 0', ":15: timeout_s = 0 is not between 1 and 300"),
    ('"log"]', '"log"]\n[limits]\ntimeout_s = 30.0', ":15: 'timeout_s' is a float; expected an integer"),
    ('"log"]', '"log"]\n[limits]\nmemory_mb = true', ":15: 'memory_mb' is a boolean; expected an integer"),
    ('"log"]', '"log"]\n[provides]\nintents = [""]', ":15: intents has an empty name"),
]


@pytest.mark.parametrize(
    "runtime",
    ["", "[capabilities.runtime]\n", "[capabilities.runtime]\nimports = []\n", "[capabilities]\n"],
)
def test_a_connector_without_host_functions_need_not_declare_any(runtime: str) -> None:
    """The key, its table or both may be left out; such a connector only computes."""
    text = f'[connector]\nname = "github://acme/plain"\nversion = "1.0.0"\n\n{runtime}'

    assert parse_connector_manifest(text.encode(), file="manifest.toml").imports == frozenset()


@pytest.mark.parametrize(("old", "new", "message"), WRONG, ids=[f"{n}" for n in range(len(WRONG))])
def test_a_mistake_is_reported_with_its_line(manifest_text: Text, old: str, new: str, message: str) -> None:
    """Each mistake in an otherwise good manifest is refused by name, with its line."""
    assert message in refusal(manifest_text((old, new)))


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('"https://accounts.example.com/token"', '"http://accounts.example.com/token"', "token_url: 'http://accounts"),
        ('"https://accounts.example.com/token"', '"https://u@accounts.example.com/"', "is not an https address"),
        ('"123.apps.example.com"', '"bound-at-release"', f"client_id is 'bound-at-release', a placeholder: {BIND}"),
        ('"not-really-secret"', '"bound-at-release"', f"client_secret is 'bound-at-release', a placeholder: {BIND}"),
        ('"not-really-secret"', '"<YOUR-SECRET>"', f"client_secret is '…', a placeholder: {BIND}"),
        ('"123.apps.example.com"', '"${CLIENT_ID}"', "client_id is '…', a placeholder"),
        ('"123.apps.example.com"', '"{{ client_id }}"', "client_id is '…', a placeholder"),
        ('"123.apps.example.com"', '""', "client_id is empty, longer than 512 characters or not printable ASCII"),
        ('"not-really-secret"', f'"{"s" * 513}"', "client_secret is empty, longer than 512"),
        ('"not-really-secret"', '"pässword"', "client_secret is empty, longer than 512 characters or not printable"),
        ('"openid"]', '"a b"]', "scopes is not a list of the provider's scopes, one string each"),
        ('"openid"]', "'a\"b']", "scopes is not a list of the provider's scopes, one string each"),
        ('"openid"]', '"openid", "openid"]', "scopes has 'openid' twice"),
        (
            '["https://example.com/mail.send", "openid"]',
            str([f"s{n}" for n in range(65)]),
            "scopes has 65 entries; expected at",
        ),
    ],
)
def test_an_invalid_provider_is_refused(manifest_text: Text, old: str, new: str, message: str) -> None:
    """A placeholder fails closed, and a sign-in never travels unencrypted."""
    whole = manifest_text(('"api_key"', '"oauth2"')) + OAUTH2
    assert old in whole

    assert message in refusal(whole.replace(old, new))


ADDRESSES = ["authorize_url", "token_url", "issuer", "device_authorization_url", "revocation_url", "registration_url"]


def with_address(manifest_text: Text, key: str, url: str) -> str:
    """Return an oauth2 manifest with `url` as one address of the provider."""
    kept = "".join(line + "\n" for line in OAUTH2.splitlines() if not line.startswith(f"{key} "))
    return manifest_text(('"api_key"', '"oauth2"')) + kept + f"{key} = '{url}'\n"


@pytest.mark.abuse_case("O8")
@pytest.mark.parametrize("key", ADDRESSES)
@pytest.mark.parametrize(
    "url",
    ["http://accounts.example.com/x", "https://u@accounts.example.com/x", "https://u:p@accounts.example.com/x",
     "https://accounts.example.com/x#f", "https://accounts.example.com/x#", "https://accounts.example.com/x?y=z",
     "https://accounts.example.com/x?", "https://Accounts.example.com/x", "HTTPS://accounts.example.com/x",
     "https://accounts.example.com./x", "https://accounts.example.com:/x", "https://accounts.example.com:0/x",
     "https://accounts.example.com:65536/x", "https://accounts.example.com:0443/x", "https://127.1/x", "https://[::1]/x",
     "https://0x7f.0.0.1/x", "https://accounts_example.com/x", "https:///x", "https:accounts.example.com", "//a.example/x",
     "https://a.example/x/../y", "https://a.example/%2e%2E/y", "https://a.example/..;x/y", "https://a.example/%zz",
     "https://a.example/a b", "https://a.example/\\x", "https://a.example/ä", "https://ä.example/x", "", "ftp://a.example/",
     "javascript:alert(1)", "https://a.example/" + "x" * 500, "http://localhost.example/x", "http://127.0.0.2/x"],
)  # fmt: skip
def test_an_ambiguous_provider_address_is_refused(manifest_text: Text, key: str, url: str) -> None:
    """Two readers could take it for two hosts, or it is unencrypted. The refusal names the key and its line."""
    whole = with_address(manifest_text, key, url)
    line = next(number for number, text in enumerate(whole.splitlines(), 1) if text.startswith(f"{key} ="))

    assert f":{line}: {key}: " in refusal(whole)


@pytest.mark.parametrize("key", ADDRESSES)
@pytest.mark.parametrize(
    "url",
    ["https://a.example", "https://a.example/", "https://a.example:8443/o/v2.0/tok%2Fen;x", "https://192.0.2.1/t",
     "http://localhost:8080/x", "http://127.0.0.1/x"],
)  # fmt: skip
def test_a_provider_address_is_kept_as_it_is_spelled(manifest_text: Text, key: str, url: str) -> None:
    """Aileron shows, compares and requests the same text, which egress parses to the same host."""
    found = parse(with_address(manifest_text, key, url)).oauth2

    assert getattr(found, key) == url
    assert parse_url(url).host == url.split("/")[2].partition(":")[0]


@given(
    url=st.from_regex(r"https?://[a-z0-9.:\-@\[\]A-Z]{0,12}(/[ -~]{0,8})?[?#]?", fullmatch=True)
    | st.text(st.characters(min_codepoint=33, max_codepoint=126, exclude_characters="'"), max_size=24).map(
        "https://a.example/".__add__
    )
)
def test_egress_parses_every_accepted_address_to_the_same_text(manifest_text: Text, url: str) -> None:
    """Two parsers that differ could send a request to another host than the one shown."""
    try:
        found = parse(with_address(manifest_text, "token_url", url.replace("'", ""))).oauth2
    except AileronError:
        return
    assert found is not None
    read = parse_url(found.token_url)
    spelled = {f"{read.scheme}://{host}{read.path}" for host in (read.authority, read.destination)}
    assert found.token_url.removesuffix("/") in {text.removesuffix("/") for text in spelled}
    assert read.query is None


def test_optional_settings_of_the_provider_are_read(manifest_text: Text) -> None:
    """The parameters are sorted by name; without their table there are none."""
    params = '[capabilities.credential.oauth2.authorize_params]\nprompt = "consent"\naccess_type = "offline"\n'
    found = parse(manifest_text(('"api_key"', '"oauth2"')) + OAUTH2 + params).oauth2
    plain = parse(manifest_text(('"api_key"', '"oauth2"')) + OAUTH2).oauth2

    assert found is not None
    assert plain is not None
    assert found.authorize_params == (("access_type", "offline"), ("prompt", "consent"))
    assert (plain.authorize_params, plain.issuer, plain.revocation_url) == ((), None, None)
    assert plain.device_authorization_url is None


def test_a_registration_url_may_replace_the_client_id(manifest_text: Text) -> None:
    """Both may stand side by side. An empty list means no scopes."""
    without = manifest_text(('"api_key"', '"oauth2"')) + "".join(
        line + "\n" for line in OAUTH2.splitlines() if not line.startswith("client_")
    ).replace('["https://example.com/mail.send", "openid"]', "[]")
    where = 'registration_url = "https://accounts.example.com/register"\n'
    found = parse(without + where).oauth2
    both = parse(manifest_text(('"api_key"', '"oauth2"')) + OAUTH2 + where).oauth2

    assert found is not None
    assert (found.client_id, found.client_secret, found.scopes) == (None, None, ())
    assert "https://accounts.example.com/register" in found.token_endpoints
    assert both is not None
    assert (both.client_id, both.registration_url) == ("123.apps.example.com", found.registration_url)
    assert "client_id: " not in refusal(without), "on the table, which has no such line"
    assert "neither client_id nor registration_url: nobody could sign in" in refusal(without)
    assert "client_secret without client_id" in refusal(without + where + 'client_secret = "x"\n')


def test_the_resource_of_the_tokens_may_have_a_query(manifest_text: Text) -> None:
    """RFC 8707 section 2: an absolute address without a fragment. It has one spelling, as all addresses."""
    whole = manifest_text(('"api_key"', '"oauth2"')) + OAUTH2
    for good in ("https://mcp.example.com", "https://mcp.example.com/mcp?team=a/b&c", "http://localhost:8080/mcp"):
        found = parse(whole + f"resource = '{good}'\n").oauth2
        assert found is not None
        assert found.resource == good
    for bad in (
        "https://a.example/#f", "https://a.example/?x#", "https://a.example/?", "http://a.example/", "a.example",
        "urn:x", "https://A.example/", "https://a.example/?" + "x" * 512, "https://a.example/?a b", "https://u@a.example/",
    ):  # fmt: skip
        assert ": resource: " in refusal(whole + f"resource = '{bad}'\n")


def test_an_answer_without_an_issuer_must_be_allowed_explicitly(manifest_text: Text) -> None:
    """The default is strict, and allowing it needs an issuer."""
    whole = manifest_text(('"api_key"', '"oauth2"')) + OAUTH2
    issuer = 'issuer = "https://accounts.example.com"\n'
    strict, lax = parse(whole + issuer).oauth2, parse(whole + issuer + "issuer_in_answer = false\n").oauth2

    assert strict is not None
    assert strict.issuer_in_answer
    assert lax is not None
    assert not lax.issuer_in_answer
    assert "issuer_in_answer without issuer" in refusal(whole + "issuer_in_answer = false\n")


@pytest.mark.abuse_case("O8")
@pytest.mark.parametrize(
    ("param", "message"),
    [
        ('client_id = "x"', "parameter client_id is set by the supervisor; leave it out"),
        ('redirect_uri = "https://evil.example/"', "parameter redirect_uri is set by the supervisor"),
        ('Scope = "all"', "parameter Scope is set by the supervisor"),
        ('state = "x"', "parameter state is set by the supervisor"),
        ('code_challenge = "x"', "parameter code_challenge is set by the supervisor"),
        ('CODE_CHALLENGE_METHOD = "plain"', "parameter CODE_CHALLENGE_METHOD is set by the supervisor"),
        ('nonce = "x"', "parameter nonce is set by the supervisor"),
        ('resource = "https://evil.example/"', "parameter resource is set by the supervisor"),
        ('response_type = "token"', "parameter response_type is set by the supervisor"),
        ('response_mode = "fragment"', "parameter response_mode is set by the supervisor"),
        ('request = "eyJ"', "parameter request would replace a value that the supervisor sets"),
        ('request_uri = "https://evil.example/"', "parameter request_uri would replace a value"),
        ('include_granted_scopes = "true"', "parameter include_granted_scopes would request more than `scopes`"),
        ("authorization_details = '[]'", "parameter authorization_details would request more"),
        ('"a b" = "x"', "parameter 'a b' is not a name of letters, digits, '._~-'"),
        ('"scope[]" = "x"', "parameter 'scope[]' is not a name"),
        ("prompt = 1", "parameter prompt is not a string of 1 to 256 printable ASCII characters"),
        ('prompt = ["consent"]', "parameter prompt is not a string"),
        ('prompt = ""', "parameter prompt is not a string of 1 to 256"),
        (f'prompt = "{"x" * 257}"', "parameter prompt is not a string of 1 to 256"),
        ('prompt = "zustimmung für"', "parameter prompt is not a string of 1 to 256 printable ASCII"),
        ('prompt = "a\\nb"', "parameter prompt is not a string of 1 to 256 printable ASCII"),
        ("\n".join(f'p{n} = "x"' for n in range(17)), "authorize_params has 17 entries; expected at most 16"),
    ],
)
def test_sign_in_parameters_that_the_supervisor_sets_are_refused_in_a_manifest(
    manifest_text: Text, param: str, message: str
) -> None:
    """The refusal says why: the supervisor sets the rest of the request to the provider."""
    whole = manifest_text(('"api_key"', '"oauth2"')) + OAUTH2
    params = f"[capabilities.credential.oauth2.authorize_params]\n{param}\n"
    found = refusal(whole + params)

    assert message in found
    many = param.count("\n") > 0
    assert f":{whole.count(chr(10)) + (1 if many else 2)}: " in found


def test_a_placeholder_is_accepted_only_in_a_manifest_that_is_not_built_yet(manifest_text: Text) -> None:
    """Parsing with `allow_unbound` keeps it as it stands; any other parsing fails closed."""
    unbound = manifest_text(('"api_key"', '"oauth2"')) + OAUTH2.replace("not-really-secret", "bound-at-release")

    found = parse_connector_manifest(unbound.encode(), file="manifest.toml", allow_unbound=True)

    assert found.oauth2 is not None
    assert found.oauth2.client_secret == "bound-at-release"
    assert "a placeholder" in refusal(unbound)


def test_the_error_for_an_invalid_client_secret_does_not_quote_the_client_secret(manifest_text: Text) -> None:
    """The value may be a real secret with a character too many."""
    for value in ("s3cret-välue", "s3cret-" + "x" * 600, "s3cret-<value>"):
        whole = manifest_text(('"api_key"', '"oauth2"')) + OAUTH2.replace("not-really-secret", value)
        assert "s3cret" not in refusal(whole)


def test_a_provider_for_another_kind_of_credential_is_refused(manifest_text: Text) -> None:
    """The provider table has no meaning for a credential that is not OAuth's."""
    assert "must be used together" in refusal(manifest_text() + OAUTH2)


def test_a_provider_on_loopback_may_be_plain_http(manifest_text: Text) -> None:
    """This lets a test run its own provider."""
    local = OAUTH2.replace("https://accounts.example.com", "http://localhost:8080")

    assert parse(manifest_text(('"api_key"', '"oauth2"')) + local).oauth2 is not None


def test_a_credential_without_a_host_is_refused(manifest_text: Text) -> None:
    """The credential could be sent nowhere; with a host it is accepted."""
    alone = manifest_text(('[capabilities.network]\nhosts = ["mail.example.com:443"]\n', ""))

    assert "[capabilities.credential] without [capabilities.network]" in refusal(alone)
    assert parse(manifest_text()).credential is not None


def test_bytes_that_are_not_utf_8_are_refused() -> None:
    """The refusal names the byte at which the manifest stops being text."""
    with pytest.raises(AileronError, match=r"manifest\.toml: not valid UTF-8 \(byte 2\)"):
        parse_connector_manifest(b"# \xff", file="manifest.toml")


@given(cut=st.tuples(st.integers(0, 330), st.integers(0, 30)), piece=st.text(max_size=8))
def test_a_mutated_manifest_is_read_or_refused(manifest_text: Text, cut: tuple[int, int], piece: str) -> None:
    """A valid manifest with a piece cut out and another put in raises only AileronError."""
    text, (start, length) = manifest_text(), cut
    with contextlib.suppress(AileronError):
        parse(text[:start] + piece + text[start + length :])
