"""A daemon whose environment would redirect its requests: only the configuration counts."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.home import daemon_home
from tests.support.upstream import Authority, Upstream, answer
from tests.support.upstream_http import CountingServer

pytestmark = [pytest.mark.jail, pytest.mark.usefixtures("real_processes")]

REFLECTOR = "github://aileron-tests/reflector"
SOURCE = Path(__file__).parents[1] / "support" / "connectors" / "reflector"


@pytest.mark.abuse_case("E12")
def test_variables_for_proxies_and_certificates_and_key_logs_do_not_affect_the_daemon(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Requests go straight to their host and trust only configured authorities; no TLS session keys are logged."""
    authority = Authority(tmp_path)
    keys = tmp_path / "keys"
    with (
        CountingServer() as proxy,
        Upstream(lambda _seen: answer(b"straight"), authority.server_context("localhost")) as upstream,
    ):
        for name in ("HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
            monkeypatch.setenv(name, f"http://127.0.0.1:{proxy.port}")
        for name in ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"):
            monkeypatch.setenv(name, str(authority.ca_file))
        monkeypatch.setenv("SSL_CERT_DIR", str(tmp_path))
        monkeypatch.setenv("SSLKEYLOGFILE", str(keys))
        with daemon_home() as home:
            private = f'[egress]\nprivate = ["localhost:{upstream.port}"]\n'
            home.configure(private)
            home.ask("GET", "/healthz")
            home.install(SOURCE, f"localhost:{upstream.port}")
            home.add_probe_action("ask", "url:string?", "credential:string?", connector=REFLECTOR)
            home.unlock()
            home.must(
                "POST",
                "/v1/bindings",
                {"connector": REFLECTOR, "name": "basic/probe/me", "username": "mira", "secret": "pw"},
            )
            args = {"url": f"https://localhost:{upstream.port}/", "credential": "basic"}

            untrusted = home.run("ask", args)
            assert "certificate is not trusted" in str(untrusted.body)
            assert bytes(upstream.received) == b""

            home.stop()
            kept = (home.path / "config.toml").read_text()
            home.configure(kept.replace("[egress]\n", f'[egress]\nca_file = "{authority.ca_file}"\n'))
            home.ask("GET", "/healthz")
            home.unlock()
            trusted = home.run("ask", args)
            assert "straight" in str(trusted.body), trusted.body
        assert (proxy.requests, keys.exists()) == ([], False)
        assert [seen.target for seen in upstream.requests] == ["/"]
