// The norm of gradients on the GPU.
#include <doctest/doctest.h>
#include <torch/torch.h>

#include "optim/squared_norm.h"

namespace zeroth::optim::norm_test {

using torch::Tensor;

TEST_CASE(
    "the squared norm on the GPU has the host's bits, of many tensors of every size and dtype") {
  torch::manual_seed(8);
  std::vector<Tensor> tensors;
  double expected = 0;
  for (const auto dtype : {torch::kFloat32, torch::kBFloat16, torch::kHalf}) {
    for (const int64_t numel : {0, 1, 7, 64, 65'536, 65'537, 1'000'003}) {
      // Begins at a multiple of 16 bytes, and does not.
      const Tensor all = torch::randn({numel + 1}).to(dtype).to(torch::kCUDA);
      for (const Tensor& tensor : {all.narrow(0, 0, numel), all.narrow(0, 1, numel)}) {
        tensors.push_back(tensor);
        expected += tensor.to(torch::kCPU).to(torch::kFloat64).square().sum().item<double>();
      }
    }
  }
  for (int more = 0; more < 100; ++more) {
    tensors.push_back(torch::full({3}, 2.0f, torch::kCUDA));
    expected += 12;
  }
  std::vector<Tensor> on_host;
  for (const Tensor& tensor : tensors) on_host.push_back(tensor.to(torch::kCPU));
  const Tensor norms = squared_norms(tensors, torch::kCUDA);
  CHECK(torch::equal(norms.to(torch::kCPU), squared_norms(on_host, torch::kCPU)));
  CHECK(torch::equal(norms, squared_norms(on_host, torch::kCUDA)));
  const Tensor sum = squared_norms(tensors, torch::kCUDA).sum();
  CHECK((sum.scalar_type() == torch::kFloat64));
  CHECK(sum.item<double>() == doctest::Approx(expected).epsilon(1e-6));
  CHECK(torch::equal(squared_norms(tensors, torch::kCUDA).sum(), sum));
}

}  // namespace zeroth::optim::norm_test
