"""What one H100 or H200 is expected to give: estimated from bytes, operations and rates of the data sheets before any run of
these parts, so that a figure that is far from it is looked into. Nothing here was measured, and no check fails by it."""
COLUMN = "expected (estimated)"

# 1.1B: from parts of a step, of which AdamW, SwiGLU, the norms and the rotation wait for memory (4.3 and 3.0 TB/s).
FIGURES = {
    "1.1B, 4 samples": {"H200": "112 ms, 50 %", "H100": "118 ms, 47 %"},
    "1.1B, 4 samples, overlap_step": {"H200": "100 to 104 ms", "H100": "110 to 114 ms"},
    "1.1B, 8 samples": {"H200": "216 ms, 52 %", "H100": "226 ms, 50 %"},
    "1.1B, 8 samples, 4 accumulated": {"H200": "850 ms, 53 %", "H100": "890 ms, 50 %"},
    "1.1B, 4 samples, deterministic": {"H200": "119 to 122 ms", "H100": "125 to 128 ms"},
    "31.6M, bf16": {"H200": "12 ms, the GPU idle for half of it", "H100": "12 ms, the GPU idle for half of it"},
    "products, bf16": {"H200": "790 to 830 TFLOP/s", "H100": "790 to 830 TFLOP/s"},
    "copy on the GPU, read and written": {"H200": "4.2 to 4.4 TB/s", "H100": "3.0 TB/s"},
    "host to GPU": {"H200": "50 to 55 GB/s", "H100": "50 to 55 GB/s"},
    "GPU to host": {"H200": "50 to 55 GB/s", "H100": "50 to 55 GB/s"},
    "both at once, each": {"H200": "40 to 48 GB/s", "H100": "40 to 48 GB/s"},
}
# Milliseconds of a step of the 1.1B, 4 x 2048 tokens.
KERNELS = {"products": (72, 72), "attention": (18, 18), "AdamW": (7.5, 10.7), "SwiGLU": (3.7, 5.4), "RMSNorm": (2.8, 3.9),
           "sums and casts": (2.1, 3.0), "rotation": (0.9, 1.2), "norm of gradients": (0.5, 0.7)}
LAYER_MS = {"H200": 17.7, "H100": 18.7}  # of an 8B, 4 x 2048 tokens, states in fp32 on the device; the head's products apart
# Of an update, for each 1e9 parameters: by the host at 200 GB/s, or with the states over the link both ways at 50 GB/s.
UPDATE_SECONDS = {"step cpu": 0.16, "step gpu": 0.28, "step cpu, bf16 states": 0.09}


def kind(setup):
    return next((name for name in ("H200", "H100") if name in setup.gpus[0]["name"]), None)


def of(setup, key):
    """Text; empty for other GPUs."""
    return FIGURES.get(key, {}).get(kind(setup), "")


def of_kernels(setup, group):
    if not kind(setup) or group not in KERNELS:
        return ""
    return f"{KERNELS[group][0 if kind(setup) == 'H200' else 1]:g}"


def of_layers(setup, shape, tokens, update=None):
    """Of a step of layers of an 8B; `update`: how, where everything rests on the host. The next forward, a third of the step,
    hides the host's; the head's products run at 800 TFLOP/s."""
    if not kind(setup) or update not in (None, *UPDATE_SECONDS):
        return ""
    seconds = shape.layers * LAYER_MS[kind(setup)] / 1e3 + 6 * tokens * shape.vocab * shape.hidden / 800e12
    if update:
        added = UPDATE_SECONDS[update] * shape.parameters / 1e9
        seconds += added if update == "step gpu" else max(added - seconds / 3, 0)
    return f"{1e3 * seconds:.0f} ms"
