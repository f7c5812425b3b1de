"""The live page of runs in a real browser: python tests/browser/watch.py --binary target/release/emberlm"""

import itertools
import json
import math
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


def written(at, name, losses, more=(), settings=None):
    """A run with a line for each loss, as a trainer would have written it."""
    folder = at / "runs" / name
    folder.mkdir(parents=True)
    events = [{"event": "begun", "time": 0, "step": 0, "steps": 100, "backend": "flex", "version": "0", "floor": None, **dict(more)}]
    for step, loss in enumerate(losses, 1):
        events.append({"event": "step", "step": step, "tokens": 10 * step, "loss": loss, "perplexity": 1.0, "gradient_norm": 1.0,
                       "learning_rate": 0.1})
        events.append({"event": "pace", "time": step, "step": step, "tokens_per_second": 10.0, "utilization": 1.25, "memory_mib": 1,
                       "seconds_left": 1.0})
    events.append({"event": "ended", "time": 1, "step": len(losses), "how": "finished"})
    (folder / "events.jsonl").write_text("".join(json.dumps(event) + "\n" for event in events))
    (folder / "config.toml").write_text(settings or "")


def linear(colour):
    shares = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    return [share / 12.92 if share <= 0.04045 else ((share + 0.055) / 1.055) ** 2.4 for share in shares]


def contrast(a, b):
    """The contrast ratio of WCAG 2."""
    low, high = sorted(sum(w * x for w, x in zip((0.2126, 0.7152, 0.0722), linear(colour))) for colour in (a, b))
    return (high + 0.05) / (low + 0.05)


# Machado, Oliveira and Fernandes 2009, severity 1: no deficiency, protanopia, deuteranopia, tritanopia.
SIGHTS = [
    [[1, 0, 0], [0, 1, 0], [0, 0, 1]],
    [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
    [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]],
    [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900]],
]


def oklab(colour, sight):
    """A colour as it is seen, in Oklab (Ottosson 2020)."""
    r, g, b = [min(max(sum(w * x for w, x in zip(row, linear(colour))), 0), 1) for row in sight]
    cones = [0.4122214708 * r + 0.5363325363 * g + 0.0514459929 * b, 0.2119034982 * r + 0.6806995451 * g + 0.1073969566 * b,
             0.0883024619 * r + 0.2817188376 * g + 0.6299787005 * b]
    x, y, z = [cone ** (1 / 3) for cone in cones]
    return (0.2104542553 * x + 0.7936177850 * y - 0.0040720468 * z, 1.9779984951 * x - 2.4285922050 * y + 0.4505937099 * z,
            0.0259040371 * x + 0.7827717662 * y - 0.8086757660 * z)


def coloured(page):
    """Colours that are told apart by everyone, and a style of its own for each of more runs than there are colours."""
    palettes = page.evaluate("import('/style.js').then((style) => style.PALETTES)")
    for paper, palette in (("#fafafc", palettes["light"]), ("#1b1e25", palettes["dark"])):
        assert len(set(palette)) == 8, palette
        for colour in palette:
            assert contrast(colour, paper) >= 3, f"{colour} on {paper}: {contrast(colour, paper)}"
        for a, b in itertools.combinations(palette, 2):
            apart = min(math.dist(oklab(a, sight), oklab(b, sight)) for sight in SIGHTS)
            assert apart >= 0.12, f"{a} and {b} are {apart} apart"
    rows = page.locator("#runs tbody tr .swatch")
    expect(rows).to_have_count(20)
    styles = rows.evaluate_all("swatches => swatches.map((swatch) => swatch.style.background)")
    assert len(set(styles)) == 20, f"{len(set(styles))} styles of 20 runs"
    first = styles[0]
    page.get_by_role("checkbox", name="many-03", exact=True).uncheck()
    assert rows.first.evaluate("swatch => swatch.style.background") == first, "another run's style changed"
    page.get_by_role("checkbox", name="many-03", exact=True).check()
    passed("twenty runs have twenty styles, and the colours are told apart by the colour-blind")


def names(page):
    return page.locator("#runs tbody tr:not(.group) td:first-child").all_inner_texts()


def sorted_by(page):
    last = page.get_by_role("button", name="loss", exact=True)
    last.click()
    expect(page.locator("#runs th[aria-sort=ascending]")).to_have_text("loss")
    up = names(page)
    assert up[0] == "many-19" and up[-1] == "many-00", up
    last.click()
    assert names(page) == up[::-1], names(page)
    last.click()
    expect(page.locator("#runs th[aria-sort]")).to_have_count(0)
    passed("runs are sorted by a column, up and down")


def filtered(page):
    found = page.get_by_role("searchbox", name="filter")
    found.fill("many-1")
    expect(page.locator("#runs tbody tr")).to_have_count(10)
    expect(page.locator("output[name=found]")).to_have_text("10 of 20 runs")
    label = page.locator(LOSS).get_attribute("aria-label")
    assert "many-11" in label and "many-01" not in label, label
    found.fill("baseline")
    expect(page.locator("#runs tbody tr")).to_have_count(1)
    assert names(page) == ["many-07"], names(page)
    found.fill("")
    page.get_by_role("button", name="hide all").click()
    expect(page.locator("#charts figure:visible")).to_have_count(0)
    page.get_by_role("button", name="show all").click()
    expect(page.locator("#charts figure:visible").first).to_be_visible()
    passed("runs are filtered by name and tag, and hidden")


def grouped(page):
    page.get_by_label("group").select_option("sweep")
    heads = page.locator("#runs tr.group")
    expect(heads).to_have_count(2)
    assert heads.all_inner_texts() == ["rates: 2 runs", "no sweep: 20 runs"], heads.all_inner_texts()
    expect(page.locator("#runs thead")).to_contain_text("schedule.learning_rate")
    row = page.locator("#runs tbody tr", has_text="learning_rate=0.01")
    expect(row.locator("td").nth(1)).to_have_text("0.01")
    # What all runs of the sweep have in common is no column.
    assert "steps" not in page.locator("#runs thead").inner_text()
    page.get_by_role("checkbox", name="rates: 2 runs").uncheck()
    assert "learning_rate" not in page.locator(LOSS).get_attribute("aria-label")
    page.get_by_role("checkbox", name="rates: 2 runs").check()
    page.get_by_label("group").select_option("")
    passed("runs are grouped by sweep, with the settings in which they differ")


def averaged(page):
    """The mean of 1 and 3 is 2, and the runs of the other group end at 1."""
    expect(page.locator("#runs tbody tr")).to_have_count(23)
    expect(page.locator("select[name=group]")).to_contain_text("by schedule.learning_rate")
    whole = page.locator(LOSS).evaluate(PICTURE)
    page.get_by_label("group").select_option("setting train.schedule.learning_rate")
    heads = page.locator("#runs tr.group")
    assert heads.all_inner_texts() == ["0.001: 1 run", "0.01: 2 runs", "unknown settings: 20 runs"], heads.all_inner_texts()
    label = page.locator(LOSS).get_attribute("aria-label")
    assert label == "Loss: 0.001 (1 run) 1, 0.01 (2 runs) 2", label
    styles = page.locator("#runs tbody tr .swatch").evaluate_all("all => all.map((of) => of.style.background)")
    assert styles[1] == styles[2] != styles[0], styles
    both = page.locator(LOSS).evaluate(PICTURE)
    page.get_by_role("checkbox", name="seed=2").uncheck()
    assert page.locator(LOSS).get_attribute("aria-label") == "Loss: 0.001 (1 run) 1, 0.01 (1 run) 1"
    assert page.locator(LOSS).evaluate(PICTURE) != both, "the mean is the same without a run"
    page.get_by_role("checkbox", name="seed=2").check()
    page.get_by_label("group").select_option("configuration")
    label = page.locator(LOSS).get_attribute("aria-label")
    assert "schedule.learning_rate = 0.01 (2 runs) 2" in label, label
    page.get_by_label("group").select_option("")
    assert page.locator(LOSS).evaluate(PICTURE) == whole, "without groups the curves are not those of before"
    passed("means of the runs with the same setting, or that differ in the seed, are drawn")


def bounded(page):
    page.get_by_role("searchbox", name="filter").fill("many-00")
    outside = page.locator("#charts figure:first-child .outside")
    expect(outside).to_contain_text("1 point beyond the axis")
    cut = page.locator(LOSS).evaluate(PICTURE)
    page.get_by_role("checkbox", name="outliers too").check()
    expect(outside).to_have_text("")
    assert page.locator(LOSS).evaluate(PICTURE) != cut, "the outlier is not drawn"
    page.get_by_role("checkbox", name="outliers too").uncheck()
    use = page.locator("#charts canvas[aria-label^='Share of matrix product']").get_attribute("aria-label")
    assert use == "Share of matrix product: many-00 125", use
    page.get_by_role("searchbox", name="filter").fill("")
    passed("an outlier does not spoil the axis and is announced, and a share above 100% is shown as it is")


def many(wanted, browser):
    """A page of more runs than there are colours, with a sweep, tags, outliers and a metric of a hook."""
    with folder() as at:
        metric = {"name": "accuracy", "title": "Accuracy", "unit": "%", "direction": "higher_is_better", "scale": 100}
        for number in range(20):
            losses = [5 - number / 10 - step / 50 for step in range(40)]
            if number == 0:
                losses[20] = 1e6
            written(at, f"many-{number:02}", losses, {"metrics": [metric]} if number == 7 else {})
        (at / "runs/many-07/labels.json").write_text(json.dumps({"tags": ["baseline"], "note": "a note"}))
        with (at / "runs/many-07/events.jsonl").open("a") as file:
            file.write(json.dumps({"event": "evaluation", "step": 40, "loss": 1.0, "perplexity": 2.7, "tokens": 1, "metrics": {"accuracy": 0.5}}) + "\n")
        with served(wanted.binary, "watch", "runs", "--port", 0, at=at) as address, browser.page(address) as page:
            coloured(page)
            sorted_by(page)
            filtered(page)
            bounded(page)
            expect(page.locator("#charts canvas[aria-label='Accuracy: many-07, validation 50']")).to_be_visible()
            passed("a metric of a hook has a chart")
            for rate in (0.001, 0.01):
                settings = f"[train]\nsteps = 40\n[train.schedule]\nlearning_rate = {rate}\n"
                written(at, f"rates/learning_rate={rate}", [2.0, 1.0], settings=settings)
            (at / "runs/rates/sweep.json").write_text("{}")
            expect(page.locator("#runs tbody tr")).to_have_count(22)
            grouped(page)
            settings = "[train]\nsteps = 40\nseed = 2\n[train.schedule]\nlearning_rate = 0.01\n"
            written(at, "rates/seed=2", [4.0, 3.0], settings=settings)
            averaged(page)
            browser.look(page, "watch-many")
        with served(wanted.binary, "watch", "runs", "--port", 0, at=at) as address:
            for name, options in LOOKS:
                with browser.page(address, **options) as page:
                    expect(page.locator("#runs tbody tr")).to_have_count(23)
                    page.get_by_label("group").select_option("sweep")
                    browser.look(page, f"watch-many-{name}")


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


LOOKS = [("dark", {"color_scheme": "dark"}), ("narrow", {"viewport": {"width": 320, "height": 700}})]


def looks(browser, address):
    for name, options in LOOKS:
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
        many(wanted, browser)
    print("all passed")


if __name__ == "__main__":
    main()
