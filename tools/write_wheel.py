#!/usr/bin/env python3
"""Writes the wheel of a build: the programs as they are there, with another run path, and nothing compiled again.

usage: write_wheel.py BUILD_FOLDER OUTPUT_FOLDER      prints the wheel's path; tools/wheel builds first

In site-packages it lies beside torch, of the version that the build was linked with: the programs' run path leads there.
The same build gives the same bytes.
"""
import base64
import hashlib
import pathlib
import re
import sys
import zipfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from elf_file import Elf  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parents[1]
TAG = "py3-none-manylinux_2_35_x86_64"
PROGRAMS = ("zeroth", "finetune", "comm-bench")
CONSOLE_SCRIPTS = ("zeroth", "finetune")
GPU_LIBRARY = "libzeroth_gpu.so"
ARROW_LIBRARY = "libzeroth_arrow.so"
# From a folder of this package to torch's libraries, and to CUDA's beside them.
RUN_PATH = "$ORIGIN/../../torch/lib:$ORIGIN/../../nvidia/cu13/lib"
ARROW_RUN_PATH = "$ORIGIN/../../pyarrow"
# What is on each machine that the tag names, or comes with torch.
SYSTEM = {"libc.so.6", "libm.so.6", "libgcc_s.so.1", "libstdc++.so.6", "ld-linux-x86-64.so.2", "/lib64/ld-linux-x86-64.so.2"}
TORCH = {"libtorch_cpu.so", "libc10.so", "libgomp.so.1"}
TORCH_GPU = {"libtorch_cuda.so", "libc10_cuda.so", "libcudart.so.13", "libcupti.so.13"}
ARROW = re.compile(r"lib(arrow|parquet)\.so\.\d+")  # of pyarrow, which only readers of tables need
# glibc by the tag; the others are those of gcc 12, which that glibc came with.
NEWEST = {"GLIBC": (2, 35), "GLIBCXX": (3, 4, 30), "CXXABI": (1, 3, 13), "GCC": (12, 0, 0)}
# What is compiled in, by Debian's names: the packages' licenses come along.
INSIDE = ("libfmt-dev", "libpcre2-dev", "libsodium-dev", "libutf8proc-dev", "libzstd-dev", "zlib1g-dev", "liburing-dev",
          "nlohmann-json3-dev", "libcli11-dev", "libboost-dev")
TIME = (1980, 1, 1, 0, 0, 0)

PACKAGE = '''"""Zeroth's programs. The console scripts `zeroth` and `finetune` become these: no Python is left at run time."""
import os
import signal
import sys


def _find_torch(site):
    """torch is beside this package, or, where one of both is in another site-packages, on Python's path."""
    if os.path.exists(os.path.join(site, "torch/lib/libtorch_cpu.so")):
        return
    import importlib.util
    found = importlib.util.find_spec("torch")
    if found is None or not found.submodule_search_locations:
        sys.stderr.write("warning: torch is not installed for this Python, so finetune cannot start: "
                         "pip install torch==@TORCH@\\n")
        return
    folders = [os.path.join(found.submodule_search_locations[0], "lib"), os.environ.get("LD_LIBRARY_PATH")]
    os.environ["LD_LIBRARY_PATH"] = ":".join(filter(None, folders))


def _become(program):
    package = os.path.dirname(os.path.realpath(__file__))
    _find_torch(os.path.dirname(package))
    for ignored in (signal.SIGPIPE, signal.SIGXFSZ):  # by Python, and then by what it becomes
        signal.signal(ignored, signal.SIG_DFL)
    path = os.path.join(package, "bin", program)
    try:
        os.execv(path, sys.argv)
    except OSError as error:
        sys.stderr.write(f"error: {path} cannot be started: {error.strerror}\\n")
        sys.exit(126)


def zeroth():
    _become("zeroth")


def finetune():
    _become("finetune")
'''


class WheelError(Exception):
    """What keeps a build from becoming a wheel, for people."""


def read_cache(build):
    """The variables of a build folder's CMakeCache.txt."""
    file = build / "CMakeCache.txt"
    if not file.is_file():
        raise WheelError(f"{build} is no build folder (it has no CMakeCache.txt). tools/wheel builds in build/.")
    return dict(re.findall(r"^([^#/:\n][^:\n]*):[A-Z]+=(.*)$", file.read_text(), re.M))


def check_portable(name, elf):
    """A program that would not start on another machine, or not with torch's libraries, is no part of a wheel."""
    allowed = SYSTEM | TORCH | (TORCH_GPU if name.endswith(".so") else set())
    if name == ARROW_LIBRARY:
        allowed = SYSTEM | set(filter(ARROW.fullmatch, elf.needed))
    unknown = sorted(set(elf.needed) - allowed)
    if unknown:
        raise WheelError(f"{name} needs {', '.join(unknown)}, which other machines may not have. "
                         "Build on Debian 12, with the packages that tools/setup installs.")
    for text in elf.versions:
        library, _, version = text.partition("_")
        newest = NEWEST.get(library)
        if newest and re.fullmatch(r"[0-9.]+", version) and tuple(map(int, version.split("."))) > newest:
            raise WheelError(f"{name} needs {text}, and {TAG} promises {library}_{'.'.join(map(str, newest))}. "
                             "Build on Debian 12 or Ubuntu 22.04.")


def portable(path, run_path=RUN_PATH):
    """A program or library of the build, with the run path that it has in site-packages."""
    if not path.is_file():
        raise WheelError(f"{path} is missing. Build it first: tools/wheel does.")
    try:
        data = Elf(path.read_bytes()).with_run_path(run_path)
    except ValueError as error:
        raise WheelError(f"{path}: {error}. A build whose LibTorch lies in a folder with a longer name has room.") from None
    check_portable(path.name, Elf(data))
    return data


def licenses(bundle):
    """(NAME, text) of the packages whose code is inside. `bundle`: a folder that tools/bundle made, or None."""
    for package in INSIDE:
        file = bundle / "licenses" / package if bundle else pathlib.Path("/usr/share/doc") / package / "copyright"
        if file.is_file():
            yield package, file.read_bytes()


def contents(build):
    """(name in the wheel, bytes, whether it is a program), and the wheel's own name."""
    cache = read_cache(build)
    version, torch = cache["CMAKE_PROJECT_VERSION"], cache["ZEROTH_TORCH_FOUND"]
    if cache.get("ZEROTH_SANITIZE"):
        raise WheelError(f"{build} is built with sanitizers ({cache['ZEROTH_SANITIZE']}). Take a build without them.")
    info, data = f"zeroth-{version}.dist-info", f"zeroth-{version}.data/data/share"
    files = [(f"zeroth/bin/{name}", portable(build / "bin" / name), True) for name in PROGRAMS]
    if cache["ZEROTH_CUDA"] != "OFF" and (build / "lib" / GPU_LIBRARY).exists():
        files.append((f"zeroth/lib/{GPU_LIBRARY}", portable(build / "lib" / GPU_LIBRARY), True))
    extra = ""
    if (build / "lib" / ARROW_LIBRARY).exists():
        files.append((f"zeroth/lib/{ARROW_LIBRARY}", portable(build / "lib" / ARROW_LIBRARY, ARROW_RUN_PATH), True))
        arrow = re.search(r"^ARROW_VERSION=(.+)$", (ROOT / "tools/versions").read_text(), re.M)[1]
        extra = f"Provides-Extra: arrow\nRequires-Dist: pyarrow=={arrow}; extra == 'arrow'\n"
    files.append(("zeroth/__init__.py", PACKAGE.replace("@TORCH@", torch).encode(), False))
    for preset in (ROOT / "configs/presets").iterdir():
        files.append((f"{data}/zeroth/presets/{preset.name}", preset.read_bytes(), False))
    for name in CONSOLE_SCRIPTS:
        files.append((f"{data}/bash-completion/completions/{name}", (ROOT / "completions/zeroth.bash").read_bytes(), False))
    for package, text in licenses(pathlib.Path(cache["ZEROTH_BUNDLE"]) if cache.get("ZEROTH_BUNDLE") else None):
        files.append((f"{info}/licenses/{package}", text, False))
    scripts = "".join(f"{name} = zeroth:{name}\n" for name in CONSOLE_SCRIPTS)
    for name, text in (
        ("METADATA", f"Metadata-Version: 2.1\nName: zeroth\nVersion: {version}\nRequires-Dist: torch=={torch}\n{extra}"
                     "Summary: A training runtime in C++ that works like DeepSpeed\nRequires-Python: >=3.9\n"),
        ("WHEEL", f"Wheel-Version: 1.0\nGenerator: tools/wheel\nRoot-Is-Purelib: false\nTag: {TAG}\n"),
        ("entry_points.txt", f"[console_scripts]\n{scripts}"),
    ):
        files.append((f"{info}/{name}", text.encode(), False))
    return sorted(files), f"zeroth-{version}"


def write_wheel(build, output):
    files, name = contents(build)
    record = f"{name}.dist-info/RECORD"
    lines = []
    for path, data, _ in files:
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        lines.append(f"{path},sha256={digest},{len(data)}\n")
    files.append((record, "".join([*lines, f"{record},,\n"]).encode(), False))
    output.mkdir(parents=True, exist_ok=True)
    wheel = output / f"{name}-{TAG}.whl"
    partial = wheel.with_suffix(".partial")
    with zipfile.ZipFile(partial, "w") as archive:
        for path, data, is_program in files:
            entry = zipfile.ZipInfo(path, TIME)
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.create_system = 3  # Unix: the mode is in the upper half
            entry.external_attr = (0o100755 if is_program else 0o100644) << 16
            archive.writestr(entry, data)
    partial.replace(wheel)
    return wheel


def main():
    if len(sys.argv) != 3:
        sys.exit("usage: write_wheel.py BUILD_FOLDER OUTPUT_FOLDER")
    try:
        print(write_wheel(pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])))
    except WheelError as error:
        sys.exit(f"error: {error}")


if __name__ == "__main__":
    main()
