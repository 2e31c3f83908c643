"""Debian's Chromium, headless, as a person's browser: a clean profile each time, driven over W3C WebDriver.

chromedriver comes from the same package build as the browser, so the two always fit, and it speaks plain HTTP: this is a client
of it in the standard library, blocking, with no loop of its own. Elements are waited for by the driver, `PATIENCE_S` at most.

    with Browser(trusting=[certificate]) as browser:
        browser.open("https://localhost:8443/")
        browser.fill("input[name=login]", "mira")
        browser.click("button")
        assert browser.text("h1") == "Welcome"

It trusts the machine's authorities and, besides, exactly the keys of `trusting`. Nothing of it may reach the internet. As root it
has no sandbox of its own, because Chromium refuses one there. Everything else goes through `cdp`: media, sizes, a virtual
authenticator (`authenticator`).

Source: the WebDriver recommendation of the W3C; Chrome DevTools Protocol. Not here: what a person does on some page (the tests).
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import http.client
import json
import os
import re
import select
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Self

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from tests.support.waiting import Late, wait_until

__all__ = ["MISSING", "PATIENCE_S", "Browser", "BrowserError", "needs_browser"]

PATIENCE_S: Final = 15.0
"""Seconds that an element, a page or an address may take: many times what a loaded machine needs."""
_START_S: Final = 60.0
_COMMAND_S: Final = 60.0
_TRIES: Final = 5  # for a port: with other tests beside it one in hundreds is taken
_NEEDED: Final = {"chromium": "chromium", "chromedriver": "chromium-driver"}
MISSING: Final = "; ".join(
    f"{program} is not installed: apt-get install {package}"
    for program, package in _NEEDED.items()
    if shutil.which(program) is None
)
"""Message that names the programs this machine lacks; empty if it lacks none."""
_ELEMENT: Final = "element-6066-11e4-a52e-4f735466cecf"
"""The key of an element's reference, fixed by WebDriver."""
_QUIET: Final = (
    "--headless=new",
    "--disable-gpu",
    "--disable-dev-shm-usage",  # /dev/shm of a container has 64 MiB
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-default-apps",
    "--disable-extensions",
    "--disable-sync",
    "--disable-features=OptimizationHints,MediaRouter,Translate",
    "--no-default-browser-check",
    "--no-first-run",
    "--no-proxy-server",
    "--password-store=basic",
)


class BrowserError(Exception):
    """A failure of the driver, in its words."""


def needs_browser() -> None:
    """Skip the test if the machine has no Chromium; with CI set, fail: a skip is not a pass."""
    if MISSING and os.environ.get("CI"):
        pytest.fail(MISSING)
    if MISSING:
        pytest.skip(MISSING)


class Browser:
    """A browser with a profile of its own, between enter and exit.

    `trusting`: certificates (PEM files) whose keys are accepted without an authority. `program`: words that go before the
    driver's, to run it and the browser in other namespaces; `connect` then connects there. `arguments` go to Chromium.
    """

    def __init__(
        self,
        trusting: Sequence[Path] = (),
        *,
        program: Sequence[str] = (),
        connect: Callable[[str, int], socket.socket] = lambda address, port: socket.create_connection((address, port)),
        arguments: Sequence[str] = (),
    ) -> None:
        self._keys = [_key_of(file) for file in trusting]
        self.program = list(program)
        self._connect = connect
        self._arguments = list(arguments)
        self._folder = tempfile.TemporaryDirectory(prefix="ail-browser-", ignore_cleanup_errors=True)
        self._session = ""
        self._wire: _Wire | None = None

    def __enter__(self) -> Self:
        home = Path(self._folder.name)
        self._driver = self._started_driver(home)
        try:
            self._wire = _Wire(self._connect, self._heard_port(home))
            begun = self._ask("POST", "/session", {"capabilities": {"alwaysMatch": self._capabilities(home)}})
            self._session = f"/session/{begun['sessionId']}"
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        if self._session:
            with contextlib.suppress(BrowserError, OSError, http.client.HTTPException):
                self._ask("DELETE", self._session)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._driver.pid, signal.SIGKILL)  # and whatever of the browser is still there
        if self._wire is not None:
            self._wire.close()
        self._driver.communicate()
        self._folder.cleanup()

    # Pages

    def open(self, url: str) -> None:
        """Go to a URL and wait until it has loaded."""
        self._do("POST", "/url", {"url": url})

    @property
    def url(self) -> str:
        """Current address of the tab."""
        return str(self._do("GET", "/url"))

    @property
    def title(self) -> str:
        """Title of the page."""
        return str(self._do("GET", "/title"))

    def wait_url(self, part: str) -> str:
        """Wait until the address contains `part`. Return the address."""
        return self.wait(lambda: self.url if part in self.url else "", f"no address with {part!r}")

    def wait(self, ask: Callable[[], str], otherwise: str) -> str:
        """Wait until `ask` returns something. After PATIENCE_S raise BrowserError with `otherwise` and what is shown.

        A BrowserError in `ask` counts as no result: its element may be gone, because the page became another.
        """

        def look() -> str:
            with contextlib.suppress(BrowserError):
                return ask()
            return ""

        try:
            return wait_until(look, otherwise, within_s=PATIENCE_S)
        except Late as late:
            raise BrowserError(f"{late}: {self._shown()}") from None

    # Elements, each by a CSS selector

    def text(self, css: str = "body") -> str:
        """Return the text that a person reads in the element."""
        return str(self._of(css, "GET", "text"))

    def click(self, css: str) -> None:
        """Click the element. The browser's next command usually waits for a page that this opens; other observers must wait."""
        self._of(css, "POST", "click", {})

    def fill(self, css: str, text: str) -> None:
        """Type text into the field, in place of its content."""
        self._of(css, "POST", "clear", {})
        self._of(css, "POST", "value", {"text": text})

    def has(self, css: str) -> bool:
        """Return whether the element is on the page now."""
        return bool(self.script("return document.querySelector(arguments[0]) !== null", css))

    def script(self, code: str, *arguments: Any) -> Any:
        """Return the value of a script's `return`; if that is a promise, its value."""
        return self._do("POST", "/execute/sync", {"script": code, "args": list(arguments)})

    @contextlib.contextmanager
    def first(self, code: str) -> Iterator[None]:
        """Make pages that open within the block run this script before their own."""
        added = self.cdp("Page.addScriptToEvaluateOnNewDocument", source=code)
        try:
            yield
        finally:
            self.cdp("Page.removeScriptToEvaluateOnNewDocument", **added)

    # Tabs

    @property
    def tab(self) -> str:
        """Handle of the current tab, for `switch`."""
        return str(self._do("GET", "/window"))

    @property
    def tabs(self) -> list[str]:
        """Handles of all tabs."""
        return list(self._do("GET", "/window/handles"))

    def new_tab(self) -> str:
        """Open a tab and switch to it."""
        opened = str(self._do("POST", "/window/new", {"type": "tab"})["handle"])
        self.switch(opened)
        return opened

    def switch(self, tab: str) -> None:
        """Switch to a tab."""
        self._do("POST", "/window", {"handle": tab})

    # How it looks

    def look(self, *, dark: bool = False, width: int = 1024, height: int = 768) -> None:
        """Set the colour scheme and the window size."""
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.cdp("Emulation.setEmulatedMedia", features=[scheme])
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
        self.cdp("Emulation.setDeviceMetricsOverride", **size)

    def screenshot(self) -> bytes:
        """Return a screenshot as PNG."""
        return base64.b64decode(self._do("GET", "/screenshot"))

    # Everything else

    def forget(self) -> None:
        """Reset the browser to its state after a start: one empty tab, no stored data, and no emulated appearance.

        It keeps the tab that has the focus: a page in another tab takes the first click as one that only moves the focus there.
        """
        first, *others = self.tabs
        for tab in others:
            self.switch(tab)
            self._do("DELETE", "/window")
        self.switch(first)
        self.open("about:blank")
        for command in (
            "Network.clearBrowserCookies",
            "Network.clearBrowserCache",
            "Emulation.clearDeviceMetricsOverride",
        ):
            self.cdp(command)
        self.cdp("Emulation.setEmulatedMedia", features=[])
        self.cdp("Emulation.setScriptExecutionDisabled", value=False)
        self.cdp("Storage.clearDataForOrigin", origin="*", storageTypes="all")

    def cdp(self, command: str, **parameters: Any) -> Any:
        """Run a command of the DevTools protocol."""
        return self._do("POST", "/goog/cdp/execute", {"cmd": command, "params": parameters})

    @contextlib.contextmanager
    def authenticator(self, **options: Any) -> Iterator[str]:
        """Yield the id of a WebAuthn platform authenticator whose user is always present and verified."""
        asked = {
            "protocol": "ctap2",
            "transport": "internal",
            "hasResidentKey": True,
            "hasUserVerification": True,
            "isUserVerified": True,
            **options,
        }
        made = str(self._do("POST", "/webauthn/authenticator", asked))
        try:
            yield made
        finally:
            self._do("DELETE", f"/webauthn/authenticator/{made}")

    # The wire

    def _capabilities(self, home: Path) -> dict[str, Any]:
        arguments = [*_QUIET, f"--user-data-dir={home / 'profile'}", *self._arguments]
        if os.geteuid() == 0:
            arguments.append("--no-sandbox")
        if self._keys:
            arguments.append(f"--ignore-certificate-errors-spki-list={','.join(self._keys)}")
        waits = {name: int(PATIENCE_S * 1000) for name in ("implicit", "pageLoad", "script")}
        return {
            "browserName": "chrome",
            "goog:chromeOptions": {"binary": shutil.which("chromium"), "args": arguments},
            "timeouts": waits,
            "webauthn:virtualAuthenticators": True,
        }

    def _started_driver(self, home: Path) -> subprocess.Popen[bytes]:
        environment = {name: value for name, value in os.environ.items() if not name.startswith(("XDG_", "DBUS_"))}
        return subprocess.Popen(
            [*self.program, "chromedriver", "--port=0"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**environment, "HOME": str(home), "TMPDIR": str(home)},
            start_new_session=True,
        )

    def _heard_port(self, home: Path) -> int:
        """Return the driver's port. The driver takes one that is free for IPv6, and ends if another program has it for IPv4."""
        said, tries, until = b"", 1, time.monotonic() + _START_S
        while (found := re.search(rb"started successfully on port (\d+)", said)) is None:
            assert self._driver.stdout is not None
            left = until - time.monotonic()
            ready = left > 0 and select.select([self._driver.stdout], [], [], left)[0]
            more = os.read(self._driver.stdout.fileno(), 4096) if ready else b""
            said += more
            if not more and b"port not available" in said and tries < _TRIES:
                self._driver.communicate()
                said, tries, self._driver = b"", tries + 1, self._started_driver(home)
            elif not more:
                raise BrowserError(f"the driver did not start: {said!r}")
        return int(found[1])

    def _of(self, css: str, method: str, what: str, body: Mapping[str, Any] | None = None) -> Any:
        try:
            found = self._do("POST", "/element", {"using": "css selector", "value": css})
        except BrowserError as error:
            raise BrowserError(f"{error}: {self._shown()}") from None
        return self._do(method, f"/element/{found[_ELEMENT]}/{what}", body)

    def _shown(self) -> str:
        """Return the address and the visible text, for an error."""
        text = str(self.script("return document.body ? document.body.innerText : ''"))
        return f"{self.url} shows {text[:500]!r}"

    def _do(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> Any:
        return self._ask(method, self._session + path, body)

    def _ask(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> Any:
        assert self._wire is not None
        self._wire.request(method, path, None if body is None else json.dumps(body))
        answered = json.loads(self._wire.getresponse().read())["value"]
        if isinstance(answered, dict) and "error" in answered:
            raise BrowserError(f"{answered['error']}: {str(answered['message']).splitlines()[0]}")
        return answered


class _Wire(http.client.HTTPConnection):
    """A persistent connection to the driver."""

    def __init__(self, connect: Callable[[str, int], socket.socket], port: int) -> None:
        super().__init__("127.0.0.1", port, timeout=_COMMAND_S)
        self._made_by = connect

    def connect(self) -> None:
        """Connect to the driver."""
        self.sock = self._made_by(self.host, self.port)
        self.sock.settimeout(_COMMAND_S)
        # Head and body are two packets, and the second would wait 40 ms for the first to be confirmed (RFC 1122, 4.2.3.2).
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


def _key_of(certificate: Path) -> str:
    """Return the first certificate's key as Chromium names it: SHA-256 of its SubjectPublicKeyInfo, in base64."""
    (found, *_) = x509.load_pem_x509_certificates(certificate.read_bytes())
    info = found.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    return base64.b64encode(hashlib.sha256(info).digest()).decode("ascii")
