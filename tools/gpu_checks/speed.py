"""Part `speed`: tokens a second of a small and a large model, beside other trainers where there are any and time is left."""
import re

from gpu_checks import expected, models
from gpu_checks.runs import Failed, attempt, peer, settled, train

# bf16 with sums in fp32, dense, by NVIDIA's data sheets; the first name that is in the GPU's.
DATA_SHEET = {"H100 PCIe": 756e12, "H100 NVL": 835e12, "H100": 989e12, "H200": 989e12, "GH200": 989e12, "B200": 2250e12,
              "A100": 312e12, "L40S": 362e12, "L4": 121e12, "A10": 125e12, "RTX 4090": 165e12, "RTX 3090": 71e12}
PEERS = {"ddp": ("torch", "transformers"), "fsdp2": ("torch", "transformers"),
         "deepspeed": ("torch", "transformers", "deepspeed")}
OUR_SECONDS = 30  # of ten steps, at most


def sheet_peak(setup):
    name = setup.gpus[0]["name"]
    return next((peak for part, peak in DATA_SHEET.items() if re.search(rf"\b{part}\b", name)), None)


def ours(setup, shape, name, batch, dtype, accumulation=1, steps=12, flags=(), limit=90, **zero):
    config = models.ds_config(setup.out / "runs" / f"{name}.json", batch, dtype=dtype, accumulation=accumulation, **zero)
    return train(setup, shape, name, config, steps=steps, micro_batch=batch, accumulation=accumulation, flags=flags,
                 limit=limit)


def share_of_sheet(setup, found):
    """Of bf16 products, whatever the run's dtype."""
    peak = sheet_peak(setup)
    return f"{100e12 * found['tflops'] / peak:.1f} %" if peak else "?"


# What of a shape is run by itself: (name, samples, dtype, accumulation, flags, keys of zero_optimization).
DETERMINISTIC = ("--deterministic",)
RUNS = {models.LARGE: [("4 samples", 4, "bf16", 1, (), {}), ("4 samples, overlap_step", 4, "bf16", 1, (), {"overlap_step": True}),
                       ("8 samples", 8, "bf16", 1, (), {}), ("8 samples, 4 accumulated", 8, "bf16", 4, (), {}),
                       ("4 samples, deterministic", 4, "bf16", 1, DETERMINISTIC, {})],
        models.SMALL: [("bf16", 4, "bf16", 1, (), {}), ("fp32", 4, "fp32", 1, (), {})],
        models.TINY: [("4 samples", 4, "bf16", 1, (), {}), ("overlap_step", 4, "bf16", 1, (), {"overlap_step": True}),
                      ("deterministic", 4, "bf16", 1, DETERMINISTIC, {})]}


def alone(setup, record, shape):
    """By itself; what its share of the data sheet is."""
    table = []
    for name, batch, dtype, accumulation, flags, zero in RUNS[shape]:
        title = f"{shape.name}, {name}"
        found = attempt(record, title, lambda: settled(setup, lambda: ours(
            setup, shape, f"alone-{title.replace(', ', '-').replace(' ', '-')}", batch, dtype, accumulation,
            12 if accumulation == 1 else 6, flags, **zero)))
        if not found:
            continue
        share = share_of_sheet(setup, found)
        record.check(title, all(loss == loss for loss in found["losses"]),
                     f"{found['tokens_per_s']:.0f} tok/s, {share} of the data sheet", "a loss that is not a number")
        table.append([name, f"{found['tokens_per_s']:.0f}", f"{1e3 * found['step_s']:.1f}", expected.of(setup, title),
                      f"{found['tflops']:.0f}", share, f"{100 * found['peak_share']:.0f} %", f"{found['peak_gpu_mib']:.0f}",
                      found["clock"]])
    record.table(f"A Llama of {shape.name}, {shape.seq} tokens a sample; the second of two runs",
                 ["run", "tok/s", "step ms", expected.COLUMN, "model TFLOP/s", "of the data sheet in bf16",
                  "of the measured product peak", "peak MiB", "clock"], table)


def theirs(setup, shape, name, trainer, config, batch, **how):
    """One rank of another trainer."""
    return peer([setup.options.python], trainer, models.prepare(setup, shape), config, device="cuda", seq=shape.seq,
                tokens_a_step=batch * shape.seq, log=setup.out / "runs" / f"peer-{name}.log", env=setup.environment(), **how)


def with_weights(setup, shape):
    """Random weights in the model's folder, so that both sides start from the same: our own run at no rate writes them."""
    folder = models.prepare(setup, shape)
    if not list(folder.glob("*.safetensors")):
        made = setup.scratch / f"made-{shape.name}"
        train(setup, shape, f"weights-{shape.name}", models.ds_config(setup.out / "runs/weights.json", 1, dtype="fp32",
                                                                         lr=0),
              steps=1, micro_batch=1, flags=["--output", made, "--overwrite"])
        for file in made.glob("*.safetensors*"):
            file.rename(folder / file.name)


def other_side(setup, record, title, modules, seconds, work):
    """What `work` measures of another trainer; None, and recorded why, where it lacks modules or time or fails."""
    why = setup.peer_modules(*modules)
    if why:
        record.left_out(title, f"{setup.options.python} lacks it: {why}")
    elif setup.left() < seconds:
        record.left_out(title, "no time is left in this part")
    else:
        try:
            return work()
        except Failed as error:  # its failure is not ours
            record.left_out(title, str(error))
    return None


def beside(setup, record, shape, batch, dtype, stages, limit):
    """One table: our run beside each trainer that can be imported."""
    rows = []
    for name, trainer, stage in stages:
        title = f"{shape.name} beside {name}, {dtype}"
        config = models.ds_config(setup.out / "runs" / f"{shape.name}-{name}-{dtype}.json", batch, stage=stage, dtype=dtype)
        slug = f"{shape.name}-{name.replace(' ', '-')}-{dtype}"
        other = other_side(setup, record, title, PEERS[trainer], 2 * OUR_SECONDS, lambda: theirs(
            setup, shape, slug, trainer, config, batch, steps=10, limit=min(limit, setup.left() - OUR_SECONDS)))
        if not other:
            continue
        mine = attempt(record, title, lambda: ours(setup, shape, f"ours-{slug}", batch, dtype, steps=10,
                                                   limit=OUR_SECONDS, stage=stage))
        if not mine:
            continue
        ratio = mine["tokens_per_s"] / other["tokens_per_s"]
        apart = max(abs(a - b) for a, b in zip(other["losses"], mine["losses"]))
        record.check(title, apart < 0.05, f"{ratio:.2f} times", f"losses are {apart:.1e} apart")
        rows.append([name, f"{other['tokens_per_s']:.0f}", f"{mine['tokens_per_s']:.0f}", f"{ratio:.2f}",
                     f"{other['peak_gpu_mib']:.0f} / {mine['peak_gpu_mib']:.0f}", f"{apart:.1e}"])
    if rows:
        record.table(f"{shape.name}, {dtype}, {batch} x {shape.seq} tokens, one rank",
                     ["peer", "its tok/s", "ours", "ratio", "peak MiB, its / ours", "max loss diff"], rows)


def run(setup, record):
    if setup.dry:
        alone(setup, record, models.TINY)
        return beside(setup, record, models.TINY, 4, "bf16", [("DeepSpeed stage 2", "deepspeed", 2)], 30)
    for shape in (models.LARGE, models.SMALL):
        alone(setup, record, shape)
    for shape, batch, dtype, stages in (
            (models.LARGE, 4, "bf16", [("FSDP2", "fsdp2", 3), ("DeepSpeed stage 2", "deepspeed", 2),
                                       ("DeepSpeed stage 3", "deepspeed", 3)]),
            (models.SMALL, 4, "fp32", [("DDP", "ddp", 0), ("FSDP2", "fsdp2", 3)]),
            (models.SMALL, 4, "bf16", [("DeepSpeed stage 2", "deepspeed", 2)])):
        if not setup.peer_modules("torch", "transformers"):
            with_weights(setup, shape)
        beside(setup, record, shape, batch, dtype, stages, 110)
