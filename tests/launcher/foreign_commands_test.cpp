#include "launcher/flags/foreign_commands.h"

#include <doctest/doctest.h>

#include "launcher/run/find_program.h"
#include "tests/launcher/launched.h"

namespace zeroth::launcher {

TEST_CASE("DeepSpeed's commands are answered with the command of zeroth that does the same") {
  CHECK(instead_of("ds_report") == "use 'zeroth report'");
  CHECK(instead_of("out/zero_to_fp32.py") == "use 'zeroth export DIR OUT --dtype fp32'");
  CHECK(instead_of("zero_to_fp32") == instead_of("zero_to_fp32.py"));
  CHECK(instead_of("ds_bench").find("comm-bench") != std::string_view::npos);
  CHECK(instead_of("finetune").empty());
  CHECK(instead_of("train.py").empty());
}

TEST_CASE("who types one of them is told so, whether it is a script or a program") {
  const auto script = run_zeroth({"zero_to_fp32.py", ".", "out"});
  CHECK(script.status == 2);
  CHECK(
      script.err ==
      "zeroth: error: zero_to_fp32.py is DeepSpeed's: use 'zeroth export DIR OUT --dtype fp32'\n");
  const auto program = run_zeroth({"ds_report"}, {{"PATH", "/nonexistent"}});
  CHECK(program.status == 127);
  CHECK(program.err == "zeroth: error: ds_report is DeepSpeed's: use 'zeroth report'\n");
}

}  // namespace zeroth::launcher
