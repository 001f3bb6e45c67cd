// matrix_peak [THREADS]: the measured peak of matrix products on the CPU, per precision.
#include <fmt/format.h>
#include <torch/types.h>

#include <chrono>
#include <cstdlib>

#include "model/kernels/matrix_product.h"

int main(int argc, char** argv) {
  using Clock = std::chrono::steady_clock;
  at::set_num_threads(argc > 1 ? std::atoi(argv[1]) : 1);
  for (int round = 0; round < 3; ++round) {
    for (const auto dtype : {torch::kFloat32, torch::kBFloat16, torch::kFloat16}) {
      const auto start = Clock::now();
      const double peak = zeroth::model::measure_matrix_peak(dtype, torch::kCPU);
      const double took = std::chrono::duration<double>(Clock::now() - start).count();
      fmt::print("{:9} {:7.1f} GFLOP/s, measured in {:.0f} ms\n", c10::toString(dtype), peak / 1e9,
                 took * 1e3);
    }
  }
}
