#include "model/kernels/dropout.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/mul.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/hash.h"
#include "model/custom_function.h"

namespace zeroth::model {
namespace {

using torch::Tensor;

constexpr int64_t kLow32 = 0xffffffff;

// Hashes 32-bit values with a finalizer of low bias (Wellons, "Prospecting for Hash Functions"): a
// number here, an int64 tensor of 32-bit values below.
uint32_t mix32(uint32_t x) {
  x = (x ^ (x >> 16)) * 0x7feb352dU;
  x = (x ^ (x >> 15)) * 0x846ca68bU;
  return x ^ (x >> 16);
}

Tensor mix32(const Tensor& x) {
  Tensor y = x.bitwise_xor(x.bitwise_right_shift(16)).mul_(0x7feb352d).bitwise_and_(kLow32);
  y = y.bitwise_xor(y.bitwise_right_shift(15)).mul_(0x846ca68b).bitwise_and_(kLow32);
  return y.bitwise_xor_(y.bitwise_right_shift(16));
}

struct LineKey {
  uint32_t first, second;
};

LineKey line_key(int64_t row_seed, uint64_t site, int64_t line) {
  const uint64_t key = mix64(mix64(static_cast<uint64_t>(row_seed) + site) +
                             kGolden * (static_cast<uint64_t>(line) + 1));
  return {static_cast<uint32_t>(key), static_cast<uint32_t>(key >> 32)};
}

// Returns the threshold with which 24 bits of the hash are compared.
int64_t threshold(double p) {
  return std::llround(p * (1 << 24));
}

Tensor mask_on_cpu(int64_t row_seed, const DropoutSite& site, const std::vector<int64_t>& lines,
                   int64_t size, int64_t first) {
  Tensor mask = at::empty({static_cast<int64_t>(lines.size()), size}, torch::kBool);
  bool* out = mask.data_ptr<bool>();
  const auto min_kept_hash = static_cast<uint32_t>(threshold(site.p));
  for (const int64_t line : lines) {
    const LineKey key = line_key(row_seed, site.key, line);
    for (int64_t at = first; at < first + size; ++at) {
      const auto e = static_cast<uint32_t>(at);
      *out++ = mix32(mix32(e + key.first) ^ key.second) >> 8 >= min_kept_hash;
    }
  }
  return mask;
}

// Dropout applies the site's masks to x [.., size], whose first row is that of token `first_token`
// of a batch with these samples.
class Dropout final : public CustomFunction {
 public:
  Dropout(const DropoutSite& site, std::vector<SeededSample> samples, int64_t first_token)
      : site_(site), samples_(std::move(samples)), first_token_(first_token) {}

  TensorVector forward(const FunctionContext&, const TensorVector& inputs) override {
    return {masked(inputs[0])};
  }

  TensorVector backward(const FunctionContext&, TensorVector grads) const override {
    return {masked(grads[0])};
  }

 private:
  Tensor masked(const Tensor& x) const {
    return dropped_rows(x.reshape({-1, x.size(-1)}), site_, samples_, first_token_).view(x.sizes());
  }

  DropoutSite site_;
  std::vector<SeededSample> samples_;
  int64_t first_token_;
};

}  // namespace

DropoutSite make_dropout_site(double p, const std::string& name) {
  return {p, mix64(fnv1a(name))};
}

Tensor keep_mask_from_tensors(int64_t row_seed, const DropoutSite& site,
                              const std::vector<int64_t>& lines, int64_t size, torch::Device device,
                              int64_t first) {
  std::vector<int64_t> outer, inner_keys;
  for (const int64_t line : lines) {
    const LineKey key = line_key(row_seed, site.key, line);
    inner_keys.push_back(key.first);
    outer.push_back(key.second);
  }
  const auto column = [&](const std::vector<int64_t>& keys) {
    return torch::tensor(keys, torch::kLong).to(device).unsqueeze(1);
  };
  const Tensor e =
      torch::arange(first, first + size, torch::TensorOptions(device).dtype(torch::kLong));
  const Tensor inner = mix32((e + column(inner_keys)).bitwise_and_(kLow32));
  return mix32(inner.bitwise_xor(column(outer))).bitwise_right_shift_(8).ge(threshold(site.p));
}

Tensor keep_mask(int64_t row_seed, const DropoutSite& site, const std::vector<int64_t>& lines,
                 int64_t size, torch::Device device, int64_t first) {
  const torch::NoGradGuard no_grad;
  return device.is_cpu() ? mask_on_cpu(row_seed, site, lines, size, first)
                         : keep_mask_from_tensors(row_seed, site, lines, size, device, first);
}

bool applies_dropout(const DropoutSite& site, const MicroBatch& batch) {
  return site.p != 0 && (!batch.sample_seeds.empty() || torch::GradMode::is_enabled());
}

Tensor dropped_rows(const Tensor& x, const DropoutSite& site,
                    const std::vector<SeededSample>& samples, int64_t first_token,
                    int64_t first_element) {
  Tensor y = at::empty_like(x, at::MemoryFormat::Contiguous);
  int64_t done = 0;
  for (const SeededSample& sample : samples) {
    const int64_t begin = std::max(sample.begin, first_token);
    const int64_t rows = std::min(sample.end, first_token + x.size(0)) - begin;
    if (rows <= 0) continue;
    std::vector<int64_t> lines(static_cast<size_t>(rows));
    std::iota(lines.begin(), lines.end(), begin - sample.begin);
    const Tensor keep = keep_mask(sample.seed, site, lines, x.size(1), x.device(), first_element);
    Tensor out = y.narrow(0, done, rows);
    at::mul_out(out, x.narrow(0, done, rows), keep);
    done += rows;
  }
  y.narrow(0, done, x.size(0) - done).zero_();
  return y.div_(1 - site.p);  // mul_ would round the factor to bf16
}

Tensor dropout(const Tensor& x, const DropoutSite& site, const MicroBatch& batch,
               int64_t first_token) {
  if (!applies_dropout(site, batch)) return x;
  return apply_function(std::make_shared<Dropout>(site, seeded_samples(batch), first_token),
                        {x})[0];
}

}  // namespace zeroth::model
