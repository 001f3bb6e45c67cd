#!/usr/bin/env python3
"""Write tests/data/fixtures/containers: the records of one file in every container, and tables of every type.

usage: make_container_fixtures.py      (needs pyarrow and zstandard; the result is committed, tests do not run this)

Made with pyarrow 26.0.1 and zstandard 0.25.0.

text.jsonl                       the records
text.*, members.*, frames.*      the same ones
types.{parquet,arrow,file.arrow} all types of columns; types.jsonl: what is expected of them
the others                       tables that are refused
"""
import csv
import datetime
import gzip
import io
import json
import pathlib
import struct

import pyarrow as pa
import pyarrow.parquet as pq
import zstandard

OUT = pathlib.Path(__file__).resolve().parent.parent / "tests/data/fixtures/containers"
TEXTS = ["What is a prime? A number with two divisors.", "two\nlines, a comma and \"quotes\"", "", "caf\u00e9 \U0001f600", "2+3? 5"]


def packed(data):
    return gzip.compress(data, mtime=0)


def write_stream(path, table, batch_rows=2):
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_stream(file, table.schema) as writer:
        writer.write_table(table, max_chunksize=batch_rows)


def write_file(path, table, batch_rows=2):
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, table.schema) as writer:
        writer.write_table(table, max_chunksize=batch_rows)


def make_texts():
    records = [{"text": text} for text in TEXTS]
    lines = "".join(json.dumps(record, ensure_ascii=False) + "\n" for record in records).encode()
    half = lines.index(b"\n") + 5  # inside the second line
    (OUT / "text.jsonl").write_bytes(lines)
    (OUT / "text.json").write_text(json.dumps({"version": 1, "data": records}))
    (OUT / "text.json.gz").write_bytes(packed((OUT / "text.json").read_bytes()))
    (OUT / "text.jsonl.gz").write_bytes(packed(lines))
    (OUT / "members.jsonl.gz").write_bytes(packed(lines[:half]) + packed(b"") + packed(lines[half:]))
    compress = zstandard.ZstdCompressor(write_checksum=True).compress
    skippable = struct.pack("<II", 0x184D2A50, 3) + b"abc"
    (OUT / "text.jsonl.zst").write_bytes(compress(lines))
    (OUT / "frames.jsonl.zst").write_bytes(skippable + compress(lines[:half]) + skippable + compress(lines[half:]))
    text = io.StringIO()
    writer = csv.writer(text)  # "\r\n" after each row
    writer.writerow(["text"])
    for value in TEXTS:
        text.write('""\r\n') if value == "" else writer.writerow([value])
    (OUT / "text.csv").write_bytes(b"\xef\xbb\xbf" + text.getvalue().encode())
    (OUT / "text.csv.zst").write_bytes(compress((OUT / "text.csv").read_bytes()))
    (OUT / "plain.txt.gz").write_bytes(packed("one text\nof two lines".encode()))
    table = pa.table({"text": TEXTS})
    pq.write_table(table, OUT / "text.parquet", row_group_size=2, compression="zstd")
    write_stream(OUT / "text.arrow", table)
    write_file(OUT / "text.file.arrow", table)


def make_types():
    time = datetime.datetime(2024, 5, 1, 12, 30, 5, 250000)
    columns = {
        "int8": pa.array([-1, None], pa.int8()),
        "uint64": pa.array([2**64 - 1, 0], pa.uint64()),
        "int64": pa.array([-(2**63), 7]),
        "half": pa.array([1.5, -2.0], pa.float16()),
        "float": pa.array([0.25, None], pa.float32()),
        "double": pa.array([1e-7, float("nan")]),
        "bool": pa.array([True, False]),
        "null": pa.nulls(2),
        "string": pa.array(["a", None]),
        "large": pa.array(["b", ""], pa.large_string()),
        "view": pa.array(["c", "longer than twelve bytes"], pa.string_view()),
        "dictionary": pa.array(["x", "y"]).dictionary_encode(),
        "list": pa.array([[1, 2], []], pa.list_(pa.int32())),
        "large_list": pa.array([["p"], None], pa.large_list(pa.string())),
        "fixed_list": pa.array([[1, 2], [3, None]], pa.list_(pa.int16(), 2)),
        "messages": pa.array([[{"role": "user", "content": "q"}], [{"role": "tool", "content": None}]]),
        "map": pa.array([[("k", 1), ("l", 2)], []], pa.map_(pa.string(), pa.int64())),
        "seconds": pa.array([time, None], pa.timestamp("s")),
        "micros": pa.array([time, datetime.datetime(1969, 12, 31, 23, 59, 59, 999999)], pa.timestamp("us", "UTC")),
        "date": pa.array([time.date(), datetime.date(1, 1, 1)]),
        "json": pa.array(['{"b": [1], "a": null}', None], pa.json_()),
    }
    expected = [
        {"int8": -1, "uint64": 2**64 - 1, "int64": -(2**63), "half": 1.5, "float": 0.25, "double": 1e-7, "bool": True, "null": None,
         "string": "a", "large": "b", "view": "c", "dictionary": "x", "list": [1, 2], "large_list": ["p"], "fixed_list": [1, 2],
         "messages": [{"role": "user", "content": "q"}], "map": {"k": 1, "l": 2}, "seconds": "2024-05-01T12:30:05",
         "micros": "2024-05-01T12:30:05.250000Z", "date": "2024-05-01", "json": {"b": [1], "a": None}},
        {"int8": None, "uint64": 0, "int64": 7, "half": -2.0, "float": None, "double": None, "bool": False, "null": None,
         "string": None, "large": "", "view": "longer than twelve bytes", "dictionary": "y", "list": [], "large_list": None,
         "fixed_list": [3, None], "messages": [{"role": "tool", "content": None}], "map": {}, "seconds": None,
         "micros": "1969-12-31T23:59:59.999999Z", "date": "0001-01-01", "json": None},
    ]
    (OUT / "types.jsonl").write_text("".join(json.dumps(record) + "\n" for record in expected))
    table = pa.table(columns)
    write_stream(OUT / "types.arrow", table, 1)
    write_file(OUT / "types.file.arrow", table)
    seconds = table.schema.get_field_index("seconds")  # Parquet has no seconds
    pq.write_table(table.set_column(seconds, "seconds", columns["seconds"].cast(pa.timestamp("ms"))), OUT / "types.parquet")


def make_refused():
    refused = pa.table({"text": ["a"], "image": pa.array([{"path": "x.png", "bytes": b"\x89"}])})
    pq.write_table(refused, OUT / "binary.parquet")
    numbered = pa.array([[(1, "a")]], pa.map_(pa.int64(), pa.string()))
    write_stream(OUT / "number_keys.arrow", pa.table({"map": numbered}))
    write_stream(OUT / "two_names.arrow", pa.Table.from_arrays([pa.array(["a"]), pa.array(["b"])], ["text", "text"]))
    write_stream(OUT / "bad_json.arrow", pa.table({"text": pa.array(['"a"', "{"], pa.json_())}))
    offsets = struct.pack("<2i", 0, 2)
    text = pa.Array.from_buffers(pa.string(), 1, [None, pa.py_buffer(offsets), pa.py_buffer(b"a\xff")])
    write_stream(OUT / "not_utf8.arrow", pa.table({"text": text}))


if __name__ == "__main__":
    OUT.mkdir(exist_ok=True)
    make_texts()
    make_types()
    make_refused()
