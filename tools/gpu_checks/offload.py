"""Part `offload`: layers of an 8B, as many as fit the GPU and, with everything on the host, as many as fit that; beside DeepSpeed
with offload where it is and time is left."""
import statistics

from gpu_checks import expected, models
from gpu_checks.runs import Failed, attempt, settled, train
from gpu_checks.speed import OUR_SECONDS, PEERS, share_of_sheet, theirs

HOST = {"device": "cpu", "pin_memory": True}
OURS, THEIRS = 17, 26  # host bytes for each parameter: 16 and what is on its way; fp32 gradients and pinned copies too
ON_GPU = 16  # bytes for each parameter of a rank that has everything: bf16 parameter and gradient, fp32 master and moments
KEPT, WORKING = 5 << 28, 4 << 30  # bytes on the GPU that a layer keeps of 4 x 2048 tokens; of logits, buffers and LibTorch
GPU_BYTES = 24 << 30


def on_host(step="cpu"):
    return {"offload_optimizer": {**HOST, "step": step}, "offload_param": HOST}


# How few layers are updated, and what of models.ds_config() makes it so.
WAYS = {"step cpu": on_host(), "step gpu": on_host("gpu"), "step auto": on_host("auto"),
        "step cpu, bf16 states": {**on_host(), "bf16_states": True}}


def layers_within(free, bytes_each, bytes_a_layer=0):
    """Of models.like_8b, with its embedding and head."""
    shape = models.like_8b(1)
    around = shape.parameters - shape.layer_parameters
    return int((free - bytes_each * around) // (bytes_each * shape.layer_parameters + bytes_a_layer))


def layers_that_fit(host_bytes, bytes_each):
    """Within four fifths of the host."""
    return layers_within(0.8 * host_bytes, bytes_each)


def layers_on_gpu(gpu_bytes):
    """Without offload; no more than an 8B has."""
    return min(layers_within(0.9 * gpu_bytes - WORKING, ON_GPU, KEPT), 32)


def largest_model(many, many_mib, few, few_mib, host_bytes):
    """In GPU_BYTES, by the peaks of two numbers of layers, and in the host's memory."""
    each = max((many_mib - few_mib) / max(many.layers - few.layers, 1), 1)  # kept inputs and angles
    in_gpu = many.layers + (GPU_BYTES / 2**20 - many_mib) / each
    return models.like_8b(int(min(in_gpu, max(layers_that_fit(host_bytes, OURS), 1))))


def ours(setup, shape, name, limit, stage=3, **how):
    config = models.ds_config(setup.out / "runs" / f"{name}.json", 4, stage=stage, **how)
    return train(setup, shape, name, config, steps=6, micro_batch=4, limit=limit)


def hidden(found):
    return statistics.median(row["offload_hidden"] or 0 for row in found["rows"][2:])


def row_of(setup, name, found, expected_step):
    traffic = statistics.median(row["offload_read_bytes"] + row["offload_written_bytes"] for row in found["rows"][2:])
    return [name, f"{found['tokens_per_s']:.0f}", f"{1e3 * found['step_s']:.0f}", expected_step, f"{found['tflops']:.0f}",
            share_of_sheet(setup, found), f"{traffic / 2**30:.1f}", f"{100 * hidden(found):.0f} %" if traffic else "",
            f"{found['peak_gpu_mib']:.0f}"]


def on_device(setup, record):
    """A row of layers of an 8B without offload, as many as fit."""
    if setup.gpus[0]["mig"] == "Enabled":
        record.left_out("layers of an 8B on the GPU", "it is cut into slices (MIG), whose memory nvidia-smi does not tell here")
        return []
    layers = layers_on_gpu(int(setup.gpus[0]["memory_mib"]) << 20)
    if not setup.dry and layers < 1:
        record.left_out("layers of an 8B on the GPU", f"it has {setup.gpus[0]['memory_mib']} MiB: too little for one")
        return []
    shape = models.TINY if setup.dry else models.like_8b(layers)
    name = f"{shape.name} on the GPU"
    found = attempt(record, name, lambda: settled(setup, lambda: ours(setup, shape, "on-device", 45, stage=0)))
    if not found:
        return []
    record.check(name, True, f"{found['tokens_per_s']:.0f} tok/s, {share_of_sheet(setup, found)} of the data sheet, "
                 f"{found['clock']}")
    return [row_of(setup, name, found, expected.of_layers(setup, shape, 4 * shape.seq))]


def beside_deepspeed(setup, record, title, shape, stage, mine, **zero):
    """`mine`: runs ours."""
    title = f"beside DeepSpeed, {title}"
    why = setup.peer_modules(*PEERS["deepspeed"])
    if why or setup.left() < 3 * OUR_SECONDS:
        return record.left_out(title, f"{setup.options.python} lacks it: {why}" if why else "no time is left in this part")
    config = models.ds_config(setup.out / "runs" / f"ds-offload-{stage}.json", 4, stage=stage, **zero)
    try:
        other = theirs(setup, shape, f"offload-{stage}", "deepspeed", config, 4, steps=4, skip=0,
                       limit=min(220, setup.left() - OUR_SECONDS))
    except Failed as error:
        return record.left_out(title, str(error))
    if not (mine := attempt(record, title, mine)):
        return
    rate = f"{other['tokens_per_s']:.0f}"
    record.check(title, True, f"{rate} tok/s, ours {mine['tokens_per_s'] / other['tokens_per_s']:.2f} times as fast")
    record.table(f"{shape.name}, 4 x {shape.seq} tokens in bf16, {title}", ["", "tok/s", "peak MiB of the GPU"], [
        ["DeepSpeed", rate, f"{other['peak_gpu_mib']:.0f}"],
        ["Zeroth", f"{mine['tokens_per_s']:.0f}", f"{mine['peak_gpu_mib']:.0f}"]])


def few_layers(setup, record, shape):
    """Rows of every way to update, and what the host's step measured."""
    rows, by_host = [], None
    for way, how in WAYS.items():
        name, slug = f"{shape.name}, {way}", way.replace(", ", "-").replace(" ", "-")
        found = attempt(record, name, lambda: ours(setup, shape, f"offload-{slug}", 60, **how))
        if not found:
            continue
        by_host = by_host or found
        record.check(name, True, f"{100 * hidden(found):.0f} % of the transfers hidden")
        rows.append(row_of(setup, name, found, expected.of_layers(setup, shape, 4 * shape.seq, way)))
    return rows, by_host


def run(setup, record):
    host = setup.host_bytes()
    layers = layers_that_fit(host, THEIRS)
    if not setup.dry and layers < 1:
        record.left_out("layers of an 8B", f"the host has {host / 2**30:.0f} GiB left: too little for one")
        return
    few = models.TINY if setup.dry else models.like_8b(min(2, layers))
    many = models.TINY if setup.dry else models.like_8b(layers)
    record.note(f"{many.name}: {many.parameters / 1e9:.2f}e9 parameters, {host / 2**30:.0f} GiB of the host were left")
    rows, small = few_layers(setup, record, few)
    large = attempt(record, many.name, lambda: ours(setup, many, "offload-many", 120, **on_host()))
    if large:
        record.check(many.name, True, f"{large['tokens_per_s']:.0f} tok/s, {100 * hidden(large):.0f} % hidden")
        rows.append(row_of(setup, f"{many.name}, step cpu", large, expected.of_layers(setup, many, 4 * many.seq, "step cpu")))
    rows += on_device(setup, record)
    record.table("Everything on the host but where it is said, 4 samples in bf16",
                 ["run", "tok/s", "step ms", expected.COLUMN, "model TFLOP/s", "of the data sheet",
                  "GiB over the link a step", "hidden", "peak MiB of the GPU"], rows)
    if not large or not small:
        return
    grows = large["peak_gpu_mib"] - small["peak_gpu_mib"]
    record.check("the GPU's peak is below 24 GB", large["peak_gpu_mib"] * 2**20 < GPU_BYTES,
                 f"{large['peak_gpu_mib']:.0f} MiB, {grows:.0f} more than with {few.layers} layers",
                 f"{large['peak_gpu_mib']:.0f} MiB")
    largest = largest_model(many, large["peak_gpu_mib"], few, small["peak_gpu_mib"], host)
    record.note(f"largest model in 24 GB of the GPU with this host: {largest.parameters / 1e9:.1f}e9 parameters "
                f"({largest.layers} layers; estimated from the two peaks and {OURS} bytes of the host for each parameter)")
    beside_deepspeed(setup, record, "stage 3, optimizer and parameters on the host", many, 3, lambda: large,
                     offload_optimizer=HOST, offload_param=HOST)
    medium, states = models.TINY if setup.dry else models.LARGE, {"offload_optimizer": HOST}
    beside_deepspeed(setup, record, f"{medium.name}, stage 2, optimizer on the host", medium, 2,
                     lambda: ours(setup, medium, "offload-stage-2", OUR_SECONDS, stage=2, **states), **states)
