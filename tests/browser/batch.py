#!/usr/bin/env python3
"""How the end of a worker is told that ran several jobs together. Usage: batch.py ADDRESS TOKEN JOB JOB..."""

import sys

from browser import Browser, expect, sign_in

CELL = "[...document.querySelectorAll('#ends td')].find((cell) => cell.textContent.startsWith('{} jobs'))"


def main(address, token, *jobs):
    with Browser((1280, 900)) as browser:
        sign_in(browser, address, token)
        cell = CELL.format(len(jobs))
        browser.until("it is told how many jobs it ran", f"!!{cell}")
        shown = browser.value(f"[...{cell}.querySelectorAll('button')].map((button) => button.textContent)")
        expect(sorted(shown) == sorted(jobs), f"each of them is named: {shown}, not {jobs}")
        browser.value(f"{cell}.querySelector('summary').focus()")
        browser.key("Enter")
        browser.until("they unfold", f"{cell}.querySelector('details').open")
        browser.value(f"{cell}.querySelector('button').focus()")
        browser.key("Enter")
        browser.until("and each tells its story", f"document.querySelector('#story-title').textContent === '{shown[0]}'")
        expect(not browser.complaints, f"the browser complains: {browser.complaints}")


main(*sys.argv[1:])
