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

**To check a machine** with NVIDIA GPUs, CUDA's compiler and LibTorch, without network: `tools/bundle DIR` on one that has network, both folders
over there, then `tools/gpu_check --bundle DIR`. It builds for that GPU alone and runs six parts, each at most eight minutes long, with the build at most
thirty together (`--total`), and each with a result of its own, so that a machine that is there for a while only can be used in pieces:
`tools/gpu_check tests sanitize` first, the rest later. A part that passed is not run again. `BUILD/gpu_check/gpu_check.md` has all figures.

| part | what it looks at |
|---|---|
| `tests` | the GPU's own tests, rows of the equivalence table on the GPU, and that no bit depends on what rests where |
| `sanitize` | compute-sanitizer (memcheck, racecheck, synccheck) over the kernels and a tiny run |
| `nccl` | ranks on several GPUs beside one; on one GPU ranks that share it |
| `speed` | tokens a second and share of the data sheet, beside other trainers that `--python` can import |
| `offload` | layers of an 8B with everything on the host, how much of the transfers is hidden, beside DeepSpeed |
| `profile` | where the time of a step goes, beside what no step can go below |

`tools/gpu_check --dry-run` does all of it on the simulated GPU with tiny sizes; the figures then say nothing.
"""

# What was never seen on a GPU, what stands for it until then, and the check of tools/gpu_check (part, pattern of its name)
# that shows it: once a run of it has passed the row goes. None: a goal, to be taken out by hand.
UNSEEN = (
    ("a run of `tools/gpu_check` itself; its build from a bundle in parallel, which is to take less than six minutes on 16 cores",
     "a dry run on the simulated GPU; a bundle is made and configured from", ("tests", "tests of the GPU")),
    ("products in bf16 and fp16 whose sum is cut into parts: the parts are to be added in fp32",
     "nothing: [tests/gpu/product_test.cpp](../tests/gpu/product_test.cpp) was compiled and has not run",
     ("tests", "tests of the GPU")),
    ("kernels of the update, of the head's loss, of the embedding's gradient and of the norm, compute-sanitizer over them",
     "the same formulas on the CPU", ("sanitize", "memcheck of the kernels")),
    ("NCCL between GPUs", "ranks that share a GPU through host memory", ("nccl", r"\d+ ranks over NCCL, ")),
    ("states and parameters on the host or in files: equal bits, hidden transfers, the largest model in 24 GB",
     "the simulated GPU, whose copies are as late as they may be", ("offload", "the GPU's peak is below 24 GB")),
    ("what `--deterministic` costs", "nothing", ("speed", "1.1B, 4 samples, deterministic")),
    ("the goal of 60 % of the data sheet's peak with the 1.1B and the 8B-shaped Llama",
     "50 % with the 1.1B and 8 samples, measured by hand; nothing for the 8B-shaped", None),
    ("the goal of twice DeepSpeed's speed with everything on the host", "nothing", None),
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


def add(files):
    """Takes results of runs into the folder, and writes the page."""
    RUNS.mkdir(exist_ok=True)
    for file in files:
        run = json.loads(file.read_text(encoding="utf-8"))
        name = re.sub(r"[^\w]+", "-", f"{run['when']}-{run['machine']['gpus'].split(',')[0]}").strip("-")
        results.write_atomically(RUNS / f"{name}.json", json.dumps(run, indent=1) + "\n")
    results.write_atomically(TARGET, markdown())
    print(f"{TARGET.relative_to(ROOT)}: {len(list(RUNS.glob('*.json')))} runs")
    return 0
