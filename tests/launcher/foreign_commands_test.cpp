#include "launcher/flags/foreign_flags.h"

#include <doctest/doctest.h>

#include "launcher/machine/find_program.h"
#include "tests/launcher/launched_process.h"

namespace zeroth::launcher::foreign_commands_test {

TEST_CASE("DeepSpeed's commands are answered with the command of zeroth that does the same") {
  CHECK(replacement_for("ds_report") == "use 'zeroth report'");
  CHECK(replacement_for("out/zero_to_fp32.py") == "use 'zeroth export DIR OUT --dtype fp32'");
  CHECK(replacement_for("zero_to_fp32") == replacement_for("zero_to_fp32.py"));
  CHECK(replacement_for("ds_bench").find("comm-bench") != std::string_view::npos);
  CHECK(replacement_for("finetune").empty());
  CHECK(replacement_for("train.py").empty());
}

TEST_CASE("who types one of them is told so, whether it is a script or a program") {
  const auto script = run_zeroth({"zero_to_fp32.py", ".", "out"});
  CHECK(script.status == 2);
  CHECK(script.err ==
        "zeroth: error: zero_to_fp32.py is a command of DeepSpeed: use 'zeroth export DIR OUT "
        "--dtype fp32'\n");
  const auto program = run_zeroth({"ds_report"}, {{"PATH", "/nonexistent"}});
  CHECK(program.status == 127);
  CHECK(program.err == "zeroth: error: ds_report is a command of DeepSpeed: use 'zeroth report'\n");
}

}  // namespace zeroth::launcher::foreign_commands_test
