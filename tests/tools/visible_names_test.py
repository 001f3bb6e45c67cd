"""The names that are visible outside the code are those of tests/visible_names.txt, and a name that changes is found.

usage: visible_names_test.py BIN
"""
import pathlib
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))
import visible_commands  # noqa: E402
import visible_names  # noqa: E402
import visible_runs  # noqa: E402

BIN = pathlib.Path()
HELP = """\
Usage: program [OPTIONS]

Files:
  -i,--include,--only SLOTS   Use these
  --betas X X                 Two of them
  --strict                    No values
  --a-very-long-name,--a_very_long_name N
                              Its meaning is on a line of its own, with --strict in it

Other spellings:
  --learning_rate             --lr
  Others are explained when they are given.
"""


class VisibleNamesTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.golden = visible_names.read(visible_names.GOLDEN)
        cls.found, cls.failures = visible_names.gather(BIN, cls.golden)

    def test_the_names_are_those_of_the_list(self):
        lines = list(visible_names.differences(self.golden, self.found))
        self.assertFalse(lines, "\n".join(["these names differ from tests/visible_names.txt:", *lines]))
        self.assertEqual(self.failures, "")

    def test_a_name_that_changes_is_missing_and_its_new_name_is_new(self):
        for heading, name in (
            ("finetune: flags", "--micro-batch N"), ("zeroth: flags", "-i as --include"),
            ("zeroth: commands", "report"), ("zeroth: values of --launcher", "slurm"),
            ("keys of ds_config.json", "zero_optimization.stage honored"),
            ("variables of Zeroth", "ZEROTH_CPU"), ("metrics: row of loss", "trained_tokens"), ("manifest", "attempt"),
            ("manifest: counters", "usual_divisor"), ("states of a checkpoint", "exp_avg_sq"),
            ("exit codes that are seen", "143: finetune, and SIGTERM ends it after a step"),
            ("files of an output", "checkpoints/step-N/zeroth/manifest.json"), ("zeroth_rounds.json", "micro_batch"),
            ("tags of tensorboard", "Train/Samples/lr"), ("files of nvme_path", "zeroth-RUN/rank-N.optimizer.swap"),
        ):
            with self.subTest(heading):
                self.assertIn(name, self.golden[heading])
                changed = {**self.golden, heading: self.golden[heading] - {name} | {"another name"}}
                self.assertEqual(list(visible_names.differences(changed, self.golden)),
                                 [f"missing: [{heading}] another name", f"new: [{heading}] {name}"])

    def test_what_is_written_is_read_again(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder, "names.txt")
            path.write_text(visible_names.text_of(self.golden), encoding="utf-8")
            self.assertEqual(visible_names.read(path), self.golden)
            self.assertEqual(visible_names.read(pathlib.Path(folder, "none.txt")), {})
        self.assertEqual(visible_names.text_of(self.golden), visible_names.GOLDEN.read_text(encoding="utf-8"))

    def test_a_help_is_taken_apart(self):
        self.assertEqual(set(visible_commands.flags_of(HELP)), {
            "--include SLOTS", "--only as --include", "-i as --include", "--betas X X", "--strict",
            "--a-very-long-name N", "--a_very_long_name as --a-very-long-name", "--learning_rate as --lr"})

    def test_what_differs_from_run_to_run_is_no_part_of_a_name(self):
        for name, expected in (
            ("runs/Nov26_09-53-45_my-host/events.out.tfevents.1795686826.my.host.22631.0",
             "runs/TIME_HOST/events.out.tfevents.TIME.HOST.PROCESS.N"),
            ("checkpoints/step-12/zeroth/pieces-00003.safetensors",
             "checkpoints/step-N/zeroth/pieces-NNNNN.safetensors"),
            ("20261126095343_rank1.log", "TIME_rankN.log"),
            ("zeroth-141d7215d8f7492a/rank-3.parameters.swap", "zeroth-RUN/rank-N.parameters.swap"),
        ):
            self.assertEqual(visible_runs.general(name), expected)
        self.assertEqual(list(visible_runs.keys_of({"a": [{"b": 1}, {"c": {"d": []}}]})),
                         ["a", "a[].b", "a[].c", "a[].c.d"])


if __name__ == "__main__":
    BIN = pathlib.Path(sys.argv.pop(1)).resolve()
    unittest.main()
