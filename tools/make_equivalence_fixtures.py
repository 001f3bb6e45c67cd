#!/usr/bin/env python3
"""Writes tests/equivalence/fixtures: how the tiny checkpoints of tests/model/fixtures train without Zeroth.

Needs torch, transformers, deepspeed, peft, accelerate and bitsandbytes: python tools/make_equivalence_fixtures.py [--run RUN] [NAME...]
Without a NAME all are made anew, else only these models; with a RUN only that one of each.
MODEL.json holds 20 steps at a global batch of 24 rows of 32 tokens, run as one batch:
  fp32, masked (some targets are not trained), cosine (WarmupCosineLR), no_decay (norms and biases): transformers and torch's
  AdamW; adam_l2, sgd, adagrad: torch's; lion and one_cycle: DeepSpeed's; lamb: DeepSpeed's formula (fused_lamb.py);
  adamw_8bit: bitsandbytes'; losses, grad_norms (before clipping) and the rates;
  lora: peft's adapters on every product, from adapters/MODEL, which it writes too: both factors random, as peft saves them;
  qlora, qlora_double: the same over a base that bitsandbytes has quantized to NF4 (not GPT-2); qlora_bf16,
    qlora_double_bf16: from weights of 16 bits, as a run in bf16 has them;
  micro_batch_mean: losses and norms of DeepSpeed with the masked batch in four micro-batches;
  bf16, bf16_masked: losses of DeepSpeed with a bf16 model and fp32 masters, which begin at the rounded weights.
Models with a padding token have fp32 and bf16 only.
loss_scales.json: DeepSpeed's dynamic loss scale over one pattern of overflows.
"""

import argparse
import json
import logging
import os
import pathlib
from functools import partial

os.environ |= {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29611",
               "DS_ACCELERATOR": "cpu"}

import bitsandbytes  # noqa: E402
import deepspeed  # noqa: E402
import torch  # noqa: E402
from deepspeed.ops.lion import DeepSpeedCPULion  # noqa: E402
from deepspeed.runtime import lr_schedules  # noqa: E402
from deepspeed.runtime.fp16 import loss_scaler  # noqa: E402
from fused_lamb import FusedLamb  # noqa: E402
from nf4_weights import dequantized  # noqa: E402
from transformers import AutoModelForCausalLM  # noqa: E402

TESTS = pathlib.Path(__file__).resolve().parent.parent / "tests"
OUT = TESTS / "equivalence/fixtures"
MODELS = ("llama", "qwen3_tied", "gpt2", "llama_pad", "qwen3_pad_tied")
# Fused products, sandwich norms, NoPE layers, experts, ALiBi behind a norm of the embedding, convolutions, delta nets: fp32 alone.
FAMILIES = ("phi3", "glm4", "smollm3", "qwen2_moe", "bloom", "lfm2", "qwen3_5_text", "gemma4_text", "gemma4_moe")
STEPS, GLOBAL_BATCH, LENGTH, VOCAB, UNTRAINED = 20, 24, 32, 64, -100
ADAMW = {"lr": 1e-3, "betas": (0.9, 0.95), "eps": 1e-8, "weight_decay": 0.1}
CLIPPING = 1.0
OPTIMIZERS = {
    "adamw": lambda parameters: torch.optim.AdamW(parameters, **ADAMW),
    "adam_l2": lambda parameters: torch.optim.Adam(parameters, **ADAMW),
    "lion": lambda parameters: DeepSpeedCPULion(parameters, lr=1e-4, betas=(0.9, 0.99), weight_decay=0.1),
    "sgd": lambda parameters: torch.optim.SGD(parameters, lr=0.05, momentum=0.9, nesterov=True, weight_decay=0.1),
    "adagrad": lambda parameters: torch.optim.Adagrad(parameters, lr=1e-2, weight_decay=0.1),
    "adamw_8bit": lambda parameters: adamw_8bit(parameters),
    "lamb": lambda parameters: FusedLamb(parameters, lr=1e-2, betas=(0.9, 0.95), weight_decay=0.1),
}
MIN_8BIT_SIZE = 500  # some of the tiny models' parameters have fewer
ONE_CYCLE = {"cycle_min_lr": 1e-4, "cycle_max_lr": 2e-3, "cycle_first_step_size": 6, "cycle_second_step_size": 8,
             "decay_step_size": 2, "decay_lr_rate": 0.5}
COSINE = {"total_num_steps": 16, "warmup_num_steps": 6, "warmup_min_ratio": 0.1, "cos_min_ratio": 0.05,
          "warmup_type": "linear"}


def adamw_8bit(parameters):
    """bitsandbytes' AdamW8bit. On the CPU it takes the nearest code from a table of 65,536 magnitudes; here it takes the
    nearest one, as on every other device."""
    from bitsandbytes.backends.cpu import ops

    def quantize(values, code, absmax, out, blocksize):
        blocks = torch.nn.functional.pad(values.reshape(-1), (0, -values.numel() % blocksize)).reshape(-1, blocksize)
        absmax.copy_(blocks.abs().amax(dim=1))
        scaled = (blocks * (1 / absmax.clamp(min=1e-38)).unsqueeze(1)).reshape(-1)[:values.numel()]
        out.copy_(torch.bucketize(scaled, (code[:-1] + code[1:]) / 2).to(torch.uint8).reshape(out.shape))

    ops._quant_blockwise_fp32_direct = quantize
    return bitsandbytes.optim.AdamW8bit(parameters, min_8bit_size=MIN_8BIT_SIZE, **ADAMW)


def token(sample, position):
    """tests/equivalence/samples.cpp computes the same: rows with a rule of their own, so that there is something to learn."""
    return (sample * 37 + position * (sample % 5 - 1) + position * position * (sample % 3)) % VOCAB


def is_trained(sample, position):
    """Two rows of eight have no trained target, the others leave out between none and most."""
    return sample % 8 < 6 and (sample * 5 + position * 3) % 11 >= sample % 9


def batch(step, masked):
    samples = range(step * GLOBAL_BATCH, (step + 1) * GLOBAL_BATCH)
    ids = torch.tensor([[token(s, t) for t in range(LENGTH + 1)] for s in samples])
    targets = ids[:, 1:].clone()
    if masked:
        trained = torch.tensor([[is_trained(s, t) for t in range(LENGTH)] for s in samples])
        targets[~trained] = UNTRAINED
    return ids[:, :-1].contiguous(), targets


def loss_of(model, ids, targets):
    logits = model(ids, use_cache=False).logits
    return torch.nn.functional.cross_entropy(logits.flatten(0, 1).float(), targets.flatten(), ignore_index=UNTRAINED)


def load(name):
    return AutoModelForCausalLM.from_pretrained(TESTS / "model/fixtures" / name, dtype=torch.float32).train()


def groups_of(model, no_decay):
    """All parameters, or norms and biases apart without decay."""
    parameters = [p for p in model.parameters() if p.requires_grad]
    if not no_decay:
        return parameters
    return [{"params": [p for p in parameters if p.dim() > 1]},
            {"params": [p for p in parameters if p.dim() <= 1], "weight_decay": 0.0}]


def train_torch(name, **options):
    return train(load(name), **options)


def train(model, masked=False, schedule=None, optimizer="adamw", no_decay=False):
    optimizer = OPTIMIZERS[optimizer](groups_of(model, no_decay))
    schedule = schedule(optimizer) if schedule else None
    run = {"losses": [], "grad_norms": [], "rates": []}
    for step in range(STEPS):
        loss = loss_of(model, *batch(step, masked))
        optimizer.zero_grad()
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_([p for p in model.parameters() if p.requires_grad], CLIPPING)
        run["rates"].append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        if schedule:
            schedule.step()
        run["losses"].append(round(loss.item(), 7))
        run["grad_norms"].append(float(f"{norm.item():.8g}"))
    return run


def train_deepspeed_micro_batches(name, count=4):
    """Bare DeepSpeed: each micro-batch's mean over its own trained tokens, averaged."""
    config = {
        "train_micro_batch_size_per_gpu": GLOBAL_BATCH // count,
        "gradient_accumulation_steps": count,
        "gradient_clipping": CLIPPING,
        "zero_optimization": {"stage": 1},
        "optimizer": {"type": "AdamW", "params": {**ADAMW, "torch_adam": True}},
    }
    model = load(name)
    engine, *_ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config=config)
    run = {"losses": [], "grad_norms": [], "rates": []}
    for step in range(STEPS):
        ids, targets = batch(step, masked=True)
        losses = []
        for micro in zip(ids.chunk(count), targets.chunk(count)):
            loss = loss_of(engine, *micro)
            engine.backward(loss)
            engine.step()
            losses.append(loss.item())
        run["losses"].append(round(sum(losses) / count, 7))
        run["grad_norms"].append(float(f"{float(engine.get_global_grad_norm()):.8g}"))
        run["rates"].append(ADAMW["lr"])
    return run


def train_deepspeed_bf16(name, masked=False):
    config = {
        "train_micro_batch_size_per_gpu": GLOBAL_BATCH,
        "gradient_clipping": CLIPPING,
        "bf16": {"enabled": True},
        "zero_optimization": {"stage": 1},
        "optimizer": {"type": "AdamW", "params": {**ADAMW, "torch_adam": True}},
    }
    model = load(name)
    engine, *_ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config=config)
    losses = []
    for step in range(STEPS):
        loss = loss_of(engine, *batch(step, masked))
        engine.backward(loss)
        engine.step()
        losses.append(round(loss.item(), 7))
    return {"losses": losses}


def train_lora(name):
    from peft import LoraConfig, get_peft_model
    torch.manual_seed(7)
    of_layers = "c_attn|c_proj|c_fc|wpe" if name == "gpt2" else "[qkvo]_proj|gate_proj|up_proj|down_proj"
    config = LoraConfig(task_type="CAUSAL_LM", r=4, lora_alpha=8, target_modules=rf".*\.({of_layers}|wte|embed_tokens)|lm_head")
    model = get_peft_model(load(name), config)
    # With seed 11 an element's first gradient is rounding alone, which Adam's first update makes a part of its rate.
    generator = torch.Generator().manual_seed(12)
    with torch.no_grad():
        for path, parameter in model.named_parameters():
            if "lora_B" in path or "lora_embedding" in path:
                parameter.copy_(torch.randn(parameter.shape, generator=generator) * 0.02)
    folder = OUT / "adapters" / name
    model.peft_config["default"].base_model_name_or_path = name
    model.save_pretrained(folder)
    (folder / "README.md").unlink(missing_ok=True)
    return train(model)


def train_qlora(name, double=False, dtype=torch.float32):
    """The adapter that train_lora() writes, over a base in NF4; fp32, but for a base that is quantized from `dtype`."""
    from peft import PeftModel
    from transformers import BitsAndBytesConfig
    config = BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_use_double_quant=double)
    base = AutoModelForCausalLM.from_pretrained(TESTS / "model/fixtures" / name, dtype=dtype,
                                                quantization_config=config, device_map="cpu")
    base = dequantized(base).float()
    return train(PeftModel.from_pretrained(base, OUT / "adapters" / name, is_trainable=True).train())


def loss_scales():
    overflows = "..x.xx.......xxx.....x.x....."
    args = {"scale_window": 3, "min_scale": 16, "delayed_shift": 2, "consecutive_hysteresis": False}
    scaler = loss_scaler.DynamicLossScaler(init_scale=2.0**6, raise_error_at_min_scale=False, **args)
    used = []
    for mark in overflows:
        used.append(scaler.loss_scale)
        scaler.update_scale(mark == "x")
    return {"initial_scale_power": 6, "window": 3, "hysteresis": 2, "min_scale": 16, "overflows": overflows,
            "scales": used}


def write(name, value):
    (OUT / name).write_text(json.dumps(value, indent=1) + "\n")


def main():
    torch.set_num_threads(1)
    logging.getLogger("DeepSpeed").setLevel(logging.ERROR)
    deepspeed.init_distributed("gloo")
    OUT.mkdir(parents=True, exist_ok=True)
    parser = argparse.ArgumentParser()
    parser.add_argument("--run")
    parser.add_argument("names", nargs="*")
    wanted = parser.parse_args()
    if not wanted.names and not wanted.run:
        write("loss_scales.json", loss_scales())
    for name in wanted.names or MODELS + FAMILIES:
        makers = {"fp32": train_torch} if name in FAMILIES else {"fp32": train_torch, "bf16": train_deepspeed_bf16}
        if "_pad" not in name and name not in FAMILIES:
            makers |= {
                "masked": partial(train_torch, masked=True),
                "cosine": partial(train_torch, schedule=lambda optimizer: lr_schedules.WarmupCosineLR(optimizer, **COSINE)),
                "no_decay": partial(train_torch, no_decay=True),
                "bf16_masked": partial(train_deepspeed_bf16, masked=True),
            }
        if name == "llama":
            makers |= {kind: partial(train_torch, optimizer=kind) for kind in ("adam_l2", "lion", "sgd", "adagrad", "lamb", "adamw_8bit")}
            makers["one_cycle"] = partial(train_torch, schedule=lambda optimizer: lr_schedules.OneCycle(optimizer, **ONE_CYCLE))
            makers["micro_batch_mean"] = train_deepspeed_micro_batches
        if "_pad" not in name and name not in FAMILIES:
            makers["lora"] = train_lora
            if name != "gpt2":
                makers |= {"qlora": train_qlora, "qlora_double": partial(train_qlora, double=True)}
                makers |= {kind + "_bf16": partial(makers[kind], dtype=torch.bfloat16) for kind in ("qlora", "qlora_double")}
        runs = {} if not wanted.run else json.loads((OUT / (name + ".json")).read_text())
        runs |= {kind: make(name) for kind, make in makers.items() if wanted.run in (None, kind)}
        write(name + ".json", runs)
        print(name, {kind: (run["losses"][0], run["losses"][-1]) for kind, run in runs.items()})


if __name__ == "__main__":
    main()
