#!/usr/bin/env python3
"""Holds the names that are visible outside the code: flags, keys, variables, files, exit codes.

usage: visible_names.py BIN [GOLDEN]           prints each name of GOLDEN that is missing and each name that is new; the
                                               exit code is 1 if there is one
       visible_names.py BIN [GOLDEN] --write   writes GOLDEN anew

BIN is the folder of the built programs. GOLDEN is tests/visible_names.txt unless another file is named; it has a
heading in brackets above each group of names. A name comes from a program's own help, answers and files
(visible_commands.py, visible_runs.py) if one of these shows it, else from the sources.

A program does not list all that it understands. The script asks again for the names that GOLDEN has under such a
heading, and keeps those that the program understands; a new name of this kind is added to GOLDEN by hand.
"""
import concurrent.futures
import functools
import json
import os
import pathlib
import re
import sys
import traceback

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import check_layers  # noqa: E402
import cpp_scan  # noqa: E402
import visible_commands  # noqa: E402
import visible_runs  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parent.parent
GOLDEN = ROOT / "tests/visible_names.txt"
INTRODUCTION = """\
# Names that are visible outside the code: none changes its spelling or its meaning by a change within.
# tools/visible_names.py compares them with what the programs show; with --write it writes this file.
"""
FROM_SOURCES = "names that only the sources show"
PRODUCT = (*check_layers.ARROWS, "bench", "examples")
VARIABLE = re.compile(r"[A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+")
# Literals that are spelled as a variable and are none: data types, a field of /etc/os-release, a file of /sys.
NO_VARIABLES = {"F8_E4M3", "F8_E5M2", "PRETTY_NAME", "IB_PKEY"}
# The exit codes that the code of a room has as numbers; those of signals are sums.
CODES = {"trainer": (70, 128), "launcher": (75, 126, 127, 128)}


@functools.cache
def literals_in(folder):
    found = set()
    for path in check_layers.cpp_files(ROOT, [folder]):
        text = path.read_text(encoding="utf-8")
        found |= {match.group()[1:-1] for match in cpp_scan.LITERAL.finditer(text) if match.group()[0] == '"'}
    return frozenset(found)


def literals(*folders):
    """The string literals of the C++ files in these folders."""
    return set().union(*map(literals_in, folders))


def variables():
    """Variables of the environment: Zeroth's own, those of other programs that it reads or sets, those of its tests."""
    found = {text for text in literals(*PRODUCT) if VARIABLE.fullmatch(text)} - NO_VARIABLES
    own = {name for name in found if name.startswith("ZEROTH_")}
    tests = {text for text in literals("tests") if VARIABLE.fullmatch(text)} | scripts(r"[\"'$]\{?(ZEROTH_[A-Z_]+)")
    return {"variables of Zeroth": own, "variables of other programs": found - own,
            "variables of tests and tools": {name for name in tests - own if name.startswith("ZEROTH_")}}


def scripts(pattern, form="{name}"):
    """What a pattern finds in the scripts of tools, tests and bench; `form` may have the path as well."""
    found = set()
    for folder in ("tools", "tests", "bench"):
        for path in sorted((ROOT / folder).rglob("*")):
            if path.is_file() and (path.suffix == ".py" or path.read_bytes()[:2] == b"#!"):
                names = re.findall(pattern, path.read_text(encoding="utf-8"), re.M)
                found |= {form.format(name=name, path=path.relative_to(ROOT).as_posix()) for name in names}
    return found


def tool_flags():
    """Flags of the scripts, and of the programs that measure, some of which have no help."""
    found = scripts(r'add_argument\("(--[a-z][\w-]*)"', "{path} {name}")
    found |= scripts(r"^\s*(--[a-z][\w-]*)\)", "{path} {name}")
    spelled = {text for text in literals("bench", "examples") if re.fullmatch(r"--[a-z-]+", text)}
    return {"flags of scripts": found, "flags of bench and examples": spelled}


def build_names():
    """What a user of CMake and of an installation sees: options, presets, programs, libraries."""
    options = set()
    for path in (ROOT / "CMakeLists.txt", *(ROOT / "cmake").glob("*.cmake")):
        text = path.read_text(encoding="utf-8")
        options |= set(re.findall(r"^\s*option\((\w+)", text, re.M))
        options |= set(re.findall(r"^\s*set\((\w+) [^()]*\bCACHE (?!INTERNAL)[A-Z]+", text, re.M))
    programs, libraries = set(), set()
    for folder in PRODUCT:
        for path in (ROOT / folder).rglob("CMakeLists.txt"):
            text = path.read_text(encoding="utf-8")
            programs |= set(re.findall(r"^\s*zeroth_program\(([\w-]+)", text, re.M))
            for name, rest in re.findall(r"^\s*zeroth_library\((\w+)([^()]*)\)", text, re.M):
                libraries |= set() if "INTERNAL" in rest.split() else {f"Zeroth::{name}"}
    presets = json.loads((ROOT / "CMakePresets.json").read_text(encoding="utf-8"))["configurePresets"]
    return {"options of CMake": options - {"CMAKE_BUILD_TYPE"}, "programs": programs,
            "targets of the package Zeroth": libraries, "presets of CMake": {preset["name"] for preset in presets},
            "presets of ds_config.json": {path.name for path in (ROOT / "configs/presets").iterdir()}}


def documented_codes():
    """The first column of the tables of exit codes in docs/errors.md, and those of their numbers that the code has."""
    page = (ROOT / "docs/errors.md").read_text(encoding="utf-8")
    part = re.search(r"^## Exit codes$(.*?)^## ", page, re.M | re.S).group(1)
    found = set()
    program = ""
    for line in part.splitlines():
        if head := re.match(r"`(\w+)`.*:$", line):
            program = head.group(1)
        elif row := re.match(r"\| (?!code)([^|-][^|]*) \|", line):
            found.add(f"{program}: {row.group(1)}")
    for folder, codes in CODES.items():
        text = "\n".join(cpp_scan.strip(path.read_text(encoding="utf-8"))
                         for path in check_layers.cpp_files(ROOT, [folder]))
        found |= {f"{folder} has the number {code}" for code in codes if re.search(rf"\b{code}\b", text)}
    return found


def from_sources(known):
    """Those of the known names that are a literal."""
    return known & literals(*PRODUCT)


def gather(bin_folder, golden):
    """{heading: names}, and what failed. `golden` has the names that are known so far, under the same headings."""
    commands = visible_commands.Commands(bin_folder, golden, literals)
    found = {**variables(), **build_names(), **tool_flags(), "exit codes that docs/errors.md has": documented_codes(),
             FROM_SOURCES: from_sources(golden.get(FROM_SOURCES, set()))}
    failures = []
    with concurrent.futures.ThreadPoolExecutor(max_workers=max(2, min(4, os.cpu_count() or 1))) as pool:
        with visible_runs.Runs(bin_folder) as runs:
            parts = [pool.submit(part) for part in (*runs.parts(), *commands.parts())]
            for part in parts:
                if part.exception():
                    failures += traceback.format_exception(part.exception())
                    continue
                for heading, names in part.result().items():
                    found[heading] = found.get(heading, set()) | names
    return found, "".join(failures)


def read(path):
    found = {}
    names = set()
    for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else []:
        if line.startswith("["):
            names = found.setdefault(line[1:-1], set())
        elif line and not line.startswith("#"):
            names.add(line)
    return found


def text_of(found):
    groups = ["".join([f"\n[{heading}]\n", *(f"{name}\n" for name in sorted(names))])
              for heading, names in sorted(found.items()) if names]
    return INTRODUCTION + "".join(groups)


def differences(golden, found):
    """A line for each name that is missing or new."""
    for heading in sorted({*golden, *found}):
        before, now = golden.get(heading, set()), found.get(heading, set())
        yield from (f"missing: [{heading}] {name}" for name in sorted(before - now))
        yield from (f"new: [{heading}] {name}" for name in sorted(now - before))


def main():
    words = [word for word in sys.argv[1:] if word != "--write"]
    if not 1 <= len(words) <= 2:
        sys.exit(__doc__)
    path = pathlib.Path(words[1]) if len(words) > 1 else GOLDEN
    golden = read(path)
    found, failures = gather(pathlib.Path(words[0]).resolve(), golden)
    if "--write" in sys.argv and not failures:
        path.write_text(text_of(found), encoding="utf-8")
        print(f"{path}: {sum(map(len, found.values()))} names")
        return 0
    lines = list(differences(golden, found))
    print("".join(f"{line}\n" for line in lines) + failures, end="")
    print(f"visible names: {sum(map(len, found.values()))}, {len(lines)} differences from {path}")
    return 1 if lines or failures else 0


if __name__ == "__main__":
    sys.exit(main())
