// Ranks that share every layer train to what one rank trains to.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <array>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "base/files/regular_file.h"
#include "engine/engine.h"
#include "engine/start.h"
#include "model/blocks/build_blocks.h"
#include "model/weight_source.h"
#include "tests/equivalence/expect_row.h"
#include "tests/equivalence/pairwise.h"
#include "tests/equivalence/run_row.h"
#include "tests/support/all_products.h"
#include "tests/support/ranks.h"
#include "tests/support/temp_folder.h"

namespace zeroth::equivalence::tensor_test {
namespace {

using configs::OffloadDevice;
using configs::Precision;
using testing::all_products;

constexpr std::array kTensor = {2, 4};
constexpr std::array kPrecisions = {Precision::kFp32, Precision::kBf16, Precision::kFp16};
constexpr std::array<configs::RecomputeConfig, 3> kRecomputes = {
    {{}, {.every_nth_block = 1}, {.number_checkpoints = 2}}};
constexpr std::array kModels = {"llama", "qwen2", "qwen3_tied", "gpt2"};
constexpr std::array kDropouts = {0.0, 0.1};
// Where optimizer states and, in stage 3, parameters rest.
constexpr std::array kPlaces = {OffloadDevice::kNone, OffloadDevice::kCpu, OffloadDevice::kNvme};

// Tensor, data, stage, precision, recompute, accumulation, dropout, place, model, product.
std::array<size_t, 10> values() {
  return {kTensor.size(),
          3,
          4,
          kPrecisions.size(),
          kRecomputes.size(),
          2,
          kDropouts.size(),
          kPlaces.size(),
          kModels.size(),
          all_products().size() + 1};
}

Row row_of(const Combination& values, const std::string& directory = "") {
  Row row;
  row.tensor = kTensor[values[0]];
  row.ranks = static_cast<int>(values[1]) + 1;
  row.zero.stage = static_cast<int>(values[2]);
  row.precision = kPrecisions[values[3]];
  row.recompute = kRecomputes[values[4]];
  row.accumulation = static_cast<int64_t>(values[5]) + 1;
  row.dropout = kDropouts[values[6]];
  row.model = kModels[values[8]];
  if (values[9] > 0) row.rounding.product = all_products()[values[9] - 1];
  row.zero.offload_optimizer.device = kPlaces[values[7]];
  row.zero.offload_optimizer.nvme_path = directory;
  if (row.zero.stage < 3) return row;
  row.zero.offload_param.device = kPlaces[values[7]];
  row.zero.offload_param.nvme_path = directory;
  return row;
}

// What is dropped has a reference in fp32 only.
std::vector<Combination> all_combinations() {
  std::vector<Combination> all = combinations(values());
  std::erase_if(all, [](const Combination& values) {
    const Row row = row_of(values);
    return row.dropout > 0 && row.precision != Precision::kFp32;
  });
  return all;
}

void save_first_values(const model::ModelSpec& spec, int tensor,
                       const std::filesystem::path& directory) {
  configs::Config config;
  config.zero.stage = 3;
  config.tensor_parallel.size = tensor;
  const auto grid = comm::MeshShape::data_parallel(2).with(comm::MeshDim::kTp, tensor);
  const auto save = [&](std::shared_ptr<comm::DeviceMesh> mesh) {
    auto blocks = model::build_blocks(spec, engine::tensor_parallel_group(*mesh, config));
    const auto engine =
        engine::initialize(std::move(blocks), config, mesh,
                           {.weights = std::make_shared<model::RandomSource>(spec, /*seed=*/3)});
    engine->save_model(directory);
  };
  testing::run_ranks(grid.ranks(), save, {.grid = grid});
}

}  // namespace

TEST_CASE("ranks that share every layer train to the losses of one, with every other strategy") {
  const TempFolder directory;
  RowChecker checker;
  for (const Combination& row : chosen(all_combinations())) {
    checker.check(row_of(row, directory.path()));
  }
  MESSAGE(checker.worst());
}

TEST_CASE("whether collectives of a shared layer overlap changes no bit") {
  RowChecker checker;
  for (const char* model : {"llama", "gpt2"}) {
    Row row = {.ranks = 2, .tensor = 2, .model = model};
    row.zero.stage = 2;
    row.zero.overlap_comm = false;
    checker.check(row);
  }
  MESSAGE(checker.worst());
}

TEST_CASE("near ranks that gather from each other alone change no bit, with shared layers too") {
  RowChecker checker;
  for (const int tensor : {1, 2}) {
    for (const int64_t accumulation : {1, 2}) {
      Row row = {.accumulation = accumulation, .ranks = 4, .tensor = tensor};
      if (!checker.can_run(row)) continue;
      row.zero.stage = 3;
      row.recompute.every_nth_block = accumulation - 1;
      const int64_t sharded = checker.result(row).persistent_bytes;
      row.zero.hpz_partition_size = 2;
      checker.check(row);
      CHECK(checker.result(row).persistent_bytes > 2 * sharded);
      row.zero.hpz_partition_size = 4;  // all ranks are near
      checker.check(row);
      CHECK(checker.result(row).persistent_bytes == sharded);
    }
  }
  MESSAGE(checker.worst());
}

TEST_CASE("a model that is saved before its first step has the bytes of one rank's") {
  for (const char* name : kModels) {
    CAPTURE(name);
    model::ModelSpec spec = model::read_model_spec(checkpoint_of({.model = name}));
    std::vector<int> ranks = {2, 4};
    for (const bool uneven : {false, true}) {
      if (uneven) {  // a vocabulary that none of them divides
        spec.vocab_size = 701;
        spec.num_heads = spec.num_kv_heads = 12;
        spec.intermediate_size = 48;
        ranks = {2, 3, 4};
      }
      const TempFolder directory;
      const auto bytes = [&](int tensor) {
        save_first_values(spec, tensor, directory / fmt::format("{}", tensor));
        return read_file(directory / fmt::format("{}/model.safetensors", tensor), 1 << 24);
      };
      const std::string whole = bytes(1);
      for (const int tensor : ranks) CHECK(bytes(tensor) == whole);
    }
  }
}

TEST_CASE("Lamb's ratios are those of whole parameters, whatever ranks share them") {
  RowChecker checker;
  for (const char* model : {"llama", "gpt2"}) {
    for (const int tensor : {2, 4}) {
      Row row = {.ranks = 2, .tensor = tensor, .model = model, .training = Training::kLamb};
      row.zero.stage = tensor == 2 ? 3 : 1;
      checker.check(row);
    }
  }
  MESSAGE(checker.worst());
}

}  // namespace zeroth::equivalence::tensor_test
