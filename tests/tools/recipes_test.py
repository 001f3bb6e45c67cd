"""The commands that examples/*/README.md show do what they say, with the smallest model at hand.

Usage: recipes_test.py ZEROTH
"""
import os
import pathlib
import re
import shlex
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
QUICKSTART = ROOT / "examples/quickstart"
ZEROTH = ""


def command_of(readme):
    """The first fenced command of a text, as words."""
    fence = re.search(r"^```\n(.*?)^```", readme.read_text(encoding="utf-8"), re.M | re.S)
    return shlex.split(fence.group(1).replace("\\\n", " "))


def run(words, folder):
    environment = {**os.environ, "DS_ACCELERATOR": "cpu"}
    return subprocess.run(words, cwd=folder, env=environment, capture_output=True, text=True, timeout=100)


class RecipesTest(unittest.TestCase):
    def test_check_config_takes_the_files_of_all_examples(self):
        files = sorted((ROOT / "examples").glob("*/ds_config.json"))
        self.assertGreaterEqual(len(files), 3)
        for file in files:
            result = run([ZEROTH, "check-config", str(file)], ROOT)
            self.assertEqual(result.returncode, 0, result.stderr)

    def test_a_model_larger_than_the_memory_trains_from_files_and_leaves_none(self):
        example = ROOT / "examples/larger_than_memory"
        places = {
            "build/bin/zeroth": ZEROTH,
            "DIR": str(QUICKSTART / "model"),
            "train.jsonl": str(QUICKSTART / "test.jsonl"),
            "examples/larger_than_memory/ds_config.json": str(example / "ds_config.json"),
        }
        words = [places.get(word, word) for word in command_of(example / "README.md")]
        words += shlex.split("--prompt-field question --completion-field answer --seq-len 128 --steps 2")
        with tempfile.TemporaryDirectory() as folder:
            result = run(words, folder)
            self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
            memory, files = re.findall(r"memory +each rank, (memory|files): (.*)", result.stdout)
            for kind in ("parameters", "masters", "optimizer states"):
                self.assertRegex(files[1], rf"\b{kind} [0-9]")
                self.assertNotRegex(memory[1], rf"\b{kind} [0-9]")
            self.assertRegex(result.stdout, r"step 2/2 .*; read [0-9.]+ MiB wrote [0-9.]+ MiB in .*% hidden")
            self.assertEqual(list(pathlib.Path(folder, "zeroth_swap").iterdir()), [])
            self.assertTrue(pathlib.Path(folder, "out/model.safetensors").is_file())


if __name__ == "__main__":
    ZEROTH = os.path.abspath(sys.argv.pop(1))
    unittest.main()
