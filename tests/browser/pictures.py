"""The documentation's pictures of the playground: python tests/browser/pictures.py --binary … --model RUN --shots docs/images"""

from PIL import Image
from playwright.sync_api import expect
from support import Browser, arguments, folder, passed, served
from writing import ended, set_to

PROMPT = "One misty winter day, Piet"
MESSAGES = [("Tell me a tale of Hilda the piper.", 130), ("And what was found?", 30)]
WINDOW = {"viewport": {"width": 1280, "height": 1090}}


def taken(page, path):
    """A picture of the 256 colours that the page has most of, which takes a third of the bytes."""
    page.screenshot(path=path)
    whole = Image.open(path).convert("RGB")
    counted = sorted(whole.getcolors(whole.width * whole.height), reverse=True)
    palette = [colour for _, colour in counted[:256]]

    def nearest(colour):
        return min(range(len(palette)), key=lambda at: sum((a - b) ** 2 for a, b in zip(palette[at], colour)))

    place = {colour: nearest(colour) for _, colour in counted}
    few = Image.frombytes("P", whole.size, bytes(place[pixel] for pixel in zip(*[iter(whole.tobytes())] * 3)))
    few.putpalette([channel for colour in palette for channel in colour])
    few.save(path, optimize=True)


def main():
    wanted = arguments(__doc__, model="a run with a chat template's tokens")
    with folder() as at, Browser(wanted.chromium, None) as browser:
        words = ["serve", wanted.model.resolve(), "--port", 0, "--chat-template", "chatml"]
        with served(wanted.binary, *words, at=at) as address:
            for name, options in [("light", WINDOW), ("dark", {**WINDOW, "color_scheme": "dark"})]:
                with browser.page(address, **options) as page:
                    # The same seed makes the same picture.
                    page.uncheck("#settings [name=random]")
                    set_to(page, seed=7, max_tokens=190, temperature=1, top_p=1, top_logprobs=6)
                    page.fill("#prompt", PROMPT)
                    page.click("#write .go")
                    ended(page)
                    # The token that came as the greatest surprise.
                    at_surprise = page.locator("#write .token").evaluate_all(
                        "spans => spans.reduce((least, span, at) => at < 40 && span.style.getPropertyValue('--share')"
                        " < spans[least].style.getPropertyValue('--share') ? at : least, 0)")
                    page.locator("#write .token").nth(at_surprise).hover()
                    expect(page.locator("#choices")).to_be_visible()
                    taken(page, wanted.shots / f"playground-{name}.png")
                    page.mouse.move(2, 2)
                    page.click("#chat-tab")
                    for message, most in MESSAGES:
                        set_to(page, max_tokens=most, temperature=0.6)
                        page.fill("#message", message)
                        page.click("#chat .go")
                        ended(page, "chat")
                    page.mouse.move(2, 2)
                    taken(page, wanted.shots / f"playground-chat-{name}.png")
                    passed(f"pictures in {name}")


if __name__ == "__main__":
    main()
