"""No program or library takes code from the current folder, or from one to which others may write.

Reads every ELF file of the build folder and of an installation: run paths and the names of needed libraries.

usage: run_path_test.py CMAKE BUILD_FOLDER
"""
import os
import pathlib
import re
import stat
import struct
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tools"))
from elf_file import DYNAMIC, LOAD, NEEDED, RUN_PATH, SHARED, STRINGS, Elf, is_elf  # noqa: E402


def elf_files(folder):
    """Programs and shared libraries; what is linked to elsewhere is not of this folder."""
    for path in sorted(folder.rglob("*")):
        if not path.is_symlink() and path.is_file() and is_elf(path):
            yield path


def who_may_write(folder, trusted, groups=(0, os.getegid())):
    """The part of a path in which others may make or replace something, or None; `trusted`: users, beside `groups`."""
    def open_to_others(status):
        return status.st_mode & (stat.S_IWOTH if status.st_gid in groups else stat.S_IWOTH | stat.S_IWGRP)

    whole = pathlib.Path(os.path.realpath(folder))
    above = None
    for path in [*reversed(whole.parents), whole]:
        if not path.exists():
            return above if open_to_others(above.stat()) else None
        status = path.stat()
        sticky = status.st_mode & stat.S_ISVTX and path != whole  # nobody replaces what is ours there
        if status.st_uid not in trusted or (open_to_others(status) and not sticky):
            return path
        above = path
    return None


def complaints(path):
    """What is wrong with a file, one line each."""
    elf = Elf(path.read_bytes())
    trusted = {0, os.geteuid(), path.stat().st_uid}
    for run_path in elf.run_paths:
        for entry in run_path.split(":"):
            folder = re.sub(r"^(\$ORIGIN|\$\{ORIGIN\})(?=/|$)", lambda _: str(path.parent.resolve()), entry)
            if not folder.startswith("/") or "$" in folder:
                yield f"{path}: run path {run_path!r} has the entry {entry!r}, looked for in the current folder"
            elif who_may_write(folder, trusted):
                yield f"{path}: run path entry {entry!r}: others may write to {who_may_write(folder, trusted)}"
    for name in elf.needed:
        if "/" in name and not name.startswith("/"):
            yield f"{path}: needs {name!r}, looked for in the current folder"


def small_elf(run_path, needed="libc.so.6"):
    """A library that holds nothing but its dynamic section."""
    strings = b"\0" + run_path.encode() + b"\0" + needed.encode() + b"\0"
    entries = [(STRINGS, 64 + 2 * 56 + 64), (RUN_PATH, 1), (NEEDED, len(run_path) + 2), (0, 0)]
    dynamic = b"".join(struct.pack("<qQ", *entry) for entry in entries)
    whole = 64 + 2 * 56 + len(dynamic) + len(strings)
    header = b"\x7fELF\2\1\1" + bytes(9) + struct.pack("<HHIQQQIHHHHHH", SHARED, 62, 1, 0, 64, 0, 0, 64, 56, 2, 64, 0, 0)
    segments = struct.pack("<IIQQQQQQ", LOAD, 4, 0, 0, 0, whole, whole, 4096)
    segments += struct.pack("<IIQQQQQQ", DYNAMIC, 4, 176, 176, 176, len(dynamic), len(dynamic), 8)
    return header + segments + dynamic + strings


class RunPaths(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory(prefix="zeroth-run-path.")
        cls.addClassCleanup(folder.cleanup)
        cls.folder = pathlib.Path(folder.name).resolve()
        (cls.folder / "bin").mkdir()
        cls.prefix = cls.folder / "installed"
        subprocess.run([CMAKE, "--install", BUILD, "--prefix", cls.prefix], check=True, stdout=subprocess.DEVNULL)

    def assert_clean(self, folder, *expected):
        files = list(elf_files(folder))
        self.assertLessEqual(set(expected), {file.relative_to(folder).as_posix() for file in files})
        self.assertEqual([line for file in files for line in complaints(file)], [])

    def test_the_build_folder(self):
        self.assert_clean(BUILD, "bin/zeroth", "bin/finetune", "bin/tests/simulated_gpu/libzeroth_gpu.so")

    def test_the_installation(self):
        self.assert_clean(self.prefix, "bin/zeroth", "bin/finetune")

    def test_programs_start_beside_libraries_that_a_stranger_left_in_the_current_folder(self):
        for program in (BUILD / "bin/zeroth", BUILD / "bin/finetune", self.prefix / "bin/finetune"):
            folder = self.folder / "cloned" / program.parent.parent.name / program.name
            folder.mkdir(parents=True)
            for name in Elf(program.read_bytes()).needed:
                (folder / pathlib.Path(name).name).write_text("no library")
            done = subprocess.run([program, "--version"], cwd=folder, capture_output=True, text=True,
                                  env={**os.environ, "DS_ACCELERATOR": "cpu"})
            self.assertEqual((done.returncode, done.stderr), (0, ""))

    def doctored(self, old, new):
        """What is said of a copy of the program whose run path is another of the same length."""
        data = (BUILD / "bin/zeroth").read_bytes()
        run_path = Elf(data).run_paths[0]
        self.assertIn(old, run_path)
        changed = run_path.replace(old, new, 1)[:len(run_path)]
        copy = self.folder / "bin/doctored"
        copy.write_bytes(data.replace(run_path.encode(), changed.ljust(len(run_path), ":").encode()))
        return list(complaints(copy))

    def test_a_program_with_another_run_path_is_found(self):
        self.assertEqual(self.doctored("$ORIGIN", "$ORIGIN"), [])
        self.assertIn("has the entry ''", self.doctored("$ORIGIN/../lib:", "")[0])
        self.assertIn("has the entry 'ORIGIN/../lib'", self.doctored("$", "")[0])
        self.assertIn("others may write to /tmp", self.doctored("$ORIGIN/../lib", "/tmp/../tmp/no")[0])

    def test_each_kind_of_entry_is_told(self):
        shared = self.folder / "shared"
        shared.mkdir()
        shared.chmod(0o777)
        (shared / "own").mkdir()
        for run_path, words in (
            ("", "has the entry ''"), ("/usr/lib::", "has the entry ''"), ("lib", "has the entry 'lib'"),
            ("./lib:/usr/lib", "has the entry './lib'"), ("$LIB/x", "has the entry '$LIB/x'"),
            ("$ORIGINAL/x", "has the entry '$ORIGINAL/x'"), (f"{shared}", f"others may write to {shared}"),
            (f"{shared}/own", f"others may write to {shared}"), (f"{shared}/none", f"others may write to {shared}"),
        ):
            library = self.folder / "bin/small.so"
            library.write_bytes(small_elf(run_path))
            self.assertIn(words, "\n".join(complaints(library)), run_path)
        library.write_bytes(small_elf("$ORIGIN:${ORIGIN}/../lib:/usr/lib:/none/such"))
        self.assertEqual(list(complaints(library)), [])
        library.write_bytes(small_elf("/usr/lib", needed="./libfmt.so.9"))
        self.assertIn("needs './libfmt.so.9'", list(complaints(library))[0])

    def test_a_sticky_folder_is_good_for_what_is_ours_in_it(self):
        shared = self.folder / "sticky"
        (shared / "own").mkdir(parents=True)
        shared.chmod(0o1777)
        self.assertIsNone(who_may_write(shared / "own", {0, os.geteuid()}))
        self.assertEqual(who_may_write(shared / "none", {0, os.geteuid()}), shared)
        self.assertEqual(who_may_write(shared, {0, os.geteuid()}), shared)

    def test_a_folder_that_a_group_may_write_to_is_good_where_the_group_is_ours(self):
        shared = self.folder / "team"
        (shared / "own").mkdir(parents=True)
        shared.chmod(0o775)
        users = {0, os.geteuid()}
        for path in (shared, shared / "own", shared / "none"):
            self.assertIsNone(who_may_write(path, users))
            self.assertEqual(who_may_write(path, users, groups=()), shared)
        self.assertIsNone(who_may_write(self.folder / "bin", users, groups=()))


if __name__ == "__main__":
    CMAKE, BUILD = sys.argv[1], pathlib.Path(sys.argv[2]).resolve()
    unittest.main(argv=sys.argv[:1])
