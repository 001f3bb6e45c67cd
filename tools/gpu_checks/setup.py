"""The machine, the folders and the programs of a check; the build."""
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tarfile
import time

from gpu_checks import results

ROOT = pathlib.Path(__file__).resolve().parents[2]
STAND_INS = ROOT / "tests/simulated_gpu/stand_ins"  # of nvidia-smi and others, for machines without a GPU
BUILD_SECONDS, BUILD_CORES = 360, 16  # what a build of everything may take, on how many cores
TARGET = "gpu_check_programs"
KERNEL_TIMES = "lib/libgpu_kernel_times.so"
# What it makes, and tools/gpu_archive packs.
FILES = ("bin/zeroth", "bin/finetune", "bin/gpu_rates", "bin/tests/gpu_test", "bin/tests/equivalence_test",
         "lib/libzeroth_gpu.so", KERNEL_TIMES)


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
        self.end = time.monotonic() + options.limit

    def left(self):
        """Seconds of this process's part."""
        return self.end - time.monotonic()

    def arguments(self, limit):
        """So that a part's own process has the same, but for its seconds."""
        words = ["--limit", str(limit), "--build", str(self.build), "--out", str(self.out), "--scratch", str(self.scratch),
                 "--python", self.options.python]
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
        """[{name, memory_mib, capability, driver, mig}]; an error where there is none."""
        asked = "name,memory.total,compute_cap,driver_version,mig.mode.current"
        lines = output_of("nvidia-smi", f"--query-gpu={asked}", "--format=csv,noheader,nounits").splitlines()
        gpus = []
        for line in lines:
            values = [value.strip() for value in line.split(",")]
            if len(values) == 5:
                gpus.append(dict(zip(("name", "memory_mib", "capability", "driver", "mig"), values)))
        if not gpus:
            fail("nvidia-smi tells of no GPU (--dry-run checks the tool itself, on a simulated one)")
        return gpus

    def machine(self):
        gpu, count = self.gpus[0], len(self.gpus)
        cores = len(os.sched_getaffinity(0))
        memory = re.search(r"MemTotal: *(\d+)", pathlib.Path("/proc/meminfo").read_text())
        state = self.asked("clocks.sm,clocks.mem,power.limit,temperature.gpu")
        return {
            "gpus": (f"{count} x " if count > 1 else "") + f"{gpu['name']}, {gpu['memory_mib']} MiB",
            "driver": gpu["driver"],
            "CUDA": (re.search(r"release ([\d.]+)", output_of(self.nvcc() or "nvcc", "--version")) or [0, "?"])[1],
            "LibTorch": self.torch_version(),
            "host": f"{cores} cores, {int(memory[1]) >> 20} GiB",
            "revision": self.revision(),
            "clocks, power limit, temperature": state,
        }

    def asked(self, values):
        """What nvidia-smi tells of the first GPU."""
        lines = output_of("nvidia-smi", f"--query-gpu={values}", "--format=csv,noheader").splitlines()
        return lines[0] if lines else "?"

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
        """Of a Python package, or of a LibTorch without Python."""
        for name in ("version.py", "build-version"):
            file = self.torch() / name
            found = re.search(r"\d+\.\d+\.\d+[+\w.]*", file.read_text()) if file.exists() else None
            if found:
                return found[0]
        return "?"

    def host_bytes(self):
        """Left on the host, the container's limit counted."""
        left = int(re.search(r"MemAvailable: *(\d+)", pathlib.Path("/proc/meminfo").read_text())[1]) << 10
        group = pathlib.Path("/sys/fs/cgroup")
        try:
            return min(left, int((group / "memory.max").read_text()) - int((group / "memory.current").read_text()))
        except (OSError, ValueError):  # no such group, or no limit
            return left

    # --- the build

    def unpack(self):
        """The programs of tools/gpu_archive, which find LibTorch's libraries by the environment."""
        if not self.options.archive.is_file():
            fail(f"{self.options.archive} is missing: tools/gpu_archive makes it")
        with tarfile.open(self.options.archive) as archive:
            archive.extractall(self.build, filter="data")
        self.find_libraries()

    def find_libraries(self):
        folders = [self.torch() / "lib", self.torch().parent / "nvidia/cu13/lib", os.environ.get("LD_LIBRARY_PATH")]
        os.environ["LD_LIBRARY_PATH"] = ":".join(str(folder) for folder in folders if folder)

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
        for words in (words, ["ninja", "-C", self.build, TARGET]):
            if subprocess.run([str(word) for word in words], stdin=subprocess.DEVNULL, cwd=ROOT).returncode != 0:
                fail(f"{words[0]} failed")
        if anew:
            self.tell_build(time.monotonic() - begin, len(os.sched_getaffinity(0)))

    def tell_build(self, seconds, cores):
        """The result `build`, of one that began with nothing."""
        record, bound = results.Record(self, "build"), f"built in under {BUILD_SECONDS // 60} minutes on {BUILD_CORES} cores"
        packages = "a bundle" if self.options.bundle else "the system's packages"
        record.check("built", True, f"{seconds:.0f} s on {cores} cores, with {packages}")
        if seconds >= BUILD_SECONDS and cores < BUILD_CORES:
            record.left_out(bound, f"this machine has {cores}")
        else:
            record.check(bound, seconds < BUILD_SECONDS, why=f"{seconds:.0f} s")
        record.end(seconds)

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
