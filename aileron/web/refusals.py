"""Pages that refuse a request and give the reason: a form from another site, a program that cannot be identified, a
question that does not exist.

Pure. The pages are shown to any client, unlocked or not, so they contain nothing about a question except the requested
id.

Not here: the decision to refuse (admission.py, decision_forms.py); the page that asks for the passphrase (admission.py).
"""

from __future__ import annotations

from http import HTTPStatus

from starlette.responses import Response

from aileron.model.failure import AileronError, FailureClass
from aileron.web.daemon_port import Unseen
from aileron.web.forms import FormError
from aileron.web.templating import html

__all__ = ["agents", "broken", "failed", "not_ours", "problem", "stolen", "unseen"]


def problem(status: int, title: str, why: str, approval_id: str) -> Response:
    """Return a page with a title and the reason `why`. `approval_id` is empty if the page is about no question."""
    return html("problem.html", status, title=title, why=why, id=approval_id)


def failed(error: AileronError, approval_id: str) -> Response:
    """Return the page for a failure of the daemon, with the daemon's message."""
    failure = error.failure
    is_missing = failure.failure_class is FailureClass.NOT_FOUND
    title = "No such request." if is_missing else "That did not work."
    return problem(failure.failure_class.http_status, title, failure.message, approval_id)


def broken(approval_id: str) -> Response:
    """Return the page for invalid stored data; the daemon's log has the details."""
    where = f"aileron approval show {approval_id}" if approval_id else "aileron approval list"
    why = f"This page cannot read what is stored about it. For details, run aileron daemon logs, or look with: {where}"
    return problem(HTTPStatus.INTERNAL_SERVER_ERROR, "This request cannot be shown.", why, approval_id)


def not_ours(error: FormError, approval_id: str) -> Response:
    """Return the page for a form that is not from this page, or is malformed."""
    is_foreign = error.status == HTTPStatus.FORBIDDEN
    title = "That form did not come from this page." if is_foreign else "This form cannot be accepted."
    return problem(error.status, title, error.why, approval_id)


def unseen(error: Unseen, approval_id: str) -> Response:
    """Return the page for a browser whose process cannot be identified."""
    why = (
        f"Aileron cannot find out which program asks ({error.why}), and a page is unlocked for one program only. "
        "Decide in a terminal, or in a browser that runs as you and outside a sandbox."
    )
    return problem(HTTPStatus.FORBIDDEN, "This browser cannot decide here.", why, approval_id)


def agents(session: str, approval_id: str) -> Response:
    """Return the page for a browser that an agent's session started."""
    why = f"An agent started this browser ({session}) and may control it. Open this address in a browser of your own."
    return problem(HTTPStatus.FORBIDDEN, "This browser belongs to an agent.", why, approval_id)


def stolen(approval_id: str) -> Response:
    """Return the page for a request whose session cookie came from another process than the one that unlocked the page."""
    why = (
        "The cookie of an unlocked page came from another program than the browser that unlocked it. The page is now "
        "locked, and this is on record (aileron audit list --type approval.refused)."
    )
    return problem(HTTPStatus.FORBIDDEN, "This page is locked.", why, approval_id)
