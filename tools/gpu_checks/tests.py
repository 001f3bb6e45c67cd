"""Part `tests`: the GPU's own tests, the table of strategies on the GPU, and what offload promises of the real program."""
from gpu_checks import models
from gpu_checks.runs import attempt, doctest, train

HOST, FILE = {"device": "cpu"}, "nvme"
SLOW_HERE = "-tce=*is measured at*,*runs at more than*"  # a simulated GPU's speed says nothing
ROWS_OF_OFFLOAD = "-tc=states and parameters on the host*,tiles*,a GPU's step*"
OTHER_ROWS = "-tc=every optimizer takes*,norms and biases*,what is gathered ahead*,every strategy*"
REST_OF_ROWS = "-tce=" + ",".join(words.removeprefix("-tc=") for words in (ROWS_OF_OFFLOAD, OTHER_ROWS))  # dropout, masters, ...


def run(setup, record):
    gpu_tests = ["-tc=*parameters alone on the host*,*accumulated gradients*"] if setup.dry else []
    doctest(setup, record, "tests of the GPU", setup.gpu_test(), gpu_tests or ([SLOW_HERE] if setup.dry else []), 120)
    on_gpu = {"ZEROTH_TEST_DEVICE": "cuda", **setup.preloaded()}
    if setup.dry:
        rows = {"equivalence: norms and biases": ["-tc=norms and biases*"]}
    else:
        rows = {"equivalence: rows of offload": [ROWS_OF_OFFLOAD], "equivalence: other rows": [OTHER_ROWS],
                "equivalence: the rest": [REST_OF_ROWS]}
    for name, arguments in rows.items():
        doctest(setup, record, name, setup.equivalence_test(), arguments, 105, on_gpu)
    offload_rows(setup, record)


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
    found = {}
    for name, zero in places.items():
        slug = name.replace(", ", "-").replace(" ", "-")
        found[name] = attempt(record, f"states: {name}", lambda: losses(setup, slug, **zero))
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
