"""Part `tests`: the GPU's own tests, the table of strategies on the GPU, and what offload promises of the real program."""
import re

from gpu_checks import models
from gpu_checks.runs import at_once, attempt, doctest, train

HOST, FILE = {"device": "cpu"}, "nvme"
SLOW_HERE = "-tce=*is measured at*,*runs at more than*"  # a simulated GPU's speed says nothing
# Cases of the equivalence table, in programs that run side by side; what is named by none is the rest.
ROWS = {"rows of offload": "states and parameters on the host*,tiles*,a GPU's step*",
        "every strategy": "every strategy*",
        "optimizers and gathers": "every optimizer takes*,norms and biases*,what is gathered ahead*",
        "dropout": "dropout drops*",
        "files and padding": "every optimizer's states*,pad_token_id*,units under*",
        "masters, machines and shared layers": "50 small bf16 steps*,overflows*,*machines*,ranks that share*,whether collectives*,"
                                               "near ranks*,a model that is saved*,Lamb's*"}


def run(setup, record):
    gpu_tests = ["-tc=*parameters alone on the host*,*accumulated gradients*"] if setup.dry else []
    doctest(setup, record, "tests of the GPU", setup.gpu_test(), gpu_tests or ([SLOW_HERE] if setup.dry else []), 120)
    on_gpu = {"ZEROTH_TEST_DEVICE": "cuda", "OMP_NUM_THREADS": 2, **setup.preloaded()}
    if setup.dry:
        rows = {"norms and biases": "-tc=norms and biases*"}
    else:
        rows = {name: f"-tc={cases}" for name, cases in ROWS.items()}
        rows["the rest"] = f"-tce={','.join(ROWS.values())}"
    at_once([lambda name=name, cases=cases: equivalence_rows(setup, record, name, cases, on_gpu) for name, cases in rows.items()] +
            [lambda: offload_rows(setup, record)], most=9)


def equivalence_rows(setup, record, name, cases, env):
    done = doctest(setup, record, f"equivalence: {name}", setup.equivalence_test(), [cases], 300, env)
    left_out = sum(int(count) for count in re.findall(r"(\d+) left out: their ranks need a GPU each", done.output))
    if left_out:
        record.left_out(f"equivalence: {name}: {left_out} rows", "their ranks need a GPU each")


def losses(setup, name, flags=("--deterministic",), steps=6, **zero):
    config = models.ds_config(setup.out / "runs" / f"rests-{name}.json", 4, dtype="fp32", **zero)
    shape = models.TINY
    return train(setup, shape, f"rests-{name}", config, steps=steps, micro_batch=4, limit=60, flags=flags)["losses"]


def offload_rows(setup, record):
    """Six steps of the real program, with deterministic kernels: what rests where changes no bit."""
    in_file = {"device": FILE, "nvme_path": str(setup.scratch / "swap")}
    places = {
        "device": {},
        "host, host step": {"offload_optimizer": {**HOST, "step": "cpu"}},
        "file, host step": {"offload_optimizer": {**in_file, "step": "cpu"}},
        "host, GPU step": {"offload_optimizer": {**HOST, "step": "gpu"}},
        "file, GPU step": {"offload_optimizer": {**in_file, "step": "gpu"}},
        "all on the host": {"stage": 3, "offload_optimizer": {**HOST, "step": "gpu"}, "offload_param": HOST},
    }
    found = {name: attempt(record, f"states: {name}", lambda: losses(setup, re.sub(r"\W+", "-", name), **zero))
             for name, zero in places.items()}
    if any(value is None for value in found.values()):
        return
    device = found["device"]
    record.check("host = file, bit for bit", found["host, host step"] == found["file, host step"],
                 why=f"{found['host, host step']} and {found['file, host step']}")
    for name in ("host, GPU step", "file, GPU step", "all on the host"):
        record.check(f"states {name} = on the device, bit for bit", found[name] == device,
                     why=f"{found[name]} and {device}")
    worst = max(abs(a - b) / abs(b) for a, b in zip(found["host, host step"], device))
    record.check("a host step is within 2e-5 of the device's", worst <= 2e-5, f"{worst:.1e}", f"{worst:.1e}")
    again = attempt(record, "the same once more", lambda: losses(setup, "device-again"))
    record.check("a deterministic run repeats its bits", again == device, why=f"{again} and {device}")
    free = attempt(record, "without --deterministic", lambda: losses(setup, "device-free", flags=()))
    if free:
        worst = max(abs(a - b) / abs(b) for a, b in zip(free, device))
        record.note(f"without --deterministic the losses of six steps differ by {worst:.1e} at most")
