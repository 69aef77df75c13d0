#!/usr/bin/env python3
"""The page of `offload bench compare --report`, at two widths, in light and dark. Usage: report.py FILE.html [PICTURE.svg] [--other-figures]

With PICTURE.svg, the plot of the throughput is kept there as the page's own button keeps it. With --other-figures, the page is
looked at with many others in place of its own, too."""

import json
import os
import pathlib
import re
import sys

from browser import Browser, expect

WIDTHS = (("wide", (1280, 900)), ("narrow", (390, 844)))
OVERFLOW = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
# What is drawn beyond the edge of its plot, by more than half a line's width.
OUTSIDE = """[...document.querySelectorAll('svg[data-plot]')].flatMap((plot) => {
  const edge = plot.getBoundingClientRect();
  return [...plot.querySelectorAll('text, rect, circle, path')]
    .map((mark) => [mark, mark.getBoundingClientRect()])
    .filter(([, box]) => box.left < edge.left - 2 || box.right > edge.right + 2 || box.top < edge.top - 2 || box.bottom > edge.bottom + 2)
    .map(([mark]) => `${plot.dataset.plot}: ${mark.textContent || mark.outerHTML.slice(0, 120)}`);
})"""
PLOTS = """[...document.querySelectorAll('svg[data-plot]')].map((plot) => ({
  name: plot.dataset.plot, text: plot.getAttribute('aria-label'),
  marks: [...plot.querySelectorAll('.mark, .line, .full')].filter((mark) => mark.getBBox().width + mark.getBBox().height > 0).length,
}))"""
DRAWN = """[...document.querySelectorAll('.plot')]
  .every((plot) => plot.firstChild && Math.abs(plot.firstChild.clientWidth - plot.clientWidth) <= 1)"""
BROKEN = "[...document.querySelectorAll('svg *')].filter((mark) => [...mark.attributes].some(({ value }) => /NaN|Infinity|undefined/.test(value))).length"
CLICK = """new Promise((done) => {
  const create = URL.createObjectURL;
  URL.createObjectURL = (blob) => { blob.text().then(done); URL.createObjectURL = create; return create.call(URL, blob); };
  document.querySelector('svg[data-plot^=throughput], svg[data-plot=crossover]').closest('figure').querySelector('button').click();
})"""

# With which figures a label comes to stand at an edge is chance: all of them are multiplied, in steps, from one power of ten to the next.
OTHERS = "--other-figures"
FACTORS = [10 ** (step / 200) for step in range(200)]
RATES = {"jobs_per_s", "jobs_per_s_interval", "jobs_per_s_of_rounds", "seconds", "size"}


def multiplied(value, factor, key=""):
    """The figures of a page, the rates, times and sizes of them times the factor. Of a pair of a share and a time only the time."""
    if isinstance(value, dict):
        return {name: multiplied(each, factor, key if key.endswith("_us") else name) for name, each in value.items()}
    if isinstance(value, list):
        if key == "probe_latency_distribution_us":
            return [[part, us * factor] for part, us in value]
        return [multiplied(each, factor, key) for each in value]
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return value * factor if is_number and (key in RATES or key.endswith("_us")) else value


def holds_other_figures(browser, file, plots):
    """The page's own script, with other figures, which draws as many plots as before."""
    drawn = f"document.querySelectorAll('svg[data-plot]').length === {plots} && {DRAWN}"
    with open(file, encoding="utf-8") as page:
        page = page.read()
    script = re.search(r"<script>(.*?)</script>", page, re.S).group(1)
    data = json.loads(browser.value("document.querySelector('#data').textContent"))
    for name, size in WIDTHS:
        browser.resize(*size)
        for factor in FACTORS:
            other = json.dumps(json.dumps(multiplied(data, factor)))
            browser.value(f"document.querySelector('#data').textContent = {other}; document.querySelector('#report').replaceChildren();\n{script}")
            browser.value("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
            browser.until(f"the {plots} plots are drawn", drawn)
            outside = browser.value(OUTSIDE)
            expect(not outside, f"{name}, all figures times {factor:.2f}: outside of the plot: {outside}")
            expect(browser.value(BROKEN) == 0, f"{name}, all figures times {factor:.2f}: a mark has no place")


def looks(browser):
    backgrounds = {}
    for scheme in ("light", "dark"):
        browser.prefer(scheme)
        for name, size in WIDTHS:
            browser.resize(*size)
            width = "document.querySelector('svg[data-plot]').closest('.plot').clientWidth"
            browser.until("the plots have the new width", DRAWN)
            expect(browser.value(OVERFLOW) == 0, f"{name}, {scheme}: wider than the page by {browser.value(OVERFLOW)}")
            outside = browser.value(OUTSIDE)
            expect(not outside, f"{name}, {scheme}, {browser.value(width)}: outside of the plot: {outside}")
            expect(browser.value(BROKEN) == 0, f"{name}: a mark has no place")
            browser.picture(f"report-{name}-{scheme}")
        backgrounds[scheme] = browser.value("getComputedStyle(document.body).backgroundColor")
    expect(backgrounds["light"] != backgrounds["dark"], f"the same colours by day and night: {backgrounds}")


def main(file, picture=None, others=False):
    with Browser(WIDTHS[0][1]) as browser:
        browser.open(pathlib.Path(os.path.abspath(file)).as_uri())
        browser.until("the plots are drawn", "document.querySelectorAll('svg[data-plot]').length > 0")
        plots = browser.value(PLOTS)
        print(", ".join(f"{plot['name']} {plot['marks']}" for plot in plots))
        for plot in plots:
            expect(plot["marks"] >= 2 and len(plot["text"]) > 30, f"a plot is empty, or has no text: {plot}")
        expect(browser.value("document.querySelectorAll('tbody tr').length") >= 1, "there is a table")
        looks(browser)
        # A name that comes from outside is text, and nothing else.
        expect(browser.value("document.scripts.length") == 2, "there is one script, and the figures")
        browser.resize(*WIDTHS[0][1])
        browser.until("the plots are wide again", "document.querySelector('svg[data-plot]').clientWidth > 400")
        kept = browser.value(CLICK)
        expect(kept.startswith("<svg") and "<style" in kept and "prefers-color-scheme" in kept, "a plot can be kept")
        if picture:
            with open(picture, "w") as out:
                out.write(kept + "\n")
        if others:
            holds_other_figures(browser, file, len(plots))
        expect(not browser.complaints, f"the browser complains: {browser.complaints}")


main(*(argument for argument in sys.argv[1:] if argument != OTHERS), others=OTHERS in sys.argv)
