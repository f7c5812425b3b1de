"""The playground with models of every kind: encoders, an encoder–decoder, and a chat model that reasons and calls functions."""

import json

from models import ASKED, CITY, FOUND, RESULT, THOUGHT, TOLD, WEATHER
from playwright.sync_api import expect
from support import passed, served
from writing import asking, ended, set_to

DARK = {"color_scheme": "dark"}
NARROW = {"viewport": {"width": 320, "height": 700}}


def every_kind(browser, binary, chosen, at):
    """Each kind of model, one server for all."""
    words = ["serve", *[f"{name}={path}" for name, path in chosen.items()], "--port", 0, "--chat-template", at / "chat.jinja",
             "--alias", "gpt-3.5-turbo=talks"]
    with served(binary, *words, at=at) as address:
        listed(browser, address)
        similarities(browser, address)
        labels(browser, address)
        ranking(browser, address)
        source(browser, address)
        reasoning(browser, address)
        calling(browser, address)
        refused(browser, address)
        looks(browser, address)


def listed(browser, address):
    with browser.page(address) as page:
        # The models are listed after the page is loaded.
        expect(page.locator("#model optgroup")).to_have_count(3)
        groups = page.locator("#model optgroup").evaluate_all(
            "groups => groups.map(({ label, children }) => [label, [...children].map((option) => option.textContent)])")
        assert groups == [
            ["Decoders", ["talks", "gpt-3.5-turbo → talks", "polite (adapter of talks)"]],
            ["Encoder–decoders", ["t5"]],
            ["Encoders", ["classifier", "reranker"]],
        ], groups
        for name, tabs in [("talks", ["Write", "Chat"]), ("classifier", ["Labels", "Similarity"]), ("reranker", ["Ranking", "Similarity"])]:
            page.select_option("#model", name)
            shown = page.get_by_role("tab").evaluate_all("tabs => tabs.filter((tab) => tab.offsetParent).map((tab) => tab.textContent)")
            assert shown == tabs, f"{name} has {shown}"
            expect(page.locator("#settings-box")).to_be_visible(visible=name == "talks")
        page.reload()
        expect(page.locator("#model")).to_have_value("reranker")
        page.locator("#ranking-tab").focus()
        page.keyboard.press("ArrowRight")
        expect(page.locator("#similarity")).to_be_visible()
        page.keyboard.press("ArrowRight")
        expect(page.locator("#ranking")).to_be_visible()
        passed("all models are listed by kind with aliases and adapters, and each has its tabs")

        page.select_option("#model", "gpt-3.5-turbo")
        bodies = asking(page)
        page.click("#write-tab")
        set_to(page, max_tokens=3)
        page.fill("#prompt", "Q:")
        page.click("#write .go")
        ended(page)
        assert bodies[0]["model"] == "gpt-3.5-turbo", bodies[0]
        passed("an alias is used as the model's name")


def similarities(browser, address):
    with browser.page(address) as page:
        page.select_option("#model", "classifier")
        page.click("#similarity-tab")
        page.fill("#compared", "w1 w2 w3\n\n w7 w8 \nw1 w2 w3")
        page.keyboard.press("Control+Enter")
        cells = page.locator("#similarity tbody td")
        expect(cells).to_have_count(9)
        values = [float(text) for text in cells.all_inner_texts()]
        assert values[0] == values[2] == values[4] == values[6] == values[8] == 1, values
        assert values[1] == values[3] == values[5] == values[7] < 1, values
        assert page.locator("#similarity tbody th").all_inner_texts() == ["1 w1 w2 w3", "2 w7 w8", "3 w1 w2 w3"]
        shades = set(cells.evaluate_all("cells => cells.map((cell) => getComputedStyle(cell).backgroundColor)"))
        assert len(shades) == 2, shades
        expect(page.locator("#announce")).to_have_text("3 texts. The most similar are 1 and 3, with 1.00.")
        browser.look(page, "similarity")
        page.select_option("#model", "reranker")
        expect(page.locator("#similarity .result")).to_be_hidden()
        passed("the similarities of texts are a matrix")


def labels(browser, address):
    with browser.page(address, provoked=["status of 400"]) as page:
        page.select_option("#model", "classifier")
        page.fill("#classified", "w1 w2 w3\nw40 w41")
        page.click("#labels .go")
        expect(page.locator("#labels .result section")).to_have_count(2)
        for number, text in enumerate(["w1 w2 w3", "w40 w41"]):
            section = page.locator("#labels .result section").nth(number)
            expect(section.locator("h2")).to_have_text(text)
            assert sorted(section.locator(".name").all_inner_texts()) == ["LABEL_0", "LABEL_1", "LABEL_2"]
            shares = [float(share) for share in section.locator(".share").all_inner_texts()]
            assert abs(sum(shares) - 1) < 0.002 and shares == sorted(shares, reverse=True), shares
            widths = section.locator(".bar").evaluate_all("bars => bars.map((bar) => getComputedStyle(bar, '::before').width)")
            assert len(set(widths)) > 1, widths
        browser.look(page, "labels")
        page.fill("#classified", " ".join(["w1"] * 200))
        page.click("#labels .go")
        expect(page.locator("#alert")).to_contain_text("context")
        passed("texts have bars of their labels' probabilities, and an error is shown")


def ranking(browser, address):
    with browser.page(address) as page:
        page.select_option("#model", "reranker")
        page.fill("#query", "w1 w2")
        page.fill("#documents", "w3 w4\nw50 w51 w52\nw7")
        page.click("#ranking .go")
        expect(page.locator("#ranking .result li")).to_have_count(3)
        shares = [float(share) for share in page.locator("#ranking .share").all_inner_texts()]
        assert shares == sorted(shares, reverse=True), shares
        assert sorted(page.locator("#ranking .name").all_inner_texts()) == ["w3 w4", "w50 w51 w52", "w7"]
        browser.look(page, "ranking")
        passed("documents are ranked by a query")


def source(browser, address):
    with browser.page(address) as page:
        page.select_option("#model", "t5")
        page.click("#write-tab")
        expect(page.get_by_label("Source text")).to_be_visible()
        assert page.input_value("#set-temperature") == "0", "the most probable tokens are the model's default"
        set_to(page, max_tokens=8)
        bodies = asking(page)
        page.fill("#prompt", "w5 w6 w7")
        page.keyboard.press("Control+Enter")
        ended(page)
        assert bodies[0]["prompt"] == "w5 w6 w7" and "continued" not in bodies[0], bodies[0]
        assert page.locator("#write .token").count() > 1
        assert page.locator("#written .prompt").inner_text() == "", "a source is no part of its target"
        expect(page.locator("#write").get_by_role("button", name="Continue")).to_be_hidden()
        page.locator("#write .token").first.hover()
        expect(page.locator("#choices button").first).to_be_disabled()
        page.mouse.move(2, 2)
        set_to(page, temperature=1.5)
        page.get_by_role("button", name="Regenerate").click()
        expect(page.locator("#write .tries")).to_contain_text("2 of 2")
        ended(page)
        page.get_by_role("button", name="Reset").click()
        assert page.input_value("#set-temperature") == "0", "reset leaves the model's own settings"
        browser.look(page, "source")
        passed("a source has a target, with the settings, and reset returns to the model's own")


def say(page, text):
    page.fill("#message", text)
    page.keyboard.press("Enter")


def reasoning(browser, address):
    with browser.page(address) as page:
        page.click("#chat-tab")
        bodies = asking(page)
        set_to(page, temperature=0, max_tokens=120)
        options = page.locator("#effort option").all_inner_texts()
        assert options == ["model's default", "off", "on"], options
        say(page, ASKED)
        ended(page, "chat")
        answer = page.locator(".assistant").last
        block = answer.locator("details")
        expect(block.locator("summary")).to_contain_text("Reasoning")
        assert block.get_attribute("open") is None, "the reasoning is open beside the answer"
        expect(answer.locator(":scope > .text")).to_have_text(FOUND)
        block.locator("summary").click()
        expect(block.locator(".text")).to_be_visible()
        expect(block.locator(".text")).to_have_text(THOUGHT)
        assert "think" not in answer.inner_text(), answer.inner_text()
        expect(page.locator("#announce")).to_contain_text(f"{FOUND}. 53 tokens")
        browser.look(page, "reasoning")
        block.locator("summary").click()
        passed("reasoning is in a block that can be opened, apart from the answer")

        # Another token of the reasoning is continued, with the tokens before it.
        block.locator("summary").click()
        block.locator(".token").nth(3).hover()
        page.locator("#choices button").nth(1).click()
        expect(page.locator("#chat .tries")).to_contain_text("2 of 2")
        ended(page, "chat")
        kept = bodies[-1]["continued"]
        assert block.locator(".text").evaluate("element => element.textContent").startswith(THOUGHT[:3]), "the text before is lost"
        assert len(kept) >= 4, kept
        page.get_by_role("button", name="the try before").click()
        expect(answer.locator(":scope > .text")).to_have_text(FOUND)
        expect(block.locator(".text")).to_have_text(THOUGHT)
        passed("another token of the reasoning is continued")

        page.select_option("#effort", label="off")
        say(page, ASKED)
        expect(page.locator(".assistant")).to_have_count(2)
        ended(page, "chat")
        assert bodies[-1]["reasoning_effort"] == "none", bodies[-1]
        sent = [(message["role"], message.get("content"), message.get("reasoning_content")) for message in bodies[-1]["messages"]]
        assert sent == [("user", ASKED, None), ("assistant", FOUND, THOUGHT), ("user", ASKED, None)], sent
        last = page.locator(".assistant").last
        expect(last.locator("details")).to_be_hidden()
        expect(last.locator(":scope > .text")).to_have_text(FOUND)
        passed("reasoning is switched off, and the reasoning before is sent apart from its text")

        set_to(page, max_tokens=8)
        page.select_option("#effort", label="on")
        say(page, ASKED)
        expect(page.locator(".assistant")).to_have_count(3)
        ended(page, "chat")
        last = page.locator(".assistant").last
        set_to(page, max_tokens=120)
        page.get_by_role("button", name="Continue").click()
        expect(last.locator(":scope > .text")).to_have_text(FOUND)
        last.locator("summary").click()
        expect(last.locator("details .text")).to_have_text(THOUGHT)
        passed("an answer that was cut within its opening tag is continued")


def calling(browser, address):
    with browser.page(address) as page:
        page.click("#chat-tab")
        bodies = asking(page)
        set_to(page, temperature=0, max_tokens=150)
        page.locator("#chat summary", has_text="Tools").click()
        page.get_by_role("button", name="Insert an example").click()
        tools = json.loads(page.get_by_label("Functions that the model may call").input_value())
        assert tools[0]["function"]["name"] == "get_weather", tools
        browser.look(page, "tools")
        page.locator("#chat summary", has_text="Tools").click()
        say(page, WEATHER)
        ended(page, "chat")
        assert bodies[0]["tools"] == tools and bodies[0]["tool_choice"] == "auto", bodies[0]
        call = page.locator(".call")
        expect(call.locator("p")).to_have_text("Call of get_weather")
        arguments = call.locator("pre").inner_text()
        assert json.loads(arguments) == {"city": CITY} and "\n" in arguments, arguments
        assert "tool_call" not in page.locator(".assistant").inner_text()
        expect(page.locator("#announce")).to_contain_text("Call of get_weather. ")
        result = page.get_by_label("Result of get_weather")
        result.fill(RESULT)
        browser.look(page, "call")
        page.get_by_role("button", name="Send results").click()
        expect(page.locator(".assistant")).to_have_count(2)
        expect(page.locator(".assistant").last.locator(":scope > .text")).to_have_text(TOLD)
        ended(page, "chat")
        user, assistant, tool = bodies[-1]["messages"]
        called = assistant["tool_calls"][0]
        assert json.loads(called["function"]["arguments"]) == {"city": CITY}, called
        assert (tool["role"], tool["tool_call_id"], tool["content"]) == ("tool", called["id"], RESULT), tool
        expect(page.locator("#results")).to_be_hidden()
        browser.look(page, "result")
        passed("a call is shown with its arguments, and the conversation continues after its result")

        page.mouse.move(2, 2)
        page.get_by_role("button", name="Edit message").click()
        expect(page.get_by_label("Result of get_weather")).to_have_value(RESULT)
        page.keyboard.press("Control+Enter")
        expect(page.locator(".assistant")).to_have_count(2)
        ended(page, "chat")
        page.get_by_role("button", name="New chat").click()
        page.locator("#chat summary", has_text="Tools").click()
        page.select_option("#tool-choice", "required")
        say(page, WEATHER)
        expect(page.locator(".call")).to_have_count(1)
        ended(page, "chat")
        assert bodies[-1]["tool_choice"] == "required", bodies[-1]
        passed("results are edited, and calls can be required")


def refused(browser, address):
    with browser.page(address) as page:
        page.click("#chat-tab")
        page.locator("#chat summary", has_text="Tools").click()
        page.fill("#tools", "[{")
        say(page, WEATHER)
        expect(page.locator("#alert")).to_contain_text("The tools are not valid JSON")
        assert page.input_value("#message") == WEATHER, "a message that was not sent is lost"
        passed("tools that are not JSON are an error")


def looks(browser, address):
    """The new views in each kind of window."""
    for name, options in [("dark", DARK), ("narrow", NARROW), ("narrow-dark", {**DARK, **NARROW})]:
        with browser.page(address, **options) as page:
            page.select_option("#model", "classifier")
            page.click("#similarity-tab")
            page.fill("#compared", "\n".join(f"w{number} w{number + 1} w{number + 2}" for number in range(6)))
            page.click("#similarity .go")
            expect(page.locator("#similarity tbody td")).to_have_count(36)
            browser.look(page, f"{name}-similarity")
            page.click("#labels-tab")
            page.fill("#classified", "w1 w2 w3\nw40 w41")
            page.click("#labels .go")
            expect(page.locator("#labels .result section")).to_have_count(2)
            browser.look(page, f"{name}-labels")
            page.select_option("#model", "talks")
            page.click("#chat-tab")
            set_to(page, temperature=0, max_tokens=150)
            say(page, ASKED)
            ended(page, "chat")
            page.locator(".assistant summary").click()
            page.locator("#chat summary", has_text="Tools").click()
            page.get_by_role("button", name="Insert an example").click()
            page.locator("#chat summary", has_text="Tools").click()
            say(page, WEATHER)
            expect(page.locator(".assistant")).to_have_count(2)
            ended(page, "chat")
            page.get_by_label("Result of get_weather").fill(RESULT)
            browser.look(page, f"{name}-call")
