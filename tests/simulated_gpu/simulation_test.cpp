// The simulated GPU itself: right programs get the values of the CPU at every pace, and what a GPU
// punishes by chance shows.
#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <doctest/doctest.h>
#include <torch/torch.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <string_view>

#include "device/copy_stream.h"
#include "device/gpu.h"
#include "device/host_link.h"

namespace zeroth::simulated::simulation_test {
namespace {

using torch::Tensor;

const torch::Device kGpu(torch::kCUDA, 0);

bool paced(std::string_view name) {
  const char* pace = std::getenv("ZEROTH_SIMULATED_PACE");
  return (pace == nullptr ? "late" : std::string_view(pace)) == name;
}

c10::Stream pool_stream() {
  return c10::impl::VirtualGuardImpl(torch::kCUDA).getStreamFromGlobalPool(kGpu);
}

Tensor on_gpu(double value, int64_t numel = 1000) {
  return torch::full({numel}, value, torch::device(kGpu));
}

}  // namespace

TEST_CASE("a selected GPU adds the parts of 16-bit products in fp32") {
  at::Context& context = at::globalContext();
  context.setAllowBF16ReductionCuBLAS(true);
  context.setAllowFP16ReductionCuBLAS(true);
  device::load_gpu().select(0);
  const auto in_fp32 = at::CuBLASReductionOption::DisallowReducedPrecisionAllowSplitK;
  CHECK((context.allowBF16ReductionCuBLAS() == in_fp32));
  CHECK((context.allowFP16ReductionCuBLAS() == in_fp32));
}

TEST_CASE("training on it gives the bits of the CPU") {
  const auto train = [](torch::Device device) {
    torch::manual_seed(1);
    const Tensor table = torch::randn({10, 8}).to(device).set_requires_grad(true);
    const Tensor weight = torch::randn({8, 8}).to(device).set_requires_grad(true);
    const Tensor tokens = torch::arange(6).to(device);
    for (int step = 0; step < 5; ++step) {
      const Tensor x = torch::relu(torch::embedding(table, tokens).matmul(weight));
      const Tensor loss = (torch::softmax(x, 1) * x.abs()).pow(2).mean();
      loss.backward();
      const torch::NoGradGuard no_grad;
      for (const Tensor& parameter : {table, weight}) {
        parameter.sub_(parameter.grad(), 0.1);
        parameter.mutable_grad().reset();
      }
    }
    return torch::cat({table.detach().to(torch::kCPU), weight.detach().to(torch::kCPU)});
  };
  CHECK(at::equal(train(kGpu), train(torch::kCPU)));
}

TEST_CASE("work of another stream is seen behind its event, and no earlier while it is late") {
  const Tensor x = on_gpu(1);
  c10::Event written(torch::kCUDA), computed(torch::kCUDA);
  const c10::impl::VirtualGuardImpl guard(torch::kCUDA);
  written.record(guard.getStream(kGpu));
  const c10::Stream other = pool_stream();
  written.block(other);
  Tensor y;
  {
    const c10::StreamGuard on(other);
    y = x * 2;
  }
  computed.record(other);
  const Tensor too_early = y.sum();
  computed.block(guard.getStream(kGpu));
  const Tensor in_time = y.sum();
  CHECK(in_time.item<double>() == 2000);
  if (paced("late") || paced("default-first")) CHECK_FALSE(too_early.item<double>() == 2000);
}

TEST_CASE("memory that another stream still reads is overwritten, unless it was told") {
  for (const bool reported : {false, true}) {
    const c10::Stream other = pool_stream();
    const c10::impl::VirtualGuardImpl guard(torch::kCUDA);
    Tensor sum;
    {
      const Tensor x = on_gpu(3, 1 << 16);
      c10::Event written(torch::kCUDA);
      written.record(guard.getStream(kGpu));
      written.block(other);
      if (reported) x.record_stream(other);
      const c10::StreamGuard on(other);
      sum = x.sum();
    }
    const Tensor next = on_gpu(0, 1 << 16);  // may get the memory of x
    guard.synchronizeStream(guard.getStream(kGpu));
    other.synchronize();
    const double value = sum.item<double>();
    if (reported) CHECK(value == 3 * (1 << 16));
    if (!reported && (paced("late") || paced("default-first"))) CHECK(value != 3 * (1 << 16));
  }
}

TEST_CASE(
    "a copy from locked memory takes what is there when it runs, one from other memory at once") {
  const auto link = device::make_host_link(kGpu, /*pin_memory=*/true);
  const Tensor locked = link->memory.zeros(1000, torch::kFloat), pageable = torch::zeros({1000});
  const Tensor from_locked = on_gpu(1), from_pageable = on_gpu(1);
  from_locked.copy_(locked, /*non_blocking=*/true);
  from_pageable.copy_(pageable, /*non_blocking=*/true);
  locked.fill_(7);
  pageable.fill_(7);
  CHECK(from_pageable.sum().item<double>() == 0);
  const double seen = from_locked.sum().item<double>();
  if (paced("late") || paced("others-first")) CHECK(seen == 7000);
  if (paced("default-first")) CHECK(seen == 0);
}

TEST_CASE("a value that comes too early from a copy to the host is the old one") {
  const auto link = device::make_host_link(kGpu, /*pin_memory=*/true);
  const Tensor host = link->memory.zeros(1000, torch::kFloat);
  const Tensor device = on_gpu(5);
  const device::StreamEvent end = link->copies->copy(host, device, {link->copies->record_event()});
  if (paced("late") || paced("default-first")) {
    CHECK_FALSE(link->copies->is_complete(end));
    CHECK(host.sum().item<double>() == 0);
  }
  link->copies->wait(end);
  CHECK(host.sum().item<double>() == 5000);
}

TEST_CASE("a copy to locked memory that converts runs beside the host, too") {
  const auto link = device::make_host_link(kGpu, /*pin_memory=*/true);
  const Tensor host = link->memory.zeros(1000, torch::kBFloat16);
  host.copy_(on_gpu(5), /*non_blocking=*/true);
  if (paced("late") || paced("others-first")) CHECK(host.sum().item<double>() == 0);
  torch::cuda::synchronize();
  CHECK(host.to(torch::kFloat).sum().item<double>() == 5000);
}

TEST_CASE("an event that is recorded again holds back what waits for it from then on") {
  const c10::impl::VirtualGuardImpl guard(torch::kCUDA);
  const c10::Stream other = pool_stream();
  const Tensor x = on_gpu(1);
  c10::Event written(torch::kCUDA);
  written.record(guard.getStream(kGpu));
  x.fill_(2);
  written.record(guard.getStream(kGpu));
  written.block(other);
  const c10::StreamGuard on(other);
  CHECK(x.sum().item<double>() == 2000);
}

TEST_CASE("the host cannot follow an address of the device") {
  const Tensor x = on_gpu(1);
  std::array<int, 2> ends;
  REQUIRE(pipe(ends.data()) == 0);
  CHECK(write(ends[1], x.data_ptr(), sizeof(float)) == -1);
  CHECK(errno == EFAULT);
  for (const int end : ends) close(end);
}

TEST_CASE("who asks for an event in a loop sees it pass") {
  const Tensor x = on_gpu(1);
  c10::Event written(torch::kCUDA);
  written.record(c10::impl::VirtualGuardImpl(torch::kCUDA).getStream(kGpu));
  int queries = 0;
  while (!written.query() && queries < 10'000) ++queries;
  CHECK(queries < 10'000);
  if (paced("late")) CHECK(queries > 0);
}

}  // namespace zeroth::simulated::simulation_test
