#include "launcher/run/program_arguments.h"

#include <doctest/doctest.h>

#include <filesystem>

#include "tests/launcher/launched_process.h"
#include "tests/support/temp_folder.h"

namespace zeroth::launcher::program_arguments_test {

TEST_CASE("a flag's value is the last one that is given, in either form") {
  const std::vector<std::string_view> flags = {"--output", "--output_dir"};
  CHECK(find_argument({"finetune", "--output", "a", "--output_dir=b"}, flags) == "b");
  CHECK(find_argument({"finetune", "--outputs", "a", "--output"}, flags).empty());
  CHECK(find_argument({"--output", "a"}, flags).empty());
  CHECK(find_argument({}, flags).empty());
}

TEST_CASE("a file of flags is read as the flags in it") {
  const TempFolder directory;
  const std::string file =
      directory.write("run.json", R"({"output_dir": "out", "steps": 4, "model": null})");
  CHECK(find_argument({"finetune", file}, {"--output", "--output_dir"}) == "out");
  CHECK(find_argument({"finetune", file}, {"--steps"}) == "4");
  CHECK(find_argument({"finetune", file}, {"--model"}).empty());
  CHECK(find_argument({"finetune", file, "--steps"}, {"--steps"}).empty());
  CHECK(find_argument({"finetune", directory.write("other.json", "[")}, {"--steps"}).empty());
}

TEST_CASE("the ranks of one copy of a model follow from finetune's flags and file") {
  const TempFolder directory;
  const std::string file = directory.write(
      "ds.json", R"({"pipeline": {"stages": 4}, "tensor_parallel": {"autotp_size": 2}, "odd": 1})");
  const auto size = [](const std::vector<std::string>& command) {
    const ModelParallelSize found = model_parallel_size(command);
    return std::pair(found.pipeline, found.tensor);
  };
  using Pair = std::pair<int64_t, int64_t>;
  CHECK(size({"finetune", "--deepspeed", file}) == Pair(4, 2));
  CHECK(size({"bin/finetune", "--deepspeed_config=" + file}) == Pair(4, 2));
  CHECK(size({"finetune", "--pipeline-parallel", "2", "--tensor_parallel=3"}) == Pair(2, 3));
  CHECK(size({"finetune", directory.write("run.json", R"({"pipeline_parallel": 2, "deepspeed":
        {"tensor_parallel": {"autotp_size": 8}}})")}) == Pair(2, 8));
  CHECK(size({"finetune", "--pipeline-parallel", "-2"}) == Pair(1, 1));
  CHECK(size({"finetune", "--pipeline-parallel", "4294967296"}) == Pair(1, 1));
  CHECK(size({"finetune", "--deepspeed", directory / "none.json"}) == Pair(1, 1));
  CHECK(size({"finetune"}) == Pair(1, 1));
  CHECK(size({"mine", "--deepspeed", file}) == Pair(1, 1));
}

TEST_CASE("what has no output, or none that holds a checkpoint, has saved nothing") {
  const TempFolder directory;
  CHECK(newest_checkpoint({"prog"}).empty());
  CHECK(newest_checkpoint({"finetune", "--output", directory / "none"}).empty());
  CHECK(newest_checkpoint({"finetune", "--output", directory.path()}).empty());
  CHECK(newest_checkpoint({"finetune", directory / "missing.json"}).empty());
  CHECK(newest_checkpoint({"finetune", directory.write("bad.json", "{")}).empty());
}

TEST_CASE("another checkpoint is progress, none that can be read is not") {
  CHECK(has_new_checkpoint("", "step-2 1.1"));
  CHECK(has_new_checkpoint("step-2 1.1", "step-4 1.2"));
  CHECK_FALSE(has_new_checkpoint("step-2 1.1", "step-2 1.1"));
  CHECK_FALSE(has_new_checkpoint("step-2 1.1", ""));
}

TEST_CASE(
    "finetune's help is one rank's, wherever it stands; another program's where it is alone") {
  CHECK(printing_command({"bin/finetune", "--model", "m", "--help"}).single_rank);
  CHECK(printing_command({"finetune", "-h"}).single_rank);
  CHECK(printing_command({"./mine", "--version"}).single_rank);
  CHECK_FALSE(printing_command({"./mine", "-h", "128"}).single_rank);
  CHECK_FALSE(printing_command({"finetune", "--model", "--helpful"}).single_rank);
  CHECK_FALSE(printing_command({"--help"}).single_rank);
}

TEST_CASE("only finetune's configuration goes without the ranks' numbers") {
  CHECK(printing_command({"finetune", "--print-config"}).unprefixed_lines);
  CHECK(printing_command({"finetune", "--inspect-samples", "2"}).unprefixed_lines);
  CHECK(printing_command({"finetune", "--inspect-samples=2"}).output_required);
  CHECK_FALSE(printing_command({"mine", "--inspect-samples", "2"}).output_required);
  CHECK_FALSE(printing_command({"mine", "--print-config"}).unprefixed_lines);
  CHECK_FALSE(printing_command({"finetune", "--model", "m"}).unprefixed_lines);
}

TEST_CASE("what only prints has failed without its output") {
  CHECK(printing_command({"mine", "x", "-h"}).output_required);
  CHECK(printing_command({"mine", "--print-config"}).output_required);
  CHECK(printing_command({"finetune", "--eval-only"}).output_required);
  CHECK_FALSE(printing_command({"finetune", "--eval-only", "--metrics=m"}).output_required);
  CHECK_FALSE(printing_command({"mine", "--eval-only"}).output_required);
  CHECK_FALSE(printing_command({"finetune"}).output_required);
}

}  // namespace zeroth::launcher::program_arguments_test
