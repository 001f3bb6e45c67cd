#!/usr/bin/env python3
"""Keeps the identifiers that docs/glossary.md replaces out of the C++ code.

usage: check_words.py [ROOT]   one line per identifier: path:line: identifier: the word to use; exit code 1 if there is one

The last column of the glossary's tables has the refused identifiers in backticks, for the word in the first column.
`told` is this identifier and told_, `*told*` each identifier with the word told in it (kTold, told_stopped), `*_told` one
that ends with it; zero/copies is refused in zero/ alone.
"""
import pathlib
import re
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import check_layers  # noqa: E402
import cpp_scan  # noqa: E402

GLOSSARY = "docs/glossary.md"
ROW = re.compile(r"^\|(.*?)\|.*?\|(.*)\|$", re.M)
INCLUDE = re.compile(r"^[ \t]*#[ \t]*include[^\n]*", re.M)
IDENTIFIER = re.compile(r"\b[A-Za-z_]\w*\b")
# Identifiers that stay although the glossary replaces them, with the reason.
EXCEPTIONS = {
    "has_sealed_size": "the kernel's word: a memfd with F_SEAL_SHRINK",
    ("data/records/arrow_table.cpp", "Tell"): "Arrow's word for a position in a file",
    "least_common_multiple": "the word of arithmetic",
}


def words_of(identifier):
    """The lower-case words of an identifier: kMaxOpen_ -> max, open."""
    parts = re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+", identifier)
    if len(parts) > 1 and parts[0] == "k" and identifier[1].isupper():
        parts = parts[1:]
    return [part.lower() for part in parts]


def joined(identifier):
    return "".join(f"{word}_" for word in words_of(identifier))


class Refusal:
    """A pattern of the last column and the word that takes its place."""

    def __init__(self, pattern, word):
        self.folder, name = re.fullmatch(r"(.*/|)(.*)", pattern).groups()
        self.word = word.strip()
        self.is_type = name[0].isupper()  # a type's name is refused as it is spelled
        self.name = name
        parts = re.findall(r"\*|[^*]+", name)
        self.pattern = re.compile("".join("(?:[a-z0-9]+_)*" if part == "*" else joined(part) for part in parts))

    def matches(self, identifier):
        return identifier == self.name if self.is_type else bool(self.pattern.fullmatch(joined(identifier)))


class Glossary:
    def __init__(self, text):
        self.refusals = [Refusal(pattern, word) for word, replaced in ROW.findall(text)
                         for pattern in re.findall(r"`([^`]+)`", replaced)]
        self.known = {}

    def refusals_of(self, identifier):
        """Those that match the identifier in some folder."""
        if identifier not in self.known:
            self.known[identifier] = [one for one in self.refusals if one.matches(identifier)]
        return self.known[identifier]

    def breaches(self, path, text):
        """(line, identifier, word) of each refused identifier in the code of a file."""
        code = INCLUDE.sub("", cpp_scan.strip(text))
        for match in IDENTIFIER.finditer(code):
            identifier = match.group()
            for refusal in self.refusals_of(identifier):
                if path.startswith(refusal.folder) and identifier not in EXCEPTIONS and (path, identifier) not in EXCEPTIONS:
                    yield code.count("\n", 0, match.start()) + 1, identifier, refusal.word
                    break


def main(root):
    glossary = Glossary((root / GLOSSARY).read_text(encoding="utf-8"))
    files = {path.relative_to(root).as_posix(): path for path in check_layers.cpp_files(root)}
    found = [(name, *breach) for name, path in files.items()
             for breach in glossary.breaches(name, path.read_text(encoding="utf-8"))]
    for path, line, identifier, word in found:
        print(f"{path}:{line}: {identifier}: {GLOSSARY} has for it: {word}")
    print(f"words: {len(glossary.refusals)} refused, {len(found)} found")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).resolve().parent.parent)))
