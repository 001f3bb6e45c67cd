"""Part `nccl`: several GPUs against one; on one GPU several ranks, over NCCL where it lets them share."""
import re

from gpu_checks import models
from gpu_checks.runs import attempt, train

SHARES = (2, 30)  # NCCL_MULTI_RANK_GPU_ENABLE


def nccl_version(setup):
    """(major, minor) of the library beside LibTorch, or None."""
    header = setup.torch().parent / "nvidia/nccl/include/nccl.h"
    if not header.exists():
        return None
    text = header.read_text()
    return tuple(int(re.search(rf"#define NCCL_{part} (\d+)", text)[1]) for part in ("MAJOR", "MINOR"))


def losses(setup, name, ranks, stage, dtype, launch=(), env=None):
    shape, batch = models.TINY if setup.dry else models.SMALL, 8
    config = models.ds_config(setup.out / "runs" / f"nccl-{name}.json", batch // ranks, stage=stage, dtype=dtype)
    return train(setup, shape, f"nccl-{name}", config, steps=6, micro_batch=batch // ranks, ranks=ranks, launch=launch,
                 limit=60, env=env)["losses"]


def compare(setup, record, way, ranks, launch=(), env=None):
    for dtype, bound in (("fp32", 2e-5), ("bf16", 1e-2)):
        alone = attempt(record, f"one rank, {dtype}", lambda: losses(setup, f"1-{dtype}", 1, 0, dtype))
        for stage in (2, 3) if setup.dry or dtype == "bf16" else (0, 1, 2, 3):
            name = f"{ranks} ranks {way}, stage {stage}, {dtype}"
            found = attempt(record, name, lambda: losses(setup, f"{ranks}-{way.split()[0]}-{stage}-{dtype}", ranks, stage,
                                                         dtype, launch, env))
            if alone and found:
                worst = max(abs(a - b) / abs(b) for a, b in zip(found, alone))
                record.check(name, worst <= bound, f"losses within {worst:.1e} of one rank's",
                             f"{worst:.1e} from one rank's: {found} and {alone}")


def run(setup, record):
    gpus, version = len(setup.gpus), nccl_version(setup)
    if gpus > 1:
        compare(setup, record, "over NCCL", min(gpus, 8) if gpus in (2, 4, 8) else 2)
    else:
        record.left_out("NCCL between GPUs", "this machine has one GPU")
    if version and version >= SHARES:
        compare(setup, record, "over NCCL on one GPU", 2, ["--share-gpus"], {"NCCL_MULTI_RANK_GPU_ENABLE": 1})
    else:
        told = "is not beside LibTorch" if version is None else f"is {version[0]}.{version[1]}"
        record.left_out("NCCL on one GPU", f"it lets ranks share a GPU from {SHARES[0]}.{SHARES[1]} on; NCCL {told}")
    compare(setup, record, "through host memory on one GPU", 2, ["--share-gpus"])
