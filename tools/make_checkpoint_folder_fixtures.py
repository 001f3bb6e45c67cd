#!/usr/bin/env python3
"""Writes tests/trainer/fixtures/checkpoint_folders.json: what transformers finds in every checkpoint folder of a few runs.

Needs torch 2.11, transformers 5.17, safetensors, and a build:  python tools/make_checkpoint_folder_fixtures.py [build/bin]

tests/trainer/checkpoint_folders_test.cpp makes the same runs: two ranks, a family at each stage, in fp32 and in bf16;
and two data ranks of which each is two or four that share every layer. Bits of
what was trained differ from one processor's instructions to another's, so that a folder of the script's run cannot stand for
one of the test's run in all its bytes. Therefore:
- the rate of the first step is 0. The folder behind it is the same bytes on every processor, and the test finds the CRC32C of
  each tensor that transformers has read from it;
- names, dtypes, shapes, files and config.json are the same in all folders of a run, and the same bytes in the test's;
- SGD moves a weight by its gradient alone, whose last bits differ and not its sign, so that the weights behind the last step
  are the same up to a bound. The test has them as one number a tensor, the sum of w_i cos(i), which no two elements can change
  places in; and transformers' loss of every folder in fp32, beside which stands that of `finetune --model FOLDER`.
That from_pretrained misses nothing, leaves nothing over and finds the dtype that was trained is asserted here, for each folder.
"""
import json
import os
import pathlib
import shutil
import struct
import subprocess
import sys
import tempfile

import torch
from safetensors import safe_open
from transformers import AutoModelForCausalLM, AutoTokenizer, GenerationConfig

ROOT = pathlib.Path(__file__).resolve().parent.parent
OUT = ROOT / "tests/trainer/fixtures/checkpoint_folders.json"
LENGTH, WINDOWS, STEPS = 16, 40, 3
RUNS = [("llama", 0, "fp32"), ("qwen2", 1, "fp32"), ("qwen3_tied", 2, "fp32"), ("gpt2", 3, "fp32"),
        ("llama", 3, "bf16"), ("qwen2", 2, "bf16"), ("qwen3_tied", 1, "bf16"), ("gpt2", 0, "bf16"),
        ("llama", 3, "fp32", 2), ("gpt2", 1, "fp32", 4), ("qwen3_tied", 2, "bf16", 2)]
DATA_RANKS = 2
FLAGS = ("--seq-len 16 --global-batch 8 --steps 3 --save-every 1 --save_total_limit 0 --lr_scheduler_type constant_with_warmup "
         "--warmup_steps 2 --eval-every 1")
GENERATION = {"do_sample": True, "temperature": 0.5, "max_length": 30}
TEXT = "A run that was ended goes on."


def crc32c(data):
    table = []
    for byte in range(256):
        for _ in range(8):
            byte = byte >> 1 ^ (0x82F63B78 if byte & 1 else 0)
        table.append(byte)
    crc = 0xFFFFFFFF
    for byte in data:
        crc = crc >> 8 ^ table[(crc ^ byte) & 0xFF]
    return f"{crc ^ 0xFFFFFFFF:08x}"


def tokens():
    return [(i * i + 3 * i) % 37 + 20 for i in range(WINDOWS * LENGTH + 1)]


def ds_config(stage, precision, tensor=1):
    config = {"zero_optimization": {"stage": stage}, "bf16": {"enabled": precision == "bf16"},
              "optimizer": {"type": "SGD", "params": {"lr": 0.25}}}
    return config if tensor == 1 else config | {"tensor_parallel": {"autotp_size": tensor}}


def make_model(source, folder):
    """A committed one, with what else may stand beside weights."""
    shutil.copytree(source, folder, ignore=shutil.ignore_patterns("expected.safetensors"))
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(ROOT / "tests/data/fixtures/gpt2" / name, folder / name)
    (folder / "generation_config.json").write_text(json.dumps(GENERATION))


def run(program, folder, model, config, ranks):
    """Its own evaluations, one behind each step."""
    make_model(ROOT / "tests/model/fixtures" / model, folder / "model")
    (folder / "ds.json").write_text(json.dumps(config))
    ids = tokens()
    (folder / "train.bin").write_bytes(struct.pack(f"<{len(ids)}H", *ids))
    command = [program, "--num_gpus", str(ranks), "finetune", "--model", "model", "--data", "train.bin", "--eval-data", "train.bin",
               "--deepspeed", "ds.json", "--output", "out", "--metrics", "m.jsonl", *FLAGS.split()]
    subprocess.run(command, cwd=folder, check=True, stdout=subprocess.DEVNULL,
                   env=os.environ | {"DS_ACCELERATOR": "cpu", "OMP_NUM_THREADS": "1"})
    rows = [json.loads(line) for line in (folder / "m.jsonl").read_text().splitlines()]
    return [row["eval_loss"] for row in rows if "eval_loss" in row]


def load(folder, dtype):
    model, found = AutoModelForCausalLM.from_pretrained(folder, dtype=dtype, output_loading_info=True)
    assert not any(found.values()), (folder, found)
    return model.eval()


def loss_of(folder):
    ids = torch.tensor(tokens())
    windows = torch.stack([ids[i * LENGTH:(i + 1) * LENGTH] for i in range(WINDOWS)])
    targets = ids[1:WINDOWS * LENGTH + 1]
    with torch.no_grad():
        logits = load(folder, torch.float32)(windows).logits
    return torch.nn.functional.cross_entropy(logits.flatten(0, 1).double(), targets).item()


def tensors_of(folder, dtype):
    """As the model has them that transformers makes of the folder, by their names in its file."""
    model = load(folder, "auto")
    assert model.dtype == dtype, (folder, model.dtype)
    values = model.state_dict()
    with safe_open(folder / "model.safetensors", "pt") as file:
        names = sorted(file.keys())
    tied = {"lm_head.weight"} if model.config.tie_word_embeddings else set()
    assert set(values) - set(names) <= tied and set(names) <= set(values), (folder, set(values) ^ set(names))
    return {name: values[name] for name in names}


def projection(tensor):
    flat = tensor.double().flatten()
    return (flat * torch.arange(flat.numel(), dtype=torch.float64).cos()).sum().item()


def describe(folders, evaluations, precision):
    dtype = torch.float32 if precision == "fp32" else torch.bfloat16
    read = [tensors_of(folder, dtype) for folder in folders]
    losses = [loss_of(folder) for folder in folders]
    for values in read[1:]:
        assert {name: value.shape for name, value in values.items()} == {n: v.shape for n, v in read[0].items()}
    for own, theirs in zip(evaluations, losses, strict=True):
        assert abs(own - theirs) < (2e-5 if precision == "fp32" else 2.5e-2), (evaluations, losses)
    files = [sorted(path.name for path in folder.iterdir() if path.is_file()) for folder in folders]
    configs = [crc32c((folder / "config.json").read_bytes()) for folder in folders]
    assert all(one == files[0] for one in files) and len(set(configs)) == 1, (files, configs)
    assert all(GenerationConfig.from_pretrained(folder).temperature == GENERATION["temperature"] for folder in folders)
    text_ids = [AutoTokenizer.from_pretrained(folder)(TEXT)["input_ids"] for folder in folders]
    assert text_ids[0] and all(one == text_ids[0] for one in text_ids)
    stored = {"torch.float32": "F32", "torch.bfloat16": "BF16"}[str(dtype)]
    return {
        "files": files[0], "config_crc32c": configs[0], "losses": losses,
        "tensors": {name: {"dtype": stored, "shape": list(value.shape),
                           "crc32c_of_first": crc32c(value.contiguous().view(torch.uint8).numpy().tobytes()),
                           "projection_of_last": projection(read[-1][name])} for name, value in read[0].items()},
    }


def main():
    program = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else ROOT / "build/bin").resolve() / "zeroth"
    cases = []
    for model, stage, precision, *shared in RUNS:
        tensor = shared[0] if shared else 1
        config, ranks = ds_config(stage, precision, tensor), DATA_RANKS * tensor
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            evaluations = run(program, folder, model, config, ranks)
            folders = [folder / f"out/checkpoints/step-{step}" for step in range(1, STEPS + 1)]
            found = describe(folders, evaluations, precision)
            last, own = (tensors_of(path, load(path, "auto").dtype) for path in (folders[-1], folder / "out"))
            assert own.keys() == last.keys() and all(own[name].equal(last[name]) for name in own)
        print(model, stage, precision, ranks, found["losses"], evaluations)
        cases.append({"model": model, "ranks": ranks, "ds_config": config, "flags": FLAGS, "generation_config": GENERATION, **found})
    OUT.write_text("[\n" + ",\n".join(json.dumps(case) for case in cases) + "\n]\n")


if __name__ == "__main__":
    main()
