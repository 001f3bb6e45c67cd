#!/usr/bin/env python3
"""The fused AdamW step of build/bin/host_update beside DeepSpeed's passes over arrays of the same size, in turns.

usage: OMP_NUM_THREADS=N host_update.py PROGRAM [MILLIONS [ROUNDS]]   needs the packages deepspeed, torch and bitsandbytes.

What an update is in DeepSpeed 0.19.8 with offload_optimizer on the CPU (runtime/zero/stage_1_and_2.py and stage3.py:
unscale_and_clip_grads, _optimizer_step, the copy after it): the fp32 gradient is multiplied by the factor,
DeepSpeedCPUAdam steps, the fp32 partition is copied into the 16-bit one. A bf16 gradient is widened before; on a GPU
that is done there, and the link carries four bytes. Copies to and from a GPU are in neither side. With moments of 8 bits the
other side is the step of bitsandbytes' AdamW8bit on the CPU, without factor and copy.
"""
import re
import statistics
import subprocess
import sys
import time

import bitsandbytes
import torch
from deepspeed.ops.adam import DeepSpeedCPUAdam

PASSES = ("widen", "multiply", "step", "copy")


class DeepSpeedUpdate:
    def __init__(self, count):
        self.master = torch.nn.Parameter((torch.arange(count) % 251 - 125).float() / 1024)
        self.wire = -self.master.detach().to(torch.bfloat16)
        self.master.grad = self.wire.float()
        self.working = torch.empty(count, dtype=torch.bfloat16)
        self.adam = DeepSpeedCPUAdam([self.master], lr=1e-4, weight_decay=0.01)
        self.combined_scale = torch.tensor(1 / 0.37)

    @torch.no_grad()
    def seconds(self):
        """Of each pass."""
        work = (
            lambda: self.master.grad.copy_(self.wire),
            lambda: self.master.grad.data.mul_(1.0 / self.combined_scale),
            self.adam.step,
            lambda: self.working.data.copy_(self.master.data),
        )
        times = {}
        for name, run in zip(PASSES, work):
            start = time.perf_counter()
            run()
            times[name] = time.perf_counter() - start
        return times


def zeroth_rates(program, millions):
    """Elements/s by kind."""
    command = [program, str(millions), "3"]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    found = re.findall(r"(fp32 gradient|bf16 gradient|8-bit moments).*?([\d.]+) M elements/s", said)
    return {kind: float(rate) * 1e6 for kind, rate in found}


def main():
    program = sys.argv[1]
    millions = int(sys.argv[2]) if len(sys.argv) > 2 else 32
    rounds = int(sys.argv[3]) if len(sys.argv) > 3 else 9
    update = DeepSpeedUpdate(millions * 1_000_000)
    update.seconds()  # makes the states
    passes = {name: [] for name in PASSES}
    kinds = ("fp32 gradient", "bf16 gradient", "8-bit moments")
    theirs, ours = {kind: [] for kind in kinds}, {kind: [] for kind in kinds}
    adam_8bit = bitsandbytes.optim.AdamW8bit([update.master], lr=1e-4, weight_decay=0.01)
    adam_8bit.step()
    for _ in range(rounds):
        for _ in range(3):
            times = update.seconds()
            for name in PASSES:
                passes[name].append(times[name])
            total = sum(times.values())
            theirs["fp32 gradient"].append(millions * 1e6 / (total - times["widen"]))
            theirs["bf16 gradient"].append(millions * 1e6 / total)
        start = time.perf_counter()
        adam_8bit.step()
        theirs["8-bit moments"].append(millions * 1e6 / (time.perf_counter() - start))
        for kind, rate in zeroth_rates(program, millions).items():
            ours[kind].append(rate)
    print(
        f"{torch.get_num_threads()} threads, {millions}M elements; DeepSpeed's passes in ms: "
        + ", ".join(f"{name} {statistics.median(passes[name]) * 1e3:.1f}" for name in PASSES)
    )
    for kind in kinds:
        peer, own = statistics.median(theirs[kind]), statistics.median(ours[kind])
        print(f"{kind}: peer {peer / 1e6:.0f}, Zeroth {own / 1e6:.0f} M elements/s, ratio {own / peer:.2f}")


main()
