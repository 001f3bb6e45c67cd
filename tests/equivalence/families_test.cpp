// Families whose layers differ from Llama's: fused products (phi3), norms behind attention and MLP
// and a part of each head that rotates (glm4), layers without rotary embeddings (smollm3), experts
// in some layers (qwen2_moe), ALiBi and a norm of the embedding (bloom), short convolutions (lfm2)
// and a gated delta net (qwen3_5_text) in place of attention, inputs, keys and values that layers
// pass on (gemma4_text), and experts beside the MLP (gemma4_moe).
#include <doctest/doctest.h>

#include "tests/equivalence/expect_row.h"
#include "tests/support/temp_folder.h"

namespace zeroth::equivalence::families_test {
namespace {

using configs::OffloadDevice;

constexpr const char* kFamilies[] = {"phi3", "glm4",         "smollm3",     "qwen2_moe", "bloom",
                                     "lfm2", "qwen3_5_text", "gemma4_text", "gemma4_moe"};

}  // namespace

TEST_CASE("each stage, with recompute and layers that ranks share, trains to the reference") {
  RowChecker checker;
  for (const char* model : kFamilies) {
    const bool all = std::string(model) == "qwen2_moe";
    for (const int stage : {0, 1, 2, 3}) {
      if (!all && stage < 2) continue;
      Row row = {.accumulation = 1 + stage % 2, .ranks = 2, .model = model};
      row.zero.stage = stage;
      row.recompute.every_nth_block = stage == 3 ? 1 : 0;
      checker.check(row);
    }
    Row row = {.recompute = {.every_nth_block = all ? 1 : 0}, .tensor = 2, .model = model};
    row.zero.stage = all ? 3 : 1;
    checker.check(row);
  }
  MESSAGE(checker.worst());
}

TEST_CASE("states and parameters of experts and delta nets rest on the host or in files") {
  const TempFolder directory;
  RowChecker checker;
  for (const char* model : {"qwen2_moe", "qwen3_5_text", "gemma4_text"}) {
    for (const OffloadDevice device : {OffloadDevice::kCpu, OffloadDevice::kNvme}) {
      Row row = {.recompute = {.every_nth_block = 1}, .ranks = 2, .model = model};
      row.zero.stage = 3;
      row.zero.offload_optimizer = {.device = device, .nvme_path = directory.path()};
      row.zero.offload_param = {.device = device, .nvme_path = directory.path()};
      checker.check(row);
    }
  }
  MESSAGE(checker.worst());
}

TEST_CASE("stages of a pipeline hold experts and delta nets, and pass on what layers share") {
  RowChecker checker;
  for (const char* model : {"qwen2_moe", "qwen3_5_text", "gemma4_text"}) {
    for (const int ranks : {1, 2}) {
      Row row = {.accumulation = 4, .pipeline = {.stages = 2}, .ranks = ranks, .model = model};
      row.zero.stage = ranks - 1;
      checker.check(row);
    }
  }
  MESSAGE(checker.worst());
}

}  // namespace zeroth::equivalence::families_test
