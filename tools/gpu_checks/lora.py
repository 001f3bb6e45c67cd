"""Part `lora`: adapters over the weights of an 8B, in bf16 and in NF4: tokens a second and peak memory, beside peft."""
from gpu_checks import models
from gpu_checks.runs import attempt, settled, train
from gpu_checks.speed import OUR_SECONDS, PEERS, other_side, share_of_sheet, theirs, with_weights

MICRO_BATCH, LAYERS, PEER_LAYERS = 2, 32, 8
BASES = {"bf16": {}, "NF4": {"quantization": models.NF4},
         "NF4, double": {"quantization": {**models.NF4, "bnb_4bit_use_double_quant": True}}}
PEER_MODULES = {name: (*PEERS["ddp"], "peft", *["bitsandbytes"] * bool(base)) for name, base in BASES.items()}


def slug(shape, base):
    return f"lora-{shape.layers}-{base.replace(', ', '-')}"


def config_of(setup, shape, base):
    return models.ds_config(setup.out / "runs" / f"{slug(shape, base)}.json", MICRO_BATCH,
                            sections={"lora": models.LORA, **BASES[base]})


def ours(setup, shape, base, limit):
    return train(setup, shape, slug(shape, base), config_of(setup, shape, base), steps=8, micro_batch=MICRO_BATCH, limit=limit)


def gib(*sides):
    return " / ".join(f"{found['peak_gpu_mib'] / 1024:.1f}" for found in sides)


def alone(setup, record, shape):
    table = []
    for base in BASES:
        title = f"{shape.name}, adapters over {base}"
        found = attempt(record, title, lambda: settled(setup, lambda: ours(setup, shape, base, 90)))
        if not found:
            continue
        record.check(title, all(loss == loss for loss in found["losses"]),
                     f"{found['tokens_per_s']:.0f} tok/s, {gib(found)} GiB", "a loss that is not a number")
        table.append([base, f"{found['tokens_per_s']:.0f}", f"{1e3 * found['step_s']:.0f}", share_of_sheet(setup, found),
                      gib(found), f"{found['first_step_s']:.1f}"])
    record.table(f"Adapters of r {models.LORA['r']} on all products, {shape.name}, {MICRO_BATCH} x {shape.seq} tokens",
                 ["base", "tok/s", "step ms", "of the data sheet in bf16", "peak GiB", "first step s"], table)


def beside(setup, record, shape):
    """From the same weights, but adapters that start at other random values: the losses are near each other, not equal."""
    table = []
    for base in BASES:
        title = f"{shape.name}, adapters over {base}, beside peft"

        def peft():
            with_weights(setup, shape)
            return theirs(setup, shape, slug(shape, base), "ddp", config_of(setup, shape, base), MICRO_BATCH, steps=8,
                          limit=min(110, setup.left() - OUR_SECONDS))

        other = other_side(setup, record, title, PEER_MODULES[base], 3 * OUR_SECONDS, peft)
        if not other:
            continue
        mine = attempt(record, title, lambda: ours(setup, shape, base, OUR_SECONDS))
        if not mine:
            continue
        apart = max(abs(a - b) for a, b in zip(other["losses"], mine["losses"]))
        ratio = mine["tokens_per_s"] / other["tokens_per_s"]
        record.check(title, apart < 0.3, f"{ratio:.2f} times", f"losses are {apart:.1e} apart")
        table.append([base, f"{other['tokens_per_s']:.0f}", f"{mine['tokens_per_s']:.0f}", f"{ratio:.2f}", gib(other, mine),
                      f"{apart:.1e}"])
    if table:
        record.table(f"Adapters beside peft's in DDP, {shape.name}, {MICRO_BATCH} x {shape.seq} tokens, one rank",
                     ["base", "its tok/s", "ours", "ratio", "peak GiB, its / ours", "max loss diff"], table)


def run(setup, record):
    alone(setup, record, models.TINY if setup.dry else models.like_8b(LAYERS))
    beside(setup, record, models.TINY if setup.dry else models.like_8b(PEER_LAYERS))
