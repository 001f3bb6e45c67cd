"""What `cmake --install` leaves: programs that run, and a package with which a program outside this tree builds.

usage: install_test.py CMAKE BUILD_FOLDER OPTION...   options of CMake for that program
"""
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

from run_path_test import Elf, complaints

EXAMPLE = pathlib.Path(__file__).resolve().parents[2] / "examples" / "custom_model"
QUICKSTART = EXAMPLE.parent / "quickstart"
TEXT = QUICKSTART / "train.jsonl"
SCRIPT = EXAMPLE.parents[1] / "cmake/InstallLibTorch.cmake"
STRANGER = 12345  # has no name, no home and no group
CMAKE, BUILD, *OPTIONS = sys.argv[1:]


def run(*command, accelerator="cpu"):
    return subprocess.run(list(map(str, command)), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, timeout=120,
                          env={**os.environ, "DS_ACCELERATOR": accelerator})


def output_of(*command):
    done = run(*command)
    if done.returncode != 0:
        raise AssertionError(f"{command}: status {done.returncode}\n{done.stdout}")
    return done.stdout


class Installed(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory(prefix="zeroth-install.")
        cls.addClassCleanup(folder.cleanup)
        staged = pathlib.Path(folder.name) / "staged"
        output_of(CMAKE, "--install", BUILD, "--prefix", staged)
        cls.prefix = staged.with_name("moved")  # nothing in it may know where it was installed first
        staged.rename(cls.prefix)
        cls.example = staged.with_name("example")
        output_of(CMAKE, "-S", EXAMPLE, "-B", cls.example, f"-DCMAKE_PREFIX_PATH={cls.prefix}", *OPTIONS)
        output_of(CMAKE, "--build", cls.example)

    def test_programs_run_and_find_each_other(self):
        self.assertRegex(output_of(self.prefix / "bin/zeroth", "--version"), r"zeroth \d+\.\d+")
        self.assertIn("--model", output_of(self.prefix / "bin/zeroth", "--num_gpus", "1", "finetune", "--help"))

    def test_presets_headers_and_completions_are_there(self):
        for file in ("share/zeroth/presets/zero2.json", "include/zeroth/engine/engine.h",
                     "share/bash-completion/completions/zeroth", "share/bash-completion/completions/finetune"):
            self.assertTrue((self.prefix / file).is_file(), file)

    def test_the_package_forgets_the_build_folder(self):
        for file in self.prefix.rglob("*.cmake"):
            self.assertNotIn(str(pathlib.Path(BUILD).resolve()), file.read_text(), file)

    def test_the_package_has_no_flag_that_depends_on_the_compiler(self):
        # What gcc compiled for OpenMP needs gcc's library, also where clang links the program.
        text = (self.prefix / "lib/cmake/Zeroth/ZerothTargets.cmake").read_text()
        self.assertNotRegex(text, "COMPILER_ID|COMPILE_OPTIONS")
        self.assertRegex(text, r"--as-needed;g?omp;")

    def test_a_project_of_its_own_trains(self):
        text = output_of(self.prefix / "bin/zeroth", "--num_gpus", "2", self.example / "custom_model",
                         EXAMPLE / "ds_config.json", TEXT)
        self.assertRegex(text, r"unseen text \| loss [12]\.\d")

    def test_a_project_of_its_own_takes_no_code_from_the_current_folder(self):
        self.assertEqual(list(complaints(self.example / "custom_model")), [])

    def test_a_project_of_its_own_finds_the_gpu_library(self):
        if not (self.prefix / "lib/libzeroth_gpu.so").exists():
            self.skipTest("a build without the GPU library")
        # Found is enough: a machine without a GPU has neither a driver nor all of CUDA's libraries.
        done = run(self.example / "custom_model", EXAMPLE / "ds_config.json", TEXT, accelerator="cuda")
        self.assertRegex(done.stdout, r"no GPU is visible|cannot load the GPU library|unseen text \| loss [12]\.\d")


class LibTorchForOthers(unittest.TestCase):
    """install_as_root: what root installs runs for any user, or the installation says that it will not."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="zeroth-install.")
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.folder.chmod(0o755)

    def said_of(self, torch, prefix):
        """What the script of an installation says of a LibTorch and a prefix."""
        settings = {"torch_folder": torch, "CMAKE_INSTALL_PREFIX": prefix, "build": BUILD, "torch_copy": "lib/zeroth/torch"}
        return output_of(CMAKE, *(f"-D{name}={value}" for name, value in settings.items()), "-P", SCRIPT)

    def make(self, *parts, mode=0o755):
        """A file in the test's folder; `mode`: of the folder that is the first of `parts`."""
        file = self.folder.joinpath(*parts)
        file.parent.mkdir(parents=True)
        file.touch(mode=0o644)
        (self.folder / parts[0]).chmod(mode)
        return file

    def test_install_as_root_warns_of_each_folder_that_others_cannot_search(self):
        prefix = self.make("prefix", "bin", "finetune").parents[1]
        for name, mode, words in (("open", 0o755, ""), ("searchable", 0o711, ""), ("private", 0o700, "drwx------"),
                                  ("group", 0o750, "drwxr-x---"), ("listed", 0o754, "drwxr-xr--"), ("shared", 0o1777, "")):
            torch = self.make(name, "cache", "torch", "lib", "libtorch_cpu.so", mode=mode).parents[1]
            said = self.said_of(torch, prefix)
            self.assertIn(f"LibTorch: programs look for it in {torch}, where it has to stay", said)
            self.assertIn(f"--prefix {prefix} --component LibTorch", said)
            warned = re.search("warning: other users cannot read LibTorch, .*: (.*?)[.] A copy that they can read: ", said)
            self.assertEqual(warned[1] if warned else "", words and f"{self.folder}/{name} is {words}", said)
            self.assertNotIn("cannot run what is installed", said)

    def test_install_as_root_warns_of_a_file_and_of_a_prefix_that_others_cannot_read(self):
        library = self.make("torch", "lib", "libtorch_cpu.so")
        library.chmod(0o640)
        prefix = self.make("home", "zeroth", "bin", "finetune", mode=0o700).parents[1]
        said = self.said_of(library.parents[1], prefix)
        self.assertRegex(said, "warning: other users cannot read LibTorch, .*/libtorch_cpu[.]so is -rw-r-----[.]")
        self.assertIn(f"warning: other users cannot run what is installed: {self.folder}/home is drwx------", said)

    def test_install_as_root_with_libtorch_runs_for_any_user_wherever_it_is_moved(self):
        staged = self.folder / "staged"
        umask = os.umask(0o077)  # of a careful root
        try:
            installed = output_of(CMAKE, "--install", BUILD, "--prefix", staged)
            brought = output_of(CMAKE, "--install", BUILD, "--prefix", staged, "--component", "LibTorch")
        finally:
            os.umask(umask)
        self.assertIn("LibTorch: programs look for it in ", installed)
        self.assertIn(f"warning: other users cannot run what is installed: {staged} is drwx------. Unless", installed)
        self.assertIn(f"warning: other users cannot run what is installed: {staged} is drwx------. Unless", brought)
        self.assertIn(f"LibTorch: programs take the copy in {staged}/lib/zeroth/torch, which moves with them", brought)
        prefix = self.folder / "opt" / "zeroth-1"
        prefix.parent.mkdir()
        subprocess.run(["chmod", "-R", "go+rX", staged], check=True)  # as the warning has it
        staged.rename(prefix)
        for program in ("zeroth", "finetune", "comm-bench"):
            self.assertEqual(Elf((prefix / "bin" / program).read_bytes()).run_paths,
                             ["$ORIGIN/../lib:$ORIGIN/../lib/zeroth/torch/lib"], program)
        model = self.folder / "model"
        output = self.folder / "output"
        output.mkdir(mode=0o777)
        output.chmod(0o777)
        for file in (*(QUICKSTART / "model").iterdir(), TEXT, QUICKSTART / "ds_config.json"):
            model.mkdir(exist_ok=True)
            (model / file.name).write_bytes(file.read_bytes())
        command = [prefix / "bin/zeroth", "--num_gpus", "2", "finetune", "--model", model, "--data", model / TEXT.name,
                   "--deepspeed", model / "ds_config.json", "--seq-len", "128", "--steps", "2", "--output", output / "run"]
        stranger = {"user": STRANGER, "group": STRANGER, "extra_groups": []} if os.geteuid() == 0 else {}
        done = subprocess.run(list(map(str, command)), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, timeout=240, cwd="/",
                              env={"PATH": "/usr/bin:/bin", "DS_ACCELERATOR": "cpu"}, **stranger)
        self.assertEqual(done.returncode, 0, done.stdout)
        self.assertRegex(done.stdout, r"step 2/2 \| loss 7[.]\d+")
        self.assertTrue((output / "run/model.safetensors").is_file(), done.stdout)
        again = output_of(CMAKE, "--install", BUILD, "--prefix", prefix)
        self.assertIn(f"LibTorch: programs take the copy in {prefix}/lib/zeroth/torch", again)
        self.assertNotIn("warning: ", again)
        self.assertEqual(Elf((prefix / "bin/finetune").read_bytes()).run_paths,
                         ["$ORIGIN/../lib:$ORIGIN/../lib/zeroth/torch/lib"])


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
