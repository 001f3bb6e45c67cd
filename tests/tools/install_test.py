"""What `cmake --install` leaves: programs that run, and a package with which a program outside this tree builds.

usage: install_test.py CMAKE BUILD_FOLDER OPTION...   options of CMake for that program
"""
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

EXAMPLE = pathlib.Path(__file__).resolve().parents[2] / "examples" / "custom_model"
CMAKE, BUILD, *OPTIONS = sys.argv[1:]


def output_of(*command):
    run = subprocess.run(list(map(str, command)), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                         stderr=subprocess.STDOUT, text=True, timeout=280,
                         env={**os.environ, "DS_ACCELERATOR": "cpu"})
    if run.returncode != 0:
        raise AssertionError(f"{command}: status {run.returncode}\n{run.stdout}")
    return run.stdout


class Installed(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory(prefix="zeroth-install.")
        cls.addClassCleanup(folder.cleanup)
        cls.folder = pathlib.Path(folder.name)
        output_of(CMAKE, "--install", BUILD, "--prefix", cls.folder / "staged")
        cls.prefix = cls.folder / "moved"  # nothing in it may know where it was installed first
        (cls.folder / "staged").rename(cls.prefix)

    def test_programs_run_and_find_each_other(self):
        self.assertRegex(output_of(self.prefix / "bin/zeroth", "--version"), r"zeroth \d+\.\d+")
        self.assertIn("--model", output_of(self.prefix / "bin/zeroth", "--num_gpus", "1", "finetune", "--help"))

    def test_presets_and_headers_are_there(self):
        self.assertTrue((self.prefix / "share/zeroth/presets/zero2.json").is_file())
        self.assertTrue((self.prefix / "include/zeroth/engine/engine.h").is_file())

    def test_every_installed_file_forgets_the_build_folder(self):
        for file in self.prefix.rglob("*.cmake"):
            self.assertNotIn(str(pathlib.Path(BUILD).resolve()), file.read_text(), file)

    def test_a_project_of_its_own_builds_against_it_and_trains(self):
        build = self.folder / "example"
        output_of(CMAKE, "-S", EXAMPLE, "-B", build, f"-DCMAKE_PREFIX_PATH={self.prefix}", *OPTIONS)
        output_of(CMAKE, "--build", build)
        text = output_of(self.prefix / "bin/zeroth", "--num_gpus", "2", build / "custom_model",
                         EXAMPLE / "ds_config.json")
        self.assertRegex(text, r"unseen text \| loss [12]\.\d")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
