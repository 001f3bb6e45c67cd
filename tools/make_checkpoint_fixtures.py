#!/usr/bin/env python3
"""Writes tests/checkpoint/fixtures/step-8: a checkpoint by what docs/checkpoint.md says alone, with Python's own modules.

usage: make_checkpoint_fixtures.py [FOLDER]

Tensor w [4, 6] in three pieces over two files, each number its place in w plus 0.5; a scalar; a file of a model.
"""
import json
import pathlib
import struct
import sys


def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return f"{crc ^ 0xFFFFFFFF:08x}"


def numbers_of(piece):
    """Of w: the place of each element in the whole tensor, and a half."""
    if not piece["shape"]:
        return [8.0]
    width = piece["end"][1] - piece["begin"][1]
    places = range(*piece["range"])
    rows = piece["shape"][1]
    return [(piece["begin"][0] + i // width) * rows + piece["begin"][1] + i % width + 0.5 for i in places]


def piece(state, shape, begin, end, count_range):
    tensor = "w" if shape else "run"
    return {"tensor": tensor, "state": state, "dtype": "F32", "shape": shape, "begin": begin, "end": end,
            "range": count_range}


def write_pieces(path, pieces):
    header, blobs, offset = {}, [], 0
    for entry in pieces:
        numbers = numbers_of(entry)
        blob = struct.pack(f"<{len(numbers)}f", *numbers)
        box = ",".join(f"{a}:{b}" for a, b in zip(entry["begin"], entry["end"]))
        name = f"{entry['tensor']}|{entry['state']}|{box}|{entry['range'][0]}:{entry['range'][1]}"
        header[name] = {"dtype": "F32", "shape": [len(numbers)], "data_offsets": [offset, offset + len(blob)]}
        blobs.append(blob)
        offset += len(blob)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    data = struct.pack("<Q", len(text)) + text
    for entry, blob in zip(pieces, blobs):
        entry["offset"] = len(data)
        entry["crc32c"] = crc32c(blob)
        data += blob
    path.write_bytes(data)


def entry_of(folder, name, pieces):
    data = (folder / name).read_bytes()
    return {"name": name, "size": len(data), "crc32c": crc32c(data), "pieces": pieces}


def main():
    root = pathlib.Path(__file__).resolve().parents[1]
    folder = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else root / "tests/checkpoint/fixtures/step-8")
    (folder / "zeroth").mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text("{}\n")
    first = [piece("master", [4, 6], [0, 0], [4, 6], [0, 7]), piece("step", [], [], [], [0, 1])]
    second = [piece("master", [4, 6], [0, 0], [4, 6], [7, 24]), piece("exp_avg", [4, 6], [0, 0], [4, 3], [0, 12]),
              piece("exp_avg", [4, 6], [0, 3], [4, 6], [0, 12])]
    files = [entry_of(folder, "config.json", [])]
    for rank, pieces in enumerate((first, second)):
        name = f"zeroth/pieces-{rank:05}.safetensors"
        write_pieces(folder / name, pieces)
        files.append(entry_of(folder, name, pieces))
    manifest = {"format": "zeroth checkpoint", "version": 1, "step": 8, "run": "by hand", "attempt": "1.1",
                "written": 1700000000, "parent": None, "must_equal": {"model": "w"}, "may_change": {},
                "counters": {"samples": 64, "loss": 0.1, "best": {"double": "inf"}, "schedule": "cosine"},
                "layout": {"ranks": "2"}, "files": files}
    text = json.dumps(manifest, indent=2)[:-2] + ",\n"
    text += f'  "crc32c": "{crc32c(text.encode())}"\n}}\n'
    (folder / "zeroth/manifest.json").write_text(text)


if __name__ == "__main__":
    main()
