"""Another trainer on the same model and tokens, for `tools/gpu_check`: needs torch, transformers and, for its part, deepspeed.

usage: peer.py ddp|fsdp2|deepspeed --model DIR --batch N --seq N --dtype fp32|bf16 --steps N --result FILE [--config FILE]

DIR has config.json and tokens.bin; without weights in it, random ones are trained. One rank. FILE gets losses, seconds of
each step and the peak of the GPU's memory.
"""
import argparse
import contextlib
import json
import os
import pathlib
import time

parser = argparse.ArgumentParser()
parser.add_argument("trainer", choices=["ddp", "fsdp2", "deepspeed"])
for name in ("model", "result", "config"):
    parser.add_argument(f"--{name}", type=pathlib.Path)
for name in ("batch", "seq", "steps"):
    parser.add_argument(f"--{name}", type=int)
parser.add_argument("--dtype", choices=["fp32", "bf16"])
options = parser.parse_args()
for name, value in {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1",
                    "MASTER_PORT": str(20000 + os.getpid() % 20000)}.items():
    os.environ[name] = value

import numpy  # noqa: E402
import torch  # noqa: E402
import transformers  # noqa: E402

WORKING = torch.bfloat16 if options.dtype == "bf16" else torch.float32
ADAM = {"lr": 1e-4, "betas": (0.9, 0.95), "weight_decay": 0.1}
tokens = torch.from_numpy(numpy.fromfile(options.model / "tokens.bin", dtype=numpy.uint16).astype(numpy.int64))


def make_model(dtype):
    if list(options.model.glob("*.safetensors")):
        return transformers.AutoModelForCausalLM.from_pretrained(options.model, dtype=dtype, attn_implementation="sdpa")
    config = transformers.AutoConfig.from_pretrained(options.model)
    return transformers.AutoModelForCausalLM.from_config(config, dtype=dtype, attn_implementation="sdpa")


def batch(step):
    """Samples follow each other as in a run without shuffling."""
    count = (len(tokens) - 1) // options.seq
    starts = [(step * options.batch + row) % count * options.seq for row in range(options.batch)]
    rows = torch.stack([tokens[start : start + options.seq + 1] for start in starts]).cuda()
    return rows[:, :-1], rows[:, 1:]


def loss_of(model, step):
    inputs, targets = batch(step)
    logits = model(input_ids=inputs, use_cache=False).logits
    return torch.nn.functional.cross_entropy(logits.float().flatten(0, 1), targets.flatten())


def with_deepspeed():
    import deepspeed
    config = json.loads(options.config.read_text())
    config.pop("wall_clock_breakdown", None)
    for place in ("offload_optimizer", "offload_param"):
        config["zero_optimization"].get(place, {}).pop("step", None)
    deepspeed.init_distributed()
    whole = deepspeed.zero.Init(config_dict_or_path=config) if config["zero_optimization"]["stage"] == 3 else None
    with whole or contextlib.nullcontext():
        model = make_model(WORKING if whole else torch.float32)
    engine, *_ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config=config)

    def step(number):
        loss = loss_of(engine, number)
        engine.backward(loss)
        engine.step()
        return loss

    return step


def with_torch():
    torch.distributed.init_process_group("nccl")
    model = make_model(torch.float32).cuda()
    if options.trainer == "ddp":
        model = torch.nn.parallel.DistributedDataParallel(model)
    else:
        from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
        policy = MixedPrecisionPolicy(param_dtype=WORKING, reduce_dtype=torch.float32)
        for layer in model.model.layers:
            fully_shard(layer, mp_policy=policy)
        fully_shard(model, mp_policy=policy)
    optimizer = torch.optim.AdamW(model.parameters(), fused=True, **ADAM)

    def step(number):
        mixed = options.trainer == "ddp" and options.dtype == "bf16"
        with torch.autocast("cuda", torch.bfloat16, enabled=mixed):
            loss = loss_of(model, number)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        return loss

    return step


torch.cuda.set_device(0)
train = with_deepspeed() if options.trainer == "deepspeed" else with_torch()
losses, seconds = [], []
for number in range(options.steps):
    begin = time.monotonic()
    losses.append(train(number).item())
    torch.cuda.synchronize()
    seconds.append(time.monotonic() - begin)
options.result.write_text(json.dumps({"losses": losses, "step_s": seconds,
                                      "peak_gpu_mib": torch.cuda.max_memory_allocated() / 2**20}))
