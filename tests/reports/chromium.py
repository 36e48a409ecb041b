"""A headless Chromium, spoken to over a pipe in its own protocol: one process for many pages, no port, no driver."""

from __future__ import annotations

import base64
import contextlib
import fcntl
import json
import os
import select
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

CHROMIUM = next((found for name in ("chromium", "chromium-browser", "google-chrome") if (found := shutil.which(name))), None)
FLAGS = [
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--hide-scrollbars", "--force-color-profile=srgb", "--remote-debugging-pipe",
]  # fmt: skip
PATIENCE_S = 120
NOISE = {"Runtime.exceptionThrown", "Log.entryAdded", "Page.javascriptDialogOpening"}


class Browser:
    def __init__(self, send: int, receive: int) -> None:
        self._send, self._receive, self._rest, self._last = send, receive, b"", 0
        self.events: list[dict[str, Any]] = []

    def call(self, method: str, session: str | None = None, **params: Any) -> dict[str, Any]:
        """Send one command and wait for its answer; events on the way are kept."""
        self._last += 1
        message = {"id": self._last, "method": method, "params": params, **({"sessionId": session} if session else {})}
        os.write(self._send, json.dumps(message).encode() + b"\0")
        while True:
            found = self._next()
            if found.get("id") == self._last:
                assert "error" not in found, found
                result: dict[str, Any] = found["result"]
                return result

    def wait(self, session: str, event: str) -> None:
        while not any(found.get("sessionId") == session and found["method"] == event for found in self.events):
            self._next()

    def _next(self) -> dict[str, Any]:
        deadline = time.monotonic() + PATIENCE_S
        while b"\0" not in self._rest:
            ready, _, _ = select.select([self._receive], [], [], max(0.0, deadline - time.monotonic()))
            part = os.read(self._receive, 1 << 20) if ready else b""
            assert part, "the browser does not answer"
            self._rest += part
        text, _, self._rest = self._rest.partition(b"\0")
        found: dict[str, Any] = json.loads(text)
        if "method" in found:
            self.events.append(found)
        return found


class Page:
    """One page of its own, at a width and in a colour scheme."""

    def __init__(self, browser: Browser, width: int = 1280, height: int = 900, scheme: str = "light") -> None:
        self._browser = browser
        self._target = browser.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = browser.call("Target.attachToTarget", targetId=self._target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        return self._browser.call(method, self.session, **params)

    def open(self, path: Path) -> Page:
        self.call("Page.navigate", url=path.resolve().as_uri())
        self._browser.wait(self.session, "Page.loadEventFired")
        self.run("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")
        return self

    def run(self, expression: str) -> Any:
        """The value of a JavaScript expression; a promise is waited for."""
        found = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in found, found["exceptionDetails"]
        return found["result"].get("value")

    def move(self, x: float, y: float, *, kind: str = "mouseMoved", button: str = "none", held: int = 0) -> None:
        self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button=button, buttons=held, clickCount=0 if kind == "mouseMoved" else 1)

    def drag(self, start: tuple[float, float], end: tuple[float, float]) -> None:
        self.move(*start)
        self.move(*start, kind="mousePressed", button="left", held=1)
        self.move((start[0] + end[0]) / 2, (start[1] + end[1]) / 2, button="left", held=1)
        self.move(*end, button="left", held=1)
        self.move(*end, kind="mouseReleased", button="left")

    def press(self, key: str) -> None:
        text = {"text": key} if len(key) == 1 else {}
        self.call("Input.dispatchKeyEvent", type="keyDown", key=key, **text)
        self.call("Input.dispatchKeyEvent", type="keyUp", key=key)

    def events(self, *methods: str) -> list[dict[str, Any]]:
        return [found for found in self._browser.events if found.get("sessionId") == self.session and found["method"] in methods]

    def complaints(self) -> list[str]:
        """Errors of scripts, of the page's policy, and dialogs that were opened."""
        calls = [found for found in self.events("Runtime.consoleAPICalled") if found["params"]["type"] in {"error", "assert", "warning"}]
        return [json.dumps(found["params"])[:300] for found in [*self.events(*NOISE), *calls]]

    def requests(self) -> list[str]:
        return [found["params"]["request"]["url"] for found in self.events("Network.requestWillBeSent")]

    def screenshot(self, path: Path) -> Path:
        path.write_bytes(base64.b64decode(self.call("Page.captureScreenshot", format="png")["data"]))
        return path

    def close(self) -> None:
        self._browser.call("Target.closeTarget", targetId=self._target)


@contextlib.contextmanager
def chromium() -> Iterator[Browser]:
    assert CHROMIUM
    inward, send = os.pipe()
    receive, outward = os.pipe()
    ends = [fcntl.fcntl(end, fcntl.F_DUPFD, 10) for end in (inward, outward)]  # out of the way of 3 and 4, where the browser wants them

    def places() -> None:
        os.dup2(ends[0], 3)
        os.dup2(ends[1], 4)

    with tempfile.TemporaryDirectory(prefix="mx-browser-", ignore_cleanup_errors=True) as profile:
        command = [CHROMIUM, *FLAGS, f"--user-data-dir={profile}", "about:blank"]
        process = subprocess.Popen(command, pass_fds=(3, 4), preexec_fn=places, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        for end in (inward, outward, *ends):
            os.close(end)
        try:
            yield Browser(send, receive)
        finally:
            for end in (send, receive):
                os.close(end)
            process.terminate()
            process.wait(30)
