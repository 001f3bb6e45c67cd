"""tools/gpu_check on the simulated GPU: every part with tiny sizes, resuming, a part that fails; and what its figures are
made of.

usage: gpu_check_test.py BUILD_FOLDER
"""
import contextlib
import io
import json
import os
import pathlib
import subprocess
import sys
import tarfile
import tempfile
import time
import types
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tools"), str(ROOT / "bench")]
import side_by_side  # noqa: E402
from gpu_checks import (docs, expected, kernels, lengths, models, offload, parts, results, runs, sanitize, setup,  # noqa: E402
                        speed)

BUILD = pathlib.Path(sys.argv.pop(1)).resolve()


def check(out, *arguments, **environment):
    words = [sys.executable, "-B", ROOT / "tools/gpu_check", *arguments, "--dry-run", "--build", BUILD, "--out", out,
             "--python", "no-such-python"]
    return subprocess.run([str(word) for word in words], capture_output=True, text=True, timeout=400,
                          env={**os.environ, "ZEROTH_SIMULATED_PACE": "3", **environment})


def on(gpu, **more):
    """Of a setup what some figures are made of."""
    return types.SimpleNamespace(gpus=[{"name": gpu, "memory_mib": "81559"}], dry=False, **more)


def tell_build(out, seconds, cores):
    with contextlib.redirect_stdout(io.StringIO()):
        setup.Setup.tell_build(types.SimpleNamespace(out=out, options=types.SimpleNamespace(bundle=None)), seconds, cores)


def remove(folder):
    """Also while a process that a call has just ended makes its last file."""
    for _ in range(50):
        try:
            return folder.cleanup()
        except OSError:
            time.sleep(0.1)
    folder.cleanup()


class DryRun(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory(prefix="zeroth-gpu-check.")
        cls.addClassCleanup(remove, folder)
        cls.out = pathlib.Path(folder.name)
        # One part fails the first time: what compute-sanitizer finds.
        cls.calls = {call: check(cls.out, "--call", call, ZEROTH_STAND_IN_ERRORS="2") for call in parts.CALLS}
        cls.told = "".join(done.stdout + done.stderr for done in cls.calls.values())

    def part(self, name):
        return json.loads(results.path_of(self, name).read_text())

    def test_1_four_calls_run_every_part_and_the_one_that_fails_is_told_with_exit_code_1(self):
        self.assertEqual(len(set(parts.NAMES)), len(parts.NAMES))
        for call, done in self.calls.items():
            self.assertEqual(done.returncode, 1 if "sanitize" in parts.CALLS[call] else 0, self.told)
        for name in parts.NAMES:
            self.assertEqual(self.part(name)["status"], "failed" if name == "sanitize" else "passed", self.told)
        found = {entry["name"]: entry["why"] for entry in self.part("sanitize")["checks"] if entry["status"] == "failed"}
        self.assertEqual(set(found), {f"{tool} of {what}" for tool in ("memcheck", "racecheck", "synccheck")
                                      for what in ("the kernels", "a run", "an offloaded run")})
        for why in found.values():
            self.assertIn("2 errors, in", why)
        self.assertRegex(self.told, r"sanitize: failed in \d+ s \(\w+ of (an?|the) ")

    def test_1_results_of_a_call_are_three_files(self):
        self.assertEqual(sorted(path.name for path in self.out.iterdir() if path.is_file()),
                         ["gpu_check.json", "gpu_check.md", "gpu_check.tar.xz"])
        with tarfile.open(self.out / "gpu_check.tar.xz") as packed:
            self.assertLess({"parts/tests.json", "runs/nvidia-smi.txt", "runs/profile.log"}, set(packed.getnames()))

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
        table = offloaded["tables"][0]
        self.assertRegex(table["rows"][0][table["header"].index("hidden")], r"^\d+ %$")
        self.assertEqual([row[0] for row in table["rows"]], [
            "tiny, step cpu", "tiny, step gpu", "tiny, step auto", "tiny, step cpu, bf16 states", "tiny, step cpu",
            "tiny on the GPU"])
        for name in ("machine", "speed", "offload", "profile"):
            self.assertIn(expected.COLUMN, self.part(name)["tables"][0]["header"])
        self.assertIn("0 MHz at 0 W", speed["tables"][0]["rows"][0])
        lengths_of = {entry["name"]: entry for entry in self.part("profile")["checks"]}["samples of mixed lengths"]
        self.assertRegex(lengths_of["figure"], r"^a step \d+ ms in the middle, \d+ ms at most; \d of 4 above .*; [2-6] numbers of")
        self.assertRegex("\n".join(offloaded["notes"]), r"(?m)^largest model in 24 GB of the GPU with this host: \d+\.\de9 "
                         r"parameters \(\d+ layers; estimated from")
        groups = [row[0] for row in self.part("profile")["tables"][0]["rows"]]
        self.assertEqual(groups[:3], ["products", "attention", "AdamW"])

    def test_3_what_passed_is_not_run_again_and_what_failed_is(self):
        before = self.part("tests")["when"], (self.out / "parts/tests.json").stat().st_mtime_ns
        again = check(self.out)
        self.assertEqual(again.returncode, 0, again.stdout + again.stderr)
        self.assertEqual(again.stdout.count("passed before, not run again"), len(parts.NAMES) - 1)
        self.assertEqual(self.part("sanitize")["status"], "passed")
        self.assertEqual((self.part("tests")["when"], (self.out / "parts/tests.json").stat().st_mtime_ns), before)
        whole = json.loads((self.out / "gpu_check.json").read_text())
        self.assertEqual([whole["parts"][name]["status"] for name in parts.NAMES], ["passed"] * len(parts.NAMES))
        page = (self.out / "gpu_check.md").read_text()
        self.assertIn("Simulated GPU", page)
        for name in parts.NAMES:
            self.assertIn(f"## {name}: passed", page)

    def test_4_a_build_that_took_too_long_is_told_with_exit_code_1(self):
        tell_build(self.out, 400, 16)
        late = check(self.out)
        results.path_of(self, "build").unlink()
        self.assertEqual((late.returncode, late.stdout.count("passed before")), (1, len(parts.NAMES)))
        self.assertEqual(json.loads((self.out / "gpu_check.json").read_text())["parts"]["build"]["status"], "failed")
        self.assertIn("## build: failed, 400 s", (self.out / "gpu_check.md").read_text())

    def test_5_a_part_that_does_not_end_is_ended_and_keeps_what_it_found(self):
        late = check(self.out, "tests", "--again", "--limit", "0.2")
        self.assertEqual(late.returncode, 1)
        self.assertIn("not over after 0.2 s", json.dumps(self.part("tests")))
        self.assertIn("## profile: passed", (self.out / "gpu_check.md").read_text())

    def test_6_parts_have_what_is_left_of_the_time_for_all_and_those_left_out_are_named(self):
        total = round(self.part("offload")["seconds"] / 3, 1)
        late = check(self.out, "offload", "nccl", "--again", "--limit", str(2 * total), "--total", str(total))
        self.assertEqual(late.returncode, 1)
        self.assertRegex(json.dumps(self.part("offload")),
                         rf"not over after [\d.]+ s, what was left of the {total:g} s of --total")
        self.assertIn(f"nccl: left out, the {total:g} s of --total are over", late.stdout)
        self.assertEqual(self.part("nccl")["status"], "passed")  # of before
        self.assertEqual(json.loads((self.out / "gpu_check.json").read_text())["left_out"], ["nccl"])
        self.assertIn("left out, as the time was over: nccl", (self.out / "gpu_check.md").read_text())

    def test_7_an_unknown_part_is_named(self):
        wrong = check(self.out, "test")
        self.assertEqual(wrong.returncode, 1)
        self.assertIn("no part test; there are machine, tests", wrong.stderr)


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
        for group, name in (  # as an H100 and an H200 named them
                ("embedding", "_ZN14at_cuda_detail3cub6detail10radix_sort29DeviceRadixSortOnesweepKernelINS1_5radix10policy_hubIlN2"),
                ("embedding", "_ZN2at6native46_GLOBAL__N__e17e1519_13_SortStable_cu_f7bb90a127fill_reverse_indices_kernelEPliNS_4cu"),
                ("attention", "_ZN5cudnn6fusion28compute_dot_do_o_specializedILb1ELi64EEEvPKvS3_PvS4_jjjjjjjjjjjjjjjjjfS3_S3_S3_S3_"),
                ("attention", "_ZN5cudnn6fusion20convert_dq_to_16bitsILb1EEEvPKvPvjjjjjjjjjjPKfS6_S6_PfS3_S4_S4_bb")):
            self.assertEqual(kernels.group_of(name), group, name)

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
        self.assertEqual(side_by_side.format_row(models.SMALL, "ddp_fp32", sides, {}, beside=None),
                         "| 31.6M | ddp_fp32 | 100 | 150 | 1.50 | 4.0 / 1.00 | 30 / 20 | 5.0e-01 |")
        self.assertTrue(side_by_side.format_row(models.SMALL, "ddp_fp32", sides, {}, beside=models.LARGE).endswith("| - |"))
        sides["ours"] = []
        self.assertEqual(side_by_side.format_row(models.SMALL, "ddp_fp32", sides, {"ours": "a | b"}, beside=None),
                         "| 31.6M | ddp_fp32 | 100 | a \\| b | - | 4.0 / - | 30 / - | - |")

    def test_no_module_beside_the_script_of_other_trainers_hides_one_of_pythons(self):
        beside = {path.stem for path in runs.PEER.parent.glob("*.py")}
        self.assertIn("peer", beside)
        self.assertEqual(beside & sys.stdlib_module_names, set())

    def test_each_tool_of_compute_sanitizer_sums_up_in_its_own_words(self):
        found = "========= RACECHECK SUMMARY: 3 hazards displayed (2 errors, 1 warning)\n"
        self.assertEqual(sanitize.errors_of("racecheck", found), 3)
        self.assertIsNone(sanitize.errors_of("memcheck", found))
        found = "========= ERROR SUMMARY: 1 error\n"
        self.assertEqual(sanitize.errors_of("memcheck", found), 1)
        self.assertEqual(sanitize.errors_of("synccheck", found), 1)
        self.assertIsNone(sanitize.errors_of("racecheck", found))

    def test_a_build_of_six_minutes_on_16_cores_is_a_failure_and_on_fewer_cores_is_left_out(self):
        with tempfile.TemporaryDirectory() as folder:
            here = types.SimpleNamespace(out=pathlib.Path(folder))
            for seconds, cores, bound in ((359, 16, "passed"), (360, 16, "failed"), (360, 15, "left out"), (9, 2, "passed")):
                tell_build(here.out, seconds, cores)
                part = results.load(results.path_of(here, "build"))
                self.assertEqual([check["status"] for check in part["checks"]], ["passed", bound])
                self.assertEqual(part["status"] == "failed", bound == "failed")
                self.assertEqual(results.Whole(here).failed("build"), bound == "failed")
                self.assertIn(f"{seconds} s on {cores} cores", part["checks"][0]["figure"])
        self.assertIn(("build", part["checks"][1]["name"]), [shown for *_, shown in docs.UNSEEN])

    def test_expected_figures_are_shown_for_the_gpus_that_they_were_estimated_for(self):
        h100, h200, other = on("NVIDIA H100 80GB HBM3"), on("NVIDIA H200"), on("NVIDIA A100")
        self.assertEqual(expected.of(h200, "1.1B, 4 samples"), "112 ms, 50 %")
        self.assertEqual(expected.of(h100, "1.1B, 4 samples"), "118 ms, 47 %")
        self.assertEqual((expected.of(other, "1.1B, 4 samples"), expected.of(h100, "none")), ("", ""))
        self.assertEqual((expected.of_kernels(h100, "AdamW"), expected.of_kernels(other, "AdamW")), ("10.7", ""))
        shape = models.like_8b(8)
        self.assertEqual(expected.of_layers(h200, shape, 8192), "150 ms")  # 8 x 17.7 and 8 of the head
        self.assertEqual(expected.of_layers(h200, shape, 8192, "step cpu"), "422 ms")
        self.assertEqual(expected.of_layers(h200, shape, 8192, "step gpu"), "714 ms")
        self.assertEqual((expected.of_layers(h200, shape, 8192, "step auto"), expected.of_layers(other, shape, 8192)), ("", ""))
        alone = {f"{shape.name}, {run[0]}" for shape in (models.LARGE, models.SMALL) for run in speed.RUNS[shape]}
        rates = {name for name in expected.FIGURES if "B," not in name and "M," not in name}
        self.assertLessEqual(set(expected.FIGURES) - rates, alone)

    def test_a_timing_is_the_second_of_two_runs(self):
        measured = iter([{"step_s": 9}, {"step_s": 1}])
        here = on("", asked=lambda _: "612.5 W, 1740 MHz")
        self.assertEqual(runs.settled(here, lambda: next(measured)), {"step_s": 1, "clock": "1740 MHz at 612 W"})

    def test_the_share_of_the_data_sheet_is_one_of_its_16_bit_products(self):
        self.assertEqual(speed.share_of_sheet(on("NVIDIA H100 80GB HBM3"), {"tflops": 593.4}), "60.0 %")
        self.assertEqual(speed.share_of_sheet(on("NVIDIA H100 PCIe"), {"tflops": 378}), "50.0 %")
        self.assertEqual(speed.share_of_sheet(on("NVIDIA L40S"), {"tflops": 181}), "50.0 %")
        for other in ("Simulated GPU", "NVIDIA A1000"):
            self.assertEqual(speed.share_of_sheet(on(other), {"tflops": 593.4}), "?")

    def test_want_of_time_costs_the_rows_of_other_trainers(self):
        with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(io.StringIO()):
            here = on("", out=pathlib.Path(folder), left=lambda: 59.0, peer_modules=lambda *_: "")
            record = results.Record(here, "speed")
            speed.beside(here, record, models.SMALL, 4, "fp32", [("DDP", "ddp", 0)], 110)
            offload.beside_deepspeed(here, record, "stage 2", models.SMALL, 2, lambda: self.fail("was run"))
        self.assertEqual([(check["status"], check["why"]) for check in record.data["checks"]],
                         [("left out", "no time is left in this part")] * 2)

    def test_a_part_knows_the_seconds_that_it_has(self):
        here = types.SimpleNamespace(end=time.monotonic() + 100)
        self.assertAlmostEqual(setup.Setup.left(here), 100, delta=5)

    def test_steps_that_take_more_than_twice_the_usual_time_are_counted(self):
        self.assertEqual(lengths.slow([1, 1, 5, 2, 1]), (1, 5, 1))

    def test_layers_that_fit_a_gpu_leave_room_for_what_they_keep(self):
        fits = offload.layers_on_gpu(80 << 30)
        self.assertEqual(fits, 14)
        used = models.like_8b(fits).parameters * offload.ON_GPU + fits * offload.KEPT + offload.WORKING
        self.assertLess(used, 0.9 * (80 << 30))
        self.assertEqual(offload.layers_on_gpu(1 << 40), 32)  # a whole 8B
        self.assertLess(offload.layers_on_gpu(8 << 30), 1)

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

    def test_results_of_one_day_and_gpu_are_joined_by_check(self):
        def part(**checks):
            return {"seconds": 2, "tables": [], "notes": [],
                    "checks": [{"name": name, "status": status} for name, status in checks.items()]}
        both = docs.joined(part(a="failed", b="passed"), part(a="passed", c="left out"))
        self.assertEqual({check["name"]: check["status"] for check in both["checks"]},
                         {"a": "passed", "b": "passed", "c": "left out"})
        self.assertEqual((both["status"], both["seconds"]), ("passed", 4))
        self.assertEqual(docs.joined(part(a="failed"), part(b="passed"))["status"], "failed")

    def test_the_page_of_gpus_is_made_of_the_results_in_its_folder(self):
        self.assertEqual(docs.TARGET.read_text(encoding="utf-8"), docs.markdown(), "run tools/gpu_check --docs")


if __name__ == "__main__":
    unittest.main()
