#include "trainer/flags/hf_flags.h"

#include <doctest/doctest.h>

#include "base/error.h"
#include "tests/support/temp_folder.h"
#include "tests/trainer/flag_line.h"
#include "tests/trainer/workbench.h"

namespace zeroth::trainer::argument_file_test {
namespace {

using Arguments = std::vector<std::string>;

constexpr const char* kArguments = R"({
  "model_name_or_path": "m", "train_file": "d.bin", "output_dir": "o", "do_train": true,
  "bf16": true, "fp16": false, "learning_rate": 2e-05, "max_steps": 20, "run_name": null,
  "lr_scheduler_type": "polynomial", "lr_scheduler_kwargs": {"power": 2},
  "report_to": ["tensorboard", "wandb"], "deepspeed": {"zero_optimization": {"stage": 2}}})";

}  // namespace

TEST_CASE("a JSON file in place of flags says the same as they") {
  const TempFolder directory;
  const std::string file = directory.write("args.json", kArguments);
  for (const Arguments& arguments : {Arguments{file}, Arguments{"--local_rank=1", file}}) {
    const Flags flags = parse_flags(arguments);
    CHECK(flags.model == "m");
    CHECK(flags.output == "o");
    CHECK(flags.values.precision == configs::Precision::kBf16);
    CHECK(flags.values.lr == 2e-5);
    CHECK(flags.steps == 20);
    CHECK(flags.values.schedule == configs::HfSchedule::Type::kPolynomial);
    CHECK(flags.values.schedule_kwargs == R"({"power":2})");
    CHECK(flags.report_to.csv);
    CHECK(flags.config == R"({"zero_optimization":{"stage":2}})");
    CHECK_FALSE(flags.eval_only);
  }
}

TEST_CASE("a file of flags has the complaints of a command line") {
  const TempFolder directory;
  const std::string file =
      directory.write("args.json", R"({"model_name_or_path": "m", "learning_rat": 1})");
  const std::string said = message_of<Error>([&] { parse_flags({file}); });
  CHECK(has(said, "--learning_rat: no such flag; did you mean --learning_rate?"));
  CHECK(has(said, "--data is missing"));
}

TEST_CASE("what is no file of flags is told with its name") {
  const TempFolder directory;
  const auto said = [&](const std::string& name, const char* text) {
    const std::string file = directory.write(name, text);
    return message_of<Error>([&] { expand_argument_file({file}); });
  };
  CHECK(has(said("list.json", "[1]"), "list.json: expected an object of flags, found [1]"));
  CHECK(
      has(said("twice.json", R"({"bf16": true, "bf16": false})"), "duplicate key bf16: keep one"));
  CHECK(has(said("broken.json", "{"), "broken.json:1:1: not JSON"));
  CHECK(has(said("args.yaml", "a: 1"),
            "args.yaml: YAML is not supported: write the flags to a .json"));
}

TEST_CASE("several arguments are no file of flags") {
  const Arguments two = {"a.json", "--bf16"};
  CHECK(expand_argument_file(two) == two);
  CHECK(expand_argument_file({"stray"}) == Arguments{"stray"});
  CHECK(expand_argument_file({"--help"}) == Arguments{"--help"});
}

}  // namespace zeroth::trainer::argument_file_test
