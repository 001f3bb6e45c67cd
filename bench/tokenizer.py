#!/usr/bin/env python3
"""The tokenizer beside Hugging Face's `tokenizers`: the same ids and decoded texts, and the speed of one thread, in turns.

usage: tokenizer.py PROGRAM TEXT DIR... [--rounds 7] [--offsets]

PROGRAM is build/bin/tokenizer, TEXT any English text, each DIR holds a tokenizer.json. Ids and decoded texts are compared on
10,000 lines in many scripts (fixtures/lines.json of the tests), on TEXT and on the source code of this repository; speed on TEXT
and on the code, each round in new processes that see every text once, by their processor time; with --offsets both sides make
them. Needs tokenizers in the Python that runs it.
"""
import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
DOCUMENT = 4000  # characters of TEXT that are encoded together


def documents(text):
    return [text[at:at + DOCUMENT] for at in range(0, len(text), DOCUMENT)]


def source_code():
    files = sorted(path for ending in ("cpp", "h", "py", "cu") for path in ROOT.glob(f"[a-z]*/**/*.{ending}"))
    return [path.read_text() for path in files if "build" not in path.relative_to(ROOT).parts[0]]


def peer(folder, file, offsets=""):
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    from tokenizers import Tokenizer
    tokenizer = Tokenizer.from_file(str(pathlib.Path(folder) / "tokenizer.json"))
    tokenizer.no_truncation()
    texts = json.loads(pathlib.Path(file).read_text())
    start = time.process_time()
    encode = tokenizer.encode_batch if offsets else tokenizer.encode_batch_fast
    encoded = encode(texts, add_special_tokens=False)
    seconds = time.process_time() - start
    print(sum(len(text.encode()) for text in texts), sum(len(one.ids) for one in encoded), seconds)


def run(command):
    return subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout.decode()


def differences(program, folder, texts, work):
    """Number of texts with other ids, and of those with the same ids that decode to another text."""
    from tokenizers import Tokenizer
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    file = work / "all.json"
    file.write_text(json.dumps(texts))
    ids = decoded = 0
    for text, line in zip(texts, run([program, folder, file, "--show"]).split("\n")[:-1], strict=True):
        ours = json.loads(line)
        wanted = tokenizer.encode(text, add_special_tokens=False).ids
        ids += ours["ids"] != wanted
        decoded += ours["ids"] == wanted and ours["decoded"] != tokenizer.decode(wanted, skip_special_tokens=False)
    return ids, decoded


def speeds(program, folder, texts, rounds, work, options):
    """Medians of MB/s: theirs and ours."""
    file = work / "texts.json"
    file.write_text(json.dumps(texts))
    sides = ([sys.executable, __file__, "--peer", folder, file, *options], [program, folder, file, *options])
    rates = ([], [])
    tokens = set()
    for _ in range(rounds):
        for side, command in zip(rates, sides):
            size, count, seconds = map(float, run(command).split())
            side.append(size / seconds / 1e6)
            tokens.add(count)
    assert len(tokens) == 1, f"{folder}: {tokens} tokens"
    return map(statistics.median, rates)


def main():
    if sys.argv[1:2] == ["--peer"]:
        return peer(*sys.argv[2:])
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program", type=pathlib.Path)
    parser.add_argument("text", type=pathlib.Path)
    parser.add_argument("folders", type=pathlib.Path, nargs="+", metavar="DIR")
    parser.add_argument("--rounds", type=int, default=7, help="of the measurement; 0: compare only")
    parser.add_argument("--offsets", action="store_true", help="measure with offsets")
    args = parser.parse_args()
    sys.path.insert(0, str(ROOT / "tools"))
    import make_data_fixtures
    english, code = documents(args.text.read_text()), source_code()
    lines = [make_data_fixtures.line(n) for n in range(make_data_fixtures.LINES)]
    with tempfile.TemporaryDirectory() as work:
        for folder in args.folders:
            ids, decoded = differences(args.program, folder, lines + english + code, pathlib.Path(work))
            print(f"{folder}: of {len(lines + english + code)} texts {ids} have other ids, {decoded} another decoded text")
            for name, texts in (("English", english), ("code", code)) if args.rounds else ():
                theirs, ours = speeds(args.program, folder, texts, args.rounds, pathlib.Path(work), ["--offsets"] * args.offsets)
                print(f"{folder}: {name}: tokenizers {theirs:.2f} MB/s, ours {ours:.2f} MB/s, ratio {ours / theirs:.2f}")


if __name__ == "__main__":
    main()
