# A headless Chromium, driven by the DevTools protocol over two pipes: no package is needed.
# SPDX-License-Identifier: MIT
import base64
import json
import os
import select
import shutil
import signal
import subprocess
import tempfile
import time

NAMES = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")


def find():
    """The path of a Chromium, or none."""
    return next((path for path in map(shutil.which, NAMES) if path), None)


class Page:
    """One page. `errors` collects what it threw or logged, `urls` what it asked for."""

    def __init__(self, url, width=1200, height=800, is_dark=False, is_phone=False):
        self.profile = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        here, there = os.pipe(), os.pipe()  # commands, answers

        def connect():  # Chromium reads descriptor 3 and writes 4
            reads, writes = os.dup(here[0]), os.dup(there[1])
            os.dup2(reads, 3)
            os.dup2(writes, 4)

        flags = ["--remote-debugging-pipe", "--no-sandbox", "--disable-gpu", "--hide-scrollbars",
                 f"--user-data-dir={self.profile.name}", "about:blank"]
        name = find()
        if not name.endswith("shell"):
            flags.insert(0, "--headless=new")
        self.process = subprocess.Popen([name, *flags], preexec_fn=connect, close_fds=False,
                                        start_new_session=True, stdout=subprocess.DEVNULL,
                                        stderr=subprocess.DEVNULL)
        os.close(here[0])
        os.close(there[1])
        self.commands, self.answers = here[1], there[0]
        self.buffer, self.number = b"", 0
        self.errors, self.urls, self.session = [], [], None
        target = next(one for one in self.send("Target.getTargets")["targetInfos"]
                      if one["type"] == "page")
        self.session = self.send("Target.attachToTarget", targetId=target["targetId"],
                                 flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.send(domain + ".enable")
        self.send("Emulation.setDeviceMetricsOverride", width=width, height=height,
                  deviceScaleFactor=2 if is_phone else 1, mobile=is_phone)
        self.send("Emulation.setEmulatedMedia", features=[
            {"name": "prefers-color-scheme", "value": "dark" if is_dark else "light"}])
        self.send("Page.navigate", url=url)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        os.killpg(self.process.pid, signal.SIGKILL)  # with its helpers
        self.process.wait()
        os.close(self.commands)
        os.close(self.answers)
        self.profile.cleanup()

    def read(self, seconds):
        """The next message of the browser."""
        end = time.monotonic() + seconds
        while b"\0" not in self.buffer:
            assert select.select([self.answers], [], [], max(0, end - time.monotonic()))[0], \
                "the browser does not answer"
            part = os.read(self.answers, 1 << 16)
            assert part, "the browser has ended"
            self.buffer += part
        text, self.buffer = self.buffer.split(b"\0", 1)
        return json.loads(text)

    def send(self, method, **params):
        self.number += 1
        message = {"id": self.number, "method": method, "params": params}
        if self.session:
            message["sessionId"] = self.session
        os.write(self.commands, json.dumps(message).encode() + b"\0")
        while True:
            news = self.read(60)
            self.note(news)
            if news.get("id") == self.number:
                assert "error" not in news, news
                return news["result"]

    def note(self, news):
        params = news.get("params", {})
        if news.get("method") == "Runtime.exceptionThrown":
            self.errors.append(params["exceptionDetails"])
        if news.get("method") == "Log.entryAdded" and params["entry"]["level"] == "error":
            self.errors.append(params["entry"])
        if news.get("method") == "Network.requestWillBeSent":
            self.urls.append(params["request"]["url"])

    def run(self, script):
        """The value of a JavaScript expression; promises are awaited."""
        result = self.send("Runtime.evaluate", expression=script, awaitPromise=True,
                           returnByValue=True)
        assert "exceptionDetails" not in result, result
        return result["result"].get("value")

    def wait_for(self, script, seconds=30):
        end = time.monotonic() + seconds
        while not self.run(script):
            assert time.monotonic() < end, f"waited in vain for {script}; {self.errors}"
            time.sleep(0.05)

    def press(self, key, code=0, text="", modifiers=0):
        for kind in ("keyDown", "keyUp"):
            self.send("Input.dispatchKeyEvent", type=kind, key=key, windowsVirtualKeyCode=code,
                      text=text if kind == "keyDown" else "", modifiers=modifiers)

    def type(self, text):
        self.send("Input.insertText", text=text)

    def screenshot(self, path):
        picture = self.send("Page.captureScreenshot", format="png")["data"]
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(base64.b64decode(picture))
