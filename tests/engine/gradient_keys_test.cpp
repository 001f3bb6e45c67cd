// The keys that say how gradients are summed: what they change, and what they do not.
#include <ATen/ATen.h>
#include <doctest/doctest.h>

#include <cmath>
#include <functional>

#include "tests/engine/chain_config.h"
#include "tests/support/chain.h"
#include "tests/support/ranks.h"

namespace zeroth::engine::gradient_keys_test {
namespace {

using configs::Precision;
using Change = std::function<void(configs::Config&)>;

struct Run {
  std::vector<double> losses;
  std::vector<double> norms;
};

Run train(const configs::Config& config, int ranks, int steps) {
  Run run;
  testing::run_ranks(ranks, [&](std::shared_ptr<comm::DeviceMesh> mesh) {
    const auto engine =
        testing::make_engine(testing::make_chain({.hidden = 24, .tied = true}), config, mesh);
    testing::ChainLoader loader({.accumulation = config.batch.accumulation_steps,
                                 .rank = mesh->rank(),
                                 .world_size = ranks});
    for (int step = 0; step < steps; ++step) {
      const StepStats stats = engine->train_batch(loader);
      if (mesh->rank() != 0) continue;
      run.losses.push_back(stats.loss);
      run.norms.push_back(stats.grad_norm);
    }
  });
  return run;
}

configs::Config config_of(int stage, int ranks, int64_t accumulation) {
  configs::Config config = chain_config(12 / (ranks * accumulation), accumulation, ranks);
  config.zero.stage = stage;
  return config;
}

double largest_difference(const std::vector<double>& a, const std::vector<double>& b) {
  double largest = 0;
  for (size_t i = 0; i < a.size(); ++i) largest = std::max(largest, std::abs(a[i] - b[i]));
  return largest;
}

const Change kSameSum[] = {
    [](auto& c) { c.gradients.prescale = true; },
    [](auto& c) { c.gradients.predivide_factor = 3; },
    [](auto& c) { c.zero.reduce_scatter = false; },
    [](auto& c) {
      c.zero.reduce_scatter = false;
      c.gradients.predivide_factor = 0.5;
    },
    [](auto& c) { c.zero.reduce_bucket_elements = 1; },
    [](auto& c) { c.zero.reduce_bucket_elements = 500; },
    [](auto& c) {
      c.zero.reduce_bucket_elements = 333;
      c.zero.reduce_scatter = false;
    },
};

// What changes neither a sum nor its order.
const Change kSameBits[] = {
    [](auto& c) { c.zero.overlap_comm = false; },
    [](auto& c) { c.zero.sub_group_size_elements = 1; },
    [](auto& c) { c.zero.sub_group_size_elements = 100; },
    [](auto& c) { c.zero.allgather_bucket_elements = 701; },
    [](auto& c) { c.zero.allgather_bucket_elements = 0; },
    [](auto& c) { c.zero.prefetch_bucket_elements = 0; },
    [](auto& c) { c.zero.ignore_unused_parameters = false; },
};

}  // namespace

TEST_CASE("division, bucket and reduce-scatter change no more than rounding") {
  for (const int stage : {0, 1, 2, 3}) {
    const Run usual = train(config_of(stage, 3, 2), 3, 10);
    CHECK(usual.losses.back() < usual.losses.front());
    for (size_t i = 0; i < std::size(kSameSum); ++i) {
      CAPTURE(stage);
      CAPTURE(i);
      configs::Config config = config_of(stage, 3, 2);
      kSameSum[i](config);
      const Run run = train(config, 3, 10);
      CHECK(largest_difference(run.losses, usual.losses) < 2e-5);
      CHECK(largest_difference(run.norms, usual.norms) < 2e-5);
    }
  }
}

TEST_CASE("overlap, tiles and gather buckets change no bit, and a run repeats itself") {
  for (const int stage : {0, 1, 2, 3}) {
    for (const int64_t accumulation : {1, 2}) {
      const Run usual = train(config_of(stage, 2, accumulation), 2, 6);
      CHECK(train(config_of(stage, 2, accumulation), 2, 6).losses == usual.losses);
      for (size_t i = 0; i < std::size(kSameBits); ++i) {
        CAPTURE(stage);
        CAPTURE(accumulation);
        CAPTURE(i);
        configs::Config config = config_of(stage, 2, accumulation);
        kSameBits[i](config);
        CHECK(train(config, 2, 6).losses == usual.losses);
      }
    }
  }
}

TEST_CASE("overlap and reduce-scatter, on and off, stay together over 100 steps") {
  for (const int stage : {2, 3}) {
    configs::Config config = config_of(stage, 2, 1);
    config.optimizer.lr = 1e-3;
    const Run usual = train(config, 2, 100);
    config.zero.overlap_comm = false;
    CHECK(train(config, 2, 100).losses == usual.losses);
    config.zero.reduce_scatter = false;
    CHECK(largest_difference(train(config, 2, 100).losses, usual.losses) < 2e-5);
  }
}

TEST_CASE("a sum over ranks is the number of ranks times their mean") {
  for (const int ranks : {2, 3}) {
    for (const int stage : {0, 1, 2, 3}) {
      CAPTURE(ranks);
      CAPTURE(stage);
      configs::Config config = config_of(stage, ranks, 2);
      config.gradient_clipping = 0;
      config.optimizer = {.kind = configs::OptimizerConfig::Kind::kSgd, .lr = 0.1};
      const Run mean = train(config, ranks, 1);
      config.optimizer.lr = 0.1 * ranks;
      const Run larger_steps = train(config, ranks, 6);
      config.optimizer.lr = 0.1;
      config.gradients.reduce = configs::GradientConfig::Reduction::kSum;
      const Run sum = train(config, ranks, 6);
      CHECK(sum.losses.front() == doctest::Approx(mean.losses.front()));
      CHECK(sum.norms.front() == doctest::Approx(ranks * mean.norms.front()).epsilon(1e-5));
      CHECK(largest_difference(sum.losses, larger_steps.losses) < 2e-5);
    }
  }
}

TEST_CASE("every wire dtype trains every working precision") {
  for (const Precision working : {Precision::kFp32, Precision::kBf16, Precision::kFp16}) {
    for (const Precision wire : {Precision::kFp32, Precision::kBf16, Precision::kFp16}) {
      for (const int stage : {0, 1, 2, 3}) {
        CAPTURE(static_cast<int>(working));
        CAPTURE(static_cast<int>(wire));
        CAPTURE(stage);
        configs::Config config = config_of(stage, 2, 2);
        config.precision = working;
        config.loss_scale.static_scale = 64;
        const Run usual = train(config, 2, 8);
        config.gradients.communication = wire;
        const Run run = train(config, 2, 8);
        CHECK(run.losses.back() < run.losses.front());
        CHECK(largest_difference(run.losses, usual.losses) < 2e-2);
        if (working == wire) CHECK(run.losses == usual.losses);
      }
    }
  }
}

TEST_CASE("micro-batches may accumulate in the working precision") {
  for (const int stage : {0, 1, 2, 3}) {
    CAPTURE(stage);
    configs::Config config = config_of(stage, 2, 3);
    config.precision = Precision::kBf16;
    const Run wide = train(config, 2, 8);
    config.gradients.accumulation = Precision::kBf16;
    const Run narrow = train(config, 2, 8);
    CHECK(narrow.losses != wide.losses);
    CHECK(largest_difference(narrow.losses, wide.losses) < 2e-2);
  }
}

}  // namespace zeroth::engine::gradient_keys_test
