"""The pictures of the documentation, from the tutorial's last step as its page draws it: ``python -m tests.timeline.picture``."""

from __future__ import annotations

import base64
import tempfile
from pathlib import Path

from tests.docs.pages import Command, File, Reader, steps
from tests.paths import ROOT
from tests.timeline.browser import Browser, installed

WIDTH, SCALE = 1020, 1.6
PAGE = ROOT / "docs" / "tutorial.md"
PICTURES = {False: ROOT / "docs" / "divergence-light.png", True: ROOT / "docs" / "divergence-dark.png"}
"""By whether it is for a dark page."""
BARE = """
for (const one of document.querySelectorAll('.at-steps, .timeline aside, .controls, footer, details, .buttons')) one.remove();
document.querySelector('.failure').style.paddingBottom = '8px';
[...document.querySelectorAll('.failure .differences > *')].slice(1).forEach(one => one.remove());
document.querySelectorAll('.pools').forEach(one => one.remove());
document.querySelector('.now').style.marginTop = '12px';
dispatchEvent(new Event('resize'));
"""
"""Takes away what can only be used, not looked at."""


def draw(folder: Path) -> Path:
    """Go through the tutorial, and have its failing step drawn; returns the page."""
    (folder / "kvspec").mkdir()
    reader = Reader(folder)
    for one in steps(PAGE):
        if isinstance(one, File):
            reader.write(one)
        elif one.text.startswith(("mkdir", "cd ")):
            reader.run(one)
    _, said = reader.run(Command("kvspec show chat.yaml --system careless:Careless --html page.html", 0))
    assert "open it in a browser" in said, said
    return reader.where / "page.html"


def shoot(browser: Browser, page: Path, dark: bool) -> bytes:
    """A picture of the page as PNG."""
    browser.size(WIDTH, 900, dark)
    browser.open(page)
    browser.js(BARE)
    browser.js("new Promise(done => setTimeout(done, 200))")
    height = browser.js("Math.ceil(document.querySelector('.legend').getBoundingClientRect().bottom + scrollY + 12)")
    clip = {"x": 0, "y": 0, "width": WIDTH, "height": height, "scale": SCALE}
    answer = browser.call("Page.captureScreenshot", format="png", captureBeyondViewport=True, clip=clip)
    return base64.b64decode(answer["data"])


def main() -> None:
    """Write both pictures."""
    where = installed()
    if where is None:
        raise SystemExit("no Chromium is installed")
    with tempfile.TemporaryDirectory() as folder:
        page = draw(Path(folder))
        browser = Browser(where)
        try:
            for dark, path in PICTURES.items():
                path.write_bytes(shoot(browser, page, dark))
                print(f"{path.relative_to(ROOT)}: {path.stat().st_size // 1000} kB")
        finally:
            browser.close()


if __name__ == "__main__":
    main()
