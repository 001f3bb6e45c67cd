#!/usr/bin/env python3
"""Writes tests/trainer/fixtures/hf_fields.json: the fields of TrainingArguments, by version of transformers, and run_clm.py's own.

usage: make_flag_fixtures.py [FOLDER | SCRIPT.py]...

FOLDER holds the package transformers (pip install --no-deps --target FOLDER transformers==4.57.6); without any, the installed
one is read. SCRIPT is the run_clm.py of the examples. The sources are read and not run, so that nothing else need be installed.
"""
import ast
import importlib.util
import json
import pathlib
import re
import sys

OUT = pathlib.Path(__file__).resolve().parent.parent / "tests/trainer/fixtures/hf_fields.json"


def classes(path):
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return {node.name: node for node in ast.walk(tree) if isinstance(node, ast.ClassDef)}


def is_argument(item):
    """A field(init=False, ...) is none of the constructor, nor of the command line."""
    keywords = item.value.keywords if isinstance(item.value, ast.Call) else []
    return not any(k.arg == "init" and getattr(k.value, "value", True) is False for k in keywords)


def fields(node):
    """Names of a dataclass in the order of their declaration."""
    return [item.target.id for item in node.body if isinstance(item, ast.AnnAssign) and is_argument(item)]


def installed():
    return pathlib.Path(importlib.util.find_spec("transformers").origin).parent.parent


def main():
    found = {}
    for path in map(pathlib.Path, sys.argv[1:] or [installed()]):
        if path.suffix == ".py":
            own = classes(path)
            version = re.search(r'check_min_version\("([^"]+)"\)', path.read_text(encoding="utf-8")).group(1)
            for name in ("ModelArguments", "DataTrainingArguments"):
                found[f"{path.name} {version} {name}"] = fields(own[name])
            continue
        package = path / "transformers"
        version = re.search(r'__version__ = "([^"]+)"', (package / "__init__.py").read_text(encoding="utf-8")).group(1)
        found[f"transformers {version} TrainingArguments"] = fields(
            classes(package / "training_args.py")["TrainingArguments"]
        )
    OUT.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    print(*(f"{name}: {len(names)}" for name, names in found.items()), sep="\n")


if __name__ == "__main__":
    main()
