#!/usr/bin/env python3
"""Writes tests/optim/fixtures/ with DeepSpeed's schedules and loss scalers and torch's Adam.

Needs torch and deepspeed: python tools/make_optim_fixtures.py
"""

import itertools
import json
import logging
import math
import pathlib
import random

import torch
from deepspeed.runtime import lr_schedules
from deepspeed.runtime.fp16 import loss_scaler

OUT = pathlib.Path(__file__).resolve().parent.parent / "tests" / "optim" / "fixtures"


def write(name, cases):
    lines = ",\n".join(json.dumps(case) for case in cases)
    (OUT / name).write_text(f"[\n{lines}\n]\n")


# -- schedules --------------------------------------------------------------------------------


def seen_rates(kind, optimizer_lr, params, updates=60):
    """The group's rate at each optimizer step, in the order of DeepSpeed's engine."""
    weight = torch.nn.Parameter(torch.zeros(1))
    weight.grad = torch.zeros(1)
    optimizer = torch.optim.AdamW([weight], lr=optimizer_lr)
    schedule = getattr(lr_schedules, kind)(optimizer, **params) if kind != "Constant" else None
    rates = []
    for _ in range(updates):
        rates.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        if schedule:
            schedule.step()
    return rates


def schedule_cases():
    yield "Constant", {}
    for warmup_type in ("log", "linear"):
        for steps, low in itertools.product((1, 2, 10), (0.0, 1e-5)):
            warmup = {"warmup_num_steps": steps, "warmup_type": warmup_type}
            rates = {"warmup_min_lr": low, "warmup_max_lr": 2e-4}
            yield "WarmupLR", {**warmup, **rates}
            # The end lies inside, at the warm-up's end, before it, and beyond the 60 updates.
            for total in (30, steps, steps - 1, 1000):
                yield "WarmupDecayLR", {**warmup, **rates, "total_num_steps": total}
        for steps, total in ((1, 30), (2, 2), (10, 40), (10, 10), (10, 5), (10, 1000)):
            for low, end in ((0.0, 1e-4), (0.1, 0.2)):
                yield "WarmupCosineLR", {
                    "total_num_steps": total,
                    "warmup_num_steps": steps,
                    "warmup_type": warmup_type,
                    "warmup_min_ratio": low,
                    "cos_min_ratio": end,
                }


def schedules(optimizer_lr=3e-4):
    for kind, params in schedule_cases():
        yield {
            "kind": kind,
            "optimizer_lr": optimizer_lr,
            "params": params,
            "rates": seen_rates(kind, optimizer_lr, params),
        }


# -- loss scales ------------------------------------------------------------------------------


def overflow_patterns():
    rng = random.Random(1)
    yield "none", [False] * 40
    yield "all", [True] * 24
    yield "one in three", [i % 3 == 0 for i in range(60)]
    yield "one in seven", [i % 7 == 3 for i in range(60)]
    yield "bursts", [i % 16 < 3 for i in range(80)]
    yield "random", [rng.random() < 0.3 for _ in range(200)]
    yield "random, mostly overflows", [rng.random() < 0.7 for _ in range(100)]


def loss_scales():
    for (pattern, overflows), window, hysteresis, consecutive, (power, floor) in itertools.product(
        overflow_patterns(), (1, 4), (1, 2, 3), (False, True), ((16, 1), (4, 2), (0, 4))
    ):
        args = dict(init_scale=2.0**power, scale_window=window, min_scale=floor,
                    delayed_shift=hysteresis, consecutive_hysteresis=consecutive)
        forgiving = loss_scaler.DynamicLossScaler(**args, raise_error_at_min_scale=False)
        strict = loss_scaler.DynamicLossScaler(**args)
        scales, stops_at = [], None
        for step, overflow in enumerate(overflows):
            forgiving.update_scale(overflow)
            scales.append(forgiving.loss_scale)
            if stops_at is None:
                try:
                    strict.update_scale(overflow)
                except Exception:
                    stops_at = step
        yield {
            "pattern": pattern,
            "overflows": "".join("x" if overflow else "." for overflow in overflows),
            "initial_scale_power": power,
            "window": window,
            "hysteresis": hysteresis,
            "consecutive_hysteresis": consecutive,
            "min_scale": floor,
            "log2_scales": [int(math.log2(scale)) for scale in scales],
            "stops_at": stops_at,
        }


# -- Adam -------------------------------------------------------------------------------------


def initial(count):
    """Exact in fp32, as gradient() is: the C++ test computes the same numbers."""
    return torch.tensor([((i * 37) % 101 - 50) / 256 for i in range(count)])


def gradient(count, update):
    return torch.tensor([((i * 7919 + update * 104729) % 2003 - 1001) / 1024 for i in range(count)])


def adam_case(kind, count, weight_decay, grad_factor, updates=50):
    lr, betas, eps = 1e-3, (0.9, 0.98), 1e-6
    master = torch.nn.Parameter(initial(count))
    optimizer = getattr(torch.optim, kind)(
        [master], lr=lr, betas=betas, eps=eps, weight_decay=weight_decay, foreach=False
    )
    kept = {}
    for update in range(1, updates + 1):
        master.grad = gradient(count, update) * grad_factor
        optimizer.step()
        if update in (1, 2, updates):
            kept[update] = [float(f"{x:.9g}") for x in master.tolist()]
    return {"kind": kind, "lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay,
            "grad_factor": grad_factor, "masters": kept}


def adam():
    for kind, count, weight_decay in itertools.product(("AdamW", "Adam"), (1, 7, 100), (0.0, 0.1)):
        for grad_factor in (1.0, 0.3):
            yield adam_case(kind, count, weight_decay, grad_factor)


def main():
    # Their classes log through a distributed rank that does not exist here.
    loss_scaler.dist.get_rank = lambda: 1
    logging.getLogger("DeepSpeed").setLevel(logging.ERROR)
    OUT.mkdir(parents=True, exist_ok=True)
    write("schedules.json", schedules())
    write("loss_scales.json", loss_scales())
    write("adam.json", adam())


if __name__ == "__main__":
    main()
