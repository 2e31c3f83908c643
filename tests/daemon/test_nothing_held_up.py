"""A person's approval is never delayed by a download or by a slow disk that a person named."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import cast

import anyio
import pytest

from aileron.audit.log import Audit
from aileron.config import LiveSettings, Settings
from aileron.daemon.consent_service.approver import ApproverState
from aileron.daemon.consent_service.consents import ConsentService
from aileron.daemon.consent_service.handlers.connector_consent import ConnectorHandler
from aileron.daemon.installed.install import Installer
from aileron.daemon.installed.verify import ArtifactVerifier
from aileron.daemon.packages.connectors import ConnectorService
from aileron.daemon.secrets.vault import VaultService
from aileron.ledger.sqlite import Ledger
from aileron.model.failure import AileronError, FailureClass
from aileron.model.secret import Secret
from aileron.registry.content import ContentStore
from aileron.vault import Vault
from tests.support.home import daemon_home
from tests.support.probed import lend_probe
from tests.support.upstream_http import CountingServer


@pytest.mark.jail
def test_an_approval_is_answered_while_a_download_hangs(upstream: CountingServer) -> None:
    """The forge accepts the connection and never answers; the download runs before and after the decision."""
    with daemon_home() as home, socket.create_server(("127.0.0.1", 0)) as silent:
        forge = f"localhost:{silent.getsockname()[1]}"
        home.configure(
            f'[egress]\nprivate_plain = ["localhost:{upstream.port}"]\nprivate = ["{forge}"]\n'
            f'[forges.github]\nurl = "https://{forge}"\napi = "https://{forge}"\nraw = "https://{forge}"\n'
        )
        lend_probe(home, f"localhost:{upstream.port}")
        question = home.asked(home.add_probe_action("effect", name="gated", gated=True))
        job = home.must("POST", "/v1/fetches", {"what": "connector", "name": "github://acme/mail@1.0.0"})["fetch"]
        silent.settimeout(20)
        connection, _ = silent.accept()
        with connection:
            before = home.must("GET", f"/v1/fetches/{job}")["status"]
            decided = home.decide(question, "approve")
            after = home.must("GET", f"/v1/fetches/{job}")["status"]

        assert (before, decided.status, after) == ("running", 200, "running")


@pytest.mark.anyio
async def test_a_users_file_is_read_without_holding_the_lock_for_changes(tmp_path: Path) -> None:
    """The file of a connector or a backup may be on a disk that never answers, which must not block other changes."""
    changing, vault = anyio.Lock(), Vault(tmp_path / "vault.json")
    connectors = ConnectorService(
        connectors=cast(ContentStore, None),  # not reached: there is nothing to read
        consents=cast(ConsentService, None),
        approved=cast(ConnectorHandler, None),
        finding=cast(ArtifactVerifier, None),
        installing=cast(Installer, None),
        audit=cast(Audit, None),
        changing=changing,
    )
    vaults = VaultService(
        vault,
        ledger=cast(Ledger, None),
        audit=cast(Audit, None),
        approver=ApproverState(vault, on_record=False),
        changing=changing,
        settings=LiveSettings(Settings()),
    )
    is_held = anyio.Event()

    async def change() -> None:
        async with changing:
            is_held.set()
            await anyio.sleep_forever()

    async with anyio.create_task_group() as others:
        others.start_soon(change)
        await is_held.wait()
        with anyio.move_on_after(10) as waited:
            with pytest.raises(AileronError) as installing:
                await connectors.install(str(tmp_path / "gone"), "refuse")
            with pytest.raises(AileronError) as restoring:
                await vaults.restore(str(tmp_path / "gone"), Secret(b"correct horse battery"))
        others.cancel_scope.cancel()

    assert not waited.cancelled_caught
    assert {installing.value.failure.failure_class, restoring.value.failure.failure_class} == {FailureClass.NOT_FOUND}
