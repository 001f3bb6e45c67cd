"""docs/gpu.md, made of the results that lie in docs/gpu_runs: what has run, and what by them has not."""
import json
import pathlib
import re

from gpu_checks import results

ROOT = pathlib.Path(__file__).resolve().parents[2]
RUNS = ROOT / "docs/gpu_runs"
TARGET = ROOT / "docs/gpu.md"

HEAD = """# On which GPU what has run

Made by `tools/gpu_check --docs` of the results in [gpu_runs](gpu_runs); a test keeps the two equal. What has not run on a
GPU [is named](#not-seen-on-a-gpu); most of it is tested on a simulated one ([tests/simulated_gpu](../tests/simulated_gpu)).

**To check a machine** with NVIDIA GPUs and LibTorch, without network: `tools/gpu_archive` on one that has nvcc, which packs our programs and the
GPU library (5 MiB), then there, beside this repository, `tools/gpu_check --archive FILE --call 1`, and 2 to 4. Each call ends within eight minutes,
so that a machine that is there for one command at a time will do, and leaves three files in the folder `--out`. Without an archive it builds there:
`tools/bundle DIR` on a machine that has network, both folders over, `tools/gpu_check --bundle DIR`; the build and all parts have thirty minutes
together (`--total`). Parts can be named, too, and one that passed is not run again. `gpu_check.md` has all figures.

| call | part | what it looks at |
|---|---|---|
| 1 | `machine` | libraries that programs find, rates of products, memory and link |
| 1 | `tests` | the GPU's own tests, rows of the equivalence table on the GPU, and that no bit depends on what rests where |
| 2 | `profile` | where the time of a step goes, beside what no step can go below; steps of samples of mixed lengths |
| 2 | `speed` | tokens a second and share of the data sheet, beside other trainers that `--python` can import |
| 3 | `offload` | layers of an 8B on the GPU and with everything on the host, how much of the transfers is hidden, beside DeepSpeed |
| 3 | `lora` | adapters over 8B-shaped weights in bf16 and NF4: tokens a second and peak memory, beside peft |
| 4 | `sanitize` | compute-sanitizer (memcheck, racecheck, synccheck) over the kernels and tiny runs; two deterministic runs, bit for bit |
| 4 | `nccl` | ranks on several GPUs beside one; on one GPU ranks that share it |

Runs that stand alone in `speed`, and layers on the GPU in `offload`, are timed twice; the first is discarded. Tables of `speed`, `offload` and
`profile` tell beside a figure what an H100 or H200 is expected to give: estimated from bytes and operations, never measured. Other trainers
come last: want of time costs their rows.

`tools/gpu_check --dry-run` does all of it on the simulated GPU with tiny sizes; the figures then say nothing.
"""

# What was never seen on a GPU, what stands for it until then, and the check of tools/gpu_check (part, pattern of its name)
# that shows it: once a run of it has passed the row goes. None: a goal, to be taken out by hand.
UNSEEN = (
    ("a run of `tools/gpu_check` itself", "a dry run on the simulated GPU", ("tests", "tests of the GPU")),
    ("the build of all from a bundle in parallel, which is to take less than six minutes on 16 cores",
     "a bundle is made and configured from", ("build", "built in under 6 minutes on 16 cores")),
    ("loss scales, masters, unequal targets and the rates of schedules on the GPU, beside the reference",
     "the same rows on the CPU", ("tests", "equivalence: the rest")),
    ("ranks of a tensor axis with a GPU each", "the same rows on the CPU", None),
    ("adapters over weights in NF4", "the kernel, emulated; runs on the simulated GPU; the same rows on the CPU",
     ("lora", r"32 layers of an 8B, adapters over NF4$")),
    ("dropout at speed: its masks are made by operators on 64-bit numbers, row by row", "the masks' bits", None),
    ("kernels of the update, of the head's loss, of the embedding's gradient and of the norm, compute-sanitizer over them",
     "the kernels themselves, emulated: each instance on 2,000 shapes in drawn orders of threads "
     "([tests/emulated_gpu](../tests/emulated_gpu))", ("sanitize", "memcheck of the kernels")),
    ("NCCL between GPUs, and its streams of high priority", "simulated GPUs with an NCCL of their own, whose streams are late by "
     "seeds; an NCCL group of one rank, on a GPU", ("nccl", r"\d+ ranks over NCCL, ")),
    ("a driver that is too old, a build for CUDA 12", "tests of the texts", None),
    ("transfers that a model of many layers hides, the largest model in 24 GB", "two layers of an 8B, which can hide next to "
     "nothing; the simulated GPU, whose copies are as late as they may be", ("offload", "the GPU's peak is below 24 GB")),
    ("what `--deterministic` costs", "nothing", ("speed", "1.1B, 4 samples, deterministic")),
    ("a plan of cuDNN for each new length of a batch (multiples of 64 up to 2048 tokens, of 128 beyond: at most 32 up to "
     "2048), tens to hundreds of ms each", "lengths are counted", ("profile", "samples of mixed lengths")),
    ("updates beside the next forward on a stream of their own: always of what rests on the host (`\"step\": \"gpu\"`, estimated "
     "as 0.2 of 2.8 s of an 8B's step), with `overlap_step` of what rests on the GPU (3 to 7 ms of the 1.1B's)",
     "the simulated GPU: the same bits, waits counted", ("speed", "1.1B, 4 samples, overlap_step")),
    ("page-locking host memory, by one thread", "its pages are made by all threads before; how long the rest takes is not known", None),
    ("the goal of 60 % of the data sheet's peak with the 1.1B and the 8B-shaped Llama (`speed` and `offload` measure both)",
     "an H200: 59 % with 26 layers of an 8B, 55 % with the 1.1B", None),
    ("the goal of twice DeepSpeed's speed with everything on the host (`offload` measures it)", "nothing", None),
)


def not_seen(runs):
    """Rows of UNSEEN that no check of these runs shows."""
    passed = [(part["part"], check["name"]) for run in runs for part in run["parts"].values()
              for check in part["checks"] if check["status"] == "passed"]
    return [[what, until] for what, until, shown in UNSEEN
            if not shown or not any(part == shown[0] and re.match(shown[1], name) for part, name in passed)]


def told(part):
    """A part in a cell: how it ended, or which of it is missing."""
    if part is None:
        return "not run"
    left_out = sum(check["status"] == "left out" for check in part["checks"])
    failed = [check["name"] for check in part["checks"] if check["status"] == "failed"]
    text = part["status"] + (f": {', '.join(failed)}" if failed else "")
    return text + (f" ({left_out} left out)" if left_out else "")


def markdown():
    from gpu_checks import parts
    runs = sorted(((json.loads(path.read_text(encoding="utf-8")), path) for path in RUNS.glob("*.json")),
                  key=lambda run: run[1].name, reverse=True)
    lines = [HEAD, "## Runs", "", results.cells(["when", "GPU", "LibTorch, CUDA", "revision", *parts.NAMES]),
             "|" + "---|" * (4 + len(parts.NAMES))]
    for run, path in runs:
        machine = run["machine"]
        lines.append(results.cells([f"[{run['when']}](gpu_runs/{path.name})", machine["gpus"],
                                    f"{machine['LibTorch']}, {machine['CUDA']}", machine["revision"],
                                    *(told(run["parts"].get(name)) for name in parts.NAMES)]))
    lines += ["", "## Not seen on a GPU", "", results.cells(["what", "what stands for it until then"]), "|---|---|"]
    lines += [results.cells(row) for row in not_seen([run for run, _ in runs])]
    for run, _ in runs:
        lines += ["", f"## {run['when']}: {run['machine']['gpus']}", ""]
        if run.get("note"):
            lines += [run["note"], ""]
        for part in run["parts"].values():
            figures = "; ".join(f"{check['name']} {check['figure']}" for check in part["checks"] if check["figure"])
            lines += [f"**{part['part']}** ({part['status']})." + (f" {figures}." if figures else ""), ""]
            for table in part["tables"]:
                lines += [f"{table['title']}:", "", results.cells(table["header"]), "|" + "---|" * len(table["header"])]
                lines += [results.cells(row) for row in table["rows"]] + [""]
            lines += [f"- {note}" for note in part["notes"]]
    return re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).rstrip() + "\n"


def joined(before, now):
    """Two results of a part."""
    if before is None:
        return now
    both = {**now, "seconds": round(before["seconds"] + now["seconds"], 1)}
    for kind, name in (("checks", "name"), ("tables", "title")):
        both[kind] = list({entry[name]: entry for entry in before[kind] + now[kind]}.values())
    both["notes"] = list(dict.fromkeys(before["notes"] + now["notes"]))
    both["status"] = results.status_of(both["checks"])
    return both


def add(files):
    """Takes results of runs into the folder, and writes the page. Those of one day and GPU are one, in which a later result
    of a check or a table takes the place of an earlier one."""
    RUNS.mkdir(exist_ok=True)
    for file in files:
        run = json.loads(file.read_text(encoding="utf-8"))
        name = re.sub(r"[^\w]+", "-", f"{run['when']}-{run['machine']['gpus'].split(',')[0]}").strip("-")
        before = results.load(RUNS / f"{name}.json")
        if before:
            run["parts"] = {**before["parts"], **{part: joined(before["parts"].get(part), now) for part, now in run["parts"].items()}}
        results.write_atomically(RUNS / f"{name}.json", json.dumps(run, indent=1) + "\n")
    results.write_atomically(TARGET, markdown())
    print(f"{TARGET.relative_to(ROOT)}: {len(list(RUNS.glob('*.json')))} runs")
    return 0
