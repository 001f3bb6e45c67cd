// The files of tests/configs/fixtures/published that load run, too: two steps of a small model.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <string>
#include <vector>

#include "configs/inspect.h"
#include "configs/resolve.h"
#include "tests/trainer/workbench.h"

namespace zeroth::trainer::published_files_test {
namespace {

constexpr char kDirectory[] = ZEROTH_SOURCE_DIR "/tests/configs/fixtures/published";

// Those that published_test.cpp of tests/configs does not list as refused.
std::vector<std::filesystem::path> files_that_load() {
  configs::FlagValues flags;
  flags.accept_uncompressed = true;
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(kDirectory)) {
    const bool loads = configs::inspect(configs::load(entry.path()), {}, flags).errors.empty();
    if (loads) files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  return files;
}

}  // namespace

TEST_CASE("published files that load train a small model") {
  const Workbench bench;
  const auto files = files_that_load();
  CHECK(files.size() > 35);
  for (const auto& file : files) {
    CAPTURE(file.stem().string());
    const bool for_trainer = !file.stem().string().starts_with("deepspeed");
    const auto arguments = fmt::format(
        "{} --seq-len 16 --max_steps 2 --accept-uncompressed "
        "--metrics m.jsonl --deepspeed {}",
        for_trainer ? "--model_name_or_path model --train_file train.bin "
                      "--per_device_train_batch_size 2 --warmup_steps 1"
                    : "--model model --data train.bin",
        file.string());
    const bool splits = has(bench.read(file), "\"tensor_parallel\"");  // over two ranks
    const auto result =
        splits ? bench.shell(fmt::format("DS_ACCELERATOR=cpu '{}/zeroth' --num_gpus 2 finetune {}",
                                         ZEROTH_BIN_DIR, arguments))
               : bench.finetune(arguments);
    REQUIRE_MESSAGE(result.code == 0, result.out << result.err);
    const auto rows = bench.steps("m.jsonl");
    REQUIRE(rows.size() == 2);
    for (const double loss : losses(rows)) CHECK(std::isfinite(loss));
    CHECK(has(result.out, "(file)") == has(bench.read(file), "\"gradient_clipping\": 0"));
  }
}

}  // namespace zeroth::trainer::published_files_test
