"""What only its preview may change is not approved on the page without that; a no is always there.

On a desk of the test's own: what a database says is in tests/e2e/test_postgres_in_the_jail.py.
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
    """One question, whose preview says this."""
    desk = ToldDesk()
    desk.questions = [questions.question(questions.rehearsed(), approval_id=ASKED)]
    desk.shown = shown
    return desk


@pytest.mark.parametrize("shown", [FAILED, SHOWN], ids=["failed", "shown"])
async def test_a_yes_is_offered_only_with_a_preview_that_shows_something(shown: Preview) -> None:
    """With the reason in its place, and the way to tell the agent."""
    async with browser_of(desk_with(shown)) as browser:
        page = " ".join((await browser.get(f"/approvals/{ASKED}")).text.split())

    assert ("Approve…" in page) is (shown is SHOWN)
    assert ("This cannot be approved: " in page) is (shown is FAILED)
    assert ("this one failed: no such table; load it again, or deny it" in page) is (shown is FAILED)
    assert ">Deny</button>" in page


@pytest.mark.parametrize("shown", [FAILED, SHOWN], ids=["failed", "shown"])
async def test_a_form_of_before_approves_nothing_that_was_not_seen(shown: Preview) -> None:
    """Nothing is signed, at either step; the same form counts where the preview shows something, and a no is taken."""
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
    assert len([one for one in desk.told if one[0] == ASKED]) == 1
