"""Runs of the real programs on hosts of the playground: a small model, samples whose lengths tell them apart."""
import json
import os
import pathlib
import random
import shutil
import subprocess
import time

SOURCES = pathlib.Path(__file__).resolve().parents[2]
MODEL = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": 448, "hidden_size": 32,
    "intermediate_size": 64, "num_hidden_layers": 3, "num_attention_heads": 4, "num_key_value_heads": 2,
    "max_position_embeddings": 128, "rms_norm_eps": 1e-6, "hidden_act": "silu", "initializer_range": 0.05,
    "tie_word_embeddings": False, "rope_theta": 10000.0, "torch_dtype": "float32"}
STEPS, BATCH = 8, 8
NEAR = 2e-5  # between losses whose sums were taken in another order
ENVIRONMENT = {"DS_ACCELERATOR": "cpu", "OMP_NUM_THREADS": "1"}  # carried over to hosts


def make_inputs(folder):
    """model/, train.jsonl and test.jsonl."""
    (folder / "model").mkdir()
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(SOURCES / "tests/data/fixtures/gpt2" / name, folder / "model")
    (folder / "model/config.json").write_text(json.dumps(MODEL))
    draw = random.Random(7)
    for name, count in (("train", STEPS * BATCH), ("test", 64)):
        texts = [" ".join(str(draw.randrange(10)) for _ in range(draw.randrange(4, 40))) for _ in range(count)]
        (folder / f"{name}.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))


def strategy(stage, tensor=1, pipeline=1, **zero):
    config = {"train_batch_size": BATCH, "zero_optimization": {"stage": stage, **zero},
              "optimizer": {"type": "AdamW", "params": {"lr": 1e-2}}}
    config |= {"tensor_parallel": {"autotp_size": tensor}} if tensor > 1 else {}
    return config | ({"pipeline": {"stages": pipeline}} if pipeline > 1 else {})


class Job:
    """`starter`, which ends in finetune, and its arguments; in a folder NAME, whose files `stdout` and `stderr` hold
    what it says."""

    def __init__(self, folder, name, starter, config, *more, environment=None, part=""):
        self.folder, self.part = folder / name, part
        self.folder.mkdir(exist_ok=True)
        (self.folder / "ds_config.json").write_text(json.dumps(config))
        self.words = [*(str(word) for word in starter), "--model", folder / "model", "--data", folder / "train.jsonl",
                      "--deepspeed", self.folder / "ds_config.json", "--seq-len", "96", "--steps", STEPS,
                      "--metrics", self.folder / "metrics.jsonl", *more]
        self.began = time.monotonic()
        with open(self.folder / f"stdout{part}", "w") as out, open(self.folder / f"stderr{part}", "w") as err:
            self.process = subprocess.Popen([str(word) for word in self.words], stdin=subprocess.DEVNULL, cwd=folder,
                                            stdout=out, stderr=err,
                                            env={**os.environ, **ENVIRONMENT, **(environment or {})})

    def wait(self, seconds=60):
        """The exit code; minus the signal's number where one ended it. None: it runs on after that time."""
        try:
            self.process.wait(timeout=seconds)
        except subprocess.TimeoutExpired:
            return None
        return self.process.returncode

    def end(self):
        self.process.kill()
        self.process.wait()

    @property
    def out(self):
        return (self.folder / f"stdout{self.part}").read_text(errors="replace")

    @property
    def err(self):
        return (self.folder / f"stderr{self.part}").read_text(errors="replace")

    def said(self):
        return f"{self.out[-3000:]}\n{self.err[-3000:]}"

    def rows(self, key):
        """Of the metrics those that have `key`; a line that is not whole yet is left out."""
        path = self.folder / "metrics.jsonl"
        lines = path.read_text().split("\n")[:-1] if path.exists() else []
        return [row for row in map(json.loads, lines) if key in row]

    def steps(self):
        return {row["step"]: row for row in self.rows("loss")}

    def evaluations(self):
        return {row["step"]: row["eval_loss"] for row in self.rows("eval_loss")}


def differences(found, expected):
    """Of two jobs: steps and evaluations that are not there or not alike, and samples that were others."""
    told = []
    pairs = {f"loss of step {step}": (found.steps().get(step, {}).get("loss"), row["loss"])
             for step, row in expected.steps().items()}
    pairs |= {f"evaluation at step {step}": (found.evaluations().get(step), loss)
              for step, loss in expected.evaluations().items()}
    for what, (one, other) in pairs.items():
        if one is None or abs(one - other) > NEAR * max(1, abs(other)):
            told.append(f"{what}: {one}, expected {other}")
    for step, row in expected.steps().items():
        if found.steps().get(step, {}).get("trained_tokens") != row["trained_tokens"]:
            told.append(f"samples of step {step}: others")
    if len(found.rows("loss")) != len(expected.rows("loss")):
        told.append(f"steps in the metrics: {[row['step'] for row in found.rows('loss')]}")
    return told
