"""Tests of tools/check_layers.py on small trees: each rule once broken and once kept."""
import pathlib
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))
import check_layers  # noqa: E402
import cpp_scan  # noqa: E402


class CheckerTest(unittest.TestCase):
    def setUp(self):
        self.addCleanup(setattr, check_layers, "TESTED_BY", check_layers.TESTED_BY)
        check_layers.TESTED_BY = {}
        self.addCleanup(setattr, check_layers, "SMALL_HEADER_LINES", check_layers.SMALL_HEADER_LINES)
        check_layers.SMALL_HEADER_LINES = 0  # the trees here are small
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)

    def write(self, path, text):
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")

    def source(self, path, text):
        """A source with its test."""
        self.write(path, text)
        self.write(check_layers.test_of(path), "\n")

    def assert_breaches(self, *expected):
        """Exactly these, each as (path, line, rule)."""
        _, breaches = check_layers.check(self.root)
        self.assertEqual([breach[:3] for breach in breaches], sorted(expected))

    def test_an_include_of_a_folder_below_is_allowed_and_above_is_not(self):
        self.write("base/error.h", "#pragma once\n")
        self.write("zero/strategy.h", '#pragma once\n#include "base/error.h"\n')
        self.write("model/block.h", '#pragma once\n\n#include "zero/strategy.h"\n')
        self.assert_breaches(("model/block.h", 3, "arrow"))

    def test_data_and_model_do_not_know_each_other(self):
        self.write("data/samples/batch.h", '#pragma once\n#include "model/block.h"\n')
        self.write("model/block.h", '#pragma once\n#include "data/samples/batch.h"\n')
        self.assert_breaches(("data/samples/batch.h", 2, "arrow"), ("model/block.h", 2, "arrow"))

    def test_a_sub_folder_includes_those_before_it_and_its_room(self):
        self.write("model/hf/map.h", '#pragma once\n#include "model/blocks/norm.h"\n#include "model/spec.h"\n')
        self.write("model/blocks/norm.h", '#pragma once\n#include "model/hf/map.h"\n')
        self.write("model/spec.h", '#pragma once\n#include "model/hf/map.h"\n')
        self.assert_breaches(("model/blocks/norm.h", 2, "seam"))

    def test_a_small_header_has_two_users_beside_its_source(self):
        check_layers.SMALL_HEADER_LINES = 3
        self.write("base/once.h", "#pragma once\nint once();\n")
        self.write("base/twice.h", "#pragma once\nint twice();\n")
        self.write("base/long.h", "#pragma once\n\nint once();\n")
        for name in ("once", "twice", "user"):
            self.source(f"base/{name}.cpp", '#include "base/once.h"\n#include "base/twice.h"\n')
        self.source("base/twice_more.cpp", '#include "base/twice.h"\n')
        self.write("tests/base/test_once.cpp", '#include "base/once.h"\n')
        self.assert_breaches()
        (self.root / "base/user.cpp").write_text('#include "base/twice.h"\n', encoding="utf-8")
        self.assert_breaches(("base/once.h", 1, "small header"))

    def test_what_a_folder_below_includes_is_not_included_over_it(self):
        self.write("offload/access.h", "#pragma once\n")
        self.write("zero/rests.h", '#pragma once\n#include "offload/access.h"\n')
        self.source("trainer/rank_run.cpp", '#include "offload/access.h"\n')
        self.assert_breaches(("trainer/rank_run.cpp", 1, "arrow"))

    def test_an_arrow_that_nobody_takes_and_an_old_picture_are_breaches(self):
        self.addCleanup(setattr, check_layers, "ARROWS", check_layers.ARROWS)
        check_layers.ARROWS = {"base": [], "configs": ["base"], "zero": ["base", "configs"]}
        self.assertEqual(check_layers.picture(), "graph TD\n  zero --> configs")
        self.write("base/error.h", "#pragma once\n")
        self.write("configs/config.h", '#pragma once\n#include "base/error.h"\n')
        self.write("zero/unit.h", '#pragma once\n#include "configs/config.h"\n')
        self.write("docs/tour.md", "```mermaid\ngraph TD\n```\n")
        self.assert_breaches(("docs/tour.md", 1, "picture"), ("tools/check_layers.py", 1, "arrow"))
        self.write("zero/strategy.h", '#pragma once\n#include "base/error.h"\n')
        self.write("docs/tour.md", "```mermaid\ngraph TD\n  zero --> configs\n```\n")
        self.assert_breaches()

    def test_tests_and_examples_may_include_any_folder(self):
        self.write("engine/engine.h", "#pragma once\n")
        self.write("tests/base/error_test.cpp", '#include "engine/engine.h"\n')
        self.write("examples/own.cpp", '#include "engine/engine.h"\n')
        self.assert_breaches()

    def test_an_include_path_starts_at_the_root(self):
        self.write("base/error.h", "#pragma once\n")
        self.source("base/error.cpp", '#include "error.h"\n')
        self.assert_breaches(("base/error.cpp", 1, "include"))

    def test_a_commented_include_counts_nothing(self):
        self.write("base/error.h", '#pragma once\n// #include "zero/strategy.h"\n/*\n#include "zero/x.h"\n*/\n')
        self.assert_breaches()

    def test_the_launcher_does_not_see_torch(self):
        self.source("launcher/cli.cpp", "#include <string>\n#include <ATen/ATen.h>\n")
        self.source("comm/groups/group.cpp", "#include <ATen/ATen.h>\n")
        self.assert_breaches(("launcher/cli.cpp", 2, "arrow"))

    def test_files_have_a_budget(self):
        self.source("base/short.cpp", "//\n" * 400)
        self.source("base/long.cpp", "//\n" * 401)
        self.write("base/short.h", "#pragma once\n" + "//\n" * 199)
        self.write("base/long.h", "#pragma once\n" + "//\n" * 200)
        self.write("tests/base/other_test.cpp", "//\n" * 401)
        self.write("tools/tool", "#!/bin/sh\n" + "#\n" * 400)
        self.assert_breaches(
            ("base/long.cpp", 401, "file length"),
            ("base/long.h", 201, "file length"),
            ("tests/base/other_test.cpp", 401, "file length"),
            ("tools/tool", 401, "file length"),
        )

    def test_lines_of_cmake_have_a_budget_of_columns(self):
        self.write("CMakeLists.txt", "#" * 120 + "\n")
        self.write("base/CMakeLists.txt", "\n" + "#" * 121)
        self.write("base/gpu/CMakeLists.txt", "#" * 121)
        self.write("cmake/Own.cmake", "#" * 121)
        self.write("build/base/CMakeLists.txt", "#" * 121)  # not ours
        self.assert_breaches(
            ("base/CMakeLists.txt", 2, "columns"),
            ("base/gpu/CMakeLists.txt", 1, "columns"),
            ("cmake/Own.cmake", 1, "columns"),
        )

    def test_functions_have_a_budget_of_lines(self):
        body = "  x();\n" * 58
        self.source("base/a.cpp", f"void fits() {{\n{body}}}\n\nint A::longer(int a) const {{\n{body}\n}}\n")
        self.write("tests/base/b_test.cpp", f'namespace zeroth::b_test {{\nTEST_CASE("a case") {{\n{body}\n}}\n}}\n')
        self.assert_breaches(("base/a.cpp", 62, "function length"), ("tests/base/b_test.cpp", 2, "function length"))

    def test_functions_and_constructors_have_a_budget_of_parameters(self):
        seven = "int a, int b, int c, int d, std::map<int, int> e, int f, int g = max(1, 2)"
        self.write("base/a.h", f"#pragma once\nvoid f({seven});\nclass A {{\n public:\n  explicit A({seven});\n}};\n")
        self.write("base/b.h", "#pragma once\nvoid f(int a, int b, int c, int d, std::map<int, int> e, int f);\n")
        self.assert_breaches(("base/a.h", 2, "parameters"), ("base/a.h", 5, "parameters"))

    def test_cases_lie_in_a_namespace_of_their_source(self):
        self.write("tests/base/error_test.cpp", 'namespace zeroth::error_test {\nTEST_CASE("a") {}\n}\n')
        self.write("tests/base/hash_test.cpp", 'namespace zeroth {\nTEST_CASE("a") {}\n}\n')
        self.assert_breaches(("tests/base/hash_test.cpp", 1, "test namespace"))

    def test_a_header_has_pragma_once(self):
        self.write("base/a.h", "// #pragma once\n")
        self.assert_breaches(("base/a.h", 1, "pragma once"))

    def test_the_environment_is_read_at_the_edge(self):
        text = 'auto x = std::getenv("A");  // getenv\nauto s = "getenv";\n'
        for path in ("base/machine/cpu.cpp", "comm/bootstrap/rank_env.cpp", "launcher/cli.cpp"):
            self.source(path, text)
        self.source("engine/engine.cpp", text)
        self.assert_breaches(("engine/engine.cpp", 1, "getenv"))

    def test_json_has_one_door(self):
        text = "auto a = Json::parse(text);\nnlohmann::json b = nlohmann::json :: from_cbor(c);\nparse_json(text, d);\n"
        for path in ("base/json/json.cpp", "configs/check.cpp"):
            self.source(path, text)
        self.write("tests/configs/other_test.cpp", text)
        self.assert_breaches(("configs/check.cpp", 1, "json"), ("configs/check.cpp", 2, "json"))

    def test_only_main_ends_the_process(self):
        text = "void f() {\n  std::exit(1);\n  ::abort();\n  if (x) exit(2);\n  return abort();\n}\n"
        self.source("comm/a.cpp", text)
        self.write("trainer/main.cpp", text)
        self.source("comm/b.cpp", "void Group::abort() {\n  _exit(1);\n  group.abort();\n  p->abort();\n}\n")
        self.write("comm/b.h", "#pragma once\nclass Group {\n  void abort();\n  void exit();\n};\n")
        self.assert_breaches(*(("comm/a.cpp", line, "exit") for line in (2, 3, 4, 5)))

    def test_a_lease_is_released_by_its_destructor(self):
        self.source("engine/a.cpp", "void f() {\n  lease.release();\n  released();\n}\n")
        self.source("zero/a.cpp", "void f() { lease.release(); }\n")
        self.assert_breaches(("engine/a.cpp", 2, "release"))

    def test_the_stage_is_read_in_one_file(self):
        text = '// stage\nint x = config.zero_stage;\nauto s = "stage";\nint staging;\n'
        self.source("zero/strategy.cpp", text)
        self.source("zero/store.cpp", text)
        self.source("trainer/loop.cpp", text)
        self.source("configs/zero.cpp", text)
        self.assert_breaches(("trainer/loop.cpp", 2, "stage"), ("zero/store.cpp", 2, "stage"))

    def test_few_files_know_that_ranks_share_layers(self):
        text = "// TensorRanks\nint n = shape[Axis::kTensor];\nint m = config.tensor_parallel.size;\n"
        for path in ("model/blocks/linear.cpp", "comm/device_mesh.cpp", "configs/print.cpp", "zero/unit.cpp"):
            self.source(path, text)
        self.source("zero/store.cpp", text)
        self.source("engine/loop.cpp", text)
        self.assert_breaches(*((path, line, "axis") for path in ("engine/loop.cpp", "zero/store.cpp") for line in (2, 3)))

    def test_optional_parts_are_files(self):
        text = "#ifdef USE_CUDA\n#endif\n"
        self.source("model/a.cpp", "\n  # if X\n#endif\n")
        self.source("engine/a.cpp", text)
        self.source("comm/a.cpp", text)
        self.assert_breaches(("engine/a.cpp", 1, "#if"), ("model/a.cpp", 2, "#if"))

    def test_each_source_has_its_test(self):
        self.write("comm/gpu/a.cpp", "\n")
        self.write("launcher/main.cpp", "\n")
        self.write("examples/own.cpp", "\n")
        self.write("comm/gpu/b.cpp", "\n")
        self.write("tests/comm/b_test.cpp", "\n")
        self.assert_breaches(("comm/gpu/a.cpp", 1, "test"))

    def test_an_exception_that_is_no_longer_needed_is_a_breach(self):
        check_layers.TESTED_BY = dict.fromkeys(("comm/a.cpp", "comm/b.cpp", "comm/gone.cpp"), "tests/comm/b_test.cpp")
        self.write("comm/a.cpp", "\n")
        self.source("comm/b.cpp", "\n")
        self.assert_breaches(("comm/b.cpp", 1, "test"), ("comm/gone.cpp", 1, "test"))

    def test_the_test_of_an_interface_covers_its_implementations_if_it_is_there(self):
        check_layers.TESTED_BY = {"comm/a.cpp": "tests/comm/group_test.cpp"}
        self.write("comm/a.cpp", "\n")
        self.assert_breaches(("comm/a.cpp", 1, "test"))
        self.write("tests/comm/group_test.cpp", "\n")
        self.assert_breaches()

    @unittest.skipUnless(check_layers.clang_format(), "no clang-format 14")
    def test_the_format_is_clang_formats(self):
        self.write(".clang-format", "BasedOnStyle: Google\n")
        self.write("base/a.h", "#pragma once\nint  x;\nint   y;\n")
        self.write("base/b.h", "#pragma once\nint x;\n")
        self.assert_breaches(("base/a.h", 2, "format"))

    def test_the_program_prints_a_line_per_breach_and_fails(self):
        lines = "\n" * 40
        self.write("base/a.h", lines)
        program = [sys.executable, "-B", ROOT / "tools" / "check_layers.py", self.root]
        run = subprocess.run(program, capture_output=True, text=True)
        self.assertEqual(run.returncode, 1)
        self.assertIn("base/a.h:1: pragma once: ", run.stdout)
        self.write("base/a.h", "#pragma once" + lines)
        self.assertEqual(subprocess.run(program, capture_output=True).returncode, 0)


class ScannerTest(unittest.TestCase):
    def functions(self, text):
        return [(f.name, f.line, f.lines, f.parameters) for f in cpp_scan.functions(cpp_scan.strip(text))]

    def test_comments_and_literals_are_blanked_in_place(self):
        text = "a(\"x{\", '}', 1'000); // {\n/* {\n*/ R\"x(}\")\"{)x\" b"
        code = cpp_scan.strip(text)
        self.assertEqual(len(code), len(text))
        self.assertEqual(code.count("\n"), 2)
        self.assertNotRegex(code, "[{}x]")
        self.assertIn("1'000);", code)

    def test_functions_in_namespaces_and_classes_are_found(self):
        text = """namespace a::b {
template <typename T, int N = 2>
T f(const std::vector<T>& v, std::function<void(int, int)> g = {}) {
  auto h = [](int a, int b) { return a; };
}
class [[nodiscard]] A final : public ::B<int> {
 public:
  explicit A(int a, int b) : a_(a), b_{b}, B<int>{a} {
  }
  ~A() override = default;
  bool operator()(int a, int b) const { return a < b; }
  bool operator<(const A& o) const;
  auto m() const noexcept -> std::map<int, int> {
  }
  int x_ = 0;
  std::vector<int> v_{1, 2};
};
}  // namespace a::b
extern "C" int c(void) { return 0; }
"""
        self.assertEqual(
            self.functions(text),
            [
                ("f", 2, 4, 2),
                ("A", 8, 2, 2),
                ("~A", 10, 0, 0),
                ("operator_", 11, 1, 2),
                ("operator_", 12, 0, 1),
                ("m", 13, 2, 0),
                ("c", 19, 1, 0),
            ],
        )

    def test_a_lambda_at_namespace_scope_counts_and_a_table_does_not(self):
        text = "const auto kF = [](int a) {\n  return a;\n};\nconst Row kTable[] = {\n  {1, f(2)},\n};\n"
        self.assertEqual(self.functions(text), [("lambda", 1, 3, 0)])

    def test_macros_have_no_parameters(self):
        text = 'TEST_CASE("x") {\n}\nMACRO(1, 2, 3, 4, 5, 6, 7);\n#define BROKEN {\nvoid f(int a) {}\n'
        self.assertEqual(self.functions(text), [("TEST_CASE", 1, 2, 0), ("MACRO", 3, 0, 0), ("f", 5, 1, 1)])

    def test_a_struct_as_return_type_is_a_function(self):
        self.assertEqual(self.functions("struct stat f(int a) {\n}\nenum class E { a, b };\n"), [("f", 1, 2, 1)])


if __name__ == "__main__":
    unittest.main()
