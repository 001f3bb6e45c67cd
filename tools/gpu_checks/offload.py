"""Part `offload`: layers of an 8B as many as the host holds, everything on the host, beside DeepSpeed's stage 3 offload."""
import statistics

from gpu_checks import models
from gpu_checks.runs import Failed, attempt, train
from gpu_checks.speed import PEERS, theirs

HOST = {"device": "cpu", "pin_memory": True}
OURS, THEIRS = 17, 26  # host bytes for each parameter: 16 and what is on its way; fp32 gradients and pinned copies too
GPU_BYTES = 24 << 30


def layers_that_fit(host_bytes, bytes_each):
    """Of models.like_8b: within four fifths of the host."""
    shape = models.like_8b(1)
    around = shape.parameters - shape.layer_parameters
    return int((0.8 * host_bytes / bytes_each - around) // shape.layer_parameters)


def largest_model(many, many_mib, few, few_mib, host_bytes):
    """In GPU_BYTES, by the peaks of two numbers of layers, and in the host's memory."""
    each = max((many_mib - few_mib) / max(many.layers - few.layers, 1), 1)  # kept inputs and angles
    in_gpu = many.layers + (GPU_BYTES / 2**20 - many_mib) / each
    return models.like_8b(int(min(in_gpu, max(layers_that_fit(host_bytes, OURS), 1))))


def ours(setup, shape, name, limit, step):
    config = models.ds_config(setup.out / "runs" / f"{name}.json", 4, stage=3,
                              offload_optimizer={**HOST, "step": step}, offload_param=HOST)
    return train(setup, shape, name, config, steps=6, micro_batch=4, limit=limit)


def hidden(found):
    return statistics.median(row["offload_hidden"] or 0 for row in found["rows"][2:])


def row_of(name, found):
    traffic = statistics.median(row["offload_read_bytes"] + row["offload_written_bytes"] for row in found["rows"][2:])
    return [name, f"{found['tokens_per_s']:.0f}", f"{1e3 * found['step_s']:.0f}", f"{traffic / 2**30:.1f}",
            f"{100 * hidden(found):.0f} %", f"{found['peak_gpu_mib']:.0f}"]


def beside_deepspeed(setup, record, shape, mine):
    title = "beside DeepSpeed, stage 3, optimizer and parameters on the host"
    why = setup.peer_modules(*PEERS["deepspeed"])
    if why:
        return record.left_out(title, f"{setup.options.python} lacks it: {why}")
    config = models.ds_config(setup.out / "runs/ds-offload.json", 4, stage=3, offload_optimizer=HOST, offload_param=HOST)
    try:
        other = theirs(setup, shape, "offload", "deepspeed", config, 4, steps=4, limit=220, skip=0)
    except Failed as error:
        return record.left_out(title, str(error))
    rate = f"{other['tokens_per_s']:.0f}"
    record.check(title, True, f"{rate} tok/s, ours {mine['tokens_per_s'] / other['tokens_per_s']:.2f} times as fast")
    record.table(f"{shape.name}, 4 x {shape.seq} tokens in bf16", ["", "tok/s", "peak MiB of the GPU"], [
        ["DeepSpeed stage 3 with offload", rate, f"{other['peak_gpu_mib']:.0f}"],
        ["Zeroth", f"{mine['tokens_per_s']:.0f}", f"{mine['peak_gpu_mib']:.0f}"]])


def run(setup, record):
    host = setup.host_bytes()
    layers = layers_that_fit(host, THEIRS)
    if not setup.dry and layers < 1:
        record.left_out("layers of an 8B", f"the host has {host / 2**30:.0f} GiB left: too little for one")
        return
    few = models.TINY if setup.dry else models.like_8b(min(2, layers))
    many = models.TINY if setup.dry else models.like_8b(layers)
    record.note(f"{many.name}: {many.parameters / 1e9:.2f}e9 parameters, {host / 2**30:.0f} GiB of the host were left")
    rows, small = [], None
    for step in ("cpu", "gpu"):
        small = attempt(record, f"{few.name}, step {step}", lambda: ours(setup, few, f"offload-few-{step}", 70, step)) or small
        if small:
            record.check(f"{few.name}, step {step}", True, f"{100 * hidden(small):.0f} % of the transfers hidden")
            rows.append(row_of(f"{few.name}, step {step}", small))
    large = attempt(record, many.name, lambda: ours(setup, many, "offload-many", 170, "cpu"))
    if large:
        record.check(many.name, True, f"{large['tokens_per_s']:.0f} tok/s, {100 * hidden(large):.0f} % hidden")
        rows.append(row_of(f"{many.name}, step cpu", large))
    record.table("Everything on the host, 4 samples in bf16",
                 ["run", "tok/s", "step ms", "GiB over the link a step", "hidden", "peak MiB of the GPU"], rows)
    if not large or not small:
        return
    grows = large["peak_gpu_mib"] - small["peak_gpu_mib"]
    record.check("the GPU's peak is below 24 GB", large["peak_gpu_mib"] * 2**20 < GPU_BYTES,
                 f"{large['peak_gpu_mib']:.0f} MiB, {grows:.0f} more than with {few.layers} layers",
                 f"{large['peak_gpu_mib']:.0f} MiB")
    largest = largest_model(many, large["peak_gpu_mib"], few, small["peak_gpu_mib"], host)
    record.note(f"largest model in 24 GB of the GPU with this host: {largest.parameters / 1e9:.1f}e9 parameters "
                f"({largest.layers} layers; reckoned from the two peaks and {OURS} bytes of the host for each parameter)")
    beside_deepspeed(setup, record, many, large)
