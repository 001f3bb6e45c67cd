"""Time by kernel of a run: what bench/gpu_kernel_times.cpp prints, put together by what the kernels are for."""
import re

from gpu_checks.setup import KERNEL_TIMES

# The first that matches; names of ours come before those of libraries.
GROUPS = (
    ("AdamW", r"update_kernel"),
    ("SwiGLU", r"gated_activation"),
    ("rotation", r"rope_kernel"),
    ("RMSNorm", r"(?:forward|backward)_kernel.*RmsNorm|RmsNorm|rms_norm"),
    ("head's loss", r"log_sum_exp_kernel|logit_gradient_kernel"),
    # Its gradient sorts positions by row (model/kernels/gpu/fused_ops.cpp): nothing else in a step sorts.
    ("embedding", r"sum_pieces|join_pieces|indexSelect|embedding|vectorized_gather|radix_sort|SortStable"),
    ("norm of gradients", r"square_kernel|sum_kernel"),
    ("attention", r"cudnn.*(?:sdpa|fmha|flash|dot_do_o|convert_dq)|flash_(?:fwd|bwd)|fmha|sdpa"),
    ("products", r"gemm|nvjet|cutlass|xmma|splitK|cublas"),
    ("copies", r"^copy, kind|^memset"),
    ("sums and casts", r"elementwise|vectorized|copy|reduce|CatArray"),
)
LINE = re.compile(r"^ *([\d.]+) ms +(\d+) calls +(.*)$", re.M)
BUSY = re.compile(r"busy ([\d.]+) of ([\d.]+) s")


def library(setup):
    """The library that the CUDA driver loads into any program; (path or None, why not)."""
    if setup.dry:
        return None, "the simulated GPU has no driver: a table of another run is read"
    path = setup.build / KERNEL_TIMES
    return (path, "") if path.exists() else (None, f"{path} is missing: the CUDA toolkit of the build has no CUPTI")


def parse(text):
    """{'busy': s, 'whole': s, 'kernels': [(name, ms, calls)]}; None where there is no table."""
    busy, kernels = BUSY.search(text), [(name, float(ms), int(calls)) for ms, calls, name in LINE.findall(text)]
    if not busy or not kernels:
        return None
    return {"busy": float(busy[1]), "whole": float(busy[2]), "kernels": kernels}


def group_of(name):
    return next((group for group, pattern in GROUPS if re.search(pattern, name)), "rest")


def by_group(kernels):
    """[(group, ms, calls)], longest first."""
    sums = {}
    for name, ms, calls in kernels:
        total = sums.setdefault(group_of(name), [0.0, 0])
        total[0] += ms
        total[1] += calls
    return sorted(((group, ms, calls) for group, (ms, calls) in sums.items()), key=lambda row: -row[1])
