"""Part `sanitize`: NVIDIA's compute-sanitizer over every kernel of ours, and over two steps of tiny runs."""
import os
import re
import shutil

from gpu_checks import commands, models

KERNELS = "-tc=RMSNorm*,*gradients of RMSNorm*,rotation*,SwiGLU*,the head's*,rows of a table*,the squared norm*,updates*,stretches*"
# Of each tool: how it sums up, and what of a run it looks at. Those that look at shared memory slow each kernel a hundred times,
# and what libraries do there is for their makers.
TOOLS = {"memcheck": (r"ERROR SUMMARY: (\d+) error", []),
         "racecheck": (r"RACECHECK SUMMARY: (\d+) hazard", ["--kernel-name", "kns=zeroth"]),
         "synccheck": (r"ERROR SUMMARY: (\d+) error", ["--kernel-name", "kns=zeroth"])}


def compute_sanitizer(setup):
    return shutil.which("compute-sanitizer") or next(
        (path for folder in ("bin", "compute-sanitizer", "extras/compute-sanitizer")
         if os.access(path := setup.cuda_home() / folder / "compute-sanitizer", os.X_OK)), None)


def errors_of(tool, output):
    """How many it found; None where it did not sum up."""
    found = re.findall(TOOLS[tool][0], output)
    return sum(int(count) for count in found) if found else None


def clean(setup, record, tool, what, words, limit, env):
    name = f"{tool} of {what}"
    log = setup.out / "runs" / f"{name.replace(' ', '-')}.log"
    done = commands.run(words, limit, setup.environment(**env), setup.scratch, log)
    errors = errors_of(tool, done.output)
    record.check(name, done.ok and errors == 0, "" if errors is None else f"{errors} errors in {done.seconds:.0f} s",
                 done.end() + (f"; {errors} errors, in {log}" if errors else ""))


def under(tool):
    return ["--tool", tool, "--error-exitcode", "9"]


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
    for tool in TOOLS:
        clean(setup, record, tool, "the kernels", [program, *under(tool), setup.gpu_test(), *tests], 65, few)
    for tool, (_, kernels) in TOOLS.items():
        for name, config in (("a run", in_memory), ("an offloaded run", streamed)):
            words = [program, *under(tool), *kernels, setup.finetune(), "--model", folder, "--data", folder / "tokens.bin",
                     "--seq-len", models.TINY.seq, "--steps", 2, "--deepspeed", config]
            clean(setup, record, tool, name, words, 45, {})
