"""Checkpoints of DeepSpeed or torch.distributed.checkpoint (DCP, over FSDP2) for the models of bench/checkpoint, on one of the
ranks that the environment tells of. Medians of --rounds: a save as it is, a save whose files are synced, and a load of files
that the system keeps no pages of. DCP's async_save: what the call holds training up, and until its files are there.

    torchrun --nproc-per-node 2 bench/checkpoint_peer.py dcp FOLDER --size small
"""
import argparse
import os
import pathlib
import shutil
import statistics
import time

import torch
import torch.distributed as dist
import transformers

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("library", choices=["dcp", "deepspeed"])
parser.add_argument("folder", type=pathlib.Path)
parser.add_argument("--size", choices=["small", "large"], default="small")
parser.add_argument("--rounds", type=int, default=5)
parser.add_argument("--local_rank", help="the launcher's; the environment has it, too")
options = parser.parse_args()
large = options.size == "large"
torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
torch.manual_seed(1)


def make_model():
    return transformers.LlamaForCausalLM(transformers.LlamaConfig(
        vocab_size=16384 if large else 8192, hidden_size=1024 if large else 512, intermediate_size=2816 if large else 1376,
        num_hidden_layers=22 if large else 8, num_attention_heads=16 if large else 8,
        num_key_value_heads=8 if large else 4, head_dim=64, max_position_embeddings=256))


def files():
    return [path for path in options.folder.rglob("*") if path.is_file()]


def on_files(action):
    for path in files():
        descriptor = os.open(path, os.O_RDONLY)
        action(descriptor)
        os.close(descriptor)


def timed(action):
    dist.barrier()
    if dist.get_rank() == 0:
        os.sync()
    dist.barrier()
    begin = time.perf_counter()
    action()
    dist.barrier()
    return time.perf_counter() - begin


def clear():
    dist.barrier()
    if dist.get_rank() == 0:
        shutil.rmtree(options.folder, ignore_errors=True)
    dist.barrier()


def with_deepspeed():
    import deepspeed
    deepspeed.init_distributed("gloo")
    model = make_model()
    config = {"train_micro_batch_size_per_gpu": 1, "bf16": {"enabled": True}, "zero_optimization": {"stage": 2},
              "optimizer": {"type": "AdamW", "params": {"lr": 1e-4, "torch_adam": True}}}
    engine, *_ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config=config)
    tokens = torch.zeros(1, 16, dtype=torch.int64)
    engine.backward(engine(input_ids=tokens, labels=tokens).loss)
    engine.step()  # makes the optimizer's states
    return (lambda: engine.save_checkpoint(str(options.folder), tag="one"),
            lambda: engine.load_checkpoint(str(options.folder), tag="one"), None)


def with_dcp():
    import torch.distributed.checkpoint as dcp
    from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
    from torch.distributed.fsdp import fully_shard
    dist.init_process_group("cpu:gloo")
    model = make_model()
    for layer in model.model.layers:
        fully_shard(layer)
    fully_shard(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    tokens = torch.zeros(1, 16, dtype=torch.int64)
    model(input_ids=tokens, labels=tokens).loss.backward()
    optimizer.step()

    def state():
        parts = get_state_dict(model, optimizer)
        return {"model": parts[0], "optimizer": parts[1]}

    def load():
        loaded = state()
        dcp.load(loaded, checkpoint_id=str(options.folder))
        set_state_dict(model, optimizer, model_state_dict=loaded["model"], optim_state_dict=loaded["optimizer"])

    group = dist.new_group(backend="gloo")
    return (lambda: dcp.save(state(), checkpoint_id=str(options.folder)), load,
            lambda: dcp.async_save(state(), checkpoint_id=str(options.folder), process_group=group))


save, load, save_beside = with_deepspeed() if options.library == "deepspeed" else with_dcp()
seconds = {"save": [], "save, synced": [], "load": [], "async_save, the call": [], "async_save, until it is there": []}
size = 0
for _ in range(options.rounds):
    clear()
    seconds["save"].append(timed(save))
    clear()

    def synced():
        save()
        dist.barrier()
        if dist.get_rank() == 0:
            on_files(os.fsync)

    seconds["save, synced"].append(timed(synced))
    size = sum(path.stat().st_size for path in files())
    on_files(lambda descriptor: os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED))
    seconds["load"].append(timed(load))
    if save_beside is None:
        continue
    clear()
    dist.barrier()
    begin = time.perf_counter()
    future = save_beside()
    seconds["async_save, the call"].append(time.perf_counter() - begin)
    future.result()
    seconds["async_save, until it is there"].append(time.perf_counter() - begin)
clear()
if dist.get_rank() == 0:
    print(f"{options.library}, {dist.get_world_size()} ranks, {options.size}, {size / 2**20:.0f} MiB")
    for name, values in seconds.items():
        if values:
            print(f"{name:30} {statistics.median(values):.3f} s")
