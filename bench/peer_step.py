"""One run of a trainer that people use today, for side_by_side.py: DDP, FSDP2 or DeepSpeed on a Hugging Face checkpoint.

Started by torchrun or deepspeed. Sample i is tokens[i * seq : (i + 1) * seq + 1]; step s takes samples s * B to (s + 1) * B of
a global batch B, dealt by rank, then row: the order in which `finetune --no-shuffle` runs them. Rank 0 prints "RESULT {...}".
"""
import argparse
import json
import os
import resource
import statistics
import sys
import time

import numpy as np
import torch
import torch.distributed as dist
from transformers import AutoModelForCausalLM

ADAMW = {"lr": 1e-3, "betas": (0.9, 0.95), "eps": 1e-8, "weight_decay": 0.1}
DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--engine", choices=["ddp", "fsdp2", "deepspeed"], required=True)
    parser.add_argument("--dtype", choices=DTYPES, required=True)
    parser.add_argument("--model", required=True)
    parser.add_argument("--tokens", required=True, help="uint16 ids")
    parser.add_argument("--seq", type=int, required=True)
    parser.add_argument("--rows", type=int, required=True, help="of a micro-batch")
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--config", help="DeepSpeed's ds_config.json")
    parser.add_argument("--launched-at", type=float, required=True, help="when the launcher was started, seconds since the epoch")
    parser.add_argument("--local_rank", type=int, default=0)
    return parser.parse_args()


class Samples:
    def __init__(self, args, rank, world):
        self.tokens = np.fromfile(args.tokens, dtype=np.uint16).astype(np.int64)
        self.args, self.rank, self.world = args, rank, world

    def batch(self, step):
        first = (step * self.world + self.rank) * self.args.rows
        count = (len(self.tokens) - 1) // self.args.seq
        starts = [i % count * self.args.seq for i in range(first, first + self.args.rows)]
        rows = torch.from_numpy(np.stack([self.tokens[start : start + self.args.seq + 1] for start in starts]))
        return rows[:, :-1].contiguous(), rows[:, 1:].contiguous()


def loss_of(model, inputs, targets):
    logits = model(inputs, use_cache=False).logits
    return torch.nn.functional.cross_entropy(logits.flatten(0, 1).float(), targets.flatten())


class DeepSpeedStep:
    def __init__(self, args, model):
        import deepspeed

        with open(args.config, encoding="utf-8") as file:
            config = json.load(file)
        self.engine = deepspeed.initialize(model=model, model_parameters=model.parameters(), config=config)[0]

    def __call__(self, inputs, targets):
        loss = loss_of(self.engine, inputs, targets)
        self.engine.backward(loss)
        self.engine.step()
        return loss.item()


class TorchStep:
    def __init__(self, args, model):
        dist.init_process_group("gloo")
        self.autocast = args.engine == "ddp" and args.dtype != "fp32"
        self.dtype = DTYPES[args.dtype]
        if args.engine == "ddp":
            self.model = torch.nn.parallel.DistributedDataParallel(model)
            self.optimizer = torch.optim.AdamW(self.model.parameters(), fused=True, **ADAMW)
        else:
            self.model = self.sharded(model)
            self.optimizer = torch.optim.AdamW(self.model.parameters(), foreach=True, **ADAMW)

    def sharded(self, model):
        from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

        mixed = self.dtype != torch.float32
        policy = MixedPrecisionPolicy(param_dtype=self.dtype, reduce_dtype=torch.float32) if mixed else MixedPrecisionPolicy()
        for layer in model.model.layers:
            fully_shard(layer, mp_policy=policy)
        return fully_shard(model, mp_policy=policy)

    def __call__(self, inputs, targets):
        with torch.autocast("cpu", dtype=self.dtype, enabled=self.autocast):
            loss = loss_of(self.model, inputs, targets)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        self.optimizer.zero_grad()
        return loss.item()


def main():
    args = parse()
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    model = AutoModelForCausalLM.from_pretrained(args.model, dtype=torch.float32).train()
    step = (DeepSpeedStep if args.engine == "deepspeed" else TorchStep)(args, model)
    samples = Samples(args, rank, world)
    ends, losses = [], []
    for number in range(args.steps):
        loss = torch.tensor([step(*samples.batch(number))], dtype=torch.float64)
        ends.append(time.time() - args.launched_at)
        dist.all_reduce(loss)
        losses.append(loss.item() / world)
    peak = torch.tensor([resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024])
    dist.all_reduce(peak, op=dist.ReduceOp.MAX)
    if rank == 0:
        step_s = statistics.median(after - before for before, after in zip(ends, ends[1:]))
        result = {"step_s": step_s, "first_step_s": ends[0], "peak_mib": int(peak), "losses": losses}
        print("RESULT " + json.dumps(result), flush=True)


if __name__ == "__main__":
    sys.exit(main())
