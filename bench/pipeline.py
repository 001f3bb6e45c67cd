#!/usr/bin/env python3
"""Trains a random Llama of 31.6M parameters with every schedule of a pipeline of two stages, beside ZeRO-2 on two ranks.

Usage: pipeline.py ZEROTH FOLDER [--steps N]

ZEROTH is the launcher (build/bin/zeroth), FOLDER takes the model and the tokens. Prints for each run the median time of a step,
the tokens per second, and the bubble that the summary predicted and that the ranks measured. Needs Linux and no Python packages.
"""
import argparse
import json
import os
import random
import re
import statistics
import subprocess
from array import array
from pathlib import Path

LLAMA = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 512, "intermediate_size": 1408,
         "num_hidden_layers": 8, "num_attention_heads": 8, "num_key_value_heads": 8, "vocab_size": 8192,
         "max_position_embeddings": 1024, "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "hidden_act": "silu",
         "tie_word_embeddings": False, "torch_dtype": "float32"}
SEQ, SAMPLES = 256, 8  # positions, samples of a step
SCHEDULES = ("1f1b", "gpipe", "interleaved", "zb-h1", "zbv", "breadth-first")


def run(zeroth, folder, steps, pipeline):
    config = {"train_micro_batch_size_per_gpu": 1, "gradient_accumulation_steps": SAMPLES if pipeline else SAMPLES // 2,
              "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}}, "zero_optimization": {"stage": 2}, **pipeline}
    (folder / "ds_config.json").write_text(json.dumps(config))
    metrics = folder / "metrics.jsonl"
    metrics.unlink(missing_ok=True)
    output = subprocess.run(
        [zeroth, "--num_gpus", "2", "finetune", "--model", folder, "--data", folder / "tokens.bin", "--seq-len", str(SEQ),
         "--deepspeed", folder / "ds_config.json", "--steps", str(steps), "--metrics", metrics],
        env={**os.environ, "DS_ACCELERATOR": "cpu", "OMP_NUM_THREADS": "1"}, check=True, capture_output=True, text=True).stdout
    rows = [json.loads(line) for line in metrics.read_text().splitlines()][2:]
    step_s = statistics.median(row["step_s"] for row in rows)
    idle = [sum(row["pipe_idle_s"]) / (2 * row["step_s"]) for row in rows]
    predicted = re.search(r"predicted bubble (\d+) %", output)
    return step_s, statistics.median(idle), int(predicted[1]) / 100 if predicted else 0, rows[-1]["loss"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("zeroth", type=Path)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--steps", type=int, default=12)
    options = parser.parse_args()
    folder = options.folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(LLAMA))
    numbers = random.Random(7)
    with open(folder / "tokens.bin", "wb") as file:
        array("H", (numbers.randrange(8192) for _ in range(1 << 18))).tofile(file)
    rows = [("ZeRO-2", {})] + [(name, {"pipeline": {"stages": 2, "schedule": name}}) for name in SCHEDULES]
    print("| run | step s | tok/s | bubble, measured | predicted | last loss |\n|---|---|---|---|---|---|")
    for name, pipeline in rows:
        step_s, idle, predicted, loss = run(options.zeroth.resolve(), folder, options.steps, pipeline)
        print(f"| {name} | {step_s:.3f} | {SEQ * SAMPLES / step_s:.0f} | {idle:.1%} | {predicted:.0%} | {loss:.6f} |", flush=True)


if __name__ == "__main__":
    main()
