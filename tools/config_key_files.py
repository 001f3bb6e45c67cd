#!/usr/bin/env python3
"""Counts the product files that name the member of each honored config key.

usage: config_key_files.py [ROOT]   prints how many keys are named in how many files, and each key above AT_MOST with its
                                    files; exit code 1 if fewer than SHARE of the keys are named in at most AT_MOST
                                    files, or one in more than NEVER_MORE

The key table (configs/schema/keys_*.cpp) has the member of each key: &ZeroConfig::stage. A file names it if it declares
it, or if its code has ZeroConfig::stage, .stage of an object of that struct, or its designated initializer. An object
is a member that holds the struct (`zero`), or what the file or its header declares as ZeroConfig or takes from such a
member with auto. Comments and literals do not count.
"""
import collections
import pathlib
import re
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import check_layers  # noqa: E402
import cpp_scan  # noqa: E402

AT_MOST, SHARE, NEVER_MORE = 4, 0.9, 6
BUILDER = r"(?:honored|no_effect|refused|section|ignoring_case|idle_section)"
ROW = re.compile(rf'honored\(\s*"([\w.]+)",(.*?)(?=\n\s*(?:{BUILDER}|\}};))', re.S)
HELPER = re.compile(r"^constexpr Field (\w+)\(\) \{\n(.*?)^\}", re.M | re.S)  # the field of one key
STRUCT = re.compile(r"^struct (\w+) \{\n(.*?)^\};", re.M | re.S)


def members(root):
    """The struct and the member of each key that has one: {"zero_optimization.stage": ("ZeroConfig", "stage")}."""
    found = {}
    for path in sorted((root / "configs/schema").glob("keys_*.cpp")):
        text = path.read_text(encoding="utf-8")
        helpers = dict(HELPER.findall(text))
        for key, row in ROW.findall(text):
            for name, body in helpers.items():
                row = row.replace(f"{name}()", body)
            pointers = re.findall(r"&(\w+)::(\w+)", row.replace("is_precision<", "&Config::precision<"))
            if pointers:
                found[key] = pointers[-1]
    return found


class Structs:
    """The structs of a Config: the file of each, and the members that hold it."""

    def __init__(self, root):
        self.file, self.holders = {}, collections.defaultdict(set, {"Config": {"config"}})
        for path in sorted((root / "configs").glob("*.h")):
            for name, body in STRUCT.findall(path.read_text(encoding="utf-8")):
                self.file[name] = path.relative_to(root).as_posix()
                for struct, member in re.findall(r"^  (\w+) (\w+)(?: = \{\})?;", body, re.M):
                    self.holders[struct].add(member)


def objects(code, struct, holders):
    """The names of objects of the struct in a file, as a pattern."""
    names = holders | set(re.findall(rf"\b{struct}\b(?: const)?[&*>\s]*\s(\w+)", code))
    for holder in holders:
        names |= set(re.findall(rf"\bauto[&\s]+(\w+) = [^;]*\b{holder};", code))
    return "|".join(sorted(re.escape(name.rstrip("_")) + "_?" for name in names))


def names(code, header, struct, member, holders):
    if not re.search(rf"\b{member}\b", code):
        return False
    owners = objects(code + header, struct, holders)
    uses = rf"\b(?:{owners})(?:\(\))?(?:\.|->){member}\b(?!\s*\()|\b{struct}::{member}\b"
    sets = rf"(?:\b{struct}\b|\b(?:{owners}) = \{{)[^;]*[{{,]\s*\.{member} ="
    return bool(re.search(uses, code) or re.search(sets, code))


def count(root):
    """The files that name each key's member."""
    files = {path.relative_to(root).as_posix(): cpp_scan.strip(path.read_text(encoding="utf-8"))
             for path in check_layers.cpp_files(root, (*check_layers.ARROWS, "examples"))}
    structs = Structs(root)
    found = {}
    for key, (struct, member) in members(root).items():
        found[key] = {structs.file[struct]} | {
            path for path, code in files.items()
            if names(code, files.get(re.sub(r"\.cpp$", ".h", path), ""), struct, member, structs.holders[struct])}
    return found


def main(root):
    found = count(root)
    for number, keys in sorted(collections.Counter(map(len, found.values())).items()):
        print(f"{keys:4} keys in {number} files")
    for key, paths in sorted(found.items(), key=lambda item: -len(item[1])):
        if len(paths) > AT_MOST:
            print(f"{key}: {len(paths)}: {' '.join(sorted(paths))}")
    share = sum(len(paths) <= AT_MOST for paths in found.values()) / len(found)
    most = max(map(len, found.values()))
    print(f"{share:.0%} of {len(found)} keys in at most {AT_MOST} files (wanted: {SHARE:.0%})")
    print(f"none in more than {most} files (wanted: {NEVER_MORE})")
    return 0 if share >= SHARE and most <= NEVER_MORE else 1


if __name__ == "__main__":
    sys.exit(main(pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).parent.parent).resolve()))
