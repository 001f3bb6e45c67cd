#!/usr/bin/env python3
"""Writes tests/optim/fixtures/: schedules, loss scales and Lion by DeepSpeed; Adam, SGD and Adagrad by torch; Lamb by the formula
of DeepSpeed's kernel (fused_lamb.py). Schedules of transformers: make_hf_schedule_fixtures.py.

Needs torch and deepspeed, and a C++ compiler for DeepSpeed's Lion: python tools/make_optim_fixtures.py
"""

import functools
import itertools
import json
import logging
import math
import os
import pathlib
import random

os.environ["DS_ACCELERATOR"] = "cpu"

import torch  # noqa: E402
from deepspeed.ops.lion import DeepSpeedCPULion  # noqa: E402
from deepspeed.runtime import lr_schedules  # noqa: E402
from deepspeed.runtime.fp16 import loss_scaler  # noqa: E402
from fused_lamb import FusedLamb  # noqa: E402

OUT = pathlib.Path(__file__).resolve().parent.parent / "tests" / "optim" / "fixtures"


def write(name, cases):
    lines = ",\n".join(json.dumps(case) for case in cases)
    (OUT / name).write_text(f"[\n{lines}\n]\n")


# -- schedules --------------------------------------------------------------------------------


def make_schedule(kind, optimizer, params):
    return getattr(lr_schedules, kind)(optimizer, **params) if kind != "Constant" else None


def seen_values(kind, optimizer_lr, params, updates=60):
    """The group's rate and betas at each optimizer step, in the order of DeepSpeed's engine."""
    weight = torch.nn.Parameter(torch.zeros(1))
    weight.grad = torch.zeros(1)
    optimizer = torch.optim.AdamW([weight], lr=optimizer_lr)
    schedule = make_schedule(kind, optimizer, params)
    rates, betas = [], []
    for _ in range(updates):
        rates.append(optimizer.param_groups[0]["lr"])
        betas.append(optimizer.param_groups[0]["betas"])
        optimizer.step()
        if schedule:
            schedule.step()
    return rates, betas


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


def one_cycle_cases():
    rates = {"cycle_min_lr": 1e-5, "cycle_max_lr": 2e-4}
    decay = {"decay_step_size": 5, "decay_lr_rate": 0.5, "decay_mom_rate": 0.01}
    # The cycle ends inside the 60 updates, at their end, and beyond them.
    for first, second in ((10, None), (10, 20), (7, 3), (1, 1), (20, 0), (30, 30), (200, 100)):
        sizes = {"cycle_first_step_size": first}
        if second is not None:
            sizes["cycle_second_step_size"] = second
        for more in ({}, decay):
            yield "OneCycle", {**rates, **sizes, **more}
        yield "OneCycle", {**rates, **sizes, "cycle_first_stair_count": 3}
    sizes = {"cycle_first_step_size": 9, "cycle_second_step_size": 12}
    yield "OneCycle", {**rates, **sizes, "cycle_first_stair_count": 4, "cycle_second_stair_count": 5}
    yield "OneCycle", {**rates, **sizes, **decay, "cycle_min_mom": 0.6, "cycle_max_mom": 0.95}
    yield "OneCycle", {**rates, **sizes, "cycle_momentum": False}
    yield "OneCycle", {**rates, **sizes, "decay_step_size": 4, "decay_lr_rate": 1.0}


def range_test_cases():
    for size, rate, staircase in itertools.product((1, 7, 50, 2000), (0.5, 5.0), (False, True)):
        yield "LRRangeTest", {
            "lr_range_test_min_lr": 1e-5,
            "lr_range_test_step_size": size,
            "lr_range_test_step_rate": rate,
            "lr_range_test_staircase": staircase,
        }


def schedules(optimizer_lr=3e-4):
    for kind, params in itertools.chain(schedule_cases(), one_cycle_cases(), range_test_cases()):
        rates, betas = seen_values(kind, optimizer_lr, params)
        case = {"kind": kind, "optimizer_lr": optimizer_lr, "params": params, "rates": rates}
        yield {**case, "betas": betas} if kind == "OneCycle" else case


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


# -- optimizers -------------------------------------------------------------------------------


def initial(count):
    """Exact in fp32, as gradient() is: the C++ test computes the same numbers."""
    return torch.tensor([((i * 37) % 101 - 50) / 256 for i in range(count)])


def gradient(count, update):
    return torch.tensor([((i * 7919 + update * 104729) % 2003 - 1001) / 1024 for i in range(count)])


def path(kind, make, count, grad_factor, params, lr=1e-3, updates=50):
    master = torch.nn.Parameter(initial(count))
    optimizer = make([master], lr=lr, **params)
    kept = {}
    for update in range(1, updates + 1):
        master.grad = gradient(count, update) * grad_factor
        optimizer.step()
        if update in (1, 2, updates):
            kept[update] = [float(f"{x:.9g}") for x in master.tolist()]
    return {"kind": kind, "lr": lr, "params": params, "grad_factor": grad_factor, "masters": kept}


class UncorrectedAdam(torch.optim.Optimizer):
    """DeepSpeed's Adam (FusedAdam, CPUAdam) with bias_correction false, in the order of torch.optim's operators."""

    def __init__(self, params, lr, betas, eps, weight_decay, decoupled, bias_correction):
        super().__init__(params, dict(lr=lr, betas=betas, eps=eps, decay=weight_decay, decoupled=decoupled))
        assert not bias_correction

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for p in group["params"]:
                self.update(p, p.grad, group)

    def update(self, p, grad, group):
        state, (beta1, beta2) = self.state[p], group["betas"]
        if not state:
            state |= {"exp_avg": torch.zeros_like(p), "exp_avg_sq": torch.zeros_like(p)}
        if group["decoupled"]:
            p.mul_(1 - group["lr"] * group["decay"])
        else:
            grad = grad.add(p, alpha=group["decay"])
        first = state["exp_avg"].lerp_(grad, 1 - beta1)
        second = state["exp_avg_sq"].mul_(beta2).addcmul_(grad, grad, value=1 - beta2)
        p.addcdiv_(first, second.sqrt().add_(group["eps"]), value=-group["lr"])


def adam():
    for kind, count, factor in itertools.product(("AdamW", "Adam"), (1, 7, 100), (1.0, 0.3)):
        params = {"betas": (0.9, 0.98), "eps": 1e-6, "weight_decay": 0.1, "bias_correction": False}
        make = functools.partial(UncorrectedAdam, decoupled=kind == "AdamW")
        yield path(kind, make, count, factor, params)
    for kind, count, decay, factor in itertools.product(("AdamW", "Adam"), (1, 7, 100), (0.0, 0.1), (1.0, 0.3)):
        params = {"betas": (0.9, 0.98), "eps": 1e-6, "weight_decay": decay}
        yield path(kind, getattr(torch.optim, kind), count, factor, params)


def lion():
    for count, decay, betas in itertools.product((1, 7, 100), (0.0, 0.1), ((0.9, 0.99), (0.95, 0.98))):
        yield path("Lion", DeepSpeedCPULion, count, 1.0, {"betas": betas, "weight_decay": decay})


def sgd():
    for decay, factor, (momentum, dampening, nesterov) in itertools.product(
        (0.0, 0.1), (1.0, 0.3), ((0.0, 0.0, False), (0.9, 0.0, False), (0.9, 0.2, False), (0.9, 0.0, True))
    ):
        params = {"momentum": momentum, "dampening": dampening, "nesterov": nesterov, "weight_decay": decay}
        yield path("SGD", torch.optim.SGD, 37, factor, params)


def adagrad():
    for decay, lr_decay, start, factor in itertools.product((0.0, 0.1), (0.0, 0.05), (0.0, 0.5), (1.0, 0.3)):
        params = {"lr_decay": lr_decay, "initial_accumulator_value": start, "eps": 1e-10, "weight_decay": decay}
        yield path("Adagrad", torch.optim.Adagrad, 37, factor, params, lr=1e-2)


def lamb():
    decayed = {"betas": (0.9, 0.98), "eps": 1e-6, "weight_decay": 0.1}
    for more in ({}, {"bias_correction": False}, {"eps_inside_sqrt": True}, {"max_coeff": 0.05}, {"min_coeff": 0.9}):
        for count, factor in itertools.product((1, 7, 100), (1.0, 0.3)):
            yield path("Lamb", FusedLamb, count, factor, {**decayed, **more})
    yield path("Lamb", FusedLamb, 37, 1.0, {}, lr=1e-2)  # DeepSpeed's defaults


def main():
    # Their classes log through a distributed rank that does not exist here.
    loss_scaler.dist.get_rank = lambda: 1
    logging.getLogger("DeepSpeed").setLevel(logging.ERROR)
    OUT.mkdir(parents=True, exist_ok=True)
    write("schedules.json", schedules())
    write("loss_scales.json", loss_scales())
    write("adam.json", adam())
    write("lion.json", lion())
    write("sgd.json", sgd())
    write("adagrad.json", adagrad())
    write("lamb.json", lamb())


if __name__ == "__main__":
    main()
