#!/usr/bin/env python3
"""What the page says when it is not told how the supervisor is: all places are taken, or the supervisor does not answer. And what it says of
tokens that are none. Usage: silence.py ADDRESS TOKEN PID"""

import os
import signal
import socket
import sys

from browser import Browser, expect, sign_in

WATCHERS = 8
NOTICE, HINT, TROUBLE, LINK, STATE, ABOUT = (
    f"document.querySelector('{name}').textContent" for name in ("#notice", "#sign-in-hint", "#trouble", "#link", "#state", "#about")
)


def try_token(browser, token, hint):
    browser.until("it asks for the token", "document.activeElement === document.querySelector('#token')")
    browser.write(token)
    browser.key("Enter")
    browser.until(f"it says of {token!r}: {hint}", f"{HINT}.includes({hint!r}) && document.querySelector('#token').value === ''")
    expect(browser.value(NOTICE) == "", f"nothing else is said: {browser.value(NOTICE)}")


def watch(address, token):
    """Takes a place among those who are told."""
    host, port = address.split(":")
    watcher = socket.create_connection((host, int(port)), timeout=60)
    watcher.sendall(f"GET /v1/events HTTP/1.1\r\nHost: {address}\r\nAuthorization: Bearer {token}\r\n\r\n".encode())
    head = watcher.recv(4096)
    expect(head.startswith(b"HTTP/1.1 200 "), f"it has a place: {head}")
    return watcher


def without_a_place(browser, address, token):
    watchers = [watch(address, token) for _ in range(WATCHERS)]
    browser.write(token)
    browser.key("Enter")
    browser.until("it says why it is not told", f"{TROUBLE}.includes('at most {WATCHERS}')")
    browser.until("it shows the state all the same", f"{STATE} === 'running' && {ABOUT}.includes('up ')")
    browser.until("and the slots", "document.querySelectorAll('#slots tbody tr td:first-child').length >= 2")
    expect(browser.value(NOTICE) == "", f"nothing is left of the tokens before: {browser.value(NOTICE)}")
    before = browser.value(ABOUT)
    browser.until("it asks again", f"{ABOUT} !== '{before}'")
    for watcher in watchers:
        watcher.close()
    browser.until("it is told when there is a place", f"{LINK} === 'live' && {TROUBLE} === ''")


def without_an_answer(browser, what):
    browser.until(f"{what}: it says since when", f"/Nothing was heard .* since .*[0-9]:[0-9][0-9]/.test({TROUBLE})")
    expect(browser.value(STATE) == "unknown", f"{what}: {browser.value(STATE)}")
    expect("up " not in browser.value(ABOUT), f"{what}: it is not said to be up")


def main(address, token, pid):
    with Browser() as browser:
        browser.open(f"http://{address}/")
        try_token(browser, "t\u00f6k\u00e9n\u2192xx", "no token")
        try_token(browser, "this-is-not-the-token", "not the right one")
        without_a_place(browser, address, token)
        browser.value("document.querySelector('#sign-out').click()")
        expect("names the file" in browser.value(HINT), f"the hint is that of the beginning: {browser.value(HINT)}")
        sign_in(browser, address, token)
        os.kill(int(pid), signal.SIGSTOP)
        try:
            without_an_answer(browser, "stopped")
        finally:
            os.kill(int(pid), signal.SIGCONT)
        browser.until("it is heard again", f"{LINK} === 'live' && {TROUBLE} === '' && {STATE} === 'running'")
        os.kill(int(pid), signal.SIGKILL)
        without_an_answer(browser, "gone")
        expected = ("401", "503", "net::ERR")
        complaints = [complaint for complaint in browser.complaints if not any(word in complaint for word in expected)]
        expect(not complaints, f"the browser complains: {complaints}")


main(*sys.argv[1:])
