"""Part `sanitize`: NVIDIA's compute-sanitizer over every kernel of ours, and over two steps of a tiny run."""
import os
import re
import shutil

from gpu_checks import commands, models

KERNELS = "-tc=RMSNorm*,*gradients of RMSNorm*,rotation*,SwiGLU*,the head's*,rows of a table*,the squared norm*,updates*,stretches*"
SUMMARY = re.compile(r"(?:ERROR SUMMARY|RACECHECK SUMMARY): (\d+)")


def compute_sanitizer(setup):
    return shutil.which("compute-sanitizer") or next(
        (path for folder in ("bin", "compute-sanitizer", "extras/compute-sanitizer")
         if os.access(path := setup.cuda_home() / folder / "compute-sanitizer", os.X_OK)), None)


def clean(setup, record, name, words, limit, env):
    log = setup.out / "runs" / f"{name.replace(' ', '-')}.log"
    done = commands.run(words, limit, setup.environment(**env), setup.scratch, log)
    found = SUMMARY.findall(done.output)
    errors = sum(int(count) for count in found)
    passed = done.ok and found and errors == 0
    record.check(name, bool(passed), f"{errors} errors in {done.seconds:.0f} s" if found else "",
                 done.end() + (f"; {errors} errors, in {log}" if errors else ""))


def run(setup, record):
    program = compute_sanitizer(setup)
    if program is None:
        record.left_out("compute-sanitizer", "this machine has none")
        return
    folder = models.prepare(setup, models.TINY)
    in_memory = models.ds_config(setup.out / "runs/sanitize.json", 4)
    streamed = models.ds_config(setup.out / "runs/sanitize-offload.json", 4, stage=3,
                                offload_optimizer={"device": "cpu", "step": "gpu"}, offload_param={"device": "cpu"})
    tests = ["-tc=*parameters alone on the host*"] if setup.dry else [KERNELS]
    few = {"ZEROTH_TEST_FEW": "1"}  # sizes that a tool which slows kernels down a hundred times gets through
    for tool in ("memcheck", "racecheck", "synccheck"):
        under = [program, "--tool", tool, "--error-exitcode", "9"]
        clean(setup, record, f"{tool} of the kernels", [*under, setup.gpu_test(), *tests], 100, few)
    for name, config in (("a run", in_memory), ("an offloaded run", streamed)):
        words = [program, "--tool", "memcheck", "--error-exitcode", "9", setup.finetune(), "--model", folder, "--data",
                 folder / "tokens.bin", "--seq-len", models.TINY.seq, "--steps", 2, "--deepspeed", config]
        clean(setup, record, f"memcheck of {name}", words, 80, {})
