// The CUDA kernels in a run: finetune_test.cpp trains with them where the environment asks for it.
#include <doctest/doctest.h>
#include <torch/torch.h>

#include <cstdlib>

#include "model/kernels/fused.h"
#include "tests/simulated_gpu/of_library.h"

namespace zeroth::simulated::emulated_kernels_test {

TEST_CASE("emulated kernels run in queued work where the environment asks for them") {
  const auto launches = of_library<int64_t()>("zeroth_simulated_kernel_launches");
  const torch::Tensor x = torch::randn({6, 64}), weight = torch::rand({64});
  const torch::Device gpu(torch::kCUDA, 0);
  const int64_t before = launches();
  const torch::Tensor y = std::get<0>(model::rms_norm(x.to(gpu), weight.to(gpu), 1e-5)).cpu();
  const torch::Tensor scale = (x.square().mean(1, /*keepdim=*/true) + 1e-5).rsqrt();
  CHECK(torch::allclose(y, x * scale * weight, 1e-5, 1e-6));
  const bool asked = std::getenv("ZEROTH_SIMULATED_KERNELS") != nullptr;
  CHECK(launches() - before == (asked ? 1 : 0));
}

}  // namespace zeroth::simulated::emulated_kernels_test
