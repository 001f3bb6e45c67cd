"""Part `machine`: what it is, whether our programs find their libraries there, and what the GPU can do at best."""
import json

from gpu_checks import commands, expected, results
from gpu_checks.setup import FILES, output_of


def libraries(setup, record):
    for name in FILES:
        found = output_of("ldd", setup.build / name)
        missing = [line.strip() for line in found.splitlines() if "not found" in line]
        record.check(f"libraries of {name}", bool(found) and not missing, why="; ".join(missing) or "ldd says nothing")


def rates(setup, record):
    """What the GPU can do at best, by bench/gpu_rates.cpp."""
    done = commands.run([setup.gpu_rates(), 1 if setup.dry else 1024], 60, setup.environment(), setup.scratch)
    lines = [line for line in done.output.splitlines() if line.startswith("{")]
    if not done.ok or not lines:
        record.check("rates of the GPU", False, why=done.end())
        return None
    found = json.loads(lines[-1])
    results.write_atomically(setup.out / "runs/rates.json", lines[-1])
    record.check("rates of the GPU", True, f"{found['bf16'] / 1e12:.0f} TFLOP/s in bf16, {found['copy'] / 1e12:.2f} TB/s")
    told = {"products, bf16": f"{found['bf16'] / 1e12:.1f} TFLOP/s", "products, fp32": f"{found['fp32'] / 1e12:.1f} TFLOP/s",
            "copy on the GPU, read and written": f"{found['copy'] / 1e12:.2f} TB/s",
            "host to GPU": f"{found['to_device'] / 1e9:.1f} GB/s", "GPU to host": f"{found['to_host'] / 1e9:.1f} GB/s",
            "both at once, each": f"{found['both'] / 1e9:.1f} GB/s"}
    record.table("Measured at best", ["", "rate", expected.COLUMN],
                 [[name, rate, expected.of(setup, name)] for name, rate in told.items()])
    return found


def known_rates(setup, record):
    """Those that an earlier run of this part measured, or new ones."""
    path = setup.out / "runs/rates.json"
    return json.loads(path.read_text()) if path.exists() else rates(setup, record)


def run(setup, record):
    commands.run(["nvidia-smi", "-q"], 60, log=setup.out / "runs/nvidia-smi.txt")
    if not setup.dry:
        libraries(setup, record)
    rates(setup, record)
