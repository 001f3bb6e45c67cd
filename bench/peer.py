"""Another trainer on the model, tokens and ds_config.json of a run of ours: DDP, FSDP2 or DeepSpeed on one rank of those that
the environment tells of (torchrun's and deepspeed's), or alone. Needs torch, transformers and for their parts deepspeed, peft
and bitsandbytes.

The model's folder has config.json and tokens.bin; without weights in it, random ones are trained. Batch, precision, optimizer
and clipping are those of --config. With a section lora peft's adapters are trained (not by fsdp2), with a section quantization
over weights that bitsandbytes has quantized (not by deepspeed, nor without weights). Samples follow each other, dealt by rank,
then row, as in a run without shuffling. Rank 0 writes to --result the mean losses, the seconds from --launched-at to the end of
each step, and the largest rank's peaks.
"""
import argparse
import contextlib
import json
import os
import pathlib
import resource
import time

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("trainer", choices=["ddp", "fsdp2", "deepspeed"])
parser.add_argument("--device", choices=["cpu", "cuda"], required=True)
for name in ("model", "config", "result"):
    parser.add_argument(f"--{name}", type=pathlib.Path, required=True)
for name in ("seq", "steps"):
    parser.add_argument(f"--{name}", type=int, required=True)
parser.add_argument("--launched-at", type=float, required=True, help="seconds since the epoch")
parser.add_argument("--local_rank", help="the launcher's; the environment has it, too")
options = parser.parse_args()
for name, value in {"RANK": 0, "LOCAL_RANK": 0, "WORLD_SIZE": 1, "MASTER_ADDR": "127.0.0.1",
                    "MASTER_PORT": 20000 + os.getpid() % 20000}.items():
    os.environ.setdefault(name, str(value))

import numpy  # noqa: E402
import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
import transformers  # noqa: E402

RANK, WORLD = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
ON_GPU = options.device == "cuda"
config = json.loads(options.config.read_text())
rows = config["train_micro_batch_size_per_gpu"]
adapters, quantization = config.pop("lora", None), config.pop("quantization", None)
working = next((dtype for key, dtype in (("bf16", torch.bfloat16), ("fp16", torch.float16)) if key in config), torch.float32)
tokens = torch.from_numpy(numpy.fromfile(options.model / "tokens.bin", dtype=numpy.uint16).astype(numpy.int64))
has_weights = any(options.model.glob("*.safetensors"))


def make_model(dtype):
    if has_weights:
        in_4_bits = {}
        if quantization is not None:
            nf4 = transformers.BitsAndBytesConfig(**quantization, bnb_4bit_compute_dtype=working)
            in_4_bits = {"quantization_config": nf4, "device_map": {"": options.device}}
        model = transformers.AutoModelForCausalLM.from_pretrained(options.model, dtype=dtype, **in_4_bits)
    else:
        shape = transformers.AutoConfig.from_pretrained(options.model)
        model = transformers.AutoModelForCausalLM.from_config(shape, dtype=dtype)
    if adapters is not None:
        import peft
        model = peft.get_peft_model(model, peft.LoraConfig(task_type="CAUSAL_LM", **adapters))
    return model.train()


def trained(model):
    return [parameter for parameter in model.parameters() if parameter.requires_grad]


def batch(step):
    first, count = (step * WORLD + RANK) * rows, (len(tokens) - 1) // options.seq
    starts = [i % count * options.seq for i in range(first, first + rows)]
    samples = torch.stack([tokens[start : start + options.seq + 1] for start in starts]).to(options.device)
    return samples[:, :-1].contiguous(), samples[:, 1:].contiguous()


def loss_of(model, step):
    inputs, targets = batch(step)
    logits = model(input_ids=inputs, use_cache=False).logits
    return torch.nn.functional.cross_entropy(logits.flatten(0, 1).float(), targets.flatten())


def with_deepspeed():
    import deepspeed
    config.pop("wall_clock_breakdown", None)  # it would wait for the device
    for place in ("offload_optimizer", "offload_param"):
        config["zero_optimization"].get(place, {}).pop("step", None)  # a key of ours
    deepspeed.init_distributed()
    parts = config["zero_optimization"]["stage"] == 3 and not has_weights  # a model that fits no rank as a whole
    with deepspeed.zero.Init(config_dict_or_path=config) if parts else contextlib.nullcontext():
        model = make_model(working if parts else torch.float32)
    engine, *_ = deepspeed.initialize(model=model, model_parameters=trained(model), config=config)

    def step(number):
        loss = loss_of(engine, number)
        engine.backward(loss)
        engine.step()
        return loss

    return step


def sharded(model):
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
    mixed = {} if working == torch.float32 else {"param_dtype": working, "reduce_dtype": torch.float32}
    for layer in model.model.layers:
        fully_shard(layer, mp_policy=MixedPrecisionPolicy(**mixed))
    return fully_shard(model, mp_policy=MixedPrecisionPolicy(**mixed))


def with_torch():
    dist.init_process_group("nccl" if ON_GPU else "gloo")
    base = torch.float32 if adapters is None else working  # peft keeps factors in fp32
    model, ddp = make_model(base).to(options.device), options.trainer == "ddp"
    model = torch.nn.parallel.DistributedDataParallel(model) if ddp else sharded(model)
    fused = ddp or ON_GPU
    optimizer = torch.optim.AdamW(trained(model), fused=fused, foreach=not fused, **config["optimizer"]["params"])

    def step(number):
        with torch.autocast(options.device, working, enabled=ddp and working != torch.float32):
            loss = loss_of(model, number)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(trained(model), config["gradient_clipping"])
        optimizer.step()
        optimizer.zero_grad()
        return loss

    return step


def over_ranks(value, op=dist.ReduceOp.SUM):
    tensor = torch.tensor([value], dtype=torch.float64, device=options.device)
    dist.all_reduce(tensor, op=op)
    return tensor.item()


if ON_GPU:
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
else:
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
train = with_deepspeed() if options.trainer == "deepspeed" else with_torch()
losses, ends = [], []
for number in range(options.steps):
    loss = train(number).item()
    if ON_GPU:
        torch.cuda.synchronize()
    ends.append(time.time() - options.launched_at)
    losses.append(over_ranks(loss) / WORLD)
peak_gpu = torch.cuda.max_memory_allocated() if ON_GPU else 0
peaks = {"peak_mib": over_ranks(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10, dist.ReduceOp.MAX),
         "peak_gpu_mib": over_ranks(peak_gpu / 2**20, dist.ReduceOp.MAX)}
if RANK == 0:
    options.result.write_text(json.dumps({"losses": losses, "ends": ends, **peaks}))
