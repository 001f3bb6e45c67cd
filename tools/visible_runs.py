"""Names that runs leave behind: files of an output, keys of JSON, columns, tags, states, variables of a rank."""
import json
import os
import pathlib
import re
import signal
import struct
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests/hosts"))
import tiny_run  # noqa: E402
from visible_commands import environment  # noqa: E402

# What differs from run to run in the name of a file.
PARTS_OF_NAMES = (
    (r"events\.out\.tfevents\.\d+\..+\.\d+\.\d+$", "events.out.tfevents.TIME.HOST.PROCESS.N"),
    (r"\b[A-Z][a-z]{2}\d\d_\d\d-\d\d-\d\d_[^/]+", "TIME_HOST"),
    (r"\b\d{14}_rank\d+", "TIME_rankN"),
    (r"\bstep-\d+", "step-N"),
    (r"(?<=\.owner-)\d+", "N"),
    (r"(?<=pieces-)\d{5}", "NNNNN"),
    (r"\bzeroth-[0-9a-f]+(?=/rank)", "zeroth-RUN"),
    (r"\brank-\d+", "rank-N"),
)
MONITORS = {"enabled": True, "output_path": "monitor", "job_name": "job"}
FULL = {  # as many keys of metrics, counters and monitors as one run can have
    "train_micro_batch_size_per_gpu": 4, "fp16": {"enabled": True}, "wall_clock_breakdown": True,
    "zero_optimization": {"stage": 3, "stage3_param_persistence_threshold": 0,
                          "offload_optimizer": {"device": "nvme", "nvme_path": "swap"},
                          "offload_param": {"device": "nvme", "nvme_path": "swap", "max_in_cpu": 0}},
    "flops_profiler": {"enabled": True}, "csv_monitor": MONITORS, "tensorboard": MONITORS}
# Optimizers, by whose states checkpoints differ, on ranks that have other groups each.
OPTIMIZERS = {
    "Lion": (4, {"tensor_parallel": {"autotp_size": 2}}, {"stage": 1}),
    "SGD": (4, {}, {"stage": 3, "zero_hpz_partition_size": 2, "stage3_param_persistence_threshold": 0}),
    "Adagrad": (1, {}, {"stage": 0}),
    "Lamb": (1, {}, {"stage": 0}),
    "AdamW8bit": (2, {}, {"stage": 2}),
}
LONG = 1_000_000  # steps of a run that a signal ends


def general(name):
    for pattern, word in PARTS_OF_NAMES:
        name = re.sub(pattern, word, name)
    return name


def files_in(folder):
    return {general(path.relative_to(folder).as_posix()) for path in folder.rglob("*") if path.is_file()}


def open_files(process):
    for link in pathlib.Path(f"/proc/{process}/fd").iterdir():
        try:
            yield os.readlink(link)
        except FileNotFoundError:
            pass  # closed meanwhile


def keys_of(value, path=""):
    """The paths of all keys; the elements of a list share one path."""
    if isinstance(value, dict):
        for key, inner in value.items():
            whole = f"{path}.{key}" if path else key
            yield whole
            yield from keys_of(inner, whole)
    elif isinstance(value, list):
        for inner in value:
            yield from keys_of(inner, f"{path}[]")


def header_of(path):
    """The header of a safetensors file."""
    data = path.read_bytes()
    return json.loads(data[8 : 8 + struct.unpack("<Q", data[:8])[0]])


def fields(message):
    """(number, bytes) of each field of a protobuf message that has a length."""
    at = 0

    def number():
        nonlocal at
        value = shift = 0
        while True:
            byte = message[at]
            at += 1
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value

    while at < len(message):
        key = number()
        if key & 7 == 2:
            size = number()
            yield key >> 3, message[at : at + size]
            at += size
        elif key & 7 == 0:
            number()
        else:
            at += 8 if key & 7 == 1 else 4


def tags_of(path):
    """The tags of an event file: of each record the events, of these the summaries, of these the values."""
    data = path.read_bytes()
    at = 0
    while at < len(data):
        size = struct.unpack_from("<Q", data, at)[0]
        for number, summary in fields(data[at + 12 : at + 12 + size]):
            for one, value in fields(summary) if number == 5 else ():
                yield from (tag.decode() for field, tag in fields(value) if one == 1 and field == 1)
        at += size + 16


def rows_of(path):
    """{heading: keys} of a metrics file. The key after the step says of which kind a row is."""
    found = {}
    for line in path.read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        found.setdefault(f"metrics: row of {list(row)[1]}", set()).update(keys_of(row))
    return found


def names_of_checkpoint(folder):
    manifest = json.loads((folder / "zeroth/manifest.json").read_text(encoding="utf-8"))
    parts = ("must_equal", "may_change", "counters", "layout")
    found = {"manifest": set(keys_of({**manifest, **dict.fromkeys(parts)}))}
    found["manifest"] |= {f"format is {manifest['format']}", f"version is {manifest['version']}"}
    for part in parts:
        found[f"manifest: {part}"] = set(manifest[part])
    found["history.json of a checkpoint"] = set(keys_of(json.loads((folder / "zeroth/history.json").read_text())))
    found["states of a checkpoint"] = {piece["state"] for file in manifest["files"] for piece in file["pieces"]}
    header = header_of(folder / "zeroth/pieces-00000.safetensors")
    entry = next(name for name in header if name != "__metadata__").replace("model.embed_tokens.weight", "TENSOR")
    form = re.sub(r"(?<=\|)\d+:\d+(?:,\d+:\d+)*", "FROM:TO", entry).replace("|master|", "|STATE|")
    metadata = {f"metadata {key} is {value}" for key, value in header["__metadata__"].items()}
    found["files of pieces"] = {*metadata, form}
    return found


def names_of_output(folder):
    found = {"files of an output": files_in(folder)}
    for name in ("train_results.json", "eval_results.json", "all_results.json", "trainer_state.json",
                 "zeroth_rounds.json", "config.json"):
        found[name] = set(keys_of(json.loads((folder / name).read_text(encoding="utf-8"))))
    header = header_of(folder / "model.safetensors")
    found["model.safetensors"] = {f"metadata {key} is {value}" for key, value in header.pop("__metadata__").items()}
    found["model.safetensors"] |= {re.sub(r"\d+", "N", name) for name in header}
    page = (folder / "train_log.html").read_text(encoding="utf-8")
    data = json.loads(re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.S).group(1))
    found["data of train_log.html"] = set(keys_of(data))
    return found


class Runs:
    def __init__(self, bin_folder):
        self.bin = bin_folder
        self.whole = tempfile.TemporaryDirectory(prefix="zeroth-names.")
        self.folder = pathlib.Path(self.whole.name)

    def __enter__(self):
        tiny_run.make_inputs(self.folder)
        return self

    def __exit__(self, *_):
        self.whole.cleanup()

    def parts(self):
        """Functions that may run at the same time, each of which gives {heading: names}."""
        return (self.full, self.variables, *(lambda name=name: self.optimizer(name) for name in OPTIMIZERS))

    def run(self, *words):
        done = subprocess.run([self.bin / words[0], *map(str, words[1:])], cwd=self.folder, capture_output=True,
                              env=environment(self.folder), stdin=subprocess.DEVNULL, text=True, timeout=120)
        if done.returncode != 0:
            raise RuntimeError(f"{words}: exit code {done.returncode}\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
        return done.stdout

    def finetune(self, name, config, *more):
        (self.folder / f"{name}.json").write_text(json.dumps(config), encoding="utf-8")
        return ("finetune", "--model", "model", "--data", "train.jsonl", "--deepspeed", f"{name}.json",
                "--seq-len", "64", "--metrics", f"{name}.jsonl", "--output", name, *more)

    def full(self):
        """A run with evaluations, monitors and saves; the export of its model; a run that resumes it until a signal."""
        common = ("--eval-data", "test.jsonl", "--max-eval-samples", "8", "--report_to", "tensorboard",
                  "--logging_steps", "1", "--lr_scheduler_type", "reduce_lr_on_plateau",
                  "--load_best_model_at_end", "True")
        words = self.finetune("full", FULL, *common)
        self.run("zeroth", "--num_gpus", "2", "--max-restarts", "1", "--enable_each_rank_log", "logs", *words,
                 "--steps", "4", "--save-every", "2", "--eval-every", "2")
        output = self.folder / "full"
        found = names_of_output(output)
        found |= names_of_checkpoint(max((output / "checkpoints").glob("step-*")))
        found["files of monitors"] = files_in(self.folder / "monitor")
        found["files of --enable_each_rank_log"] = files_in(self.folder / "logs")
        found["columns of csv_monitor"] = {f"{path.name}: {path.read_text(encoding='utf-8').splitlines()[0]}"
                                           for path in (self.folder / "monitor").rglob("*.csv")}
        for heading, folder in (("tags of --report_to tensorboard", output),
                                ("tags of tensorboard", self.folder / "monitor")):
            found[heading] = {tag for path in folder.rglob("events.*") for tag in tags_of(path)}
        self.run("zeroth", "export", "full", "exported")
        found["files of an export"] = files_in(self.folder / "exported")
        found |= self.interrupted(words)
        return found | rows_of(self.folder / "full.jsonl")

    def interrupted(self, words):
        """Resumes a run from its checkpoint, looks at the files that exist meanwhile, and ends it by SIGTERM."""
        steps = map(str, (*words[1:], "--resume", "--steps", LONG, "--save-every", LONG, "--eval-every", LONG))
        command = [self.bin / "finetune", *steps]
        metrics = self.folder / "full.jsonl"
        before = metrics.read_text(encoding="utf-8")
        job = subprocess.Popen(command, cwd=self.folder, env=environment(self.folder), text=True,
                               stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        try:
            until = time.monotonic() + 120
            while '"loss"' not in metrics.read_text(encoding="utf-8")[len(before) :]:
                if job.poll() is not None or time.monotonic() > until:
                    job.kill()
                    raise RuntimeError(f"the resumed run makes no step: {job.communicate()[1][-2000:]}")
                time.sleep(0.02)
            beside = {general(path.name).replace("full", "OUTPUT") for path in self.folder.glob("full.zeroth*")}
            swap = {general(path.split("/swap/")[1].removesuffix(" (deleted)"))
                    for path in open_files(job.pid) if "/swap/" in path}
            second = subprocess.run(command, cwd=self.folder, env=environment(self.folder), capture_output=True,
                                    stdin=subprocess.DEVNULL, timeout=120).returncode
            job.send_signal(signal.SIGTERM)
            job.communicate(timeout=120)
        finally:
            job.kill()
            job.wait()
        return {"files beside an output": beside, "files of nvme_path": swap,
                "exit codes that are seen": {f"{second}: finetune, and another run writes into --output",
                                             f"{job.returncode}: finetune, and SIGTERM ends it after a step"}}

    def optimizer(self, name):
        ranks, more, zero = OPTIMIZERS[name]
        params = {"lr": 1e-3, **{"SGD": {"momentum": 0.9}, "AdamW8bit": {"min_8bit_size": 0}}.get(name, {})}
        config = {"train_micro_batch_size_per_gpu": 4, "zero_optimization": zero, **more,
                  "optimizer": {"type": name, "params": params}}
        words = self.finetune(name, config, "--steps", "1", "--save-every", "1")
        self.run("zeroth", "--num_gpus", ranks, "--oversubscribe", *words)
        manifest = names_of_checkpoint(self.folder / name / "checkpoints/step-1")
        kept = ("manifest: must_equal", "manifest: may_change", "manifest: counters", "states of a checkpoint")
        return rows_of(self.folder / f"{name}.jsonl") | {heading: manifest[heading] for heading in kept}

    def variables(self):
        """What the launcher adds to the environment of a rank."""
        shown = self.run("zeroth", "--num_gpus", "2", "--max-restarts", "1", "env")
        names = set(re.findall(r"^(?:\[\d+\] )?(\w+)=", shown, re.M))
        return {"variables of a rank": names - set(environment(self.folder)) - {"_", "PWD", "SHLVL"}}
