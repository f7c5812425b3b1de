"""Writing on the playground: a prompt, the text, what else could have come, the settings."""

import json
import urllib.request

from playwright.sync_api import expect
from support import passed

PROMPT = "Once upon a time, a"


def posted(address, path, body):
    """What the server answers a program."""
    request = urllib.request.Request(address + path, json.dumps(body).encode(), {"content-type": "application/json"})
    with urllib.request.urlopen(request) as answer:
        return answer.read().decode()


def played(address, body):
    """The tokens that the server writes for a request of the page's own kind."""
    lines = [line for line in posted(address, "/api/play", body).splitlines() if line.startswith("data:")]
    return [event["token"] for event in map(lambda line: json.loads(line[5:]), lines) if "token" in event]


def set_to(page, **values):
    """Fills fields of the settings."""
    if not page.locator("#settings").is_visible():
        page.click("#settings-box > summary")
    for name, value in values.items():
        page.fill(f"#set-{name}", str(value))


def ended(page, mode="write"):
    """Waits for the end of the answer; gives its line."""
    status = page.locator(f"#{mode} .status")
    expect(status).to_contain_text("seed")
    return status.inner_text()


def asking(page):
    """Collects the bodies of the page's own requests."""
    bodies = []
    page.on("request", lambda request: request.url.endswith("/api/play") and bodies.append(json.loads(request.post_data)))
    return bodies


def text(page, mode="write"):
    return page.locator(f"#{mode} .tokens, #{mode} .assistant .text").last.evaluate("element => element.textContent")


def written(page):
    """Greedy text, the same as any program gets."""
    set_to(page, temperature=0, max_tokens=40, top_logprobs=5)
    page.fill("#prompt", PROMPT)
    page.keyboard.press("Control+Enter")
    return ended(page)


def writing(browser, address, model):
    with browser.page(address) as page:
        browser.look(page, "write-empty")
        bodies = asking(page)
        told = written(page)
        body = {"model": model, "prompt": PROMPT, "max_tokens": 40, "temperature": 0}
        expected = json.loads(posted(address, "/v1/completions", body))["choices"][0]["text"]
        assert text(page) == expected, f"the page wrote {text(page)!r}, the interface {expected!r}"
        assert told.startswith("40 tokens"), told
        passed("greedy text equals /v1/completions'")

        spans = page.locator("#write .token")
        assert spans.count() == 40, spans.count()
        tokens = played(address, bodies[0])
        shares = spans.evaluate_all("spans => spans.map((span) => Number(span.style.getPropertyValue('--share')))")
        assert all(abs(share - 2.718281828459045 ** token["logprob"]) < 1e-4 for share, token in zip(shares, tokens)), shares
        shades = set(spans.evaluate_all("spans => spans.map((span) => getComputedStyle(span).backgroundColor)"))
        assert len(shades) > 1, f"all tokens have the same shade: {shades}"
        passed("every token is shaded by its probability")

        hovered(browser, page, tokens)
        picked(page, address, bodies, spans, tokens)
        turned(page, bodies)
        kept(page)


def hovered(browser, page, tokens):
    choices = page.locator("#choices")
    # Not one that is only a piece of a character.
    at = next(at for at in range(15, 40) if tokens[at]["text"].strip().isalpha())
    page.locator("#write .token").nth(at).hover()
    expect(choices).to_be_visible()
    expect(choices.locator("button")).to_have_count(5)
    expect(choices.locator("p b")).to_have_text(tokens[at]["text"].replace(" ", "␣"))
    shares = [2.718281828459045 ** choice["logprob"] * 100 for choice in tokens[at]["top"]]
    first = choices.locator(".share").first.inner_text()
    assert first == ">99.9%" or abs(float(first.rstrip("%")) - shares[0]) < 0.06, f"{first} for {shares[0]}"
    browser.look(page, "write-choices")
    page.mouse.move(2, 2)
    expect(choices).to_be_hidden()
    at = next(at for at in range(40) if tokens[at]["text"].startswith(" "))
    page.locator("#write .token").nth(at).hover()
    expect(choices.locator("p b")).to_have_text(tokens[at]["text"].replace(" ", "␣"))
    page.mouse.move(2, 2)
    expect(choices).to_be_hidden()
    passed("hovering shows what else could have come, and leaving hides it")


def picked(page, address, bodies, spans, tokens):
    before = text(page)
    spans.nth(10).hover()
    page.locator("#choices button").nth(1).click()
    ended(page)
    expect(page.locator("#write .tries")).to_contain_text("2 of 2")
    other = tokens[10]["top"][1]
    ids = [token["id"] for token in tokens[:10]] + [other["id"]]
    assert bodies[-1]["continued"] == ids, f"went on from {bodies[-1].get('continued')}, not {ids}"
    follows = "".join(token["text"] for token in played(address, bodies[-1]))
    now = text(page)
    assert now.startswith("".join(token["text"] for token in tokens[:10])), now
    assert now.endswith(follows) and follows, f"{now!r} does not end with {follows!r}"
    assert now != before, "another token changed nothing"
    passed("another token is gone on from, after what was kept")

    page.get_by_role("button", name="the try before").click()
    assert text(page) == before, "going back does not bring back what there was"
    page.get_by_role("button", name="the next try").click()
    assert text(page) == now, "going forward does not bring back what was picked"
    passed("tries are gone back and forward through")


def turned(page, bodies):
    count = page.locator("#write .token").count()
    page.get_by_role("button", name="Continue").click()
    expect(page.locator("#write .token")).to_have_count(count + 40)
    ended(page)
    assert len(bodies[-1]["continued"]) == count, bodies[-1]
    seed = bodies[-1]["seed"]
    page.get_by_role("button", name="Regenerate").click()
    expect(page.locator("#write .tries")).to_contain_text("3 of 3")
    ended(page)
    assert bodies[-1]["seed"] != seed and "continued" not in bodies[-1], bodies[-1]
    passed("continue goes on from the end, again begins with another seed")

    page.get_by_role("button", name="Use as prompt").click()
    assert page.input_value("#prompt").startswith(PROMPT) and len(page.input_value("#prompt")) > len(PROMPT) + 10
    passed("what was written can become the prompt")


def kept(page):
    page.reload()
    assert page.input_value("#set-max_tokens") == "40", "settings are forgotten"
    page.get_by_role("button", name="Reset").click()
    assert page.input_value("#set-max_tokens") == "120", "reset does not reset"
    passed("settings are remembered, and reset")


def early(browser, address):
    """Who asks before the models are known is answered as soon as they are."""
    with browser.page(address) as page:
        held = []
        page.route("**/api/models", lambda route: route.continue_() if held else held.append(route))
        page.reload(wait_until="domcontentloaded")
        expect(page.locator("#state")).to_have_text("connecting…")
        set_to(page, max_tokens=3)
        page.fill("#prompt", PROMPT)
        page.click("#write .go")
        held[0].continue_()
        assert ended(page).startswith("3 tokens")
        passed("asking before the models are known is not lost")


def keyboard(browser, address):
    """Everything without a mouse."""
    with browser.page(address) as page:
        bodies = asking(page)
        set_to(page, temperature=0, max_tokens=30, top_logprobs=5)
        page.locator("#prompt").focus()
        page.keyboard.type(PROMPT)
        page.keyboard.press("Control+Enter")
        ended(page)
        page.keyboard.press("Tab")
        page.keyboard.press("Tab")
        at = "document.activeElement.dataset.at"
        assert page.evaluate(at) == "0", f"two stops after the prompt is {page.evaluate('document.activeElement.outerHTML')}"
        for _ in range(6):
            page.keyboard.press("ArrowRight")
        page.keyboard.press("ArrowLeft")
        assert page.evaluate(at) == "5", page.evaluate(at)
        expect(page.locator("#choices")).to_be_visible()
        browser.look(page, "write-keyboard")
        page.keyboard.press("End")
        assert page.evaluate(at) == "29", page.evaluate(at)
        page.keyboard.press("Home")
        page.keyboard.press("ArrowDown")
        assert page.evaluate("document.activeElement.closest('#choices') !== null"), "the down arrow leads to no choice"
        page.keyboard.press("ArrowDown")
        page.keyboard.press("Escape")
        expect(page.locator("#choices")).to_be_hidden()
        assert page.evaluate(at) == "0", "escape does not lead back to the token"
        page.keyboard.press("ArrowRight")
        page.keyboard.press("3")
        expect(page.locator("#write .tries")).to_contain_text("2 of 2")
        ended(page)
        assert len(bodies[-1]["continued"]) == 2, bodies[-1]
        assert page.evaluate(at) == "1", "a pick loses the place in the text"
        passed("the prompt, the text, its choices and a pick by keyboard alone")


def stopping(browser, address):
    with browser.page(address) as page:
        # A slow line, so that there is something to stop.
        link = page.context.new_cdp_session(page)
        link.send("Network.enable")
        link.send("Network.emulateNetworkConditions", {"offline": False, "latency": 0, "downloadThroughput": 4000, "uploadThroughput": -1})
        set_to(page, max_tokens=400)
        page.fill("#prompt", PROMPT)
        page.keyboard.press("Control+Enter")
        expect(page.locator("#write .go")).to_have_text("Stop")
        expect(page.locator("#write .token").first).to_be_visible()
        page.keyboard.press("Escape")
        told = ended(page)
        assert "stopped" in told, told
        count = page.locator("#write .token").count()
        assert 0 < count < 400, count
        expect(page.locator("#write .go")).to_have_text("Generate")
        page.click("#write .go")
        expect(page.locator("#write .go")).to_have_text("Stop")
        page.click("#write .go")
        assert "stopped" in ended(page)
        passed("escape and the button stop it")


def refused(browser, address):
    with browser.page(address, provoked=["status of 400"]) as page:
        set_to(page, temperature=-3)
        page.fill("#prompt", PROMPT)
        page.click("#write .go")
        alert = page.locator("#alert")
        expect(alert).to_contain_text("temperature")
        browser.look(page, "write-refused")
        set_to(page, temperature=0.5, max_tokens=5)
        page.click("#write .go")
        expect(alert).to_be_empty()
        ended(page)
        before = text(page)
        set_to(page, temperature=-3)
        for button in ["Regenerate", "Continue"]:
            page.get_by_role("button", name=button).click()
            expect(alert).to_contain_text("temperature")
            assert text(page) == before, f"a refused {button} leaves {text(page)!r} of {before!r}"
        set_to(page, temperature=0.5)
        passed("the server's refusal is told, takes nothing away, and is gone with the next try")

        page.fill("#prompt", "<img src=x onerror=alert(1)><b>bold</b>")
        page.click("#write .go")
        expect(page.locator("#write .prompt")).to_have_text("<img src=x onerror=alert(1)><b>bold</b>")
        assert page.locator("#written img, #written .prompt b").count() == 0, "a prompt became part of the page"
        passed("a text stays a text")

        page.click("#chat-tab")
        set_to(page, max_tokens=150)
        page.set_viewport_size({"width": 400, "height": 420})
        page.fill("#message", "Who is Juniper?")
        page.keyboard.press("Enter")
        ended(page, "chat")
        set_to(page, temperature=-3)
        page.fill("#message", "And then?")
        page.keyboard.press("Enter")
        expect(alert).to_contain_text("temperature")
        expect(alert).to_be_in_viewport()
        browser.look(page, "chat-refused")
        page.keyboard.press("Escape")
        expect(alert).to_be_empty()
        page.get_by_role("button", name="Edit message").click()
        assert page.input_value("#message") == "And then?", "a refused message is lost"
        passed("a refused message is told of where it is seen, and can be said again")


def sampled(browser, address):
    """What is set is what is asked for, and what does nothing is not sent."""
    with browser.page(address) as page:
        bodies = asking(page)
        page.click("#settings summary")
        page.uncheck("#settings [name=random]")
        sent = {"temperature": 0.7, "top_k": 5, "top_p": 0.9, "min_p": 0.05, "max_tokens": 12, "top_logprobs": 2, "seed": 11,
                "repetition_penalty": 1.1, "presence_penalty": 0.2, "frequency_penalty": -0.1}
        # Settings that are added later are sent as they begin.
        fields = page.evaluate("import('/sampling.js').then(({ SETTINGS }) => SETTINGS)")
        sent = {field["name"]: field["value"] for field in fields} | sent
        set_to(page, **sent)
        page.fill("#set-stop", "\\n\n. Who")
        page.fill("#prompt", PROMPT)
        page.click("#write .go")
        ended(page)
        more = {name: value for name, value in bodies[0].items() if name not in ("model", "prompt")}
        assert more == {**sent, "stop": ["\n", ". Who"]}, more
        browser.look(page, "write-settings")
        first = text(page)
        page.click("#write .go")
        expect(page.locator("#write .tries")).to_contain_text("2 of 2")
        ended(page)
        assert text(page) == first, f"the same seed writes {text(page)!r} after {first!r}"
        page.get_by_role("button", name="Reset").click()
        page.click("#write .go")
        ended(page)
        # The model has no settings of its own, so that all of them are the page's or have no effect.
        begun = {field["name"]: field["value"] for field in fields}
        begun |= {"temperature": 0.8, "top_p": 0.95, "max_tokens": 120, "top_logprobs": 8, "repetition_penalty": 1}
        begun |= dict.fromkeys(("top_k", "min_p", "presence_penalty", "frequency_penalty"), 0)
        reset = {name: value for name, value in bodies[-1].items() if name not in ("model", "prompt", "seed")}
        assert reset == begun, reset
        passed("settings reach the server, and the same seed writes the same")
