# The web page in a headless Chromium. Screenshots are left in build/page.
# SPDX-License-Identifier: MIT
import browser
import pytest
from conftest import REPOSITORY

PICTURES = REPOSITORY / "build/page"
SHIFT_CTRL = 8 + 2
pytestmark = pytest.mark.skipif(browser.find() is None, reason="there is no Chromium; tools/"
                                "setup.sh test installs it where it is available")
LOOKS = {"light": {}, "dark": {"is_dark": True},
         "phone": {"width": 390, "height": 780, "is_phone": True}}
MARKDOWN = ("Here is **bold**, *slanted* and `code`:\n\n```python\ndef f(x):\n    return x < 1\n```"
            "\n\n1. one\n2. two\n\n- a point\n\n> a quote\n\n<img src=x onerror=alert(1)>")


def open_page(server, **named):
    page = browser.Page(f"http://127.0.0.1:{server.port}/", **named)
    page.wait_for("typeof model === 'object' && model !== null")
    return page


def ask(page, text):
    page.run("$('prompt').focus()")
    page.type(text)
    page.press("Enter", 13, "\r")


def check_clean(page, server):
    assert not page.errors, page.errors
    own = f"http://127.0.0.1:{server.port}/"
    assert all(url.startswith((own, "data:")) for url in page.urls), page.urls
    # Nothing is wider than the window.
    assert page.run("document.documentElement.scrollWidth <= innerWidth")


@pytest.mark.parametrize("look", LOOKS)
def test_it_continues_a_text(server, look):
    with open_page(server, **LOOKS[look]) as page:
        assert page.run("document.title") == "Tessera"
        assert "base model" in page.run("$('messages').textContent")
        page.run("settings.max_tokens = 40; settings.temperature = 0")
        ask(page, "The city of")
        page.wait_for("!running && talk.length === 2 && talk[1].content.length > 20")
        expected = server.complete("The city of", max_tokens=40)["choices"][0]["text"]
        assert page.run("talk[1].content") == expected
        assert page.run("document.querySelector('.plain').textContent") == "The city of" + expected
        assert "40 tokens" in page.run("document.querySelector('.note').textContent")
        page.wait_for("before !== null && $('curve').getAttribute('d')")
        page.screenshot(PICTURES / f"continue_{look}.png")
        if look == "phone":
            page.run("$('toggle').click()")
            page.screenshot(PICTURES / "settings_phone.png")
            page.press("Escape", 27)
            assert not page.run("document.body.classList.contains('panel')")
        check_clean(page, server)


def test_keys_stop_regenerate_and_begin_anew(chat_server):
    with open_page(chat_server) as page:
        page.run("settings.max_tokens = 1500; settings.temperature = 1; settings.seed = 3;"
                 "$('system').value = 'Be short.'")
        ask(page, "Where is Rome?")
        page.wait_for("running && talk.length === 2 && talk[1].content.length > 5")
        assert page.run("$('send').textContent") == "Stop"
        page.press("Escape", 27)
        page.wait_for("!running")
        chat_server.wait_until_idle()
        stopped = page.run("talk[1].content")
        page.run("settings.max_tokens = 12")
        page.press("R", 82, modifiers=SHIFT_CTRL)
        page.wait_for("!running && talk.length === 2 && talk[1].note")
        again = page.run("talk[1].content")
        assert again and stopped.startswith(again[:5])
        assert page.run("JSON.parse(localStorage.getItem('tessera.talk')).length") == 2
        page.press("K", 75, modifiers=SHIFT_CTRL)
        assert page.run("talk.length") == 0 and page.run("document.activeElement.id") == "prompt"
        check_clean(page, chat_server)


@pytest.mark.parametrize("look", LOOKS)
def test_markdown_becomes_nodes_and_never_html(chat_server, look):
    with open_page(chat_server, **LOOKS[look]) as page:
        page.run(f"talk = [{{role: 'user', content: 'Show me **Markdown**'}}, {{role: 'assistant',"
                 f"content: {MARKDOWN!r}, note: '30 tokens'}}]; showAll()")
        found = page.run("['strong', 'em', 'pre', 'ol', 'ul', 'blockquote', 'img'].map("
                         "tag => document.querySelectorAll('.assistant .text ' + tag).length)")
        assert found == [1, 1, 1, 1, 1, 1, 0]
        assert "onerror" in page.run("document.querySelector('.assistant .text').textContent")
        page.screenshot(PICTURES / f"chat_{look}.png")
        check_clean(page, chat_server)


def test_an_error_is_shown(chat_server):
    with open_page(chat_server) as page:
        page.run("settings.temperature = 99")
        ask(page, "Hello")
        page.wait_for("!running && talk.length === 2 && talk[1].error")
        assert "temperature" in page.run("document.querySelector('.failed').textContent")
