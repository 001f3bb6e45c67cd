// matmul_share CONFIG_FOLDER [fp32|bf16|fp16 [ROWS [SEQ [STEPS]]]]: how much of the measured peak
// of matrix products a training step on one CPU thread reaches, and how much its products alone
// reach.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <string>
#include <vector>

#include "base/machine/host_limits.h"
#include "comm/device_mesh.h"
#include "engine/engine.h"
#include "model/blocks/build_blocks.h"
#include "model/kernels/matrix_product.h"
#include "model/spec.h"
#include "model/weight_source.h"

namespace {

using namespace zeroth;
using Clock = std::chrono::steady_clock;

struct MatmulOptions {
  configs::Precision precision = configs::Precision::kBf16;
  int64_t rows = 4;
  int64_t seq = 256;
  int steps = 10;

  torch::ScalarType dtype() const {
    if (precision == configs::Precision::kFp16) return torch::kFloat16;
    return precision == configs::Precision::kBf16 ? torch::kBFloat16 : torch::kFloat32;
  }
};

// Any tokens: the arithmetic is the same.
class RandomTokens final : public engine::DataLoader {
 public:
  RandomTokens(const MatmulOptions& options, int64_t vocab) : options_(options), vocab_(vocab) {}
  model::MicroBatch next() override {
    model::MicroBatch batch;
    batch.tokens = torch::randint(vocab_, {options_.rows, options_.seq}, torch::kLong);
    batch.targets = torch::randint(vocab_, {options_.rows, options_.seq}, torch::kLong);
    batch.samples.assign(static_cast<size_t>(options_.rows), 0);
    batch.sample_seeds.assign(static_cast<size_t>(options_.rows), 0);
    return batch;
  }

 private:
  MatmulOptions options_;
  int64_t vocab_;
};

template <typename Work>
double seconds(const Work& work) {
  const Clock::time_point start = Clock::now();
  work();
  return std::chrono::duration<double>(Clock::now() - start).count();
}

double median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + static_cast<long>(values.size() / 2),
                   values.end());
  return values[values.size() / 2];
}

// The three products of a weight [out, in]: y = x w^T, dx = dy w, dw = dy^T x.
double time_products(int64_t tokens, int64_t in, int64_t out, const MatmulOptions& options) {
  const torch::Tensor x = torch::rand({tokens, in}).to(options.dtype());
  const torch::Tensor w = torch::rand({out, in}).to(options.dtype());
  const torch::Tensor dy = torch::rand({tokens, out}).to(options.dtype());
  std::vector<double> times;
  for (int i = 0; i < 6; ++i) {
    times.push_back(seconds([&] {
      model::matrix_product(x, w.t());
      model::matrix_product(dy, w);
      model::matrix_product(dy.t(), x);
    }));
  }
  return median(std::vector<double>(times.begin() + 1, times.end()));
}

// Seconds of all products with a weight in one step.
double time_all_products(const model::ModelSpec& spec, const MatmulOptions& options) {
  const int64_t tokens = options.rows * options.seq;
  const int64_t q = spec.num_heads * spec.head_dim, kv = spec.num_kv_heads * spec.head_dim;
  const auto time = [&](int64_t in, int64_t out) {
    return time_products(tokens, in, out, options);
  };
  const double attention =
      time(spec.hidden_size, q) + 2 * time(spec.hidden_size, kv) + time(q, spec.hidden_size);
  const double mlp = (spec.gated_mlp ? 2 : 1) * time(spec.hidden_size, spec.intermediate_size) +
                     time(spec.intermediate_size, spec.hidden_size);
  return static_cast<double>(spec.num_layers) * (attention + mlp) +
         time(spec.hidden_size, spec.vocab_size);
}

double time_step(const model::ModelSpec& spec, const MatmulOptions& options) {
  configs::Config config;
  config.precision = options.precision;
  config.batch = {options.rows, options.rows, 1};
  const auto mesh = std::make_shared<comm::DeviceMesh>(torch::kCPU, comm::make_solo_group());
  const auto engine =
      engine::initialize(model::build_blocks(spec), config, mesh,
                         {.weights = std::make_shared<model::RandomSource>(spec, config.seed)});
  RandomTokens loader(options, spec.vocab_size);
  std::vector<double> times;
  for (int step = 0; step < options.steps; ++step) {
    times.push_back(seconds([&] { engine->train_batch(loader); }));
  }
  return median(std::vector<double>(times.begin() + 1, times.end()));
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) {
    fmt::print(stderr, "usage: matmul_share CONFIG_FOLDER [fp32|bf16|fp16 [ROWS [SEQ [STEPS]]]]\n");
    return 2;
  }
  retain_freed_memory();
  at::set_num_threads(1);
  MatmulOptions options;
  if (argc > 2 && std::string(argv[2]) == "fp32") options.precision = configs::Precision::kFp32;
  if (argc > 2 && std::string(argv[2]) == "fp16") options.precision = configs::Precision::kFp16;
  if (argc > 3) options.rows = std::atoll(argv[3]);
  if (argc > 4) options.seq = std::atoll(argv[4]);
  if (argc > 5) options.steps = std::max(2, std::atoi(argv[5]));
  const model::ModelSpec spec = model::read_model_spec(argv[1]);
  const double flops =
      model::flops_per_token(spec, options.seq) * static_cast<double>(options.rows * options.seq);
  double peak = 0;
  for (int i = 0; i < 4; ++i) {
    peak = std::max(peak, model::measure_matrix_peak(options.dtype(), torch::kCPU));
  }
  const double products = time_all_products(spec, options), step = time_step(spec, options);
  peak = std::max(peak, flops / std::min(products, step));  // as PeakShare: nothing is above it
  const double min_seconds = flops / peak;
  fmt::print("peak {:.0f} GFLOP/s; a step has {:.1f} GFLOP\n", peak / 1e9, flops / 1e9);
  fmt::print("at the peak {:.3f} s, products of the step alone {:.3f} s, whole step {:.3f} s\n",
             min_seconds, products, step);
  fmt::print("share of the peak that the step reaches: {:.0f} %\n", 100 * min_seconds / step);
  return 0;
}
