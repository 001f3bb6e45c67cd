"""tools/gpu_check on the simulated GPU: every part with tiny sizes, resuming, a part that fails; and what its figures are
made of.

usage: gpu_check_test.py BUILD_FOLDER
"""
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tools"), str(ROOT / "bench")]
import side_by_side  # noqa: E402
from gpu_checks import docs, kernels, models, offload, parts, runs  # noqa: E402

BUILD = pathlib.Path(sys.argv.pop(1)).resolve()


def check(out, *arguments, **environment):
    words = [sys.executable, "-B", ROOT / "tools/gpu_check", *arguments, "--dry-run", "--build", BUILD, "--out", out,
             "--python", "no-such-python"]
    return subprocess.run([str(word) for word in words], capture_output=True, text=True, timeout=400,
                          env={**os.environ, "ZEROTH_SIMULATED_PACE": "3", **environment})


class DryRun(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory(prefix="zeroth-gpu-check.")
        cls.addClassCleanup(folder.cleanup)
        cls.out = pathlib.Path(folder.name)
        # One part fails the first time: what compute-sanitizer finds.
        cls.first = check(cls.out, ZEROTH_STAND_IN_ERRORS="2")

    def part(self, name):
        return json.loads((self.out / f"{name}.json").read_text())

    def test_1_a_part_that_fails_is_told_with_exit_code_1_and_the_others_run(self):
        self.assertEqual(self.first.returncode, 1, self.first.stdout + self.first.stderr)
        for name in parts.NAMES:
            expected = "failed" if name == "sanitize" else "passed"
            self.assertEqual(self.part(name)["status"], expected, self.first.stdout + self.first.stderr)
        self.assertIn("2 errors, in", self.part("sanitize")["checks"][0]["why"])
        self.assertRegex(self.first.stdout, r"sanitize: failed in \d+ s \(memcheck of the kernels, ")

    def test_2_figures_of_every_part_are_on_disk(self):
        tests = {entry["name"]: entry for entry in self.part("tests")["checks"]}
        for name in ("host = file, bit for bit", "states host, GPU step = on the device, bit for bit",
                     "a host step is within 2e-5 of the device's", "a deterministic run repeats its bits"):
            self.assertEqual(tests[name]["status"], "passed")
        self.assertRegex(tests["tests of the GPU"]["figure"], r"^\d+ of \d+ test cases")
        ranks = [entry["name"] for entry in self.part("nccl")["checks"] if entry["status"] == "passed"]
        self.assertIn("2 ranks through host memory on one GPU, stage 3, bf16", ranks)
        self.assertTrue(all(entry["why"] for entry in self.part("nccl")["checks"] if entry["status"] == "left out"))
        speed = self.part("speed")
        self.assertGreater(float(speed["tables"][0]["rows"][0][1]), 0)
        self.assertIn("no-such-python", [entry for entry in speed["checks"] if entry["status"] == "left out"][0]["why"])
        offloaded = self.part("offload")
        self.assertRegex(offloaded["tables"][0]["rows"][0][4], r"^\d+ %$")
        self.assertRegex("\n".join(offloaded["notes"]), r"(?m)^largest model in 24 GB of the GPU with this host: \d+\.\de9 "
                         r"parameters \(\d+ layers; reckoned from")
        groups = [row[0] for row in self.part("profile")["tables"][1]["rows"]]
        self.assertEqual(groups[:3], ["products", "attention", "AdamW"])

    def test_3_what_passed_is_not_run_again_and_what_failed_is(self):
        before = self.part("tests")["when"], (self.out / "tests.json").stat().st_mtime_ns
        again = check(self.out)
        self.assertEqual(again.returncode, 0, again.stdout + again.stderr)
        self.assertEqual(again.stdout.count("passed before, not run again"), len(parts.NAMES) - 1)
        self.assertEqual(self.part("sanitize")["status"], "passed")
        self.assertEqual((self.part("tests")["when"], (self.out / "tests.json").stat().st_mtime_ns), before)
        whole = json.loads((self.out / "gpu_check.json").read_text())
        self.assertEqual([whole["parts"][name]["status"] for name in parts.NAMES], ["passed"] * len(parts.NAMES))
        page = (self.out / "gpu_check.md").read_text()
        self.assertIn("Simulated GPU", page)
        for name in parts.NAMES:
            self.assertIn(f"## {name}: passed", page)

    def test_4_a_part_that_does_not_end_is_ended_and_keeps_what_it_found(self):
        late = check(self.out, "tests", "--again", "--limit", "0.2")
        self.assertEqual(late.returncode, 1)
        self.assertIn("not over after 0.2 s", json.dumps(self.part("tests")))
        self.assertIn("## profile: passed", (self.out / "gpu_check.md").read_text())

    def test_5_parts_have_what_is_left_of_the_time_for_all_and_those_left_out_are_named(self):
        late = check(self.out, "tests", "profile", "--again", "--limit", "16", "--total", "4")
        self.assertEqual(late.returncode, 1)
        self.assertRegex(json.dumps(self.part("tests")), r"not over after [\d.]+ s, what was left of the 4 s of --total")
        self.assertIn("profile: left out, the 4 s of --total are over", late.stdout)
        self.assertEqual(self.part("profile")["status"], "passed")  # of before
        self.assertEqual(json.loads((self.out / "gpu_check.json").read_text())["left_out"], ["profile"])
        self.assertIn("left out, as the time was over: profile", (self.out / "gpu_check.md").read_text())

    def test_6_an_unknown_part_is_named(self):
        wrong = check(self.out, "test")
        self.assertEqual(wrong.returncode, 1)
        self.assertIn("no part test; there are tests, sanitize", wrong.stderr)


class Figures(unittest.TestCase):
    def test_kernels_are_put_together_by_what_they_are_for(self):
        text = (ROOT / "tests/simulated_gpu/stand_ins/kernels.txt").read_text()
        found = kernels.parse(text)
        self.assertEqual((found["busy"], found["whole"], len(found["kernels"])), (0.864, 0.902, 11))
        groups = {group: ms for group, ms, _ in kernels.by_group(found["kernels"])}
        self.assertEqual(groups, {"products": 576, "attention": 144, "AdamW": 57.6, "SwiGLU": 29.6, "RMSNorm": 22.4,
                                  "sums and casts": 16.8, "rotation": 7.2, "norm of gradients": 4, "head's loss": 3.2,
                                  "copies": 2, "rest": 1.2})
        self.assertIsNone(kernels.parse("nothing of it"))

    def test_parameters_and_operations_are_those_of_the_models(self):
        self.assertAlmostEqual(models.SMALL.parameters / 1e6, 31.6, delta=0.1)
        self.assertAlmostEqual(models.LARGE.parameters / 1e9, 1.1, delta=0.01)
        self.assertAlmostEqual(models.flops_per_token(models.LARGE) / 1e9, 6.76, delta=0.01)
        self.assertAlmostEqual(models.like_8b(1).layer_parameters / 1e6, 218.1, delta=0.1)

    def test_a_step_lasts_from_the_end_of_one_to_the_end_of_the_next(self):
        found = models.timed([9, 12, 14, 17, 20], 600, skip=2)
        self.assertEqual(found, {"tokens_per_s": 200, "step_s": 3, "first_step_s": 9})
        self.assertEqual(models.timed([9, 12, 14], 600, skip=2)["step_s"], 2.5)  # too few to leave any out

    def test_a_row_of_trainers_side_by_side(self):
        def side(rate, first, peak, losses):
            return [{"tokens_per_s": rate, "first_step_s": first, "peak_mib": peak, "losses": losses}]
        sides = {"peer": side(100, 4, 30, [3, 2]), "ours": side(150, 1, 20, [3, 2.5])}
        self.assertEqual(side_by_side.format_row("ddp_fp32", sides, {}),
                         "| ddp_fp32 | 100 | 150 | 1.50 | 4.0 / 1.00 | 30 / 20 | 5.0e-01 |")
        sides["ours"] = []
        self.assertEqual(side_by_side.format_row("ddp_fp32", sides, {"ours": "a | b"}),
                         "| ddp_fp32 | 100 | a \\| b | - | 4.0 / - | 30 / - | - |")

    def test_no_module_beside_the_script_of_other_trainers_hides_one_of_pythons(self):
        beside = {path.stem for path in runs.PEER.parent.glob("*.py")}
        self.assertIn("peer", beside)
        self.assertEqual(beside & sys.stdlib_module_names, set())

    def test_layers_that_fit_the_host(self):
        self.assertEqual(offload.layers_that_fit(0, 16), -2)
        fits = offload.layers_that_fit(128 << 30, 26)
        self.assertLess(models.like_8b(fits).parameters * 26, 0.8 * (128 << 30))
        self.assertGreater(models.like_8b(fits + 1).parameters * 26, 0.8 * (128 << 30))

    def test_the_largest_model_in_the_memory_of_a_gpu_is_bound_by_it_or_by_the_host(self):
        few, many = models.like_8b(2), models.like_8b(10)
        self.assertEqual(offload.largest_model(many, 12288, few, 8192, 1 << 50).layers, 34)  # 512 MiB a layer
        host = 256 << 30
        self.assertEqual(offload.largest_model(many, 8192, few, 8192, host).layers, offload.layers_that_fit(host, offload.OURS))

    def test_what_no_run_has_shown_on_a_gpu_is_told_until_one_has(self):
        everything = docs.not_seen([])
        self.assertEqual(len(everything), len(docs.UNSEEN))
        check = {"name": "memcheck of the kernels", "status": "passed"}
        run = {"parts": {"sanitize": {"part": "sanitize", "checks": [check]}}}
        left = docs.not_seen([run])
        self.assertEqual(len(left), len(everything) - 1)
        self.assertFalse(any("compute-sanitizer" in what for what, _ in left))
        check["status"] = "failed"
        self.assertEqual(docs.not_seen([run]), everything)

    def test_the_page_of_gpus_is_made_of_the_results_in_its_folder(self):
        self.assertEqual(docs.TARGET.read_text(encoding="utf-8"), docs.markdown(), "run tools/gpu_check --docs")


if __name__ == "__main__":
    unittest.main()
