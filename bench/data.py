#!/usr/bin/env python3
"""What stands between data files and steps: rendering beside transformers, the start of a run, and packing.

usage: data.py render BIN TEMPLATE... [--rounds 5]     BIN/chat_template beside transformers' compiled template, one thread
       data.py start BIN MODEL [--megabytes 1000]      seconds to the end of the first step: chats of that size with a warm cache, and
                                                       the same tokens as a .bin; MODEL has a chat template
       data.py packing BIN MODEL DATA [--steps 12]     label tokens a second of `zeroth --num_gpus 2`, packed and padded, micro-batch 8

render needs transformers in the Python that runs it. Each figure is a median over rounds in turns; processor time for render, wall
time otherwise.
"""
import argparse
import json
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

MESSAGES = [{"role": "user", "content": "Natalia sold clips to 48 of her friends in April, and then she sold half as many clips in May. "
             "How many clips did Natalia sell altogether in April and May?"},
            {"role": "assistant", "content": "Natalia sold 48/2 = <<48/2=24>>24 clips in May.\nNatalia sold 48+24 = <<48+24=72>>72 clips "
             "altogether in April and May.\n#### 72"}]


def contexts():
    rows = []
    for turns in (1, 1, 1, 2, 4):
        system = [] if turns == 2 else [{"role": "system", "content": "You are a careful teacher of arithmetic."}]
        rows.append({"messages": system + MESSAGES * turns, "tools": None, "documents": None, "add_generation_prompt": False,
                     "bos_token": "<s>", "eos_token": "</s>", "pad_token": "</s>", "unk_token": "<unk>"})
    return rows


def render(options):
    from transformers.utils.chat_template_utils import render_jinja_template

    def rendered(source, row):
        variables = {key: value for key, value in row.items() if key not in ("messages", "tools", "documents")}
        return render_jinja_template(conversations=[row["messages"]], chat_template=source, **variables)[0][0]

    rows = contexts()
    with tempfile.TemporaryDirectory() as work:
        file = pathlib.Path(work) / "contexts.json"
        for path in options.arguments:
            source = pathlib.Path(path).read_text()
            usable = []
            for row in rows:  # some templates take no system message
                try:
                    rendered(source, row)
                    usable.append(row)
                except Exception:
                    pass
            file.write_text(json.dumps(usable))
            theirs, ours = [], []
            for _ in range(options.rounds):
                start, size = time.process_time(), 0
                for _ in range(400):
                    for row in usable:
                        size += len(rendered(source, row).encode())
                theirs.append(size / (time.process_time() - start))
                command = [f"{options.bin}/chat_template", path, str(file), "4000"]
                words = subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout.split()
                if int(words[0]) != 10 * size:
                    sys.exit(f"{path}: other texts")
                ours.append(int(words[0]) / float(words[1]))
            rate = [statistics.median(one) / 1e6 for one in (theirs, ours)]
            print(f"{pathlib.Path(path).stem:20} transformers {rate[0]:6.1f} MB/s, ours {rate[1]:6.1f} MB/s, ratio {rate[1] / rate[0]:.1f}", flush=True)


def finetune(options, arguments, launcher=None):
    """A run's metrics, and its wall time."""
    with tempfile.TemporaryDirectory() as work:
        metrics = pathlib.Path(work) / "metrics.jsonl"
        command = [f"{options.bin}/zeroth", *(launcher or []), "finetune", *arguments, "--metrics", str(metrics)]
        start = time.time()
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env={**os.environ, "DS_ACCELERATOR": "cpu"})
        if done.returncode:
            sys.exit(done.stdout.decode())
        return [json.loads(line) for line in metrics.read_text().splitlines()], time.time() - start


def start(options):
    model = options.arguments[0]
    with tempfile.TemporaryDirectory(dir=options.work) as work:
        data = pathlib.Path(work) / "chats.jsonl"
        with data.open("w") as file:
            written, index = 0, 0
            while written < options.megabytes * 1_000_000:
                lines = "".join(json.dumps({"messages": [{"role": "user", "content": f"{index + i}: {MESSAGES[0]['content']}"}, MESSAGES[1]]}) + "\n"
                                for i in range(10_000))
                index += 10_000
                file.write(lines)
                written += len(lines)
        base = ["--model", model, "--seq-len", "512", "--micro-batch", "1", "--steps", "1"]
        first, seconds = finetune(options, [*base, "--data", str(data)])
        print(f"first start over {written / 1e6:.0f} MB: {seconds:.1f} s", flush=True)
        subprocess.run([f"{options.bin}/zeroth", "tokenize", "--model", model, "--data", str(data), "--output", f"{work}/tokens"],
                       check=True, stdout=subprocess.DEVNULL)
        os.remove(f"{work}/tokens.mask")  # a stream of ids, as a .bin usually is
        times = {"cache": [], "bin": []}
        for _ in range(options.rounds):
            times["cache"].append(finetune(options, [*base, "--data", str(data)])[0][0]["since_start_s"])
            times["bin"].append(finetune(options, [*base, "--data", f"{work}/tokens.bin"])[0][0]["since_start_s"])
        rows = {name: statistics.median(one) for name, one in times.items()}
        print(f"to the end of the first step: warm cache {rows['cache']:.2f} s, .bin {rows['bin']:.2f} s, more {rows['cache'] - rows['bin']:.2f} s")
        print(f"peak of a rank's memory over the warm cache: {first[0]['peak_rss_mib']:.0f} MiB at the first start")


def packing(options):
    model, data = options.arguments
    base = ["--model", model, "--data", data, "--seq-len", "1024", "--micro-batch", "8", "--steps", str(options.steps)]
    rates = {"padded": [], "packed": []}
    for _ in range(options.rounds):
        for name, more in (("padded", []), ("packed", ["--packing"])):
            rows = [row for row in finetune(options, [*base, *more], ["--num_gpus", "2"])[0] if "trained_tokens" in row][2:]
            rates[name].append(sum(row["trained_tokens"] for row in rows) / sum(row["step_s"] for row in rows))
    padded, packed = (statistics.median(rates[name]) for name in ("padded", "packed"))
    print(f"label tokens/s: padded to the longest {padded:.0f}, packed {packed:.0f}, ratio {packed / padded:.2f}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["render", "start", "packing"])
    parser.add_argument("bin")
    parser.add_argument("arguments", nargs="+")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--megabytes", type=int, default=1000)
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--work", help="directory for large files")
    options = parser.parse_args()
    {"render": render, "start": start, "packing": packing}[options.what](options)


if __name__ == "__main__":
    main()
