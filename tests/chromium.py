"""A headless Chromium over the DevTools protocol: open a page, ask it questions, and hear what it complains about."""

import base64
import itertools
import json
import os
import shutil
import subprocess
import time
from contextlib import contextmanager
from pathlib import Path
from urllib.request import ProxyHandler, build_opener

import websocket

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
BROWSER = next((found for name in NAMES if (found := shutil.which(name))), None)
PATIENCE = 600  # seconds until a browser counts as hung; no test waits so long
#: Whatever is asked of the network fails, so that a page that needs it shows it.
FLAGS = (
    "--headless=new",
    "--remote-debugging-port=0",
    "--remote-allow-origins=*",
    "--no-first-run",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--disable-component-update",
    "--hide-scrollbars",
    "--host-resolver-rules=MAP * ~NOTFOUND , EXCLUDE 127.0.0.1",
)


class Page:
    """One tab. ``errors`` and ``requests`` collect since the last :meth:`open`."""

    def __init__(self, address: str):
        self._socket = websocket.create_connection(address, timeout=PATIENCE, skip_utf8_validation=True)
        self._ids = itertools.count(1)
        self.errors: list[str] = []
        self.requests: list[str] = []
        self._events: list[str] = []
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **parameters):
        """Send a command and return its result; events that arrive meanwhile are kept."""
        number = next(self._ids)
        self._socket.send(json.dumps({"id": number, "method": method, "params": parameters}))
        while True:
            message = json.loads(self._socket.recv())
            if message.get("id") == number:
                assert "error" not in message, f"{method}: {message['error']}"
                return message["result"]
            self._hear(message)

    def _hear(self, message: dict) -> None:
        name, told = message["method"], message["params"]
        self._events.append(name)
        if name == "Runtime.exceptionThrown":
            self.errors.append(json.dumps(told["exceptionDetails"])[:500])
        elif name == "Runtime.consoleAPICalled" and told["type"] in ("error", "warning", "assert"):
            self.errors.append(json.dumps(told["args"])[:500])
        elif name == "Log.entryAdded" and told["entry"]["level"] in ("error", "warning"):
            self.errors.append(told["entry"]["text"])
        elif name == "Network.requestWillBeSent":
            self.requests.append(told["request"]["url"])

    def open(self, path: Path, width: int = 1440, height: int = 900, dark: bool = False) -> None:
        """Load a file at a width, light or dark, and wait until it is there with all its pictures."""
        self.errors.clear()
        self.requests.clear()
        self.show(width, height, dark)
        self._events.clear()
        self.call("Page.navigate", url=path.resolve().as_uri())
        while "Page.loadEventFired" not in self._events:
            self._hear(json.loads(self._socket.recv()))
        self.ask("document.querySelectorAll('img').forEach((image) => (image.loading = 'eager'))")
        self.ask("Promise.all([...document.images].map((image) => image.decode().catch(() => null))).then(() => 1)")

    def show(self, width: int, height: int = 900, dark: bool = False) -> None:
        """Set the window's size and the preferred colours."""
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
        self.call("Emulation.setDeviceMetricsOverride", **size)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])

    def ask(self, expression: str):
        """Return the value of a JavaScript expression."""
        found = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in found, found["exceptionDetails"]
        return found["result"].get("value")

    def press(self, key: str, code: int) -> None:
        """Press and release a key."""
        for kind in ("keyDown", "keyUp"):
            text = {"text": key} if kind == "keyDown" and len(key) == 1 else {}
            self.call("Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=code, **text)

    def picture(self, path: Path) -> None:
        """Save what the window shows as PNG."""
        path.write_bytes(base64.b64decode(self.call("Page.captureScreenshot", format="png")["data"]))


@contextmanager
def chromium(profile: Path):
    """Start the browser with a fresh profile folder and yield its page; end it afterwards."""
    root = ["--no-sandbox"] if os.geteuid() == 0 else []
    command = [BROWSER, *FLAGS, *root, f"--user-data-dir={profile}", "about:blank"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        port = _port(profile / "DevToolsActivePort", process)
        direct = build_opener(ProxyHandler({}))
        with direct.open(f"http://127.0.0.1:{port}/json", timeout=PATIENCE) as answer:
            tabs = json.load(answer)
        page = Page(next(tab["webSocketDebuggerUrl"] for tab in tabs if tab["type"] == "page"))
        try:
            yield page
        finally:
            page._socket.close()
    finally:
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _port(file: Path, process: subprocess.Popen) -> int:
    """Return the port that the browser writes to a file when it listens."""
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        if file.is_file() and len(lines := file.read_text().split()) == 2:  # the port and a path: the file is whole
            return int(lines[0])
        assert process.poll() is None, f"the browser ended with {process.returncode}"
        time.sleep(0.05)
    raise AssertionError(f"the browser did not listen within {PATIENCE} s")
