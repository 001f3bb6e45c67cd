"""The torchrun of LibTorch's wheel, of which tools/setup unpacks the Python part too."""
import os
import pathlib
import subprocess
import sys

PACKAGES = "ZEROTH_TEST_TORCHRUN"  # a folder of what torch asks for in Python, where it is not installed
MODULE = "torch.distributed.run"


def libraries(path):
    """What a file needs: names and where they are found, None: nowhere."""
    said = subprocess.run(["ldd", path], capture_output=True, text=True, check=True).stdout
    lines = [line.split() for line in said.splitlines() if " => " in line]
    return {words[0]: None if words[2] == "not" else pathlib.Path(words[2]) for words in lines}


class Torchrun:
    """`program`: one that uses LibTorch. `folder`: for libraries of CUDA that its Python part names and nothing on a
    CPU calls; an empty one stands for each that is not there."""

    def __init__(self, program, folder):
        libtorch = libraries(program)["libtorch_cpu.so"].resolve().parent
        folder.mkdir()
        for name in (name for name, path in libraries(libtorch / "libtorch_python.so").items() if path is None):
            subprocess.run(["cc", "-shared", "-o", folder / name, f"-Wl,-soname,{name}", "-x", "c", os.devnull],
                           check=True)
        paths = [str(libtorch.parents[1]), *filter(None, (os.environ.get(PACKAGES), os.environ.get("PYTHONPATH")))]
        # Without the variable all of their functions would have to be there.
        self.environment = {"PYTHONPATH": ":".join(paths), "LD_LIBRARY_PATH": str(folder),
                            "TORCH_USE_RTLD_GLOBAL": "1", "PYTHONWARNINGS": "ignore"}
        self.why_not = self._try()  # None: it runs here

    def _try(self):
        said = subprocess.run([sys.executable, "-c", f"import {MODULE}"], env={**os.environ, **self.environment},
                              capture_output=True, text=True)
        return None if said.returncode == 0 else f"torchrun: {said.stderr.strip().splitlines()[-1]}"

    @staticmethod
    def words(nodes, ranks, meeting, *more):
        """For `nodes` agents of so many ranks, which meet at `meeting`."""
        return [sys.executable, "-m", MODULE, "--no-python", "--nnodes", nodes, "--nproc-per-node", ranks,
                "--rdzv-backend", "c10d", "--rdzv-endpoint", meeting, *more]
