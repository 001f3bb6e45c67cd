#!/usr/bin/env python3
"""Trains a random Llama of about 1.1 billion parameters with everything on NVMe (stage 3, bf16).

Usage: big_model.py ZEROTH FOLDER [--steps N] [--ranks N] [--seq-len N]

ZEROTH is the launcher (build/bin/zeroth), FOLDER lies on the disk to use; it holds about 16 GB while
this runs. Prints how the time of a step splits and the sum of the ranks' peak PSS, which is to stay
under 5 GiB. Needs Linux and no Python packages.
"""
import argparse
import json
import os
import random
import shutil
import sys
import time
from array import array
from pathlib import Path

import peak_pss

LLAMA = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 2048,
    "intermediate_size": 5632,
    "num_hidden_layers": 22,
    "num_attention_heads": 32,
    "num_key_value_heads": 4,
    "vocab_size": 32000,
    "max_position_embeddings": 2048,
    "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0,
    "hidden_act": "silu",
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
}
GIB = 1 << 30
NEEDED_BYTES = 16 * GIB
BAR_BYTES = 5 * GIB


def ds_config(folder):
    nvme = {"device": "nvme", "nvme_path": str(folder / "swap")}
    return {
        "train_micro_batch_size_per_gpu": 1,
        "gradient_accumulation_steps": 1,
        "gradient_clipping": 1.0,
        "bf16": {"enabled": True},
        "optimizer": {"type": "AdamW", "params": {"lr": 1e-5, "weight_decay": 0.1}},
        "activation_checkpointing": {"number_checkpoints": 24},
        "zero_optimization": {
            "stage": 3,
            "offload_optimizer": nvme,
            "offload_param": {**nvme, "max_in_cpu": 0, "buffer_count": 3},
            "stage3_prefetch_bucket_size": 0,
            "stage3_max_live_parameters": 0,
        },
    }


def prepare(folder, steps, ranks, seq_len):
    model = folder / "model"
    model.mkdir(parents=True)
    (model / "config.json").write_text(json.dumps(LLAMA))
    drawn = random.Random(0)
    count = steps * ranks * seq_len + 1
    tokens = array("H", (drawn.randrange(LLAMA["vocab_size"]) for _ in range(count)))
    (folder / "tokens.bin").write_bytes(tokens.tobytes())
    (folder / "ds_config.json").write_text(json.dumps(ds_config(folder), indent=1))


def train(options, folder):
    command = [options.zeroth, "--num_gpus", str(options.ranks), "finetune", "--model",
               folder / "model", "--data", folder / "tokens.bin", "--seq-len",
               str(options.seq_len), "--steps", str(options.steps), "--no-shuffle",
               "--deepspeed", folder / "ds_config.json", "--metrics", folder / "metrics.jsonl"]
    environment = {**os.environ, "DS_ACCELERATOR": "cpu"}
    begin = time.monotonic()
    code, peaks = peak_pss.run(command, env=environment)
    if code != 0:
        sys.exit(f"zeroth ended with {code}")
    return peaks, time.monotonic() - begin


def report(rows, peaks, seconds):
    # The first update is made in the second step and reads no moments: what was never written is
    # zeros.
    later = rows[2:] or rows
    mean = lambda key: sum(row.get(key, 0) for row in later) / len(later)
    step, waited = mean("step_s"), mean("offload_waited_s")
    update = mean("update_s")
    print(f"losses {', '.join(format(row['loss'], '.4f') for row in rows)}; {seconds:.0f} s in all")
    print(f"a step (mean of {len(later)} after the second): {step:.2f} s, "
          f"{mean('tokens_per_s'):.1f} tokens/s")
    print(f"  forward {mean('forward_s'):.2f} backward {mean('backward_s'):.2f} update "
          f"{update:.2f} s; communication and waiting for ranks "
          f"{mean('communication_s') + mean('waiting_s'):.2f} s")
    print(f"  reading {mean('offload_reading_s'):.2f} s of it "
          f"({mean('offload_read_bytes') / GIB:.2f} GiB a rank), writing "
          f"{mean('offload_writing_s'):.2f} s ({mean('offload_written_bytes') / GIB:.2f} GiB), "
          f"waiting for the disk {waited:.2f} s: {100 * mean('offload_hidden'):.0f} % hidden")
    print(f"{peak_pss.describe(peaks)} ({sum(peaks) / BAR_BYTES:.2f} of the bar of 5 GiB)")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("zeroth")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--seq-len", type=int, default=256)
    options = parser.parse_args()
    free = shutil.disk_usage(options.folder).free
    if free < NEEDED_BYTES:
        sys.exit(f"{options.folder} has {free / GIB:.1f} GiB free, {NEEDED_BYTES / GIB:.1f} needed")
    folder = options.folder / "zeroth_big_model"
    shutil.rmtree(folder, ignore_errors=True)
    try:
        prepare(folder, options.steps, options.ranks, options.seq_len)
        peaks, seconds = train(options, folder)
        rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
        report([row for row in rows if "loss" in row], peaks, seconds)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
