#include "launcher/commands/commands.h"

#include <doctest/doctest.h>

#include "base/error.h"
#include "tests/launcher/launched_process.h"
#include "tests/launcher/saved_model.h"

namespace zeroth::launcher::export_command_test {
namespace {

std::string refused(const std::vector<std::string>& words) {
  return message_of<UsageError>([&] { (void)export_command(words); });
}

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("export tells what it made of which checkpoint") {
  const TempFolder directory;
  save_model(directory / "out/checkpoints", 8, model_of(1));
  const std::string said = export_command({directory / "out", directory / "hf", "--dtype", "bf16"});
  CHECK(said == (directory / "hf").string() + ": 4 tensors of 70 B, from " +
                    (directory / "out/checkpoints/step-8").string() +
                    "\n  with config.json, tokenizer.json\n");
  save_model(directory / "states/checkpoints", 8, model_of(1), /*config=*/"");
  CHECK(contains(export_command({directory / "states", directory / "weights"}),
                 "without config.json, which the checkpoint does not have: only the weights\n"));
}

TEST_CASE("a line that export cannot understand says what to write instead") {
  CHECK(refused({}).starts_with("export: DIR is missing"));
  CHECK(refused({"out"}).starts_with("export: OUT is missing"));
  CHECK(refused({"out", "hf", "--dtype", "int8"}) ==
        "export: --dtype int8: must be fp32, bf16 or fp16");
  CHECK(contains(refused({"out", "hf", "--dtyp", "fp16"}), "--dtype"));
  CHECK(contains(export_command({"--help"}), "It is written atomically."));
}

TEST_CASE("the name of a file of weights is no name for the model's folder") {
  const TempFolder directory;
  save_model(directory / "out/checkpoints", 8, model_of(1));
  std::filesystem::create_directories(directory / "hf/pytorch_model.bin");
  for (const char* const name :
       {"hf/pytorch_model.bin", "hf/pytorch_model.bin/", "hf/model.safetensors", "hf/model.pt"}) {
    const std::string said = refused({directory / "out", directory / name});
    CHECK_MESSAGE(said.starts_with("export: OUT "), said);
    CHECK(contains(said, " is named like a weights file"));
    CHECK(said.ends_with(": give a folder instead, for example " + (directory / "hf").string()));
  }
  CHECK(refused({directory / "out", "m.bin"}).ends_with(": give a folder instead, for example hf"));
  CHECK(std::filesystem::is_empty(directory / "hf/pytorch_model.bin"));
  CHECK(run_zeroth({"export", directory / "out", directory / "hf/pytorch_model.bin"}).status == 2);
  CHECK(contains(export_command({directory / "out", directory / "v1.5"}), "4 tensors"));
}

TEST_CASE("zeroth export is a command of the program, with its status") {
  const TempFolder directory;
  save_model(directory / "out/checkpoints", 8, model_of(1));
  const auto good = run_zeroth({"export", directory / "out", directory / "hf"});
  CHECK(good.status == 0);
  CHECK(contains(good.out, "4 tensors"));
  const auto again = run_zeroth({"export", directory / "out", directory / "hf"});
  CHECK(again.status == 1);
  CHECK(contains(again.err, "zeroth: error: " + (directory / "hf").string() + " is not empty"));
  CHECK(run_zeroth({"export", directory / "out", directory / "hf", "--overwrite"}).status == 0);
  CHECK(run_zeroth({"export"}).status == 2);
}

}  // namespace zeroth::launcher::export_command_test
