"""What `cmake --install` leaves: programs that run, and a package with which a program outside this tree builds.

usage: install_test.py CMAKE BUILD_FOLDER OPTION...   options of CMake for that program
"""
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

from run_path_test import complaints

EXAMPLE = pathlib.Path(__file__).resolve().parents[2] / "examples" / "custom_model"
TEXT = EXAMPLE.parent / "quickstart" / "train.jsonl"
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


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
