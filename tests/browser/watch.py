"""The live page of runs in a real browser: python tests/browser/watch.py --binary target/release/emberlm"""

import json
import re

from playwright.sync_api import expect
from support import Browser, arguments, folder, passed, served, trained

LOSS = "#charts figure:first-child canvas"
# How many pixels of a picture are drawn on.
INKED = """canvas => {
  const { width, height } = canvas;
  const bytes = canvas.getContext("2d").getImageData(0, 0, width, height).data;
  let inked = 0;
  for (let at = 3; at < bytes.length; at += 4) inked += bytes[at] > 0;
  return inked;
}"""
# A sum that another picture would hardly have.
PICTURE = """canvas => canvas.toDataURL()"""


def drawn(page):
    expect(page.locator("#runs tbody tr")).to_have_count(2)
    expect(page.locator(LOSS)).to_have_attribute("aria-label", re.compile("one .*two .*validation"))
    shown = page.locator("#charts figure:visible canvas")
    assert shown.count() >= 4, f"{shown.count()} curves"
    for at in range(shown.count()):
        inked = shown.nth(at).evaluate(INKED)
        assert inked > 500, f"{shown.nth(at).get_attribute('aria-label')}: {inked} pixels"
    passed("the curves of both runs are drawn")


def compared(page):
    both = page.locator(LOSS).evaluate(PICTURE)
    page.get_by_role("checkbox", name="two").uncheck()
    label = page.locator(LOSS).get_attribute("aria-label")
    assert "one" in label and "two" not in label, label
    assert page.locator(LOSS).evaluate(PICTURE) != both, "a run that is not shown is still drawn"
    page.get_by_role("checkbox", name="two").check()
    assert page.locator(LOSS).evaluate(PICTURE) == both, "a run that is shown again is not drawn as before"
    passed("runs are compared, and left out")


def zoomed(page):
    canvas, whole = page.locator(LOSS), page.get_by_role("button", name="whole range")
    before = canvas.evaluate(PICTURE)
    expect(whole).to_be_disabled()
    canvas.focus()
    focused = canvas.evaluate(PICTURE)
    page.keyboard.press("+")
    expect(whole).to_be_enabled()
    near = canvas.evaluate(PICTURE)
    assert near != focused, "zooming changes nothing"
    page.keyboard.press("ArrowRight")
    assert canvas.evaluate(PICTURE) != near, "moving changes nothing"
    page.keyboard.press("0")
    expect(whole).to_be_disabled()
    assert canvas.evaluate(PICTURE) == before, "all is not what it was"
    passed("curves are zoomed and moved by keyboard")


def sampled(page, run):
    expect(page.locator("#samples")).to_be_visible()
    lines = map(json.loads, (run / "events.jsonl").read_text().splitlines())
    made = [event["text"] for event in lines if event["event"] == "sample"]
    shown = page.locator("#sample").evaluate("element => element.textContent")
    assert shown == made[-1], f"{shown!r}, not {made[-1]!r}"
    passed("the newest sample is shown")


def followed(page, run):
    """What a run has written since the page was opened."""
    event = {"event": "step", "step": 999, "tokens": 99_900, "loss": 0.125, "perplexity": 1.1, "gradient_norm": 1.0, "learning_rate": 0.1}
    begun = {"event": "begun", "time": 0, "step": 0, "steps": 2000, "backend": "flex", "version": "0", "floor": None}
    with (run / "events.jsonl").open("a") as file:
        file.write(json.dumps(begun) + "\n" + json.dumps(event) + "\n")
    # Who is not running is read to the end once, by each page.
    page.reload()
    row = page.locator("#runs tbody tr", has_text="two")
    expect(row).to_contain_text("999 / 2000")
    expect(row).to_contain_text("0.125")
    passed("what a run has written since is shown")


def looks(browser, address):
    states = [("dark", {"color_scheme": "dark"}), ("narrow", {"viewport": {"width": 320, "height": 700}})]
    for name, options in states:
        with browser.page(address, **options) as page:
            expect(page.locator("#runs tbody tr")).to_have_count(2)
            expect(page.locator("#samples")).to_be_visible()
            browser.look(page, f"watch-{name}")


def main():
    wanted = arguments(__doc__)
    with folder() as at, Browser(wanted.chromium, wanted.shots) as browser:
        for seed, name in enumerate(["one", "two"]):
            (at / "runs").mkdir(exist_ok=True)
            trained(wanted.binary, at, f"runs/{name}", 40, seed)
        with served(wanted.binary, "watch", "runs", "--port", 0, at=at) as address:
            with browser.page(address) as page:
                drawn(page)
                browser.look(page, "watch")
                compared(page)
                zoomed(page)
                sampled(page, at / "runs" / "one")
                followed(page, at / "runs" / "two")
            looks(browser, address)
    print("all passed")


if __name__ == "__main__":
    main()
