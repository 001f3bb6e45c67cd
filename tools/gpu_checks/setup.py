"""The machine, the folders and the programs of a check; the build."""
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
STAND_INS = ROOT / "tests/simulated_gpu/stand_ins"  # of nvidia-smi and others, for machines without a GPU
TARGETS = ("zeroth", "finetune", "zeroth_gpu", "gpu_test", "equivalence_test", "gpu_rates")


def output_of(*words):
    try:
        return subprocess.run([str(word) for word in words], stdin=subprocess.DEVNULL, capture_output=True, text=True,
                              timeout=60, cwd=ROOT).stdout.strip()
    except (OSError, subprocess.TimeoutExpired):
        return ""


def fail(text):
    sys.exit(f"error: {text}")


class Setup:
    def __init__(self, options):
        self.root, self.options = ROOT, options
        self.dry = options.dry_run
        self.build = (ROOT / options.build).resolve()
        self.out = (options.out or self.build / "gpu_check").resolve()
        self.scratch = (options.scratch or self.out / "scratch").resolve()
        if self.dry:
            os.environ["PATH"] = f"{STAND_INS}:{os.environ['PATH']}"
            os.environ["ZEROTH_SIMULATED_DIR"] = str(self.simulated)
        for folder in (self.out, self.scratch):
            folder.mkdir(parents=True, exist_ok=True)
        self.gpus = self.find_gpus()

    def arguments(self):
        """So that a part's own process has the same."""
        words = ["--build", str(self.build), "--out", str(self.out), "--scratch", str(self.scratch), "--python",
                 self.options.python]
        for name in ("revision", "bundle"):
            if getattr(self.options, name):
                words += [f"--{name}", str(getattr(self.options, name))]
        if self.options.torch:
            words += ["--torch", str(self.options.torch)]
        return words + (["--dry-run"] if self.dry else [])

    @property
    def simulated(self):
        return self.build / "bin/tests/simulated_gpu"

    # --- the machine

    def find_gpus(self):
        """[{name, memory_mib, capability, driver}]; an error where there is none."""
        asked = "name,memory.total,compute_cap,driver_version"
        lines = output_of("nvidia-smi", f"--query-gpu={asked}", "--format=csv,noheader,nounits").splitlines()
        gpus = []
        for line in lines:
            values = [value.strip() for value in line.split(",")]
            if len(values) == 4:
                gpus.append(dict(zip(("name", "memory_mib", "capability", "driver"), values)))
        if not gpus:
            fail("nvidia-smi tells of no GPU (--dry-run checks the tool itself, on a simulated one)")
        return gpus

    def machine(self):
        gpu, count = self.gpus[0], len(self.gpus)
        cores = len(os.sched_getaffinity(0))
        memory = re.search(r"MemTotal: *(\d+)", pathlib.Path("/proc/meminfo").read_text())
        state = output_of("nvidia-smi", "--query-gpu=clocks.sm,clocks.mem,power.limit,temperature.gpu",
                          "--format=csv,noheader").splitlines()
        return {
            "gpus": (f"{count} x " if count > 1 else "") + f"{gpu['name']}, {gpu['memory_mib']} MiB",
            "driver": gpu["driver"],
            "CUDA": (re.search(r"release ([\d.]+)", output_of(self.nvcc() or "nvcc", "--version")) or [0, "?"])[1],
            "LibTorch": self.torch_version(),
            "host": f"{cores} cores, {int(memory[1]) >> 20} GiB",
            "revision": self.revision(),
            "build": self.build_told().read_text() if self.build_told().exists() else "not timed",
            "clocks, power limit, temperature": state[0] if state else "?",
        }

    def revision(self):
        return self.options.revision or output_of("git", "describe", "--always", "--dirty") or "?"

    def nvcc(self):
        homes = [os.environ.get("CUDA_HOME", ""), "/usr/local/cuda"]
        return shutil.which("nvcc") or next((f"{home}/bin/nvcc" for home in homes if home and
                                             os.access(f"{home}/bin/nvcc", os.X_OK)), None)

    def cuda_home(self):
        return pathlib.Path(os.path.realpath(self.nvcc() or "/usr/local/cuda/bin/nvcc")).parents[1]

    def torch(self):
        if self.options.torch:
            return self.options.torch.resolve()
        found = output_of(self.options.python, "-c", "import torch; print(torch.__path__[0])")
        return pathlib.Path(found) if found else (ROOT / ".deps/torch").resolve()

    def torch_version(self):
        header = self.torch() / "include/torch/headeronly/version.h"
        found = re.search(r'TORCH_VERSION "([^"]+)"', header.read_text()) if header.exists() else None
        return found[1] if found else "?"

    def host_bytes(self):
        """Left on the host, the container's limit counted."""
        left = int(re.search(r"MemAvailable: *(\d+)", pathlib.Path("/proc/meminfo").read_text())[1]) << 10
        group = pathlib.Path("/sys/fs/cgroup")
        try:
            return min(left, int((group / "memory.max").read_text()) - int((group / "memory.current").read_text()))
        except (OSError, ValueError):  # no such group, or no limit
            return left

    # --- the build

    def build_all(self):
        """For this machine's GPU alone: each generation more is machine code that nobody runs here."""
        capabilities = sorted({gpu["capability"].replace(".", "") for gpu in self.gpus})
        words = ["cmake", "-G", "Ninja", "-S", ROOT, "-B", self.build, "-DCMAKE_BUILD_TYPE=Release", "-DZEROTH_CUDA=ON",
                 f"-DZEROTH_CUDA_ARCHITECTURES={';'.join(f'{number}-real' for number in capabilities)}",
                 f"-DTorch_ROOT={self.torch()}"]
        if self.options.bundle:
            words.append(f"-DZEROTH_BUNDLE={self.options.bundle.resolve()}")
        if self.nvcc():
            os.environ["PATH"] += f":{pathlib.Path(self.nvcc()).parent}"
        begin, anew = time.monotonic(), not (self.build / "build.ninja").exists()
        for words in (words, ["ninja", "-C", self.build, *TARGETS]):
            if subprocess.run([str(word) for word in words], stdin=subprocess.DEVNULL, cwd=ROOT).returncode != 0:
                fail(f"{words[0]} failed")
        if anew:
            packages = "a bundle" if self.options.bundle else "the system's packages"
            self.build_told().write_text(f"{time.monotonic() - begin:.0f} s with {packages}")

    def build_told(self):
        """Has how long the build took; it may have been one of an earlier call."""
        return self.out / "build.txt"

    # --- programs

    def finetune(self):
        return self.simulated / "finetune" if self.dry else self.build / "bin/finetune"

    def launch(self, ranks, *more):
        """The words that start `ranks` of finetune; its flags come behind."""
        program = "zeroth" if self.dry else self.build / "bin/zeroth"  # a stand-in starts ranks on the simulated GPU
        return [program, "--num_gpus", ranks, *more, "finetune"]

    def gpu_test(self):
        return self.simulated / "simulated_gpu_test" if self.dry else self.build / "bin/tests/gpu_test"

    def equivalence_test(self):
        return self.simulated / "equivalence_test" if self.dry else self.build / "bin/tests/equivalence_test"

    def gpu_rates(self):
        return self.simulated / "gpu_rates" if self.dry else self.build / "bin/gpu_rates"

    def environment(self, **more):
        """DS_ACCELERATOR for our programs, and the simulated GPU for those that do not lie beside it."""
        found = {**os.environ, "DS_ACCELERATOR": "cuda", **{key: str(value) for key, value in more.items()}}
        if self.dry:
            found.setdefault("OMP_NUM_THREADS", "1")
        return found

    def preloaded(self):
        """The simulated GPU before LibTorch is used, for a program that does not load it first."""
        return {"LD_PRELOAD": self.simulated / "libzeroth_gpu.so"} if self.dry else {}

    def peer_modules(self, *names):
        """Why these cannot be imported by --python; empty if they can."""
        code = f"import importlib\nfor name in {names!r}: importlib.import_module(name)"
        try:
            done = subprocess.run([self.options.python, "-c", code], stdin=subprocess.DEVNULL, capture_output=True,
                                  text=True, timeout=120)
        except (OSError, subprocess.TimeoutExpired) as error:
            return str(error)
        return "" if done.returncode == 0 else (done.stderr.strip().splitlines() or ["failed"])[-1]
