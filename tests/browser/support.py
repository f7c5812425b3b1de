"""What the tests of both pages need: the program, a browser that tells of every fault, and named checks."""

import argparse
import contextlib
import re
import signal
import subprocess
import tempfile
from pathlib import Path
from urllib.parse import urlsplit

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import expect, sync_playwright

# Slow enough for a debug build on a busy machine.
PATIENCE = 60_000
expect.set_options(timeout=PATIENCE)

# A tale with characters that take several bytes, and so several tokens.
TALE = "Once upon a time, a young fox called Zoë found a silver bell – whose bell may it be? "


def arguments(description, **more):
    """The command line of a test."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--binary", type=Path, required=True, help="the program emberlm")
    parser.add_argument("--chromium", default="/usr/bin/chromium", help="the browser")
    parser.add_argument("--shots", type=Path, help="a folder that pictures of the states are written to")
    for name, told in more.items():
        parser.add_argument(f"--{name}", type=Path, help=told)
    found = parser.parse_args()
    found.binary = found.binary.resolve()
    if found.shots:
        found.shots.mkdir(parents=True, exist_ok=True)
    return found


@contextlib.contextmanager
def folder():
    """A folder that is gone afterwards."""
    with tempfile.TemporaryDirectory(prefix="emberlm-browser-") as name:
        yield Path(name)


def run(binary, *words, at):
    """Runs the program to its end."""
    done = subprocess.run([binary, *map(str, words)], cwd=at, capture_output=True, text=True)
    assert done.returncode == 0, f"emberlm {' '.join(map(str, words))}: {done.stderr}"
    return done.stdout


def trained(binary, at, name, steps, seed, data="bytes"):
    """A tiny run over bytes, which know every character that a chat template may have. By default it learns a tale."""
    if data == "bytes" and not (at / "bytes").exists():
        (at / "tale.txt").write_text(TALE * 400)
        run(binary, "prepare", "--out", "bytes", "--tokenizer", "byte", "tale.txt", at=at)
    sizes = ["model.vocab_size=0", "model.n_layers=2", "model.d_model=32", "model.heads=2", "model.kv_heads=1",
             "model.feed_forward.width=64", "model.seq_len=512", "train.schedule.learning_rate=0.01",
             "train.schedule.warmup_steps=5", "train.log_interval=2", "train.evaluation.tokens=512"]
    run(binary, "train", "--preset", "pocket-tales", "--data", data, "--out", name, "--steps", steps, "--seed", seed,
        "--eval-interval", max(steps // 4, 1), *[word for size in sizes for word in ("--set", size)], at=at)
    return at / name


@contextlib.contextmanager
def served(binary, *words, at):
    """The program with a page, which says where on its first line and ends when it is asked to."""
    with subprocess.Popen([binary, *map(str, words)], cwd=at, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as program:
        address = program.stdout.readline().strip()
        try:
            assert re.fullmatch(r"http://127\.0\.0\.1:\d+", address), f"no address but {address!r}: {program.communicate()[1]}"
            yield address
        finally:
            program.send_signal(signal.SIGINT)
            try:
                _, told = program.communicate(timeout=30)
            except subprocess.TimeoutExpired:
                program.kill()
                raise
    assert program.returncode in (0, 130), f"the program ended with {program.returncode}: {told}"


class Browser:
    """A browser whose pages may only ask their own server, and may not fail."""

    def __init__(self, chromium, shots):
        self.shots = shots
        self.playwright = sync_playwright().start()
        self.browser = self.playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.browser.close()
        self.playwright.stop()

    @contextlib.contextmanager
    def page(self, address, provoked=(), **options):
        """A page with nothing kept from before. `provoked` is what the console may tell of."""
        options = {"viewport": {"width": 1280, "height": 900}, "reduced_motion": "reduce", **options}
        context = self.browser.new_context(**options)
        page = context.new_page()
        page.set_default_timeout(PATIENCE)
        faults, strangers = [], []
        own = urlsplit(address).netloc

        def said(message):
            if message.type in ("error", "warning") and not any(text in message.text for text in provoked):
                faults.append(message.text)

        def asked(request):
            at = urlsplit(request.url)
            if at.scheme != "data" and at.netloc != own:
                strangers.append(request.url)

        page.on("console", said)
        page.on("pageerror", lambda error: faults.append(str(error)))
        page.on("request", asked)
        page.goto(address)
        yield page
        assert not faults, f"the console tells of {faults}"
        assert not strangers, f"asked others than its own server: {strangers}"
        context.close()

    def look(self, page, name):
        """Checks what a state must be like for everyone, and takes its picture."""
        if self.shots:
            page.screenshot(path=self.shots / f"{name}.png")
        found = Axe().run(page)
        assert found.violations_count == 0, f"{name}: {found.generate_report()}"
        wide, seen = page.evaluate("[document.documentElement.scrollWidth, document.documentElement.clientWidth]")
        assert wide <= seen, f"{name}: {wide} pixels wide in {seen}"
        passed(f"{name}: nothing for axe to complain of, nothing beyond the edge")


def passed(name):
    print(f"ok  {name}", flush=True)
