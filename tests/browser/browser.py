"""Chromium without a window, driven by its own protocol over a pair of pipes. No more of it than the tests need."""

import base64
import json
import os
import select
import shutil
import subprocess
import sys
import tempfile
import time

# For each step, in seconds: on a machine whose cores are busy the first browser takes long to start.
PATIENCE = 180.0
PROGRAMS = ("chromium", "chromium-browser", "google-chrome")
FLAGS = (
    "--headless=new", "--remote-debugging-pipe", "--no-first-run", "--disable-gpu", "--disable-dev-shm-usage",
    "--disable-extensions", "--disable-background-networking", "--disable-component-update", "--hide-scrollbars",
    "--no-sandbox",  # The tests run as root in containers, where Chromium has no sandbox.
)

# Chromium takes its commands from descriptor 3 and answers on 4. The pipes have other numbers, of any size; a shell need not
# know numbers of two digits.
ON_3_AND_4 = """
import fcntl, os, sys
pipes = [fcntl.fcntl(int(number), fcntl.F_DUPFD, 10) for number in sys.argv[1:3]]
for number, pipe in enumerate(pipes, 3):
    os.dup2(pipe, number)
os.closerange(5, max(map(int, [*pipes, *sys.argv[1:3]])) + 1)
os.execvp(sys.argv[3], sys.argv[3:])
"""


class Failed(AssertionError):
    """What a script expects is not so."""


class Browser:
    """One browser with one tab. Whatever the page logs, throws or is refused by its policy is kept in `complaints`."""

    def __init__(self, size=(1280, 900)):
        program = next(filter(None, map(shutil.which, PROGRAMS)), None)
        if program is None:
            raise Failed("chromium is needed: apt-get install chromium")
        self.complaints = []
        self.on_event = {}
        self._start(program, size)
        try:
            tab = self.send("Target.createTarget", url="about:blank")["targetId"]
        except Failed as failed:
            with open(os.path.join(self.profile, "said"), errors="replace") as said:
                said = said.read()[-2000:]
            self._end()
            raise Failed(f"{failed}; it ended with {self.process.returncode} and said: {said}") from None
        self.session = self.send("Target.attachToTarget", targetId=tab, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log"):
            self.send(f"{domain}.enable")
        self.resize(*size)

    def _start(self, program, size):
        self.profile = tempfile.mkdtemp(prefix="offload-browser-")
        self.commands, self.rest, self.session = 0, b"", None
        to_read, to_write = os.pipe(), os.pipe()
        arguments = [program, *FLAGS, f"--user-data-dir={self.profile}", f"--window-size={size[0]},{size[1]}", "about:blank"]
        with open(os.path.join(self.profile, "said"), "wb") as said:
            self.process = subprocess.Popen(
                [sys.executable, "-c", ON_3_AND_4, str(to_read[0]), str(to_write[1]), *arguments],
                pass_fds=(to_read[0], to_write[1]), stdout=said, stderr=said,
                env={**os.environ, "HOME": self.profile}, start_new_session=True,
            )
        os.close(to_read[0])
        os.close(to_write[1])
        self.out, self.back = to_read[1], to_write[0]

    def _end(self):
        try:
            os.killpg(self.process.pid, 9)
        except ProcessLookupError:
            pass
        self.process.wait()
        os.close(self.out)
        os.close(self.back)
        shutil.rmtree(self.profile, ignore_errors=True)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._end()

    def send(self, method, **parameters):
        """Sends a command and waits for its result."""
        self.commands += 1
        message = {"id": self.commands, "method": method, "params": parameters}
        if self.session:
            message["sessionId"] = self.session
        data = json.dumps(message).encode() + b"\0"
        try:
            while data:
                data = data[os.write(self.out, data):]
        except BrokenPipeError:
            raise Failed(f"the browser is gone before {method}") from None
        number, deadline = self.commands, time.monotonic() + PATIENCE
        while True:
            answer = self._next(deadline)
            if answer is None:
                raise Failed(f"no answer to {method}")
            if answer.get("id") == number:
                if "error" in answer:
                    raise Failed(f"{method}: {answer['error']['message']}")
                return answer.get("result", {})

    def _next(self, deadline):
        while b"\0" not in self.rest:
            readable, _, _ = select.select([self.back], [], [], max(0, deadline - time.monotonic()))
            came = os.read(self.back, 1 << 16) if readable else b""
            if not came:
                return None
            self.rest += came
        one, self.rest = self.rest.split(b"\0", 1)
        message = json.loads(one)
        self._note(message.get("method"), message.get("params", {}))
        return message

    def _note(self, method, event):
        if method in self.on_event:
            self.on_event[method](event)
        if method == "Runtime.exceptionThrown":
            details = event["exceptionDetails"]
            self.complaints.append(details.get("exception", {}).get("description") or details["text"])
        elif method == "Runtime.consoleAPICalled" and event["type"] in ("error", "warning", "assert"):
            self.complaints.append(" ".join(str(each.get("value", each.get("description"))) for each in event["args"]))
        elif method == "Log.entryAdded" and event["entry"]["level"] in ("error", "warning"):
            self.complaints.append(f"{event['entry']['text']} {event['entry'].get('url', '')}")

    def open(self, url):
        self.send("Page.navigate", url=url)
        self.until("the page is there", "document.readyState === 'complete' && location.href !== 'about:blank'")

    def resize(self, width, height):
        self.send("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)

    def prefer(self, scheme):
        self.send("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])

    def value(self, script):
        """The value of an expression, which may be a promise."""
        result = self.send("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
        if "exceptionDetails" in result:
            raise Failed(f"{script}: {result['exceptionDetails'].get('exception', {}).get('description')}")
        return result["result"].get("value")

    def until(self, what, script):
        """Waits until an expression is true, and returns its value."""
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            found = self.value(script)
            if found:
                return found
            self.value("new Promise((done) => setTimeout(done, 50))")
        raise Failed(f"waited in vain: {what}; complaints: {self.complaints}; the page says:\n{self.text()[:2000]}")

    def text(self):
        return self.value("document.body.innerText")

    def key(self, key, code=None, text=None):
        """Presses a key, as somebody at the keyboard does."""
        known = {"Tab": 9, "Enter": 13, "Escape": 27}
        parameters = {"key": key, "code": code or key, "windowsVirtualKeyCode": known.get(key, 0)}
        text = "\r" if key == "Enter" else text
        self.send("Input.dispatchKeyEvent", type="keyDown", **parameters, **({"text": text} if text else {}))
        self.send("Input.dispatchKeyEvent", type="keyUp", **parameters)

    def tap(self, script):
        """Touches an element, as somebody with a finger does."""
        self.value(f"{script}.scrollIntoView({{ block: 'center' }})")
        middle = f"(({{ x, y, width, height }}) => ({{ x: x + width / 2, y: y + height / 2 }}))({script}.getBoundingClientRect())"
        self.send("Input.dispatchTouchEvent", type="touchStart", touchPoints=[self.value(middle)])
        self.send("Input.dispatchTouchEvent", type="touchEnd", touchPoints=[])

    def write(self, text):
        self.send("Input.insertText", text=text)

    def choose_file(self, selector, path):
        root = self.send("DOM.getDocument")["root"]["nodeId"]
        node = self.send("DOM.querySelector", nodeId=root, selector=selector)["nodeId"]
        self.send("DOM.setFileInputFiles", nodeId=node, files=[path])

    def picture(self, name):
        """Keeps a picture of the whole page, if somebody wants to look at it (OFFLOAD_PICTURES names a folder)."""
        folder = os.environ.get("OFFLOAD_PICTURES")
        if folder:
            shot = self.send("Page.captureScreenshot", format="png", captureBeyondViewport=True)["data"]
            with open(os.path.join(folder, f"{name}.png"), "wb") as file:
                file.write(base64.b64decode(shot))


def sign_in(browser, address, token):
    """Opens the page and shows the token, by the keyboard."""
    browser.open(f"http://{address}/")
    browser.until("it asks for the token", "document.activeElement === document.querySelector('#token')")
    # Asking without a token is refused, and that is in the log of the browser.
    browser.complaints[:] = [complaint for complaint in browser.complaints if "401" not in complaint]
    browser.write(token)
    browser.key("Enter")
    browser.until("it is live", "document.querySelector('#link').textContent === 'live'")


def expect(is_so, what):
    if not is_so:
        raise Failed(what)
