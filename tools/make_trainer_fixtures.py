#!/usr/bin/env python3
"""Writes tests/trainer/fixtures/trainer_runs.json: losses and rates of runs of transformers' Trainer with DeepSpeed.

Needs torch 2.11, transformers 5.17, accelerate and deepspeed 0.19.8 (DS_BUILD_OPS=0 will do; they run on the CPU):
python tools/make_trainer_fixtures.py

Each run is one process at one stage. Its samples are the windows of the test's train.bin, in file order, none padded. A run
has the flags beside model, data and output as one types them, and its ds_config.json.
"""

import concurrent.futures
import json
import os
import pathlib
import subprocess
import sys
import tempfile

TESTS = pathlib.Path(__file__).resolve().parent.parent / "tests"
OUT = TESTS / "trainer/fixtures/trainer_runs.json"
LENGTH, WINDOWS = 16, 40

AUTO = {
    "train_micro_batch_size_per_gpu": "auto",
    "gradient_accumulation_steps": "auto",
    "train_batch_size": "auto",
    "gradient_clipping": "auto",
}
ADAMW = {
    "type": "AdamW",
    "params": {"lr": "auto", "betas": "auto", "eps": "auto", "weight_decay": "auto", "torch_adam": True},
}
DECAY_LR = {
    "type": "WarmupDecayLR",
    "params": {"warmup_min_lr": "auto", "warmup_max_lr": "auto", "warmup_num_steps": "auto", "total_num_steps": "auto"},
}
# 12 steps of 4, over the end of an epoch.
STEPS = {
    "per_device_train_batch_size": 4,
    "max_steps": 12,
    "learning_rate": 1e-3,
    "weight_decay": 0.1,
    "warmup_steps": 4,
}
SCHEDULES = {
    "constant": None,
    "constant_with_warmup": None,
    "linear": None,
    "cosine": None,
    "cosine_with_restarts": {"num_cycles": 2},
    "polynomial": {"power": 2.0, "lr_end": 1e-5},
    "inverse_sqrt": None,
    "cosine_with_min_lr": {"min_lr": 1e-4},
    "cosine_warmup_with_min_lr": {"min_lr_rate": 0.1, "warmup_lr_rate": 0.2},
    "warmup_stable_decay": {"num_decay_steps": 3, "decay_type": "1-sqrt"},
}
# They ask the optimizer for its first rate, which DeepSpeed's ZeRO optimizers do not know.
WITHOUT_ZERO = {"polynomial", "cosine_with_min_lr"}
# Four steps an epoch, of which the last has 5 samples: 12 steps.
DEFAULTS = {"max_train_samples": 29}


def config(stage, **more):
    return {**AUTO, "zero_optimization": {"stage": stage}, **more}


def runs():
    """(name, model, flags, ds_config)."""
    for number, (kind, kwargs) in enumerate(SCHEDULES.items()):
        flags = {**STEPS, "lr_scheduler_type": kind}
        if kwargs:
            flags["lr_scheduler_kwargs"] = kwargs
        if number % 2 == 0:
            yield kind, "llama", flags, config(number // 2 % 4, optimizer=ADAMW)
        else:
            yield kind, "gpt2", flags, config(0 if kind in WITHOUT_ZERO else number // 2 % 4)
    plateau = {
        "lr_scheduler_type": "reduce_lr_on_plateau",
        "lr_scheduler_kwargs": {"patience": 1, "factor": 0.5, "threshold": 0.05},
        "eval_strategy": "steps",
        "eval_steps": 1,
        "eval_on_start": True,
        "max_eval_samples": 8,
    }
    yield "reduce_lr_on_plateau", "llama", {**STEPS, **plateau}, config(1)
    for stage in range(4):
        yield f"Trainer's defaults, stage {stage}", "llama", DEFAULTS, config(stage)
        decay = {**DEFAULTS, "weight_decay": 0.1, "learning_rate": 1e-2}
        yield f"no optimizer in the file, stage {stage}", "gpt2", decay, config(stage)
        if stage >= 2:
            yield f"optimizer of the file, stage {stage}", "gpt2", decay, config(stage, optimizer=ADAMW)
    yield "scheduler of the file", "llama", {**STEPS, "lr_scheduler_type": "cosine"}, \
        config(2, optimizer=ADAMW, scheduler=DECAY_LR)
    yield "accumulation", "llama", \
        {**DEFAULTS, "per_device_train_batch_size": 4, "gradient_accumulation_steps": 2, "learning_rate": 1e-3}, config(2)
    yield "a ratio of warm-up", "llama", {**DEFAULTS, "warmup_steps": 0.3, "learning_rate": 1e-3}, config(0)


def windows(count):
    """Of the test's token file: one more than is trained, as transformers shifts within a sample.

    The first token is no target. Trainer knows that by the class's name, which GPT-2's does not tell: there it would count
    one token too many in each sample.
    """
    ids = [(i * i + 3 * i) % 37 + 20 for i in range(WINDOWS * LENGTH + 1)]
    rows = [ids[i * LENGTH:(i + 1) * LENGTH + 1] for i in range(WINDOWS)][:count]
    return [{"input_ids": row, "labels": [-100, *row[1:]]} for row in rows]


def train(model, flags, ds_config):
    import torch
    from transformers import AutoModelForCausalLM, Trainer, TrainingArguments

    flags = dict(flags)
    samples = windows(flags.pop("max_train_samples", WINDOWS))
    eval_samples = windows(flags.pop("max_eval_samples", WINDOWS))

    class Recording(Trainer):
        """The rate that an update will use, and the step's loss, which is the sum over its micro-batches."""

        def training_step(self, *args, **kwargs):
            if self.state.global_step == len(self.run["losses"]):
                self.run["rates"].append(self.optimizer.param_groups[0]["lr"])
                self.run["losses"].append(0.0)
            loss = super().training_step(*args, **kwargs)
            self.run["losses"][-1] += loss.item()
            return loss

    with tempfile.TemporaryDirectory() as folder:
        args = TrainingArguments(output_dir=folder, use_cpu=True, report_to="none", save_strategy="no", disable_tqdm=True,
                                 train_sampling_strategy="sequential", deepspeed=ds_config, **flags)
        loaded = AutoModelForCausalLM.from_pretrained(TESTS / "model/fixtures" / model, dtype=torch.float32)
        trainer = Recording(loaded, args, train_dataset=samples, eval_dataset=eval_samples)
        trainer.run = {"losses": [], "rates": []}
        trainer.train()
    run = trainer.run
    run["losses"] = [round(loss, 7) for loss in run["losses"]]
    evaluations = [row["eval_loss"] for row in trainer.state.log_history if "eval_loss" in row]
    return {**run, "eval_losses": [round(loss, 7) for loss in evaluations]} if evaluations else run


def in_a_process(port, *run):
    environment = os.environ | {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1",
                                "MASTER_PORT": str(port), "DS_ACCELERATOR": "cpu", "OMP_NUM_THREADS": "1"}
    done = subprocess.run([sys.executable, __file__, json.dumps(run)], env=environment, stdout=subprocess.PIPE, check=True)
    return json.loads(done.stdout.splitlines()[-1])


def main():
    cases, listed = [], list(runs())
    with concurrent.futures.ThreadPoolExecutor(max_workers=3) as pool:
        results = list(pool.map(lambda numbered: in_a_process(29620 + numbered[0], *numbered[1][1:]), enumerate(listed)))
    for (name, model, flags, ds_config), found in zip(listed, results):
        assert len(found["losses"]) == len(found["rates"]) == 12, (name, found)
        cases.append({"name": name, "model": model, "flags": flags, "ds_config": ds_config, **found})
    OUT.write_text("[\n" + ",\n".join(json.dumps(case) for case in cases) + "\n]\n")


if __name__ == "__main__":
    print(json.dumps(train(*json.loads(sys.argv[1])))) if len(sys.argv) > 1 else main()
