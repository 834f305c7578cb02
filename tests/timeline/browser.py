"""A Chromium without a window, driven over a pipe by its own protocol: no driver and no network are needed."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import select
import shutil
import signal
import tempfile
import time
from pathlib import Path
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
PATIENCE = 60.0
"""Seconds until an answer that does not come is a failure."""
KEYS = {
    "ArrowLeft": 37,
    "ArrowRight": 39,
    "Home": 36,
    "End": 35,
    "PageDown": 34,
    "PageUp": 33,
    "Escape": 27,
    "/": 191,
    " ": 32,
}


def installed() -> str | None:
    """The path of a browser, if one is installed."""
    return next((path for path in map(shutil.which, NAMES) if path is not None), None)


class Browser:
    """One tab. ``problems``: every exception, error in the console, and request that is neither of a file nor of data."""

    def __init__(self, path: str) -> None:
        self.problems: list[str] = []
        self.profile = tempfile.mkdtemp(prefix="kvspec-browser-")
        to_browser, ours_out = os.pipe()
        ours_in, from_browser = os.pipe()
        # Out of the way of 3 and 4, which the browser reads from and writes to.
        high = [fcntl.fcntl(end, fcntl.F_DUPFD, 10) for end in (to_browser, from_browser)]
        options = (
            "--headless --no-sandbox --disable-gpu --disable-background-networking --disable-component-update --disable-sync"
            " --no-first-run --disable-dev-shm-usage --hide-scrollbars --remote-debugging-pipe"
        )
        actions = [
            (os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0),
            (os.POSIX_SPAWN_OPEN, 2, os.devnull, os.O_WRONLY, 0),
            (os.POSIX_SPAWN_DUP2, high[0], 3),
            (os.POSIX_SPAWN_DUP2, high[1], 4),
        ]
        arguments = [path, *options.split(), f"--user-data-dir={self.profile}", "about:blank"]
        self.process = os.posix_spawn(path, arguments, dict(os.environ), file_actions=actions)
        for end in (to_browser, from_browser, *high):
            os.close(end)
        self.out, self.inn = ours_out, ours_in
        self.rest = b""
        self.sent = 0
        self.session: str | None = None
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def close(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.process, signal.SIGKILL)
        os.waitpid(self.process, 0)
        os.close(self.out)
        os.close(self.inn)
        shutil.rmtree(self.profile, ignore_errors=True)

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        """Call a method of the protocol and wait for its answer."""
        self.sent += 1
        message: dict[str, Any] = {"id": self.sent, "method": method, "params": params}
        if self.session is not None:
            message["sessionId"] = self.session
        os.write(self.out, json.dumps(message).encode() + b"\0")
        end = time.monotonic() + PATIENCE
        while True:
            got = self._next(end)
            if got.get("id") == self.sent:
                assert "error" not in got, f"{method}: {got['error']}"
                return dict(got["result"])
            self._event(got)

    def open(self, page: Path, fragment: str = "") -> None:
        """Load a page from a file."""
        address = f"{page.resolve().as_uri()}{fragment}"
        self.call("Page.navigate", url="about:blank")  # else another fragment of the same page would load nothing
        self.call("Page.navigate", url=address)
        end = time.monotonic() + PATIENCE
        ready = f"location.href.startsWith({json.dumps(page.resolve().as_uri())}) && document.readyState === 'complete'"
        while not self.js(ready):
            assert time.monotonic() < end, f"{address} does not load"
            time.sleep(0.02)

    def js(self, expression: str) -> Any:
        """The value of an expression in the page."""
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, f"{expression}: {answer['exceptionDetails']}"
        return answer["result"].get("value")

    def press(self, key: str) -> None:
        """Press and release a key."""
        what = {"key": key, "code": key, "windowsVirtualKeyCode": KEYS[key]}
        self.call("Input.dispatchKeyEvent", type="keyDown", **what, **({"text": key} if len(key) == 1 else {}))
        self.call("Input.dispatchKeyEvent", type="keyUp", **what)

    def size(self, width: int, height: int, dark: bool = False) -> None:
        """Set the size of the window, and whether the user wants it dark."""
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        feature = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[feature])
        self.js("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")

    def _next(self, end: float) -> dict[str, Any]:
        while b"\0" not in self.rest:
            left = end - time.monotonic()
            assert left > 0 and select.select([self.inn], [], [], left)[0], "the browser does not answer"
            got = os.read(self.inn, 1 << 16)
            assert got, "the browser has ended"
            self.rest += got
        one, _, self.rest = self.rest.partition(b"\0")
        return dict(json.loads(one))

    def _event(self, event: dict[str, Any]) -> None:
        params = event.get("params", {})
        match event.get("method"):
            case "Runtime.exceptionThrown":
                self.problems.append(str(params["exceptionDetails"]))
            case "Runtime.consoleAPICalled" if params["type"] in ("error", "warning", "assert"):
                self.problems.append(str(params["args"]))
            case "Log.entryAdded" if params["entry"]["level"] in ("error", "warning"):
                self.problems.append(str(params["entry"]))
            case "Network.requestWillBeSent" if not params["request"]["url"].startswith(("file:", "data:", "about:")):
                self.problems.append(params["request"]["url"])
