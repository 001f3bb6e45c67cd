"""Every relative link in the texts leads to a file, and to a headline of it where it names one."""
import pathlib
import re
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
FOLDERS = ("bench", "configs", "docs", "examples", "tests", "tools")

FENCE = re.compile(r"^```.*?^```[ \t]*$", re.M | re.S)
CODE = re.compile(r"`[^`\n]*`")
LINK = re.compile(r"\[[^\]\n]*\]\(([^)\s]+)\)")
HEADLINE = re.compile(r"^#+[ \t]+(.+?)[ \t]*$", re.M)


def texts(root):
    yield from sorted(root.glob("*.md"))
    for folder in FOLDERS:
        yield from sorted((root / folder).rglob("*.md"))


def anchors(text):
    """The names under which the headlines of a text are reached."""
    for headline in HEADLINE.findall(FENCE.sub("", text)):
        yield re.sub(r"[^\w\- ]", "", headline.lower()).replace(" ", "-")


def broken_links(path):
    """(target, reason) of each link that leads nowhere."""
    prose = CODE.sub("code", FENCE.sub("", path.read_text(encoding="utf-8")))
    for target in LINK.findall(prose):
        if re.match(r"[a-z]+:", target):
            continue
        name, _, anchor = target.partition("#")
        file = path.parent / name if name else path
        if not file.exists():
            yield target, "no such file"
        elif anchor and anchor not in anchors(file.read_text(encoding="utf-8")):
            yield target, "no such headline"


class LinksTest(unittest.TestCase):
    def test_every_relative_link_leads_somewhere(self):
        found = list(texts(ROOT))
        self.assertIn(ROOT / "README.md", found)
        self.assertIn(ROOT / "docs/tour.md", found)
        broken = [(path.relative_to(ROOT).as_posix(), *link) for path in found for link in broken_links(path)]
        self.assertEqual(broken, [])

    def test_broken_links_are_found(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "text.md"
            path.write_text(
                "# A Headline, once\n[there](text.md) [part](#a-headline-once) [web](https://example.org)\n"
                "[gone](none.md) [`also`](folder/none.h) [no part](#nothing) `[code](none.md)`\n"
                "```\n[fenced](none.md)\n```\n"
            )
            self.assertEqual([target for target, _ in broken_links(path)], ["none.md", "folder/none.h", "#nothing"])


if __name__ == "__main__":
    unittest.main()
