"""The wheel of a build: what it holds, what it needs, and that it trains where it is installed beside torch.

usage: wheel_test.py BUILD_FOLDER LIBTORCH_FOLDER
"""
import base64
import hashlib
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import unittest
import zipfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))
import write_wheel  # noqa: E402
from elf_file import Elf  # noqa: E402
from run_path_test import small_elf  # noqa: E402

QUICKSTART = ROOT / "examples/quickstart"
SYSTEM = {"libc.so.6", "libm.so.6", "libgcc_s.so.1", "libstdc++.so.6", "ld-linux-x86-64.so.2", "/lib64/ld-linux-x86-64.so.2"}
TORCH = {"libtorch_cpu.so", "libc10.so", "libgomp.so.1", "libtorch_cuda.so", "libc10_cuda.so", "libcudart.so.13"}
PROGRAMS = {"zeroth/bin/zeroth", "zeroth/bin/finetune", "zeroth/bin/comm-bench"}


def run(*command, path="/usr/bin:/bin", timeout=240, **variables):
    """In an environment that has nothing of ours."""
    return subprocess.run([str(word) for word in command], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, timeout=timeout, cwd="/",
                          env={"PATH": path, "DS_ACCELERATOR": "cpu", **variables})


def output_of(*command, **options):
    done = run(*command, **options)
    if done.returncode != 0:
        raise AssertionError(f"{command}: status {done.returncode}\n{done.stdout}")
    return done.stdout


def version(text):
    return tuple(map(int, text.split(".")))


class Wheel(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory(prefix="zeroth-wheel.")
        cls.addClassCleanup(folder.cleanup)
        cls.folder = pathlib.Path(folder.name)
        writer = [sys.executable, "-B", ROOT / "tools/write_wheel.py", BUILD]
        cls.wheel = pathlib.Path(output_of(*writer, cls.folder / "first").strip())
        cls.again = pathlib.Path(output_of(*writer, cls.folder / "second").strip())
        cls.venv = cls.folder / "venv"
        # pip is the one of this Python, which some distributions keep out of a new environment.
        output_of(sys.executable, "-m", "venv", "--without-pip", "--system-site-packages", cls.venv)
        cls.python = cls.venv / "bin/python"
        cls.site = pathlib.Path(output_of(cls.python, "-c", "import sysconfig; print(sysconfig.get_path('platlib'))").strip())
        output_of(cls.python, "-m", "pip", "install", "--no-deps", "--no-index", "--ignore-installed", cls.wheel,
                  PIP_DISABLE_PIP_VERSION_CHECK="1")
        (cls.site / "torch").symlink_to(LIBTORCH)

    def finetune(self, *start):
        return [*start, "--model", QUICKSTART / "model", "--data", QUICKSTART / "train.jsonl", "--deepspeed",
                QUICKSTART / "ds_config.json", "--seq-len", "128", "--steps", "2"]

    def test_it_holds_what_its_record_says(self):
        with zipfile.ZipFile(self.wheel) as archive:
            names = archive.namelist()
            info = next(name for name in names if name.endswith("/RECORD")).rsplit("/", 1)[0]
            rows = [line.split(",") for line in archive.read(f"{info}/RECORD").decode().splitlines()]
            self.assertEqual([row[0] for row in rows], names)
            for path, digest, size in rows[:-1]:
                data = archive.read(path)
                expected = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
                self.assertEqual((digest, int(size)), (f"sha256={expected}", len(data)), path)
            self.assertEqual(rows[-1], [f"{info}/RECORD", "", ""])
            torch = re.search(r"TORCH_VERSION=(.+)", (ROOT / "tools/versions").read_text())[1]
            self.assertIn(f"\nRequires-Dist: torch=={torch}\n", archive.read(f"{info}/METADATA").decode())
            self.assertIn("\nTag: py3-none-manylinux_2_35_x86_64\n", archive.read(f"{info}/WHEEL").decode())
        self.assertRegex(self.wheel.name, r"^zeroth-[0-9.]+-py3-none-manylinux_2_35_x86_64\.whl$")

    def test_the_same_build_gives_the_same_bytes(self):
        self.assertEqual(self.wheel.read_bytes(), self.again.read_bytes())

    def test_programs_need_what_is_on_other_machines(self):
        seen = set()
        with zipfile.ZipFile(self.wheel) as archive:
            for name in archive.namelist():
                if not name.startswith(("zeroth/bin/", "zeroth/lib/")):
                    continue
                seen.add(name)
                elf = Elf(archive.read(name))
                arrow = name == "zeroth/lib/libzeroth_arrow.so"
                others = {need for need in elf.needed if re.match(r"lib(arrow|parquet)\.so\.", need)} if arrow else TORCH
                self.assertLessEqual(set(elf.needed), SYSTEM | others, name)
                run_path = "$ORIGIN/../../pyarrow" if arrow else "$ORIGIN/../../torch/lib:$ORIGIN/../../nvidia/cu13/lib"
                self.assertEqual(elf.run_paths, [run_path], name)
                for text in elf.versions:
                    library, _, number = text.partition("_")
                    newest = {"GLIBC": "2.35", "GLIBCXX": "3.4.30"}.get(library)
                    self.assertTrue(newest is None or version(number) <= version(newest), f"{name} needs {text}")
        self.assertLessEqual(PROGRAMS, seen)

    def test_what_needs_more_is_no_wheel(self):
        elf = Elf(small_elf("$ORIGIN", needed="libfmt.so.9"))
        with self.assertRaisesRegex(write_wheel.WheelError, "finetune needs libfmt.so.9, which other machines may not have"):
            write_wheel.check_portable("finetune", elf)
        elf = Elf(small_elf("$ORIGIN"))
        for needed in ("GLIBC_2.38", "GLIBCXX_3.4.31", "CXXABI_1.3.14"):
            elf.versions = ["GLIBC_2.35", "GLIBCXX_3.4", needed]
            with self.assertRaisesRegex(write_wheel.WheelError, f"zeroth needs {needed}, and "):
                write_wheel.check_portable("zeroth", elf)
        elf.versions = ["GLIBC_2.35", "GLIBC_PRIVATE", "GLIBCXX_3.4.30"]
        write_wheel.check_portable("zeroth", elf)
        refused = run(sys.executable, "-B", ROOT / "tools/write_wheel.py", self.folder, self.folder)
        self.assertEqual(refused.returncode, 1)
        self.assertIn("is no build folder", refused.stdout)

    def test_it_trains_where_it_is_installed(self):
        output = self.folder / "out"
        text = output_of(*self.finetune(self.venv / "bin/zeroth", "--num_gpus", "2", "finetune"), "--output", output)
        self.assertRegex(text, r"step 2/2 \| loss 7\.\d+")
        self.assertTrue((output / "model.safetensors").is_file(), text)

    def test_finetune_runs_by_itself(self):
        self.assertRegex(output_of(*self.finetune(self.venv / "bin/finetune")), r"step 2/2 \| loss 7\.\d+")

    def test_the_launcher_starts_programs_of_the_user(self):
        own = self.folder / "own/my_training"
        own.parent.mkdir()
        own.write_text('#!/bin/sh\necho "rank $RANK of $WORLD_SIZE with $1"\nexit 7\n')
        own.chmod(0o755)
        done = run(self.venv / "bin/zeroth", "--num_gpus", "1", "my_training", "data", path=f"{own.parent}:/usr/bin:/bin")
        self.assertEqual(done.returncode, 7, done.stdout)
        self.assertIn("rank 0 of 1 with data", done.stdout)

    def test_completions_and_presets_come_along(self):
        for file in ("share/bash-completion/completions/zeroth", "share/bash-completion/completions/finetune",
                     "share/zeroth/presets/zero3.json"):
            self.assertTrue((self.venv / file).is_file(), file)
        self.assertIn(f"LibTorch: {self.site}/torch", re.sub(r" +", " ", re.sub(
            r"LibTorch\s+\S+ in ", "LibTorch: ", output_of(self.venv / "bin/zeroth", "report"))))

    def stand_in(self, program):
        """A package whose program is another one."""
        site = pathlib.Path(tempfile.mkdtemp(dir=self.folder))
        (site / "zeroth/bin").mkdir(parents=True)
        (site / "zeroth/__init__.py").write_bytes((self.site / "zeroth/__init__.py").read_bytes())
        (site / "zeroth/bin/zeroth").symlink_to(program)
        return site

    def test_arguments_signals_and_the_process_are_the_programs(self):
        site = self.stand_in("/bin/cat")
        start = ("import sys, zeroth; sys.argv = ['typed', *sys.argv[1:]]; zeroth.zeroth()", "/proc/self/status", "/proc/self/cmdline")
        asked = subprocess.Popen([self.python, "-c", *start], stdout=subprocess.PIPE, text=True, cwd="/",
                                 stderr=subprocess.DEVNULL, env={"PYTHONPATH": str(site)})
        text = asked.communicate(timeout=60)[0]
        self.assertEqual(asked.returncode, 0)
        self.assertIn("typed\0/proc/self/status\0/proc/self/cmdline\0", text)
        self.assertIn(f"\nPid:\t{asked.pid}\n", text)
        ignored = int(re.search(r"SigIgn:\t(\w+)", text)[1], 16)
        for number in (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGINT):
            self.assertFalse(ignored >> (number - 1) & 1, number)

    def test_torch_may_be_in_another_folder_of_pythons_path(self):
        site = self.stand_in(self.site / "zeroth/bin/finetune")
        elsewhere = self.folder / "elsewhere"
        elsewhere.mkdir()
        (elsewhere / "torch").symlink_to(LIBTORCH)
        start = [sys.executable, "-I", "-c", f"import sys; sys.path[:0] = [{str(site)!r}, *sys.argv[1:2]]; "
                 "import zeroth; sys.argv = ['finetune', '--version']; zeroth.zeroth()"]
        self.assertRegex(output_of(*start, elsewhere), r"\d+\.\d+")

    def test_a_missing_torch_is_named(self):
        site = self.stand_in("/bin/false")
        done = run(sys.executable, "-I", "-S", "-c", f"import sys; sys.path.insert(0, {str(site)!r}); "
                   "import zeroth; sys.argv = ['zeroth']; zeroth.zeroth()")
        self.assertEqual(done.returncode, 1)
        self.assertIn("torch is not installed for this Python, so finetune cannot start: pip install torch==", done.stdout)
        os.unlink(site / "zeroth/bin/zeroth")
        gone = run(sys.executable, "-I", "-S", "-c", f"import sys; sys.path.insert(0, {str(site)!r}); "
                   "import zeroth; sys.argv = ['zeroth']; zeroth.zeroth()")
        self.assertEqual(gone.returncode, 126)
        self.assertIn("zeroth/bin/zeroth cannot be started: No such file", gone.stdout)


if __name__ == "__main__":
    BUILD, LIBTORCH = (pathlib.Path(word).resolve() for word in sys.argv[1:3])
    unittest.main(argv=sys.argv[:1])
