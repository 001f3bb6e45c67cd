#!/usr/bin/env python3
"""Every mistake of mistakes/ is found: each patch is applied to a copy of its kernel's source, which is compiled and
takes the place of the right one in the tests of that kernel.

usage: mistakes_test.py COMPILER OBJECT_OR_ARCHIVE...      those that emulated_gpu_test is linked of
"""
import concurrent.futures
import pathlib
import re
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
SOURCE = HERE.parent.parent
OPTIONS = ["-std=c++20", "-O1", "-w", "-fPIC", "-ffp-contract=off", f"-I{HERE / 'include'}"]
# What its test has to say, beside that some number is wrong.
SAYS = {"square_kernel_divergent": "the barrier at"}


def kernel_of(patch):
    """A file is named by its kernel and its mistake."""
    return patch.stem.rsplit("_", 1)[0]


def run(command, **options):
    return subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, **options)


def what_is_wrong(patch, compiler, parts, folder):
    """Nothing where the mistake is found."""
    text = patch.read_text(encoding="utf-8")
    path = re.search(r"^--- a/(\S+)$", text, re.M).group(1)
    source = folder / path
    source.parent.mkdir(parents=True)
    source.write_bytes((SOURCE / path).read_bytes())
    applied = run(["patch", "-p1", "--fuzz=0", "--no-backup-if-mismatch"], input=text, cwd=folder)
    if applied.returncode != 0:
        return f"does not fit {path}: {applied.stdout}"
    program = folder / "program"
    command = [compiler, *OPTIONS, f"-I{folder}", f"-I{SOURCE}", "-x", "c++", str(source), "-x", "none", *parts, "-ldl"]
    built = run([*command, "-pthread", "-o", str(program)])
    if built.returncode != 0:
        return f"does not compile: {built.stdout[-2000:]}"
    kernel = kernel_of(patch)
    tested = run([str(program), f"--test-case={kernel} *,* and {kernel} *"])
    if "[doctest] test cases: 1 |" not in re.sub(" +", " ", tested.stdout):
        return f"no one test of {kernel}: {tested.stdout[-2000:]}"
    if tested.returncode == 0:
        return "is not found"
    said = SAYS.get(patch.stem, "FATAL ERROR: ")
    if said not in tested.stdout:
        return f"its test does not say {said!r}: {tested.stdout[-2000:]}"
    return None


def main():
    compiler, parts = sys.argv[1], sys.argv[2:]
    patches = sorted((HERE / "mistakes").glob("*.patch"))
    kernels = set()
    for path in (*SOURCE.glob("model/kernels/gpu/*.cu"), *SOURCE.glob("optim/gpu/*.cu")):
        kernels |= set(re.findall(r"__global__ void (?:__launch_bounds__\(.*\) )?(\w+)\(", path.read_text(encoding="utf-8")))
    failed = [f"{kernel}: no mistake of it is tried" for kernel in kernels - {kernel_of(patch) for patch in patches}]
    start = time.monotonic()
    with tempfile.TemporaryDirectory() as scratch, concurrent.futures.ThreadPoolExecutor(2) as pool:
        tried = {p: pool.submit(what_is_wrong, p, compiler, parts, pathlib.Path(scratch) / p.stem) for p in patches}
        failed += [f"{patch.name}: {wrong.result()}" for patch, wrong in tried.items() if wrong.result()]
    for line in failed:
        print(line)
    print(f"{len(kernels)} kernels, {len(patches)} mistakes, {time.monotonic() - start:.0f} s")
    return 1 if failed or not kernels else 0


if __name__ == "__main__":
    sys.exit(main())
