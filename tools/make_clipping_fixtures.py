#!/usr/bin/env python3
"""Writes tests/configs/fixtures/clipping.json: the norm to which DeepSpeed and Hugging Face's Trainer clip a gradient of norm 200.

usage: make_clipping_fixtures.py

Needs deepspeed, transformers, accelerate and torch; CPU only. Each row is measured: one step of SGD with rate 1 moves the
weights by the norm that is left of their gradient.
"""
import itertools
import json
import os
import pathlib
import tempfile

os.environ.update(
    DS_ACCELERATOR="cpu", RANK="0", WORLD_SIZE="1", LOCAL_RANK="0", MASTER_ADDR="127.0.0.1", MASTER_PORT="29517"
)

import accelerate
import deepspeed
import torch
import transformers

OUT = pathlib.Path(__file__).resolve().parent.parent / "tests/configs/fixtures/clipping.json"
ABSENT = object()


class Slope(torch.nn.Module):
    """Its gradient is 100 for each of four weights."""

    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(4))

    def forward(self, x):
        return {"loss": (self.weight * 100 * x).sum()}


def file_with(clipping, rate):
    config = {
        "train_micro_batch_size_per_gpu": 1,
        "optimizer": {"type": "SGD", "params": {"lr": rate}},
        "zero_optimization": {"stage": 0},
    }
    return config if clipping is ABSENT else {**config, "gradient_clipping": clipping}


def moved(model):
    return round(model.weight.detach().norm().item(), 6)


def by_deepspeed(clipping):
    model = Slope()
    engine, *_ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config=file_with(clipping, 1.0))
    engine.backward(engine(torch.ones(4))["loss"])
    engine.step()
    return moved(model)


def by_trainer(clipping, file, max_grad_norm):
    given = {} if max_grad_norm is ABSENT else {"max_grad_norm": max_grad_norm}
    if file:
        given["deepspeed"] = file_with(clipping, "auto")
    model = Slope()
    with tempfile.TemporaryDirectory() as folder:
        try:
            arguments = transformers.TrainingArguments(
                folder, max_steps=1, per_device_train_batch_size=1, learning_rate=1.0, lr_scheduler_type="constant",
                optim="sgd", weight_decay=0.0, report_to="none", save_strategy="no", use_cpu=True, remove_unused_columns=False,
                dataloader_pin_memory=False, **given,
            )
            transformers.Trainer(model=model, args=arguments, train_dataset=[{"x": torch.ones(4)}]).train()
        except ValueError as error:
            if "mismatch" not in str(error):
                raise
            return "refused"
    return moved(model)


def main():
    deepspeed.init_distributed("gloo")
    rows = []
    for clipping in (ABSENT, 0.5, 0):
        rows.append({"by": "deepspeed", "file": True, "clipped": by_deepspeed(clipping)})
        if clipping is not ABSENT:
            rows[-1]["gradient_clipping"] = clipping
    for clipping, norm in itertools.product((None, ABSENT, "auto", 0.5), (ABSENT, 0.5, 2.0, 0.0)):
        row = {"by": "trainer", "file": clipping is not None}
        if row["file"] and clipping is not ABSENT:
            row["gradient_clipping"] = clipping
        if norm is not ABSENT:
            row["max_grad_norm"] = norm
        rows.append({**row, "clipped": by_trainer(clipping, row["file"], norm)})
    versions = {library.__name__: library.__version__ for library in (deepspeed, transformers, accelerate)}
    lines = ",\n".join("  " + json.dumps(row) for row in rows)
    OUT.write_text(f'{{"versions": {json.dumps(versions)},\n "rows": [\n{lines}\n]}}\n', encoding="utf-8")
    print(OUT.read_text())


if __name__ == "__main__":
    main()
