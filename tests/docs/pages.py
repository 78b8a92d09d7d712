"""The documentation as tests see it: its pages, and their fenced blocks with what stands before them."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
_FENCE = re.compile(r"^```(?P<language>\w*)[^\n]*\n(?P<text>.*?)^```$", re.DOTALL | re.MULTILINE)


class Page:
    """One Markdown file."""

    def __init__(self, path: Path):
        self.path = path
        self.name = str(path.relative_to(ROOT))
        self.text = path.read_text(encoding="utf-8")

    def blocks(self):
        """Fenced blocks in order, each as the paragraph before it on one line, its language and its text."""
        end = 0
        for match in _FENCE.finditer(self.text):
            before = self.text[end : match.start()].strip().split("\n\n")[-1]
            yield " ".join(before.split()), match["language"], match["text"]
            end = match.end()

    @property
    def prose(self):
        """The page without its fenced blocks."""
        return _FENCE.sub("", self.text)


def all_pages():
    """README and everything below docs."""
    return [Page(path) for path in [ROOT / "README.md", *sorted(DOCS.rglob("*.md"))]]


def reference(name):
    """A page of the reference."""
    return Page(DOCS / "reference" / f"{name}.md")
