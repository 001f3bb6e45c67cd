#!/usr/bin/env python3
"""Holds the layers and the budgets: who may include whom, how long a file or a function may be, and a few habits.

usage: check_layers.py [ROOT]      one line per breach: path:line: rule: text; exit code 1 when there is one
       check_layers.py --picture   the rooms as docs/tour.md shows them
"""
import pathlib
import re
import shutil
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import cpp_scan  # noqa: E402

# What each folder includes besides itself. docs/tour.md shows it.
ARROWS = {
    "base": [],
    "configs": ["base"],
    "checkpoint": ["base"],
    "monitor": ["base", "configs"],
    "device": ["base"],
    "comm": ["base", "configs", "device"],
    "model": ["base", "configs", "device", "comm"],
    "offload": ["base", "configs", "device"],
    "optim": ["base", "configs", "device"],
    "data": ["base"],
    "zero": ["base", "configs", "device", "comm", "model", "offload", "optim"],
    "engine": ["base", "configs", "device", "comm", "model", "checkpoint", "offload", "optim", "zero"],
    "trainer": ["base", "configs", "device", "monitor", "comm", "model", "data", "checkpoint", "zero", "engine"],
    "launcher": ["base", "configs", "checkpoint"],
}
# The seams of a room: what stands in a sub-folder includes those before it; what stands in the room itself is common to
# them or joins them.
SEAMS = {
    "base": ["text", "machine", "files", "json"],
    "comm": ["bootstrap", "nodes", "groups"],
    "configs": ["schema", "resolve"],
    "data": ["tokenizer", "chat_template", "records", "samples"],
    "engine": ["verify", "state", "step", "memory"],
    "launcher": ["flags", "machine", "commands", "run", "backends", "transport", "cluster"],
    "model": ["kernels", "blocks", "hf"],
    "optim": ["cpu", "gpu", "schedule"],
    "trainer": ["flags", "report"],
}
WITHOUT_TORCH = ("base", "configs", "checkpoint", "monitor", "launcher")
UNRESTRICTED = ("bench", "examples", "tests")  # these use any folder
# What a process is held down to; what a rank is told; a scheduler's copy of a part of the configuration; how the user
# wants LibTorch to use a GPU; where Hugging Face's cache is.
READS_ENVIRONMENT = (
    "base/machine/cpu.cpp", "comm/bootstrap/rank_env.cpp", "configs/resolve.cpp", "device/gpu_loader.cpp", "model/hf/model_directory.cpp",
)
# What acts on the ZeRO stage, and what advises on the key.
READS_STAGE = ("zero/strategy.cpp", "engine/memory/memory_remedies.cpp")
# What knows the stages of a pipeline, which are others.
KNOWS_PIPELINE = (
    "engine/step/partition", "engine/step/pipe_link", "engine/step/pipeline_schedule", "engine/step/schedule",
    "trainer/flags/flag_options", "trainer/report/step_trace", "trainer/report/summary")
# What knows that ranks share layers, beside comm, which has the axis, and configs, which has the key.
KNOWS_SHARED_LAYERS = (
    "engine/engine.cpp", "engine/start", "engine/step/save_model", "engine/step/step_batches",
    "engine/verify/verify_ranks_match", "engine/verify/verify_sharding_matches", "launcher/run/program_arguments",
    "model/blocks/", "model/tensor_parallel", "trainer/flags/flag_options", "trainer/rank_run", "trainer/run_adapter", "trainer/run_memory",
    "trainer/report/summary", "zero/sharded_optimizer", "zero/unit")
PARSES_JSON = "base/json"  # the beginning of these files' paths
TOUR = "docs/tour.md"
TEXT_FOLDERS = ("tests", "tools")  # scripts here have the file budget too

CMAKE_COLUMNS = 120  # clang-format keeps the columns of C++
FILE_LINES = 400
HEADER_LINES = 200
SMALL_HEADER_LINES = 40  # below, a header has several users, or its declarations go to a neighbor or into the source
FUNCTION_LINES = 60
PARAMETERS = 6

# Sources whose test has another name: implementations are tested through their interface. Every main.cpp is tested
# through its program; what calls CUDA is tested on machines with a GPU,
# its kernels in tests/emulated_gpu as well.
# Folders whose files are alike, and have one test.
TESTED_TOGETHER = ("families",)
TESTED_BY = {
    "comm/groups/c10d_group.cpp": "tests/comm/group_test.cpp",
    "comm/groups/exchange.cpp": "tests/comm/shared_memory_group_test.cpp",
    "comm/groups/gloo_group.cpp": "tests/comm/group_test.cpp",
    "comm/gpu/nccl.cpp": "tests/gpu/collectives_test.cpp",
    "comm/groups/stage_plan.cpp": "tests/comm/hierarchical_group_test.cpp",
    "comm/make_mesh.cpp": "tests/comm/device_mesh_test.cpp",
    "comm/groups/nccl.cpp": "tests/simulated_gpu/nccl_test.cpp",
    "comm/groups/shared_ring.cpp": "tests/comm/shared_memory_group_test.cpp",
    "device/events.cpp": "tests/simulated_gpu/launches_test.cpp",
    "device/gpu/gpu_library.cpp": "tests/comm/device_mesh_test.cpp",
    "engine/engine_impl.cpp": "tests/engine/engine_test.cpp",
    "engine/step/block_runner.cpp": "tests/engine/engine_test.cpp",
    "engine/verify/parameter_faults.cpp": "tests/engine/non_finite_test.cpp",
    "launcher/transport/channel.cpp": "tests/launcher/listener_test.cpp",
    "launcher/cluster/agent_pool.cpp": "tests/launcher/elastic_run_test.cpp",
    "launcher/cluster/multi_node_attempt.cpp": "tests/launcher/launch_multi_node_test.cpp",
    "launcher/cluster/join_run.cpp": "tests/launcher/elastic_run_test.cpp",
    "launcher/cluster/node_job.cpp": "tests/launcher/launch_multi_node_test.cpp",
    "launcher/cluster/remote_ranks.cpp": "tests/launcher/launch_multi_node_test.cpp",
    "launcher/backends/launch_processes.cpp": "tests/launcher/launch_multi_node_test.cpp",
    "launcher/transport/heartbeat_channel.cpp": "tests/launcher/agent_test.cpp",
    "launcher/run/job_runner.cpp": "tests/launcher/supervisor_test.cpp",
    "launcher/run/local_ranks.cpp": "tests/launcher/supervisor_test.cpp",
    "model/kernels/cpu/kernels.cpp": "tests/model/fused_test.cpp",
    "model/kernels/cpu/select.cpp": "tests/model/matrix_product_test.cpp",
    "model/kernels/cpu/select_other.cpp": "tests/model/matrix_product_test.cpp",
    "model/kernels/fused_cpu.cpp": "tests/model/fused_test.cpp",
    "model/kernels/fused_formula.cpp": "tests/model/fused_test.cpp",
    "model/kernels/gpu/add_rows.cu": "tests/emulated_gpu/add_rows_test.cpp",
    "model/kernels/gpu/cross_entropy.cu": "tests/emulated_gpu/cross_entropy_test.cpp",
    "model/kernels/gpu/elementwise.cu": "tests/emulated_gpu/elementwise_test.cpp",
    "model/kernels/gpu/fused_ops.cpp": "tests/gpu/fused_test.cpp",
    "model/kernels/gpu/rms_norm.cu": "tests/emulated_gpu/rms_norm_test.cpp",
    "offload/io_worker_uring.cpp": "tests/offload/io_worker_test.cpp",
    "offload/io_worker_uring_none.cpp": "tests/offload/io_worker_test.cpp",
    "offload/memory_store.cpp": "tests/offload/shard_store_test.cpp",
    "optim/gpu/update.cu": "tests/emulated_gpu/update_test.cpp",
    "optim/gpu/update_ops.cpp": "tests/gpu/update_test.cpp",
    "optim/cpu/cpu_kernels.cpp": "tests/optim/cpu_update_test.cpp",
    "optim/update_constants.cpp": "tests/optim/cpu_update_test.cpp",
    "zero/grad_exchange.cpp": "tests/zero/grad_reducer_test.cpp",
}

INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*(["<])([^">\n]*)[">]', re.M)
TORCH = re.compile(r"(?:torch|ATen|c10)/")
# The words before a call that is one, unlike a method or a declaration of this name.
CALL = r"(?:(?:^|[^\w\s.>:~]|\b(?:return|else|do))\s*|(?<![\w>])(?:std)?::)"


def reachable(folder):
    """All folders below this one."""
    return {found for below in ARROWS[folder] for found in (below, *reachable(below))}


def picture():
    """The arrows as a Mermaid graph, without those that others imply and those to base, which all use."""
    lines = ["graph TD"]
    for folder, below in ARROWS.items():
        implied = {far for near in below for far in reachable(near)}
        lines += [f"  {folder} --> {near}" for near in below if near not in implied and near != "base"]
    return "\n".join(lines)


class Source:
    """One C++ file: its text, its code without comments and literals, and the breaches found in it."""

    def __init__(self, root, path):
        self.root = root
        self.path = path.relative_to(root).as_posix()
        self.folder = self.path.split("/")[0]
        self.name = path.name
        self.is_header = path.suffix in (".h", ".cuh")
        self.text = path.read_text(encoding="utf-8")
        self.code = cpp_scan.strip(self.text)
        self.breaches = []
        self.folders = set()  # that it includes

    def breach(self, line, rule, text):
        self.breaches.append((self.path, line, rule, text))

    def refuse(self, pattern, rule, text):
        """Every match in the code is a breach."""
        for match in re.finditer(pattern, self.code, re.M):
            start = match.end() - len(match.group().lstrip())
            self.breach(self.code.count("\n", 0, start) + 1, rule, text)


def check_includes(source):
    may = (source.folder, *ARROWS[source.folder]) if source.folder in ARROWS else None
    for match in INCLUDE.finditer(source.text):
        if source.code[match.start() : match.start(1)].strip() == "":
            continue  # commented out
        line = source.text.count("\n", 0, match.start(2)) + 1
        quote, path = match.groups()
        folder = path.split("/")[0]
        if quote == "<":
            if source.folder in WITHOUT_TORCH and TORCH.match(path):
                source.breach(line, "arrow", f"{source.folder} does not see torch: <{path}>")
        elif not (source.root / path).is_file():
            source.breach(line, "include", f'no file "{path}"; paths start at the repository root')
        elif may is not None and folder not in may:
            source.breach(line, "arrow", f'{source.folder} may not include {folder}: "{path}"')
        elif crosses_seam(source.path.split("/"), path.split("/")):
            source.breach(line, "seam", f'{source.path.rsplit("/", 1)[0]} may not include "{path}"')
        else:
            source.folders.add(folder)


def crosses_seam(source, included):
    """Whether a file includes one of a later sub-folder of its room. Both: parts of a path."""
    seams = SEAMS.get(source[0], []) if source[0] == included[0] else []
    if source[1] not in seams or included[1] not in seams:
        return False
    return seams.index(source[1]) < seams.index(included[1])


def check_budgets(source):
    lines = source.text.count("\n") + (not source.text.endswith("\n"))
    budget = HEADER_LINES if source.is_header else FILE_LINES
    if lines > budget:
        source.breach(lines, "file length", f"{lines} lines, budget {budget}")
    for function in cpp_scan.functions(source.code):
        if function.lines > FUNCTION_LINES:
            source.breach(
                function.line, "function length", f"{function.name}: {function.lines} lines, budget {FUNCTION_LINES}"
            )
        if function.parameters > PARAMETERS and source.folder != "tests":
            source.breach(
                function.line, "parameters", f"{function.name}: {function.parameters}, budget {PARAMETERS}"
            )


def check_habits(source):
    folder = source.folder
    if source.is_header and not re.search(r"^#pragma once$", source.code, re.M):
        source.breach(1, "pragma once", "a header begins with #pragma once")
    if folder == "tests":
        stem = source.name.removesuffix(".cpp")
        has_own = re.search(rf"^namespace [\w:]+::{stem} \{{$", source.code, re.M)
        if stem.endswith("_test") and "TEST_CASE" in source.code and not has_own:
            source.breach(1, "test namespace", f"the namespace ends in ::{stem}, as several tests are compiled as one source")
        return
    if folder not in ("launcher", "bench") and source.path not in READS_ENVIRONMENT:
        source.refuse(
            r"\b(?:secure_)?getenv\b", "getenv", f"the environment is read in {', '.join(READS_ENVIRONMENT)} and launcher/ only"
        )
    if not source.path.startswith(PARSES_JSON):
        source.refuse(
            r"(?i)\bjson\s*::\s*(?:parse|accept|sax_parse|from_\w+)\s*\(", "json", "a text is parsed by base/json/json.h only"
        )
    if source.name != "main.cpp":
        source.refuse(CALL + r"(?:exit|abort|quick_exit)\s*\(", "exit", "only main ends the process; throw an error")
    if folder not in ("zero", "offload", "comm", "base", "launcher"):  # the last three lease nothing
        source.refuse(r"(?<!\bfd_\.)\brelease\s*\(\s*\)", "release", "what is gathered or borrowed is released by a destructor")
    if folder in ("zero", "engine", "trainer") and not source.path.startswith(READS_STAGE + KNOWS_PIPELINE):
        source.refuse(r"(?i)(?<!pipeline\.)stage", "stage", f"the ZeRO stage is read in {', '.join(READS_STAGE)} only")
    if folder not in ("comm", "configs", *UNRESTRICTED) and not source.path.startswith(KNOWS_SHARED_LAYERS):
        source.refuse(r"kTensor|TensorParallel|tensor_parallel", "axis", "few files know that ranks share layers")
    if folder in ("model", "zero", "engine", "trainer") and not source.is_header:
        source.refuse(r"^[ \t]*#[ \t]*if", "#if", "an optional part is a file of its own, chosen by CMake")


def test_of(path):
    """Tests of a room stand side by side, whatever sub-folders it has."""
    path = pathlib.PurePosixPath(path)
    stem = path.parent.name if path.parent.name in TESTED_TOGETHER else path.stem
    return f"tests/{path.parts[0]}/{stem}_test.cpp"


def check_has_test(source):
    if source.folder not in ARROWS or source.is_header or source.name == "main.cpp":
        return
    test = TESTED_BY.get(source.path, test_of(source.path))
    if not (source.root / test).is_file():
        source.breach(1, "test", f"no {test}")


def check_exceptions(root):
    """An entry of TESTED_BY that is no longer needed."""
    for path in TESTED_BY:
        gone = (root / path).parent.is_dir() and not (root / path).is_file()
        if gone or (root / test_of(path)).is_file():
            yield path, 1, "test", "no longer needs its entry in TESTED_BY of tools/check_layers.py"


def check_arrows(root, used):
    """An arrow that nobody takes, and a picture of other arrows. `used`: pairs of folders."""
    tour = root / TOUR
    if not tour.is_file():
        return
    for folder, below in ARROWS.items():
        for unused in (near for near in below if (folder, near) not in used):
            yield "tools/check_layers.py", 1, "arrow", f"{folder} does not include {unused}: remove it from ARROWS"
    if f"```mermaid\n{picture()}\n```" not in tour.read_text(encoding="utf-8"):
        yield TOUR, 1, "picture", "the graph of rooms is not what check_layers.py --picture prints"


def check_small_headers(sources):
    """A small header that at most one product file includes, beside the source of its name."""
    users = {}
    for source in sources:
        for _, path in INCLUDE.findall(source.text):
            if path.rsplit(".", 1)[0] != source.path.rsplit(".", 1)[0]:
                users.setdefault(path, set()).add(source.path)
    for source in sources:
        lines, count = source.text.count("\n"), len(users.get(source.path, ()))
        if source.is_header and lines < SMALL_HEADER_LINES and count < 2:
            yield (source.path, 1, "small header", f"{lines} lines and {count} product users beside its source: merge it "
                   "with a neighbor, or with its user")


def cpp_files(root, folders=(*ARROWS, *UNRESTRICTED)):
    for folder in folders:
        for path in sorted((root / folder).rglob("*")):
            if path.suffix in (".h", ".cuh", ".cpp", ".cu") and path.is_file():
                yield path


def check_scripts(root):
    """The file budget of scripts: those with a suffix, and those that start with #!."""
    for folder in TEXT_FOLDERS:
        for path in sorted((root / folder).rglob("*")):
            if path.is_file() and (path.suffix in (".py", ".sh") or path.read_bytes()[:2] == b"#!"):
                lines = path.read_bytes().count(b"\n")
                if lines > FILE_LINES:
                    yield path.relative_to(root).as_posix(), lines, "file length", f"{lines} lines, budget {FILE_LINES}"


def check_cmake(root):
    files = [root / "CMakeLists.txt", *(root / "cmake").glob("*.cmake")]
    for folder in (*ARROWS, *UNRESTRICTED):
        files += (root / folder).rglob("CMakeLists.txt")
    for path in filter(pathlib.Path.is_file, files):
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            if len(line) > CMAKE_COLUMNS:
                yield path.relative_to(root).as_posix(), number, "columns", f"{len(line)}, budget {CMAKE_COLUMNS}"


def clang_format():
    """clang-format 14, Debian 12's (other versions differ in details), or None."""
    for program in ("clang-format-14", "clang-format"):
        if shutil.which(program):
            if " version 14." in subprocess.run([program, "--version"], capture_output=True, text=True).stdout:
                return program
    return None


def check_format(root, files):
    program = clang_format()
    if not program or not files:
        return
    command = [program, "--dry-run", *(file.as_posix() for file in files)]
    said = subprocess.run(command, capture_output=True, text=True).stderr
    first = {}
    for path, line in re.findall(r"^(.+?):(\d+):\d+: warning: ", said, re.M):
        first.setdefault(path, int(line))
    for path, line in first.items():
        yield pathlib.Path(path).relative_to(root).as_posix(), line, "format", f"run {program} -i on it"


def check(root):
    breaches = []
    used = set()
    files = list(cpp_files(root))
    product = []
    for path in files:
        source = Source(root, path)
        if source.folder in ARROWS:
            product.append(source)
        for rule in (check_includes, check_budgets, check_habits, check_has_test):
            rule(source)
        breaches += source.breaches
        used |= {(source.folder, folder) for folder in source.folders}
    breaches += check_small_headers(product)
    breaches += check_arrows(root, used)
    breaches += check_scripts(root)
    breaches += check_cmake(root)
    breaches += check_exceptions(root)
    if (root / ".clang-format").is_file():
        breaches += check_format(root, files)
    return len(files), sorted(breaches)


def main():
    if sys.argv[1:] == ["--picture"]:
        print(picture())
        return 0
    root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).parent.parent).resolve()
    count, breaches = check(root)
    for path, line, rule, text in breaches:
        print(f"{path}:{line}: {rule}: {text}")
    print(f"layers and budgets: {count} files, {len(breaches)} breaches")
    if not clang_format():
        print("note: no clang-format 14, so the format is unchecked")
    return 1 if breaches else 0


if __name__ == "__main__":
    sys.exit(main())
