"""Part `sanitize`: NVIDIA's compute-sanitizer over every kernel of ours and over two steps of tiny runs; two runs, compared."""
import os
import re
import shutil

from gpu_checks import commands, models
from gpu_checks.runs import at_once, attempt, train

KERNELS = "-tc=RMSNorm*,*gradients of RMSNorm*,rotation*,SwiGLU*,the head's*,rows of a table*,the squared norm*,updates*,stretches*"
# Of each tool: how it sums up, and what it looks at: no failed calls of CUDA's interface, as LibTorch tries some that a machine
# may refuse, and ours are checked where they are made. Those that look at shared memory slow each kernel a hundred times,
# and what libraries do there is for their makers.
TOOLS = {"memcheck": (r"ERROR SUMMARY: (\d+) error", ["--report-api-errors", "no"]),
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
    if "Internal Sanitizer Error" in done.output:
        return record.left_out(name, f"the tool itself failed: {done.end()}")
    errors = errors_of(tool, done.output)
    record.check(name, done.ok and errors == 0, "" if errors is None else f"{errors} errors in {done.seconds:.0f} s",
                 done.end() + (f"; {errors} errors, in {log}" if errors else ""))


def repeats(setup, record):
    """Two deterministic runs of the large model have the same losses, bit for bit."""
    shape = models.TINY if setup.dry else models.LARGE
    config = models.ds_config(setup.out / "runs/repeats.json", 4)
    both = [attempt(record, f"deterministic run {count}", lambda: train(
        setup, shape, f"repeats-{count}", config, steps=20, micro_batch=4, limit=60, flags=["--deterministic"])["losses"])
        for count in (1, 2)]
    if all(both):
        record.check(f"{shape.name}: two deterministic runs of 20 steps, bit for bit", both[0] == both[1], why=f"{both}")


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
    works = []
    for tool, (_, looks_at) in TOOLS.items():
        words = [program, *under(tool), *looks_at, setup.gpu_test(), *tests]
        works.append(lambda tool=tool, words=words: clean(setup, record, tool, "the kernels", words, 150, few))
        for name, config in (("a run", in_memory), ("an offloaded run", streamed)):
            words = [program, *under(tool), *looks_at, setup.finetune(), "--model", folder, "--data", folder / "tokens.bin",
                     "--seq-len", models.TINY.seq, "--steps", 2, "--deepspeed", config]
            works.append(lambda tool=tool, name=name, words=words: clean(setup, record, tool, name, words, 100, {}))
    at_once(works)
    repeats(setup, record)
