#!/usr/bin/env python3
"""Writes tests/configs/fixtures/deepspeed_keys.json: every key that DeepSpeed knows in a ds_config.json, with its default.

usage: make_config_fixtures.py

Needs deepspeed; CPU only. DeepSpeed reads a recording dictionary in place of a file: what it asks for is a key. Sections that it
reads into pydantic models are asked of these, with their other names; parameters of optimizers and schedulers are those of their
constructors. A default that no file could say is left out.
"""
import inspect
import json
import os
import pathlib
import typing

os.environ.update(
    DS_ACCELERATOR="cpu", RANK="0", WORLD_SIZE="1", LOCAL_RANK="0", MASTER_ADDR="127.0.0.1", MASTER_PORT="29518"
)

import deepspeed
import torch
from deepspeed.comm.config import CommsLoggerConfig
from deepspeed.monitor.config import DeepSpeedMonitorConfig
from deepspeed.ops.adam import DeepSpeedCPUAdam, FusedAdam
from deepspeed.ops.lamb import FusedLamb
from deepspeed.ops.lion import DeepSpeedCPULion, FusedLion
from deepspeed.runtime import config, lr_schedules, precision_config
from deepspeed.runtime.engine import DeepSpeedEngine
from deepspeed.runtime.tensor_parallel.config import TPTrainingConfig
from deepspeed.runtime.zero.config import DeepSpeedZeroConfig
from deepspeed.utils.config import DeepSpeedThroughputTimerConfig
from pydantic import BaseModel

OUT = pathlib.Path(__file__).resolve().parent.parent / "tests/configs/fixtures/deepspeed_keys.json"
NONE_IN_JSON = object()

MODELS = {
    "": DeepSpeedMonitorConfig,
    "bf16": precision_config.DeepSpeedBF16Config,
    "bfloat16": precision_config.DeepSpeedBF16Config,
    "comms_logger": CommsLoggerConfig,
    "compile": config.CompileConfig,
    "fp16": precision_config.DeepSpeedFP16Config,
    "hybrid_engine": config.HybridEngineConfig,
    "tensor_parallel": TPTrainingConfig,
    "timers.throughput": DeepSpeedThroughputTimerConfig,
    "weight_quantization": config.WeightQuantConfig,
    "zero_optimization": DeepSpeedZeroConfig,
}
# Sections that are read key by key.
SECTIONS = {
    "activation_checkpointing",
    "aio",
    "autotuning",
    "autotuning.model_info",
    "checkpoint",
    "checkpoint.parallel_write",
    "checkpoint.writer",
    "data_efficiency",
    "data_efficiency.data_routing",
    "data_efficiency.data_routing.random_ltd",
    "data_efficiency.data_sampling",
    "data_efficiency.data_sampling.curriculum_learning",
    "data_efficiency.data_sampling.dynamic_batching",
    "data_types",
    "expert_parallel",
    "flops_profiler",
    "optimizer",
    "scheduler",
    "timers",
    "torch_autocast",
}


def as_json(value):
    if value is inspect.Parameter.empty or isinstance(value, dict | BaseModel):
        return NONE_IN_JSON
    try:
        return json.loads(json.dumps(getattr(value, "value", value)))
    except TypeError:
        return NONE_IN_JSON


class Asked(dict):
    """Notes in `keys` what it is asked for. Another one stands for each section."""

    def __init__(self, keys, path=""):
        super().__init__()
        self.found, self.path = keys, path

    def get(self, name, default=None):
        path = f"{self.path}.{name}" if self.path else name
        if path in SECTIONS:
            self.found.setdefault(path, NONE_IN_JSON)
            return Asked(self.found, path)
        if self.found.get(path, NONE_IN_JSON) is NONE_IN_JSON:
            self.found[path] = as_json(default)
        return 1 if name == "train_batch_size" else default  # nothing is read on without it

    def __getitem__(self, name):
        return self.get(name)

    def __contains__(self, name):
        return isinstance(self.get(name, inspect.Parameter.empty), Asked)

    def __setitem__(self, name, value):
        pass

    def __bool__(self):
        return True

    def __copy__(self):
        return self

    def keys(self):
        return self


def models_of(annotation):
    if inspect.isclass(annotation) and issubclass(annotation, BaseModel):
        return [annotation]
    return [model for part in typing.get_args(annotation) for model in models_of(part)]


def add_model(model, path, keys):
    for name, field in model.model_fields.items():
        for spelling in sorted({name, field.alias} - {None}):
            below = f"{path}.{spelling}" if path else spelling
            nested = models_of(field.annotation)
            default = NONE_IN_JSON if nested or field.is_required() else as_json(field.get_default(call_default_factory=True))
            keys[below] = default
            for part in nested:
                add_model(part, below, keys)


def known_keys():
    keys = {}
    config.DeepSpeedConfig(Asked(keys))
    for path, model in MODELS.items():
        add_model(model, path, keys)
    for name, default in config.get_pipeline_config({}).items():
        keys[f"pipeline.{name}"] = as_json(default)
    return keys


def removed_keys():
    return sorted([*config._REMOVED_TOP_LEVEL_CONFIG_KEYS, *(f"zero_optimization.{name}" for name in config._REMOVED_ZERO_CONFIG_KEYS)])


def parameters(*functions):
    found = {}
    for function in functions:
        for name, parameter in list(inspect.signature(function).parameters.items())[1:]:
            if name not in ("params", "model_params", "optimizer", "adamw_mode"):  # the engine gives the last one
                found.setdefault(name, as_json(parameter.default))
    return found


def optimizers():
    adam = parameters(FusedAdam.__init__, DeepSpeedCPUAdam.__init__) | {
        config.ADAM_W_MODE: config.ADAM_W_MODE_DEFAULT, config.TORCH_ADAM_PARAM: False
    }
    muon = dict.fromkeys((*DeepSpeedEngine._MUON_HALF_KEYS, *DeepSpeedEngine._ADAM_HALF_KEYS, "muon_lr", "adam_lr"), NONE_IN_JSON)
    found = {
        "adam": adam,
        "adamw": adam,
        "lamb": parameters(FusedLamb.__init__),
        "lion": parameters(FusedLion.__init__, DeepSpeedCPULion.__init__),
        "adagrad": parameters(torch.optim.Adagrad.__init__),
        "muon": muon,
    }
    for name in config.DEEPSPEED_OPTIMIZERS:
        found.setdefault(name, {})  # of a package that is not asked here
    for name, kind in vars(torch.optim).items():
        if inspect.isclass(kind) and issubclass(kind, torch.optim.Optimizer) and name != "Optimizer":
            if name.lower() not in found:
                found[name] = parameters(kind.__init__)
    return found


def without_missing(keys):
    return [[path] if default is NONE_IN_JSON else [path, default] for path, default in sorted(keys.items())]


def main():
    deepspeed.init_distributed("gloo")
    parts = {
        "versions": [["deepspeed", deepspeed.__version__], ["torch", torch.__version__.split("+")[0]]],
        "keys": without_missing(known_keys()),
        "removed": removed_keys(),
    }
    for name, table in (("optimizers", optimizers()),
                        ("schedulers", {kind: parameters(getattr(lr_schedules, kind).__init__)
                                        for kind in lr_schedules.VALID_LR_SCHEDULES})):
        parts[name] = [[kind, without_missing(params)] for kind, params in table.items()]
    text = ",\n".join(
        f" {json.dumps(name)}: [\n" + ",\n".join(f"  {json.dumps(row)}" for row in rows) + "\n ]" for name, rows in parts.items()
    )
    OUT.write_text(f"{{\n{text}\n}}\n", encoding="utf-8")
    print(len(parts["keys"]), "keys")


if __name__ == "__main__":
    main()
