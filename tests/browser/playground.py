"""The playground in a real browser: python tests/browser/playground.py --binary target/release/emberlm"""

import contextlib
import shutil

from kinds import every_kind
from models import all_kinds
from playwright.sync_api import expect
from support import Browser, arguments, folder, passed, served, trained
from writing import PROMPT, asking, early, ended, keyboard, refused, sampled, set_to, stopping, text, writing, written

DARK = {"color_scheme": "dark"}
NARROW = {"viewport": {"width": 320, "height": 700}}


def chatting(browser, address):
    with browser.page(address) as page:
        bodies = asking(page)
        set_to(page, temperature=0.7, max_tokens=30, top_logprobs=5)
        page.click("#chat-tab")
        page.click("#chat summary")
        page.fill("#system", "You tell tales.")
        page.fill("#message", "Who is Juniper?")
        page.keyboard.press("Enter")
        ended(page, "chat")
        assert page.input_value("#message") == "", "what was sent still stands in its field"
        first = text(page, "chat")
        page.keyboard.type("And")
        page.keyboard.press("Shift+Enter")
        page.keyboard.type("then?")
        page.keyboard.press("Enter")
        expect(page.locator("#messages li")).to_have_count(4)
        ended(page, "chat")
        sent = [("system", "You tell tales."), ("user", "Who is Juniper?"), ("assistant", first), ("user", "And\nthen?")]
        assert [(message["role"], message["content"]) for message in bodies[-1]["messages"]] == sent, bodies[-1]
        passed("messages are sent in turn, with what was answered")
        browser.look(page, "chat")

        last = page.locator(".assistant").last.locator(".token")
        earlier = page.locator(".assistant").first.locator(".token")
        if earlier.count():
            earlier.first.hover()
            expect(page.locator("#choices")).to_be_visible()
            expect(page.locator("#choices button").first).to_be_disabled()
            page.mouse.move(2, 2)
            expect(page.locator("#choices")).to_be_hidden()
        if last.count():
            last.first.hover()
            page.locator("#choices button").nth(1).click()
            expect(page.locator("#chat .tries")).to_contain_text("2 of 2")
            ended(page, "chat")
            assert len(bodies[-1]["continued"]) == 1 and bodies[-1]["messages"][-1]["content"] == "And\nthen?", bodies[-1]
            passed("another token of the last answer is gone on from, of earlier ones none")

        page.get_by_role("button", name="Edit message").click()
        assert page.input_value("#message") == "And\nthen?", page.input_value("#message")
        expect(page.locator("#messages li")).to_have_count(2)
        page.get_by_role("button", name="New chat").click()
        expect(page.locator("#messages li")).to_have_count(0)
        passed("a message is taken back, and a conversation begun anew")


def looks(browser, address):
    """Each state in each kind of window."""
    for name, options in [("dark", DARK), ("narrow", NARROW), ("narrow-dark", {**DARK, **NARROW})]:
        with browser.page(address, **options) as page:
            written(page)
            page.locator("#write .token").nth(15).hover()
            expect(page.locator("#choices")).to_be_visible()
            browser.look(page, f"{name}-choices")
            page.mouse.move(2, 2)
            page.click("#chat-tab")
            page.fill("#message", "Who is Juniper? " * 6)
            page.keyboard.press("Enter")
            ended(page, "chat")
            browser.look(page, f"{name}-chat")


def models(browser, address, names):
    with browser.page(address) as page:
        for name in names:
            page.select_option("#model", name)
            expect(page.locator("#facts")).to_contain_text("parameters")
            label = page.locator("#loss canvas").get_attribute("aria-label")
            assert "training" in label and "validation" in label, label
        page.reload()
        expect(page.locator("#model")).to_have_value(names[-1])
        bodies = asking(page)
        set_to(page, max_tokens=3)
        page.fill("#prompt", PROMPT)
        page.click("#write .go")
        ended(page)
        assert bodies[0]["model"] == names[-1], bodies[0]
        passed("each model has its card and its curve, and the one that is chosen writes")


def lost(browser, binary, model, at):
    with contextlib.ExitStack() as server:
        address = server.enter_context(served(binary, "serve", model, "--port", 0, at=at))
        with browser.page(address, provoked=["ERR_CONNECTION_REFUSED"]) as page:
            expect(page.locator("#facts")).to_contain_text("parameters")
            server.close()
            page.fill("#prompt", PROMPT)
            page.click("#write .go")
            expect(page.locator("#alert")).to_have_text("The server does not answer.")
            browser.look(page, "write-lost")
            passed("a server that is gone is told of")


def locked(browser, binary, model, at):
    (at / "keys").write_text("open-sesame\n")
    with served(binary, "serve", model, "--port", 0, "--api-key-file", "keys", at=at) as address:
        with browser.page(address, provoked=["status of 401"]) as page:
            expect(page.locator("#key-dialog")).to_be_visible()
            browser.look(page, "key")
            page.fill("#key", "wrong")
            page.keyboard.press("Enter")
            expect(page.locator("#key-message")).to_have_text("The key was not accepted.")
            browser.look(page, "key-wrong")
            page.fill("#key", "open-sesame")
            page.keyboard.press("Enter")
            expect(page.locator("#key-dialog")).to_be_hidden()
            expect(page.locator("#facts")).to_contain_text("parameters")
            set_to(page, max_tokens=3)
            page.fill("#prompt", PROMPT)
            page.click("#write .go")
            ended(page)
            passed("a key is asked for, and asked for again when it is wrong")


def main():
    wanted = arguments(__doc__, model="a run, checkpoint or Hugging Face folder; a tiny one is trained if none is given")
    with folder() as at, Browser(wanted.chromium, wanted.shots) as browser:
        model = wanted.model.resolve() if wanted.model else trained(wanted.binary, at, "tiny", 150, 1)
        other = at / "another"
        shutil.copytree(model, other)
        with served(wanted.binary, "serve", model, other, "--port", 0, "--chat-template", "chatml", at=at) as address:
            writing(browser, address, model.name)
            early(browser, address)
            keyboard(browser, address)
            stopping(browser, address)
            refused(browser, address)
            chatting(browser, address)
            looks(browser, address)
            sampled(browser, address)
            models(browser, address, [model.name, other.name])
        lost(browser, wanted.binary, model, at)
        locked(browser, wanted.binary, model, at)
        every_kind(browser, wanted.binary, all_kinds(wanted.binary, at), at)
    print("all passed")


if __name__ == "__main__":
    main()
