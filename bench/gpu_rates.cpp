// gpu_rates: what the GPU can do at best, as one line of JSON: matrix products (FLOP/s), a copy of
// its memory (bytes read and written each second), copies from and to page-locked host memory, one
// way and both at once (bytes each second and way).
#include <fmt/format.h>
#include <torch/torch.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <vector>

#include "device/gpu.h"
#include "device/host_link.h"
#include "model/kernels/matrix_product.h"

namespace {

using namespace zeroth;
using Clock = std::chrono::steady_clock;

const torch::Device kGpu(torch::kCUDA, 0);

// Seconds of the fastest of a few calls, the device waited for.
template <typename Work>
double fastest(const Work& work) {
  double best = 1e9;
  for (int round = 0; round < 5; ++round) {
    torch::cuda::synchronize();
    const auto start = Clock::now();
    work();
    torch::cuda::synchronize();
    best = std::min(best, std::chrono::duration<double>(Clock::now() - start).count());
  }
  return best;
}

struct Rates {
  double copy, to_device, to_host, both;
};

Rates measure(int64_t bytes) {
  const auto options = torch::device(kGpu).dtype(torch::kByte);
  const torch::Tensor from = torch::ones({bytes}, options), to = torch::empty_like(from);
  const auto link = device::make_host_link(kGpu, /*pin_memory=*/true);
  const int64_t part = bytes / 8;
  const torch::Tensor in = link->memory.zeros(part, torch::kByte);
  const torch::Tensor out = link->memory.zeros(part, torch::kByte);
  const torch::Tensor here = from.narrow(0, 0, part), there = to.narrow(0, 0, part);
  const auto up = [&] { return link->copies->copy(there, in, {}); };
  const auto down = [&] { return link->copies->copy(out, here, {}); };
  const auto wide = static_cast<double>(bytes), narrow = static_cast<double>(part);
  return {.copy = 2 * wide / fastest([&] { to.copy_(from); }),
          .to_device = narrow / fastest([&] { link->copies->wait(up()); }),
          .to_host = narrow / fastest([&] { link->copies->wait(down()); }),
          .both = narrow / fastest([&] {
                    const auto one = up(), other = down();
                    link->copies->wait(one);
                    link->copies->wait(other);
                  })};
}

}  // namespace

// gpu_rates [MIB]
int main(int argc, char** argv) {
  device::load_gpu().select(0);
  const int64_t mib = argc > 1 ? std::max(1, std::atoi(argv[1])) : 1024;
  const Rates rates = measure(mib << 20);
  fmt::print(
      "{{\"bf16\": {:.4g}, \"fp32\": {:.4g}, \"copy\": {:.4g}, \"to_device\": {:.4g}, "
      "\"to_host\": {:.4g}, \"both\": {:.4g}}}\n",
      model::measure_matrix_peak(torch::kBFloat16, kGpu),
      model::measure_matrix_peak(torch::kFloat32, kGpu), rates.copy, rates.to_device, rates.to_host,
      rates.both);
}
