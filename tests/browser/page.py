#!/usr/bin/env python3
"""The page for browsers: what it shows, by the keyboard, at two widths, in light and dark. Usage: page.py ADDRESS TOKEN"""

import json
import sys
import urllib.request

from browser import PATIENCE, Browser, expect, sign_in

WIDE, NARROW, SMALLEST = (1280, 900), (390, 844), (320, 640)
OVERFLOW = "document.documentElement.scrollWidth - document.documentElement.clientWidth"

# Asks for another story in the one that is open, closes that one, and waits until the page has read the answer and done with it what it does.
CLOSED_WHILE_IT_ASKS = """(async () => {
  const story = document.querySelector('#story'), ask = fetch;
  let read;
  const isRead = new Promise((done) => { read = done; });
  fetch = async (...what) => {
    const response = await ask(...what), json = response.json.bind(response);
    return Object.assign(response, { json: () => json().finally(() => setTimeout(read)) });
  };
  document.querySelector('#find').dispatchEvent(new KeyboardEvent('keydown', { key: 'Enter' }));
  story.close();
  fetch = ask;
  await isRead;
  return story.open;
})()"""


def ask(address, token, method, path, body=None):
    fields = {"Authorization": f"Bearer {token}", "Prefer": "respond-async"}
    request = urllib.request.Request(f"http://{address}{path}", body, fields, method=method)
    with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
        return json.load(answer)


def submit(address, token, task, body):
    """Submits a job that nobody waits for, and returns its id."""
    return ask(address, token, "POST", f"/v1/tasks/{task}", body.encode())["job"]


def wrong_token_is_told(browser, address):
    browser.open(f"http://{address}/")
    browser.until("it asks for the token", "document.activeElement === document.querySelector('#token')")
    browser.write("this-is-not-the-token")
    browser.key("Enter")
    browser.until("it says so", "document.querySelector('#sign-in-hint').textContent.includes('not the right one')")
    expect(browser.value("sessionStorage.length") == 0, "a wrong token is not kept")


def rows_appear(browser, address, token):
    running = [submit(address, token, "sleep", "3600000") for _ in range(2)]
    waiting = submit(address, token, "sleep", "3600000")
    for job in running:
        browser.until("its slot shows the job", f"document.querySelector('#slots').textContent.includes('{job}')")
    browser.until("the list has the one that waits", f"document.querySelector('#jobs').textContent.includes('{waiting}')")
    row = "[...document.querySelectorAll('#tasks tbody tr')].find((row) => row.cells[0].textContent === 'sleep')"
    browser.until("the task counts them", f"{row}?.cells[1].textContent === '1' && {row}.cells[2].textContent === '2'")
    return running + [waiting]


def cancel_by_keyboard(browser, job):
    """Tab to a job, Enter for its story, Enter for `Cancel job`, which has the focus, Escape."""
    browser.value("document.querySelector('#sign-out').focus()")
    for _ in range(300):
        browser.key("Tab")
        if browser.value("document.activeElement.textContent") == job:
            break
    else:
        expect(False, "the job can be reached by the keyboard")
    browser.key("Enter")
    browser.until("its story is told", "document.querySelector('#story').open")
    browser.until("the focus is on the way to cancel it", "document.activeElement === document.querySelector('#story-cancel')")
    browser.picture("story")
    browser.key("Enter")
    browser.until("it is cancelled", "document.querySelector('#story-state').textContent === 'cancelled'")
    browser.key("Escape")
    browser.until("the story is closed", "!document.querySelector('#story').open")


def story_of_a_job_that_has_ended(browser, address, token):
    """Its output went to whoever waited for it, so there is only its story to tell."""
    fields = {"Authorization": f"Bearer {token}"}
    request = urllib.request.Request(f"http://{address}/v1/tasks/echo", b"hello", fields)
    with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
        job = answer.headers["Offload-Job"]
    browser.value("document.querySelector('#find').focus()")
    browser.write(job)
    browser.key("Enter")
    browser.until("it is found by its id", "document.querySelector('#story-state').textContent === 'ok'")
    browser.until("it is shown", "document.querySelector('#story').open")
    browser.value(f"document.querySelector('#find').value = '{job}'")
    expect(browser.value(CLOSED_WHILE_IT_ASKS) is False, "whoever has closed a story is told no other")


def focus_stays_where_it_is(browser, address, token, gone, job):
    """Of two jobs in the list of those that live, the first one, `gone`, goes away."""
    shown = "[...document.querySelectorAll('#jobs button.id')].map((button) => button.textContent).join(' ')"
    browser.value("Object.assign(document.querySelector('#which'), { value: 'live' }).dispatchEvent(new Event('change'))")
    browser.until("only what lives is shown", f"{shown} === '{gone} {job}'")
    browser.value("document.querySelectorAll('#jobs button.id')[1].focus()")
    ask(address, token, "DELETE", f"/v1/jobs/{gone}")
    browser.until("it is gone", f"{shown} === '{job}'")
    expect(browser.value("document.activeElement.textContent") == job, "whoever was at the other one still is")
    browser.value("Object.assign(document.querySelector('#which'), { value: '' }).dispatchEvent(new Event('change'))")


def kill_workers(address, token):
    """A job that ends each of its workers; its id, when it was given up."""
    dead = submit(address, token, "fault", '{"act":"kill"}')
    ended = ask(address, token, "GET", f"/v1/jobs/{dead}?wait=120")
    expect(ended["outcome"] == "poison", f"it was given up: {ended}")
    return dead


def what_was_before_is_told(browser, dead):
    """Whoever opens the page learns how workers ended before that."""
    ends = f"[...document.querySelectorAll('#ends tbody tr')].filter((row) => row.textContent.includes('{dead}'))"
    browser.until("each worker that it has ended is told", f"{ends}.length === 3")
    expect(browser.value(f"{ends}.every((row) => row.textContent.includes('signal 9'))"), "and how")
    row = "[...document.querySelectorAll('#tasks tbody tr')].find((row) => row.cells[0].textContent === 'fault')"
    heads = "[...document.querySelectorAll('#tasks th')].findIndex((head) => head.textContent === 'Dead')"
    browser.until("its task counts the dead", f"{row}?.cells[{heads}].textContent === '1'")


def dead_letters_are_shown_retried_and_dropped(browser, dead):
    browser.until("it is a dead letter", f"document.querySelector('#dead').textContent.includes('{dead}')")
    browser.value("document.querySelector('#dead button.id').focus()")
    browser.key("Enter")
    browser.until("each attempt is told", "document.querySelectorAll('#story .attempt').length === 3")
    browser.until("its story offers to try it again", "!document.querySelector('#story-retry').hidden")
    browser.picture("dead")
    browser.value("document.querySelector('#story-retry').focus()")
    browser.key("Enter")
    title = "document.querySelector('#story-title').textContent"
    browser.until("the story is that of the new job", f"{title} !== '{dead}'")
    browser.until("that does the same", "document.querySelector('#story-state').textContent === 'poison'")
    dead = browser.value(title)
    browser.key("Escape")
    browser.until("it is a dead letter", f"document.querySelector('#dead').textContent.includes('{dead}')")
    drop = "[...document.querySelectorAll('#dead button')].find((button) => /Drop|Really/.test(button.textContent))"
    browser.value(f"{drop}.focus()")
    browser.key("Enter")
    expect(browser.value(f"{drop}.textContent") == "Really?", "it asks once more")
    browser.value(f"{drop}.blur()")
    expect(browser.value(f"{drop}.textContent") == "Drop", "it does not when somebody has gone elsewhere")
    browser.tap(drop)
    browser.until("it asks whoever touches it, too", f"{drop}.textContent === 'Really?'")
    browser.tap(drop)
    browser.until("it is gone", f"!document.querySelector('#dead').textContent.includes('{dead}')")


def looks(browser):
    """Nothing is wider than the page at any width, and the colours follow the browser's."""
    backgrounds = {}
    for scheme in ("light", "dark"):
        browser.prefer(scheme)
        for name, size in (("wide", WIDE), ("narrow", NARROW), ("smallest", SMALLEST)):
            browser.resize(*size)
            browser.value("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
            expect(browser.value(OVERFLOW) == 0, f"{name}, {scheme}: wider than the page by {browser.value(OVERFLOW)}")
            browser.picture(f"{name}-{scheme}")
        backgrounds[scheme] = browser.value("getComputedStyle(document.body).backgroundColor")
    expect(backgrounds["light"] != backgrounds["dark"], f"the same colours by day and night: {backgrounds}")
    browser.resize(*WIDE)
    browser.prefer("light")


def token_stays_in_its_tab(browser, token):
    expect(browser.value("localStorage.length") == 0 and not browser.value("document.cookie"), "only this tab knows it")
    expect(token not in browser.value("document.documentElement.outerHTML + location.href"), "it is not shown")
    browser.value("document.querySelector('#sign-out').click()")
    expect(browser.value("sessionStorage.length") == 0, "it is forgotten when somebody signs out")
    expect(browser.value("document.querySelector('#app').hidden"), "nothing is shown any more")


def main(address, token):
    with Browser(WIDE) as browser:
        dead = kill_workers(address, token)
        wrong_token_is_told(browser, address)
        sign_in(browser, address, token)
        what_was_before_is_told(browser, dead)
        jobs = rows_appear(browser, address, token)
        cancel_by_keyboard(browser, jobs[0])
        focus_stays_where_it_is(browser, address, token, jobs[2], jobs[1])
        ask(address, token, "DELETE", f"/v1/jobs/{jobs[1]}")
        story_of_a_job_that_has_ended(browser, address, token)
        dead_letters_are_shown_retried_and_dropped(browser, dead)
        browser.until("the plots are drawn", "document.querySelectorAll('#plots path.line')[0].getAttribute('d').length > 20")
        looks(browser)
        token_stays_in_its_tab(browser, token)
        complaints = [complaint for complaint in browser.complaints if "401" not in complaint]
        expect(not complaints, f"the browser complains: {complaints}")


main(*sys.argv[1:])
