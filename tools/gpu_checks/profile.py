"""Part `profile`: where a step of the large model goes, beside what no step can go below on this GPU."""
from gpu_checks import expected, kernels, lengths, machine, models
from gpu_checks.runs import Failed, attempt, train

STEPS = 8


def floors(shape, tokens, found):
    """Milliseconds that each group of kernels takes at least; bytes of bf16 activations and fp32 states. RMSNorm with the residual
    of a layer in it: two arrays of the first norm forward, four of the second, four of each backward."""
    products = 6 * tokens * (shape.layers * (shape.layer_parameters - 2 * shape.hidden) + shape.vocab * shape.hidden)
    attention = 6 * tokens * 2 * shape.layers * shape.hidden * (shape.seq + 1) / 2 * 3.5 / 3  # scores made twice
    per_token = {"SwiGLU": 8 * 2 * shape.mlp, "RMSNorm": 14 * 2 * shape.hidden,
                 "rotation": 4 * 2 * shape.head_dim * (shape.heads + shape.kv_heads)}
    of_bytes = {name: shape.layers * tokens * count for name, count in per_token.items()}
    of_bytes["head's loss"] = 3 * 2 * tokens * shape.vocab
    of_bytes["AdamW"] = 28 * shape.parameters
    of_bytes["norm of gradients"] = 2 * shape.parameters
    times = {name: count / found["copy"] for name, count in of_bytes.items()}
    times["products"] = products / found["bf16"]
    times["attention"] = attention / found["bf16"]
    return {name: 1e3 * seconds for name, seconds in times.items()}


def table_text(setup, shape):
    """The table of kernels of STEPS steps at 4 samples."""
    library, why = kernels.library(setup)
    target = setup.out / "runs" / "kernels.txt"
    config = models.ds_config(setup.out / "runs" / "profile.json", 4)
    env = {"CUDA_INJECTION64_PATH": library, "ZEROTH_KERNEL_TIMES": target} if library else {}
    target.unlink(missing_ok=True)
    if library is None and not setup.dry:
        raise Failed(why)
    result = train(setup, shape, "profile", config, steps=STEPS, micro_batch=4, env=env, limit=150)
    if setup.dry:
        target = setup.root / "tests/simulated_gpu/stand_ins/kernels.txt"
    if not target.exists():
        raise Failed("the run left no table of kernels: was the injected library loaded?")
    return result, target.read_text(errors="replace")


def table_of_kernels(setup, record, shape, found):
    result = attempt(record, "a run with times of kernels", lambda: table_text(setup, shape))
    if not found or not result:
        return
    parsed = kernels.parse(result[1])
    if not record.check("the table of kernels", parsed is not None, why=f"cannot be read: {result[1][:200]}"):
        return
    least = floors(shape, 4 * shape.seq, found)
    rows = []
    for group, ms, calls in kernels.by_group(parsed["kernels"]):
        floor = least.get(group)
        rows.append([group, f"{ms / STEPS:.2f}", expected.of_kernels(setup, group), f"{calls / STEPS:.0f}",
                     f"{floor:.2f}" if floor else "", f"{ms / STEPS / floor:.2f}" if floor else ""])
    record.table(f"{shape.name}, 4 x {shape.seq} tokens in bf16: each step of {STEPS} (the first and the measurement of the "
                 "peak are in it)", ["kernels", "ms", expected.COLUMN, "calls", "floor ms", "times the floor"], rows)
    rest = sorted((row for row in parsed["kernels"] if kernels.group_of(row[0]) == "rest"), key=lambda row: -row[1])[:8]
    record.table("The longest of the rest", ["kernel", "ms a step", "calls"],
                 [[name[:100], f"{ms / STEPS:.3f}", f"{calls / STEPS:.0f}"] for name, ms, calls in rest])
    record.check("the device's time", True, f"busy {parsed['busy']:.3f} of {parsed['whole']:.3f} s; "
                 f"a step {1e3 * result[0]['step_s']:.1f} ms, {sum(least.values()):.1f} at the floors")


def run(setup, record):
    shape = models.TINY if setup.dry else models.LARGE
    table_of_kernels(setup, record, shape, machine.known_rates(setup, record))
    attempt(record, "samples of mixed lengths", lambda: lengths.run(setup, record, shape))
