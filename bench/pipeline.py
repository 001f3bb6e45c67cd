#!/usr/bin/env python3
"""Trains a random Llama of 31.6M parameters with every schedule of a pipeline of two stages, beside ZeRO-2 on two ranks.

Usage: pipeline.py ZEROTH FOLDER [--steps N]

ZEROTH is the launcher (build/bin/zeroth, with pipeline_check beside it), FOLDER takes the model, the tokens and the output.
Prints for each run the median time of a step and the tokens per second; the time from the first pass of a step to the end of its
last and the bubble, each as measured and as simulated from the measured time of each kind of pass; the bubble that the summary
predicted; and of how many micro-batches each rank kept inputs. Needs Linux and no Python packages.
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
         "--deepspeed", folder / "ds_config.json", "--steps", str(steps), "--metrics", metrics, "--output", folder / "out",
         "--overwrite", "--trace-steps", f"4:{steps}"],
        env={**os.environ, "DS_ACCELERATOR": "cpu", "OMP_NUM_THREADS": "1"}, check=True, capture_output=True, text=True).stdout
    rows = [json.loads(line) for line in metrics.read_text().splitlines()][2:]
    step_s = statistics.median(row["step_s"] for row in rows)
    cells = [f"{step_s:.3f}", f"{SEQ * SAMPLES / step_s:.0f}"]
    if pipeline:
        check = json.loads(subprocess.run(
            [zeroth.parent / "pipeline_check", folder / "out/trace.json", pipeline["pipeline"]["schedule"]],
            check=True, capture_output=True, text=True).stdout)
        measured, simulated, inputs = check["measured"], check["simulated"], check["inputs"]
        cells += [f"{measured['seconds']:.3f} / {simulated['seconds']:.3f}",
                  f"{measured['bubble']:.1%} / {simulated['bubble']:.1%}",
                  re.search(r"predicted bubble (\d+ %)", output)[1],
                  f"{inputs['measured']} / {inputs['simulated']}"]
    return cells + [""] * (6 - len(cells)) + [f"{rows[-1]['loss']:.6f}"]


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
    print("| run | step s | tok/s | passes s, measured / simulated | bubble, measured / simulated | predicted | "
          "inputs kept, measured / simulated | last loss |\n" + 8 * "|---" + "|")
    for name, pipeline in rows:
        print("| " + " | ".join([name, *run(options.zeroth.resolve(), folder, options.steps, pipeline)]) + " |", flush=True)


if __name__ == "__main__":
    main()
