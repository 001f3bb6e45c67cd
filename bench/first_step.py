#!/usr/bin/env python3
"""How long a run takes to its first step: afresh, and where it goes on from a checkpoint.

usage: first_step.py FOLDER [--layers N] [--rounds N]

Trains a small Llama of random weights for two steps with a checkpoint each (two CPU ranks, one row of 16 tokens each),
then starts it afresh from the checkpoint's safetensors and goes on from the checkpoint, in turns, with what the system
keeps of the files dropped before each. Beside them, the bare reading of the files of the states (dd by O_DIRECT, all
at once). FOLDER is made and removed.
"""
import argparse
import json
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import time

ZEROTH = pathlib.Path(__file__).resolve().parent.parent / "build/bin/zeroth"
SHAPE = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": 8192, "hidden_size": 512,
         "intermediate_size": 1376, "num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 64,
         "max_position_embeddings": 256, "rms_norm_eps": 1e-6, "rope_theta": 10000.0, "hidden_act": "silu",
         "tie_word_embeddings": False, "torch_dtype": "bfloat16", "initializer_range": 0.02}
DS_CONFIG = {"train_micro_batch_size_per_gpu": "auto", "bf16": {"enabled": True}, "zero_optimization": {"stage": 2},
             "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}}}


def drop_pages(folder):
    os.sync()
    for path in folder.rglob("*"):
        if path.is_file():
            with open(path, "rb") as file:
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def seconds_to_first_step(folder, flags):
    """From the launcher's start until the first step's line stands in the metrics."""
    metrics = folder / "metrics.jsonl"
    metrics.unlink(missing_ok=True)
    command = [ZEROTH, "--num_gpus", "2", "finetune", "--data", folder / "tokens.bin", "--seq-len", "16",
               "--micro-batch", "1", "--global-batch", "2", "--deepspeed", folder / "ds_config.json",
               "--metrics", metrics, *flags]
    with open(folder / "log", "w", encoding="utf-8") as log:
        start = time.monotonic()
        run = subprocess.Popen(command, stdout=log, stderr=log, env=dict(os.environ, DS_ACCELERATOR="cpu"))
        while not (metrics.exists() and '"loss"' in metrics.read_text(encoding="utf-8")):
            time.sleep(0.005)
            if run.poll() is not None:
                break
        seconds = time.monotonic() - start
        if run.wait() != 0:
            sys.exit((folder / "log").read_text(encoding="utf-8"))
    return seconds


def seconds_to_read(files):
    start = time.monotonic()
    readers = [subprocess.Popen(["dd", f"if={file}", "of=/dev/null", "bs=4M", "iflag=direct"], stderr=subprocess.DEVNULL)
               for file in files]
    for reader in readers:
        reader.wait()
    return time.monotonic() - start


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--layers", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=7)
    options = parser.parse_args()
    folder = options.folder
    folder.mkdir()
    (folder / "model").mkdir()
    (folder / "model/config.json").write_text(json.dumps(SHAPE | {"num_hidden_layers": options.layers}))
    (folder / "ds_config.json").write_text(json.dumps(DS_CONFIG))
    (folder / "tokens.bin").write_bytes(b"".join((i * 7 % 8192).to_bytes(2, "little") for i in range(20_000)))

    out, again = folder / "out", folder / "again"
    seconds_to_first_step(folder, ["--model", folder / "model", "--steps", "2", "--save-every", "1", "--output", out])
    saved = out / "checkpoints/step-2"
    states = list((saved / "zeroth").glob("pieces*"))
    mib = sum(file.stat().st_size for file in states) / 2**20
    fresh, resumed, read = [], [], []
    for _ in range(options.rounds):
        drop_pages(out)
        fresh.append(seconds_to_first_step(folder, ["--model", saved, "--steps", "1"]))
        drop_pages(out)
        read.append(seconds_to_read(states))
        shutil.rmtree(again, ignore_errors=True)
        shutil.copytree(out, again)
        drop_pages(again)
        resumed.append(seconds_to_first_step(folder, ["--model", folder / "model", "--steps", "3", "--save-every", "100",
                                                      "--resume", "--output", again]))
    shutil.rmtree(folder)
    first, on, bare = (statistics.median(seconds) for seconds in (fresh, resumed, read))
    print(f"afresh {first:.3f} s, going on {on:.3f} s, {mib:.0f} MiB of states read in {bare:.3f} s; "
          f"(going on - reading) / afresh = {(on - bare) / first:.2f}")
    for name, seconds in (("afresh", fresh), ("going on", resumed), ("reading", read)):
        print(f"{name:9}" + "".join(f"{second:8.3f}" for second in seconds))


if __name__ == "__main__":
    main()
