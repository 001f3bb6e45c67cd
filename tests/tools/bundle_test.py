"""tools/bundle without network, its sources of six packages made up, and a build that is configured from what it made.

usage: bundle_test.py CMAKE BUILD_FOLDER OPTION...   options of CMake for that build
"""
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
CMAKE, BUILD, *OPTIONS = sys.argv[1:]
# Those that need the network, or are on few machines. The sources are small; the headers are this machine's.
STAND_INS = {
    "apt-get": """case "$*" in *" source "*)
  mkdir -p fmtlib-1/src utf8proc-1 pcre2-1/src libsodium-1/{builds/msvc,src/libsodium/{include/sodium,sodium}}
  echo '#include "fmt/format-inl.h"' >fmtlib-1/src/format.cc
  touch utf8proc-1/utf8proc.{h,c} utf8proc-1/utf8proc_data.c
  mkdir -p zlib-1 libzstd-1/lib/{common,compress,decompress}
  touch zlib-1/{zlib.h,zconf.h,inflate.c,gzread.c} libzstd-1/lib/{zstd.h,zstd_errors.h,common/debug.c,compress/hist.c}
  touch libsodium-1/{builds/msvc/version.h,src/libsodium/{include/sodium.h,sodium/utils.c}}
  touch pcre2-1/src/{pcre2_match.c,pcre2test.c,pcre2.h.generic,config.h.generic,pcre2_chartables.c.dist} ;;
esac""",
    "bcp": 'mkdir -p "${@: -1}/boost"',
    "dpkg-source": ":",
}
SYSTEM_PACKAGES = ("fmt", "nlohmann_json", "CLI11", "Boost", "doctest")


def run(*words, **environment):
    return subprocess.run([str(word) for word in words], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, timeout=120, cwd=ROOT, env={**os.environ, **environment})


def libtorch():
    found = re.search(r"^Torch_ROOT:\w+=(.+)$", (pathlib.Path(BUILD) / "CMakeCache.txt").read_text(), re.M)
    return found[1] if found else ROOT / ".deps/torch"


class Bundle(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory(prefix="zeroth-bundle-test.")
        cls.addClassCleanup(folder.cleanup)
        cls.folder, cls.bundle = pathlib.Path(folder.name), pathlib.Path(folder.name) / "bundle"
        tools = cls.folder / "tools"
        tools.mkdir()
        for name, body in STAND_INS.items():
            (tools / name).write_text(f"#!/usr/bin/env bash\n{body}\n")
            (tools / name).chmod(0o755)
        cls.path = f"{tools}:{os.environ['PATH']}"
        made = run(ROOT / "tools/bundle", cls.bundle, PATH=cls.path, Torch_ROOT=str(libtorch()))
        if made.returncode != 0:
            raise AssertionError(made.stdout)

    def configure(self, bundle, build):
        without = [f"-DCMAKE_DISABLE_FIND_PACKAGE_{name}=ON" for name in SYSTEM_PACKAGES]
        return run(CMAKE, "-S", ROOT, "-B", build, f"-DZEROTH_BUNDLE={bundle}", f"-DTorch_ROOT={libtorch()}",
                   "-DZEROTH_CUDA=OFF", *without, *OPTIONS)

    def test_headers_sources_and_licences_are_in_it_and_what_only_their_tests_need_is_not(self):
        for file in ("include/CLI/CLI.hpp", "include/doctest/doctest.h", "include/fmt/format.h", "include/nlohmann/json.hpp",
                     "include/pcre2.h", "include/sodium.h", "include/sodium/version.h", "include/utf8proc.h",
                     "src/fmt/format.cc", "src/pcre2/config.h", "src/pcre2/pcre2_chartables.c", "src/sodium/sodium/utils.c",
                     "src/utf8proc/utf8proc_data.c", "licenses/libfmt-dev", "licenses/libpcre2-dev",
                     "licenses/libsodium-dev", "licenses/libzstd-dev", "licenses/zlib1g-dev", "include/zlib.h", "include/zstd.h",
                     "src/zlib/inflate.c", "src/zstd/common/debug.c"):
            self.assertTrue((self.bundle / file).is_file(), file)
        for file in ("src/pcre2/pcre2test.c", "src/zlib/gzread.c"):
            self.assertFalse((self.bundle / file).exists(), file)

    def test_a_folder_that_is_there_is_left_alone(self):
        again = run(ROOT / "tools/bundle", self.bundle, PATH=self.path)
        self.assertEqual(again.returncode, 1)
        self.assertIn(f"error: {self.bundle} exists already", again.stdout)

    def test_a_build_takes_packages_from_it_and_none_from_the_system(self):
        build = self.folder / "build"
        configured = self.configure(self.bundle, build)
        self.assertEqual(configured.returncode, 0, configured.stdout)
        commands = run("ninja", "-C", build, "-t", "commands", "finetune").stdout
        for file in ("base/json/json.cpp", "data/tokenizer/tokenizer.cpp"):
            line = next(line for line in commands.splitlines() if line.endswith(file))
            self.assertIn(f"-isystem {self.bundle}/include", line)
        self.assertIn(str(self.bundle / "src/fmt/format.cc"), commands)
        self.assertNotRegex(commands, r"lib(fmt|pcre2-8|sodium|utf8proc|z|zstd)\.(so|a)\b")

    def test_a_folder_that_is_no_bundle_is_refused(self):
        refused = self.configure(self.folder / "nowhere", self.folder / "refused")
        self.assertNotEqual(refused.returncode, 0)
        self.assertIn(f"No bundle in {self.folder}/nowhere: tools/bundle makes", refused.stdout)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
