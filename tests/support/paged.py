"""A home whose person decides in a browser, and a browser as a client of the standard library: forms read, sent, followed.

    with paged_home(upstream) as home:
        asked = home.asked("gated")
        client = PageClient(home)
        client.unlock()
        page = client.get(f"/approvals/{asked['approval_id']}")
        page = client.submit(page.form("/approve"))
        page = client.submit(page.form("/decide"), word="gated")

`PageClient` is one process with a cookie, and sends what a browser would (Origin, Sec-Fetch-Site) unless a test says otherwise.
Real browsers are in tests/browser.
"""

from __future__ import annotations

import contextlib
import dataclasses
import html.parser
import http.client
import urllib.parse
from collections.abc import Iterator
from typing import Any, Final

from aileron.approver_key import keyfile
from aileron.approver_key.keyfile import ApproverKey
from aileron.model.secret import Secret
from tests.support.approver import Approver
from tests.support.home import DaemonHome, probe_action, probed_home
from tests.support.upstream_http import CountingServer

__all__ = ["APPROVER", "Form", "KeptApprover", "PageClient", "Reply", "paged_home", "port_of"]

APPROVER: Final = "nine green bottles"
"""The passphrase of the approver's key."""
PREVIEWED: Final = """
[approval.preview]
op = "fetch"
[approval.preview.inputs]
path = "/read"
with_credential = true
[approval.preview.render]
"Path" = "body"
"""
"""Part of an action file: a preview that reads `/read` of the server (`CountingServer.page`) and shows it as `Path`."""


class KeptApprover(Approver):
    """An approver whose key lies in the home's file, as `aileron approver init` leaves it."""

    def __init__(self, home: DaemonHome, passphrase: str = APPROVER) -> None:
        home.ask("GET", "/healthz")  # makes the home
        with keyfile.create(home.path / "approver.json", Secret(passphrase.encode()), replace=True) as made:
            self._take(made)

    @classmethod
    def of(cls, home: DaemonHome) -> KeptApprover:
        """Return the approver whose key is in the home's file already."""
        found = cls.__new__(cls)
        with keyfile.open_key(home.path / "approver.json", Secret(APPROVER.encode())) as key:
            found._take(key)
        return found

    def _take(self, key: ApproverKey) -> None:
        self._seed = bytes(key._seed)
        self.public = key.public_key  # type: ignore[misc]
        self.key_id = key.key_id  # type: ignore[misc]

    def sign(self, statement: Any) -> str:
        """Sign with the key from the file."""
        with ApproverKey(bytearray(self._seed)) as key:
            return key.sign(statement)


@dataclasses.dataclass(frozen=True)
class Form:
    """A form of a page: its target, its method, and its fields as they are; buttons by their text."""

    method: str
    action: str
    fields: dict[str, str]


@dataclasses.dataclass(frozen=True)
class Reply:
    """A response of the pages."""

    status: int
    headers: dict[str, str]
    text: str
    cookies: list[str] = dataclasses.field(default_factory=list)

    @property
    def forms(self) -> list[Form]:
        """Every form of the page."""
        parser = _Forms()
        parser.feed(self.text)
        return parser.found

    def form(self, part: str, **values: str) -> Form:
        """Return the only form whose action contains `part`, and whose fields have these values."""
        found = [
            form
            for form in self.forms
            if part in form.action and all(form.fields.get(name) == value for name, value in values.items())
        ]
        assert len(found) == 1, (part, self.status, self.forms, self.text[:2000])
        return found[0]

    @property
    def words(self) -> str:
        """Text that a person reads, on one line."""
        parser = _Words()
        parser.feed(self.text)
        return " ".join(" ".join(parser.found).split())


class PageClient:
    """A simple browser: one process (this one), one cookie."""

    def __init__(self, home: DaemonHome, *, address: str = "127.0.0.1", cookie: str | None = None) -> None:
        self.port = port_of(home)
        self.cookie = cookie
        self._address = address

    def get(self, path: str, **headers: str) -> Reply:
        """Get a page."""
        return self.ask("GET", path, None, **{"Sec-Fetch-Site": "none", **headers})

    def post(self, path: str, fields: dict[str, str] | bytes, **headers: str | None) -> Reply:
        """Send a form's fields without following the response."""
        own: dict[str, str | None] = {
            "Content-Type": "application/x-www-form-urlencoded",
            "Origin": f"http://localhost:{self.port}",
            "Sec-Fetch-Site": "same-origin",
        }
        sent = {name: value for name, value in {**own, **headers}.items() if value is not None}
        body = fields if isinstance(fields, bytes) else urllib.parse.urlencode(fields).encode()
        return self.ask("POST", path, body, **sent)

    def submit(self, form: Form, **values: str) -> Reply:
        """Fill a form in, send it, and follow it to the next page."""
        fields = {**form.fields, **values}
        if form.method == "get":
            return self.get(f"{form.action}?{urllib.parse.urlencode(fields)}")
        answer = self.post(form.action, fields)
        return self.get(answer.headers["location"]) if answer.status == 303 else answer

    def unlock(self, passphrase: str = APPROVER, to: str = "") -> Reply:
        """Unlock the pages with the passphrase."""
        answer = self.post("/approvals/unlock", {"passphrase": passphrase, "to": to})
        return self.get(answer.headers["location"]) if answer.status == 303 else answer

    def ask(self, method: str, path: str, body: bytes | None, **headers: str) -> Reply:
        """Send one request with the cookie, and keep a cookie that the response sets."""
        connection = http.client.HTTPConnection(self._address, self.port, timeout=60)
        sent = {"Host": f"localhost:{self.port}", **headers}
        if self.cookie is not None:
            sent.setdefault("Cookie", self.cookie)
        try:
            connection.request(method, path, body, sent)
            answer = connection.getresponse()
            text = answer.read().decode()
            fields = answer.getheaders()
        finally:
            connection.close()
        cookies = [value for name, value in fields if name.lower() == "set-cookie"]
        for cookie in cookies:
            self.cookie = None if "Max-Age=0" in cookie else cookie.partition(";")[0]
        return Reply(answer.status, {name.lower(): value for name, value in fields}, text, cookies)


def port_of(home: DaemonHome) -> int:
    """Return the port of the home's pages."""
    return int(home.must("GET", "/v1/status")["web"].rpartition(":")[2])


@contextlib.contextmanager
def paged_home(upstream: CountingServer) -> Iterator[DaemonHome]:
    """A home with gated actions, and the vault open.

    `gated` (cannot be undone), `mild` (can), `held` (a minute), `previewed`, `say` (gives back its text), `fails`
    and `strays` (a request to a host that was not granted).
    """
    with probed_home(upstream.port) as home:
        home.bind_probe()
        home.add_probe_action("effect", "path:string?", name="gated", gated=True)
        home.add_probe_action("give_back", "text:string", name="say", gated=True)
        home.add_probe_action("fail_as", "failure:string?", "status:integer?", name="fails", gated=True)
        home.add_probe_action("fetch_url", "url:string", name="strays", gated=True)
        rules = {"mild": "irreversible = false", "held": "undo_window_s = 60"}
        for name, rule in rules.items():
            text = probe_action("effect", "path:string?", name=name, gated=True)
            home.must(
                "POST", "/v1/actions", {"text": text.replace("[approval]", f"[approval]\n{rule}"), "file": "a test"}
            )
        text = probe_action("effect", "path:string", name="previewed", gated=True)
        text = text.replace('capabilities = ["effect"]', 'capabilities = ["effect", "fetch"]')
        head, rule, tail = text.partition('expires_in = "15m"\n')
        home.must("POST", "/v1/actions", {"text": f"{head}{rule}{PREVIEWED}{tail}", "file": "a test"})
        KeptApprover(home).appoint(home)
        yield home


class _Forms(html.parser.HTMLParser):
    """A parser that collects forms, and the fields that are in them or name them (`form=`), wherever those stand."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.found: list[Form] = []
        self._by_id: dict[str, dict[str, str]] = {}
        self._inside: dict[str, str] | None = None

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Collect forms and their fields."""
        has = {name: value or "" for name, value in attrs}
        if tag == "form":
            self._inside = self._by_id.setdefault(has["id"], {}) if "id" in has else {}
            self.found.append(Form(has.get("method", "get"), has["action"], self._inside))
            return
        fields = self._by_id.setdefault(has["form"], {}) if "form" in has else self._inside
        if fields is None or "name" not in has:
            return
        if tag == "input" and has.get("type") != "radio":
            fields[has["name"]] = has.get("value", "")
        elif tag == "textarea":
            fields[has["name"]] = ""

    def handle_endtag(self, tag: str) -> None:
        """End the form, so that later fields are not in it."""
        if tag == "form":
            self._inside = None


class _Words(html.parser.HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.found: list[str] = []
        self._skipped = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Count elements whose text is not visible."""
        self._skipped += tag in ("style", "script")

    def handle_endtag(self, tag: str) -> None:
        """End such an element."""
        self._skipped -= tag in ("style", "script")

    def handle_data(self, data: str) -> None:
        """Collect visible text."""
        if not self._skipped:
            self.found.append(data)
