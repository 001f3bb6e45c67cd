#include "trainer/flags/flags.h"

#include <doctest/doctest.h>

#include "tests/trainer/flag_line.h"
#include "tests/trainer/workbench.h"

namespace zeroth::trainer::report_to_test {

TEST_CASE("--report_to switches files on: those of TensorBoard, or all that there are") {
  const Flags tensorboard = parse("--report_to tensorboard --logging_dir logs");
  CHECK(tensorboard.report_to.tensorboard);
  CHECK_FALSE(tensorboard.report_to.csv);
  CHECK(tensorboard.report_to.directory == "logs");
  CHECK(tensorboard.notes.empty());
  const Flags all = parse("--report_to all");
  CHECK(all.report_to.tensorboard);
  CHECK(all.report_to.csv);
  CHECK_FALSE(parse("--report_to none").report_to.tensorboard);
}

TEST_CASE("a service becomes files: its name is kept for the warning") {
  for (const char* line :
       {"--report_to tensorboard wandb mlflow --lr 1", "--report_to=wandb,mlflow"}) {
    CAPTURE(line);
    const Flags flags = parse(line);
    CHECK(flags.report_to.tensorboard);
    CHECK(flags.report_to.csv);
    CHECK(flags.report_to.services == std::vector<std::string>{"wandb", "mlflow"});
    CHECK(flags.notes.empty());
  }
}

TEST_CASE("a name that nobody knows is refused") {
  CHECK(usage_error("--report_to wanbd") ==
        "--report_to wanbd: must be all, none, tensorboard or the name of a service");
}

}  // namespace zeroth::trainer::report_to_test
