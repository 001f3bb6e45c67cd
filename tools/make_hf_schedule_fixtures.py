"""Writes tests/optim/fixtures/hf_schedules.json: the rates that each schedule of transformers gives its optimizer, and
tests/optim/fixtures/plateau.json: those of torch's ReduceLROnPlateau after each of a list of evaluations.

Needs torch 2.11 and transformers 5.17: python tools/make_hf_schedule_fixtures.py
"""

import itertools
import json
import pathlib
import random

import torch
from transformers import get_scheduler

FIXTURES = pathlib.Path(__file__).parent.parent / "tests/optim/fixtures"
LR = 3e-4
UPDATES = 60


def new_optimizer():
    return torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=LR)


def rates_of(kind, warmup, total, kwargs):
    """The rate of each update up to the end of the run."""
    optimizer = new_optimizer()
    schedule = get_scheduler(kind, optimizer, num_warmup_steps=warmup, num_training_steps=total,
                             scheduler_specific_kwargs=kwargs)
    rates = []
    for _ in range(min(UPDATES, total)):
        rates.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        schedule.step()
    return rates


ARGUMENTS = {
    "constant": [{}],
    "constant_with_warmup": [{}],
    "linear": [{}],
    "cosine": [{}, {"num_cycles": 1.5}],
    "cosine_with_restarts": [{}, {"num_cycles": 3}],
    "polynomial": [{}, {"lr_end": 1e-5, "power": 2.5}, {"lr_end": 0.0, "power": 0.5}],
    "inverse_sqrt": [{}, {"timescale": 25}],
    "cosine_with_min_lr": [{"min_lr": 1e-5}, {"min_lr_rate": 0.1, "num_cycles": 1.0}],
    "cosine_warmup_with_min_lr": [{"min_lr": 1e-5}, {"min_lr_rate": 0.1, "warmup_lr_rate": 0.05}],
    "warmup_stable_decay": [
        {"num_decay_steps": 8},
        {"num_decay_steps": 15, "decay_type": "linear", "min_lr_ratio": 0.1},
        {"num_decay_steps": 15, "decay_type": "1-sqrt", "warmup_type": "cosine", "min_lr_ratio": 0.05},
        {"num_decay_steps": 5, "num_stable_steps": 7, "warmup_type": "1-sqrt", "num_cycles": 1.5},
    ],
}


def schedules():
    for (kind, several), (warmup, total) in itertools.product(
        ARGUMENTS.items(), ((0, 60), (1, 60), (4, 12), (10, 40), (10, 1000), (58, 60))
    ):
        for kwargs in several:
            yield {
                "type": kind,
                "lr": LR,
                "warmup_steps": warmup,
                "total_steps": total,
                "kwargs": kwargs,
                "rates": rates_of(kind, warmup, total, kwargs),
            }


def losses(seed):
    """Falling at first, then about level, then rising."""
    draw = random.Random(seed)
    return [round(4 * 0.9**i + 0.02 * draw.random() + (0.01 * (i - 30) if i > 30 else 0), 6) for i in range(UPDATES)]


def plateaus():
    several = [
        {},
        {"patience": 2},
        {"patience": 0, "factor": 0.5},
        {"patience": 1, "cooldown": 3, "factor": 0.3},
        {"patience": 1, "min_lr": 1e-4},
        {"patience": 0, "eps": 1e-5},
        {"patience": 3, "threshold": 0.01, "threshold_mode": "abs"},
        {"patience": 2, "threshold": 0.05},
        {"patience": 1, "mode": "max"},
        {"patience": 1, "mode": "max", "threshold_mode": "abs", "threshold": 0.02},
    ]
    for seed, kwargs in enumerate(several):
        optimizer = new_optimizer()
        schedule = get_scheduler("reduce_lr_on_plateau", optimizer, scheduler_specific_kwargs=kwargs)
        evaluations, rates = losses(seed), []
        if not kwargs:
            evaluations[20] = float("nan")
        for loss in evaluations:
            schedule.step(loss)
            rates.append(optimizer.param_groups[0]["lr"])
        evaluations = [None if loss != loss else loss for loss in evaluations]
        yield {"lr": LR, "kwargs": kwargs, "losses": evaluations, "rates": rates}


def write(name, cases):
    lines = ",\n".join(json.dumps(case) for case in cases)
    (FIXTURES / name).write_text(f"[\n{lines}\n]\n")


if __name__ == "__main__":
    write("hf_schedules.json", schedules())
    write("plateau.json", plateaus())
