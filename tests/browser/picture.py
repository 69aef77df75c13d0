#!/usr/bin/env python3
"""A task is called from the page: its progress is followed, and the picture that it returns is shown, pixel by pixel.
Usage: picture.py ADDRESS TOKEN"""

import base64
import os
import struct
import sys
import tempfile
import zlib

from browser import Browser, expect, sign_in

SIZE = (16, 8)

# The text of the last state, and each one that the page has shown.
WATCH = """
  window.states = [];
  new MutationObserver(() => states.push(document.querySelector('#call-state').textContent))
    .observe(document.querySelector('#call-state'), { childList: true, characterData: true, subtree: true });
"""
PIXELS = """(() => {
  const image = document.querySelector('#call-output img');
  const canvas = document.createElement('canvas');
  canvas.width = image.naturalWidth;
  canvas.height = image.naturalHeight;
  const context = canvas.getContext('2d');
  context.drawImage(image, 0, 0);
  return [canvas.width, canvas.height, ...context.getImageData(0, 0, canvas.width, canvas.height).data];
})()"""


def colour(x, y):
    return (x * 16, y * 32, 255 - x * 16)


def png(width, height):
    """A picture whose every pixel is known."""
    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
    lines = b"".join(b"\0" + b"".join(bytes(colour(x, y)) for x in range(width)) for y in range(height))
    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(lines)) + chunk(b"IEND", b"")


def choose(browser, task):
    browser.until(f"{task} is offered", f"[...document.querySelector('#call-task').options].some((option) => option.value === '{task}')")
    browser.value(f"document.querySelector('#call-task').value = '{task}'")
    browser.value("document.querySelector('#call-task').dispatchEvent(new Event('change'))")


def run(browser):
    browser.value("document.querySelector('#call .primary').focus()")
    browser.key("Enter")


def progress_is_shown(browser):
    """A computation that takes a while shows how far it is, and can be cancelled."""
    choose(browser, "average")
    browser.value("document.querySelector('#call-input').value = '10000000000'")
    run(browser)
    bar = "document.querySelector('#call-progress')"
    first = browser.until("it says how far it is", f"!{bar}.hidden && {bar}.value > 0 && {bar}.value / {bar}.max")
    browser.until("it goes on", f"{bar}.hidden || {bar}.value / {bar}.max > {first}")
    browser.picture("progress")
    browser.value("document.querySelector('#call-cancel').focus()")
    browser.key("Enter")
    browser.until("it has ended", "/^(cancelled|ok)/.test(document.querySelector('#call-state').textContent)")


def picture_is_shown(browser):
    """What comes back as a picture is shown, and is the same in every pixel."""
    choose(browser, "echo")
    with tempfile.NamedTemporaryFile(suffix=".png") as file:
        file.write(png(*SIZE))
        file.flush()
        browser.choose_file("#call-file", os.path.abspath(file.name))
        run(browser)
        browser.until("the picture is there", "document.querySelector('#call-output img')?.naturalWidth > 0")
    width, height, *pixels = browser.value(PIXELS)
    expect((width, height) == SIZE, f"{width} x {height}")
    wanted = [part for y in range(height) for x in range(width) for part in (*colour(x, y), 255)]
    expect(pixels == wanted, f"other pixels: {pixels[:16]} ... {pixels[-16:]}")
    browser.value("document.querySelector('#call-file').value = ''")


def mandelbrot_is_drawn(browser):
    """The task that draws: the middle of the set is black, what is far outside is not, and there are shades between them."""
    choose(browser, "mandelbrot")
    browser.value("""document.querySelector('#call-input').value =
      '{"x":-0.5,"y":0,"scale":3,"width":300,"height":300,"iterations":200}'""")
    run(browser)
    browser.until("it is drawn", "document.querySelector('#call-output img')?.naturalWidth === 300")
    width, height, *pixels = browser.value(PIXELS)
    at = lambda x, y: tuple(pixels[4 * (y * width + x):][:3])
    expect((width, height) == (300, 300), f"{width} x {height}")
    expect(at(150, 150) == (0, 0, 0), f"the middle of the set is {at(150, 150)}")
    expect(at(2, 2) != (0, 0, 0), f"what is far outside is {at(2, 2)}")
    expect(len({at(x, 150) for x in range(width)}) > 5, "there are shades between them")
    browser.picture("mandelbrot")


def main(address, token):
    with Browser() as browser:
        sign_in(browser, address, token)
        browser.value(WATCH)
        picture_is_shown(browser)
        states = browser.value("states")
        expect(states[0] == "sending" and states[-1] == "ok", f"its states are told as they come: {states}")
        progress_is_shown(browser)
        mandelbrot_is_drawn(browser)
        expect(not browser.complaints, f"the browser complains: {browser.complaints}")


main(*sys.argv[1:])
