"""A request that needs its preview is not approved on the page without one; a no is always offered.

The tests use a scripted daemon port; previews of a database are in tests/e2e/test_postgres_in_the_jail.py.
"""

from __future__ import annotations

import pytest

from aileron.model.preview import Preview, PreviewField
from tests.cli import questions
from tests.web.daemon_port import ASKED, ToldDesk, browser_of

pytestmark = pytest.mark.anyio
FAILED = Preview(None, "no such table", None, None)
SHOWN = Preview([PreviewField("Changes", "1 row", multiline=True)], None, None, "sha256:" + "2" * 64)


def desk_with(shown: Preview) -> ToldDesk:
    """Return a daemon port with one question, whose preview is this."""
    desk = ToldDesk(questions.question(questions.rehearsed(), approval_id=ASKED))
    desk.shown = shown
    return desk


@pytest.mark.parametrize("shown", [FAILED, SHOWN], ids=["failed", "shown"])
async def test_an_approval_is_offered_only_if_the_required_preview_has_content(shown: Preview) -> None:
    """Otherwise the reason stands in its place, beside the button to deny."""
    async with browser_of(desk_with(shown)) as browser:
        page = " ".join((await browser.get(f"/approvals/{ASKED}")).text.split())

    assert ("Approve…" in page) is (shown is SHOWN)
    assert ("This cannot be approved: " in page) is (shown is FAILED)
    assert ("this one failed: no such table; load it again, or deny it" in page) is (shown is FAILED)
    assert ">Deny</button>" in page


@pytest.mark.parametrize("shown", [FAILED, SHOWN], ids=["failed", "shown"])
async def test_a_forged_form_cannot_approve_a_run_whose_required_preview_failed(shown: Preview) -> None:
    """Both steps sign nothing; the same form counts with a preview that has content, and a denial always does."""
    desk = desk_with(shown)
    digest = shown.digest or desk.questions[0]["digest"]
    async with browser_of(desk) as browser:
        await browser.get(f"/approvals/{ASKED}")
        first = browser.session.token("confirm", ASKED, digest, "")
        confirm = await browser.get(f"/approvals/{ASKED}/approve?token={first}&digest={digest}&read=all")
        assert confirm.status_code == (409 if shown is FAILED else 200), confirm.text
        token = browser.session.token("approve", ASKED, digest, "", "all")
        fields = {"decision": "approve", "digest": digest, "token": token, "read": "all", "word": "yes"}
        done = await browser.post(f"/approvals/{ASKED}/decide", fields)
        assert done.status_code == (409 if shown is FAILED else 303), done.text
        if shown is FAILED:
            assert "Nothing was signed." in done.text
            await browser.deny(digest)

    assert desk.told[-1] == (ASKED, "deny" if shown is FAILED else "approve")
    assert len([entry for entry in desk.told if entry[0] == ASKED]) == 1
