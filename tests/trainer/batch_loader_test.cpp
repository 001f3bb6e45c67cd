#include "trainer/batch_loader.h"

#include <doctest/doctest.h>

#include <set>

#include "base/error.h"
#include "comm/device_mesh.h"
#include "engine/engine.h"
#include "model/blocks/build_blocks.h"
#include "model/hf/checkpoint_source.h"
#include "tests/engine/chain_config.h"
#include "tests/trainer/counting_dataset.h"

namespace zeroth::trainer::batch_loader_test {
namespace {

using Samples = std::vector<int64_t>;

data::BatchPartition partition(int64_t micro_batch, int64_t micro_steps, int64_t world,
                               int64_t rank) {
  return {.micro_batch = micro_batch, .micro_steps = micro_steps, .world = world, .rank = rank};
}

TrainDataLoader in_order(const data::Dataset& dataset, data::BatchPartition assigned) {
  return {dataset, data::SampleOrder(dataset.size(), 1, false), assigned, 1};
}

constexpr int64_t kBatch = 12, kSteps = 10;

// The batches of all ranks in the order of their rows; at `resumed_at` loaders begin anew, as those
// of a run that resumes do.
std::vector<model::MicroBatch> consume(const data::Dataset& dataset, const data::SampleOrder& order,
                                       int64_t world, int64_t resumed_at) {
  constexpr int64_t kMicroBatch = 2;
  const int64_t micro_steps = kBatch / kMicroBatch / world;
  std::vector<model::MicroBatch> batches;
  std::vector<TrainDataLoader> loaders;
  for (int64_t step = 0; step < kSteps; ++step) {
    if (step == 0 || step == resumed_at) {
      loaders.clear();
      for (int64_t rank = 0; rank < world; ++rank) {
        loaders.emplace_back(dataset, order, partition(kMicroBatch, micro_steps, world, rank), 1);
        loaders.back().seek({.step = step, .sample = step * kBatch});
      }
    }
    for (int64_t micro = 0; micro < micro_steps; ++micro) {
      for (TrainDataLoader& loader : loaders) batches.push_back(loader.next());
    }
  }
  return batches;
}

}  // namespace

TEST_CASE("training batches are int64 tensors of rows by the longest length") {
  const CountingDataset dataset(20, 32);
  TrainDataLoader loader = in_order(dataset, partition(2, 1, 1, 0));
  loader.next();
  const model::MicroBatch batch = loader.next();  // samples 2 and 3, of 3 and 4 positions
  CHECK(batch.samples == Samples{2, 3});
  CHECK(batch.tokens.sizes() == c10::IntArrayRef{2, 8});
  CHECK(batch.tokens.dtype() == torch::kInt64);
  CHECK(batch.targets.dtype() == torch::kInt64);
  CHECK(batch.tokens[1][3].item<int64_t>() == 3);
  CHECK(batch.targets[1][3].item<int64_t>() == 4);
  CHECK(batch.targets[1][4].item<int64_t>() == data::kIgnoreIndex);
  CHECK(torch::equal(batch.attention_mask, torch::arange(8).lt(torch::tensor({{3}, {4}}))));
}

TEST_CASE("rows that nothing fills have no mask") {
  const CountingDataset dataset(8, 8);
  TrainDataLoader loader = in_order(dataset, partition(1, 1, 1, 0));
  for (int64_t sample = 0; sample < 7; ++sample) CHECK(loader.next().attention_mask.defined());
  CHECK_FALSE(loader.next().attention_mask.defined());  // sample 7, of 8 positions
}

TEST_CASE("without shuffling step s takes samples s*B .. s*B+B-1, whatever the ranks") {
  const CountingDataset dataset(100, 8);
  for (const int64_t world : {1, 2, 4}) {
    std::vector<TrainDataLoader> loaders;
    for (int64_t rank = 0; rank < world; ++rank) {
      loaders.push_back(in_order(dataset, partition(2, 8 / 2 / world, world, rank)));
    }
    for (int64_t step = 0; step < 3; ++step) {
      std::multiset<int64_t> seen;
      for (TrainDataLoader& loader : loaders) {
        for (int64_t micro = 0; micro < 8 / 2 / world; ++micro) {
          for (const int64_t sample : loader.next().samples) seen.insert(sample);
        }
      }
      CHECK(seen.size() == 8);
      CHECK(*seen.begin() == step * 8);
      CHECK(*seen.rbegin() == step * 8 + 7);
    }
  }
}

TEST_CASE("the data repeats where an epoch ends inside a batch") {
  const CountingDataset dataset(5, 8);
  TrainDataLoader loader = in_order(dataset, partition(4, 1, 1, 0));
  loader.next();
  CHECK(loader.next().samples == Samples{4, 0, 1, 2});
}

TEST_CASE(
    "a step in which the order ends has its rest, and a row that is not trained where none is") {
  const CountingDataset dataset(5, 8);
  const auto ending = [&](int64_t rank) {
    return TrainDataLoader(dataset, data::SampleOrder(5, 1, false, {.end = 5}),
                           partition(2, 1, 2, rank), 1);
  };
  TrainDataLoader first = ending(0);
  TrainDataLoader second = ending(1);
  CHECK(first.next().samples == Samples{0, 1});
  CHECK(second.next().samples == Samples{2, 3});
  const model::MicroBatch rest = first.next();
  CHECK(rest.samples == Samples{4});
  CHECK(rest.tokens.size(0) == 1);
  const model::MicroBatch none = second.next();
  CHECK(none.samples == Samples{data::kNoSample});
  CHECK((none.targets == data::kIgnoreIndex).all().item<bool>());
}

TEST_CASE("what a step's micro-batches have together is known before they are made") {
  const CountingDataset dataset(50, 32);
  for (const int64_t rank : {0, 1}) {
    data::BatchPartition assigned = partition(3, 4, 2, rank);
    assigned.step_samples = 17;  // of 24 rows
    TrainDataLoader loader(dataset, data::SampleOrder(50, 7, true, {.end = 30}), assigned, 1);
    for (int step = 0; step < 2; ++step) {  // the order ends in the second one
      const auto counted = loader.count_positions(4);
      const auto position = loader.position();
      int64_t positions = 0;
      for (int micro = 0; micro < 4; ++micro) {
        CHECK(loader.position() == position);
        positions += loader.next().tokens.numel();
      }
      CHECK(counted == positions);
    }
  }
}

TEST_CASE("seeds of random operations differ by step and row, not by world size") {
  const CountingDataset dataset(100, 8);
  TrainDataLoader alone = in_order(dataset, partition(2, 2, 1, 0));
  TrainDataLoader second = in_order(dataset, partition(2, 1, 2, 1));
  const Samples first = alone.next().sample_seeds;
  const Samples other = alone.next().sample_seeds;
  CHECK(first.size() == 2);
  CHECK(first != other);
  CHECK(second.next().sample_seeds == other);
  CHECK(second.next().sample_seeds != other);
}

TEST_CASE("a loader wants training to end when it is told so") {
  const CountingDataset dataset(20, 8);
  CHECK_FALSE(in_order(dataset, partition(1, 1, 1, 0)).stop_requested());
  bool reported = false;
  TrainDataLoader loader(dataset, data::SampleOrder(20, 1, false), partition(1, 1, 1, 0), 1,
                         {.stop_requested = [&] { return reported; }});
  CHECK_FALSE(loader.stop_requested());
  reported = true;
  CHECK(loader.stop_requested());
}

TEST_CASE("a loader says which micro-batch begins") {
  const CountingDataset dataset(20, 8);
  std::vector<int64_t> begun;
  const LoaderHooks hooks{.on_micro_batch = [&](int64_t micro) { begun.push_back(micro); }};
  TrainDataLoader trained(dataset, data::SampleOrder(20, 1, false), partition(1, 2, 1, 0), 1,
                          hooks);
  trained.count_positions(2);
  for (int i = 0; i < 3; ++i) trained.next();
  EvalDataLoader evaluated(dataset, 20, partition(8, 1, 1, 0), hooks);
  for (int64_t round = 0; round < evaluated.num_batches(); ++round) evaluated.next();
  CHECK(begun == std::vector<int64_t>{0, 1, 0, 0, 1, 2});
}

TEST_CASE("an evaluation pass sees each sample once and fills up the last rounds") {
  const CountingDataset dataset(20, 8);
  constexpr int64_t kSamples = 13;  // of 20
  for (const int64_t world : {1, 2, 3}) {
    std::multiset<int64_t> seen;
    for (int64_t rank = 0; rank < world; ++rank) {
      EvalDataLoader loader(dataset, kSamples, partition(4, 1, world, rank));
      for (int64_t round = 0; round < loader.num_batches(); ++round) {
        const model::MicroBatch batch = loader.next();
        CHECK(batch.tokens.size(0) == 4);
        for (int64_t row = 0; row < 4; ++row) {
          if (batch.samples[row] != data::kNoSample) {
            seen.insert(batch.samples[row]);
          } else {
            CHECK((batch.targets[row] == data::kIgnoreIndex).all().item<bool>());
          }
        }
      }
    }
    CHECK(seen.size() == kSamples);
    CHECK(std::set<int64_t>(seen.begin(), seen.end()).size() == kSamples);
    CHECK(*seen.rbegin() == kSamples - 1);
  }
}

TEST_CASE("rows behind a step's samples do not count, on ranks that do not divide them") {
  const CountingDataset dataset(100, 8);
  std::multiset<int64_t> seen;
  for (int64_t rank = 0; rank < 5; ++rank) {
    data::BatchPartition assigned = partition(5, 1, 5, rank);
    assigned.step_samples = 24;
    TrainDataLoader loader = in_order(dataset, assigned);
    loader.next();
    for (const int64_t sample : loader.next().samples) {
      if (sample != data::kNoSample) seen.insert(sample);
    }
    CHECK(loader.position() == TrainDataLoader::Position{.step = 2, .sample = 48});
  }
  CHECK(seen.size() == 24);
  CHECK(*seen.begin() == 24);
  CHECK(*seen.rbegin() == 47);
}

TEST_CASE("any number of ranks consumes the samples of a mixture alike, also after a resume") {
  const CountingDataset dataset(50, 8);
  const auto mixture = std::make_shared<const data::SampleMixture>(
      std::vector<data::MixturePart>{{.size = 20, .weight = 0.7}, {.size = 30, .weight = 0.3}});
  const data::SampleOrder order(50, 3, true, {}, mixture);
  const Samples expected = order.samples(0, kBatch * kSteps);
  for (const int64_t world : {1, 2, 3}) {
    for (const int64_t resumed_at : {0, 4}) {
      Samples consumed;
      for (const model::MicroBatch& batch : consume(dataset, order, world, resumed_at))
        consumed.insert(consumed.end(), batch.samples.begin(), batch.samples.end());
      CHECK(consumed == expected);
    }
  }
  const int64_t epoch = mixture->epoch_size();
  std::multiset<int64_t> first(expected.begin(), expected.begin() + epoch);
  for (int64_t sample = 0; sample < 20; ++sample) CHECK(first.count(sample) == 1);
  for (int64_t sample = 20; sample < 50; ++sample) CHECK(first.count(sample) <= 1);
}

TEST_CASE("any number of ranks consumes packed samples alike, each once, also after a resume") {
  const auto dataset = data::pack_samples(std::make_unique<CountingDataset>(400, 24));
  REQUIRE(dataset->size() > kBatch * kSteps);  // within an epoch
  const data::SampleOrder order(dataset->size(), 3, true);
  const auto consumed = [&](int64_t world, int64_t resumed_at) {
    Samples samples;
    for (const model::MicroBatch& batch : consume(*dataset, order, world, resumed_at)) {
      for (int64_t row = 0; row < batch.tokens.size(0); ++row) {
        const auto starts = batch.first_keys.defined()
                                ? batch.first_keys[row] == torch::arange(batch.tokens.size(1))
                                : torch::arange(batch.tokens.size(1)) == 0;
        const torch::Tensor labels = batch.targets[row] != data::kIgnoreIndex;
        const torch::Tensor ids = batch.tokens[row].masked_select(starts.logical_and(labels));
        for (int64_t i = 0; i < ids.numel(); ++i) samples.push_back(ids[i].item<int64_t>());
      }
    }
    return samples;
  };
  const Samples expected = consumed(1, 0);
  CHECK(std::set<int64_t>(expected.begin(), expected.end()).size() == expected.size());
  Samples members;
  for (const int64_t row : order.samples(0, kBatch * kSteps)) {
    std::vector<int64_t> tokens(24), targets(24);
    dataset->fill(row, tokens, targets);
    int64_t at = 0;
    for (const int64_t length : dataset->sample_lengths(row)) {
      members.push_back(tokens[at]);
      at += length;
    }
  }
  CHECK(expected == members);
  for (const int64_t world : {1, 2, 3}) {
    for (const int64_t resumed_at : {0, 4}) CHECK(consumed(world, resumed_at) == expected);
  }
}

TEST_CASE("what reading a sample throws comes from the next batch, and waiting is counted") {
  class Broken : public CountingDataset {
   public:
    using CountingDataset::CountingDataset;
    void fill(int64_t index, std::span<int64_t> tokens, std::span<int64_t> targets) const override {
      if (index == 2) throw Error("sample 2 is broken");
      CountingDataset::fill(index, tokens, targets);
    }
  };
  const Broken dataset(10, 8);
  TrainDataLoader loader = in_order(dataset, partition(1, 1, 1, 0));
  loader.next();
  loader.next();
  CHECK_THROWS_WITH_AS(loader.next(), "sample 2 is broken", Error);
  CHECK(loader.take_wait_s() > 0);
  CHECK(loader.take_wait_s() == 0);
}

TEST_CASE("a loader goes on where another one was, between two steps") {
  const CountingDataset dataset(10, 8);
  TrainDataLoader one = in_order(dataset, partition(2, 2, 1, 0)),
                  other = in_order(dataset, partition(2, 2, 1, 0));
  for (int i = 0; i < 6; ++i) one.next();
  other.seek(one.position().value());
  const model::MicroBatch first = one.next(), again = other.next();
  CHECK(again.samples == first.samples);
  CHECK(again.sample_seeds == first.sample_seeds);
  CHECK_THROWS_AS(other.seek({}), InternalError);
}

TEST_CASE("training has the same losses on batches that are padded for a GPU") {
  const CountingDataset dataset(20, 64);
  const std::string llama = ZEROTH_SOURCE_DIR "/tests/model/fixtures/llama";
  const auto train = [&](data::DeviceKind device, std::set<int64_t>& lengths) {
    const model::ModelSpec spec = model::read_model_spec(llama);
    const configs::Config config = engine::chain_config(2, 2, 1);
    const auto mesh = std::make_shared<comm::DeviceMesh>(torch::kCPU, comm::make_solo_group());
    const auto engine =
        engine::initialize(model::build_blocks(spec), config, mesh,
                           {.weights = model::open_weights(llama, spec, config.seed)});
    data::BatchPartition assigned = partition(2, 2, 1, 0);
    assigned.device = device;
    TrainDataLoader loader = in_order(dataset, assigned),
                    lengths_ahead = in_order(dataset, assigned);
    std::vector<double> losses;
    for (int step = 0; step < 4; ++step) {
      for (int micro = 0; micro < 2; ++micro) lengths.insert(lengths_ahead.next().tokens.size(1));
      losses.push_back(engine->train_batch(loader).loss);
    }
    return losses;
  };
  std::set<int64_t> on_cpu, on_gpu;
  const auto expected = train(data::DeviceKind::kCpu, on_cpu);
  const auto found = train(data::DeviceKind::kGpu, on_gpu);
  CHECK(on_cpu == std::set<int64_t>{8, 16});
  CHECK(on_gpu == std::set<int64_t>{64});
  for (size_t step = 0; step < expected.size(); ++step)
    CHECK(found[step] == doctest::Approx(expected[step]).epsilon(1e-6));
}

}  // namespace zeroth::trainer::batch_loader_test
