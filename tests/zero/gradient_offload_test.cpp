#include "zero/gradient_offload.h"

#include <ATen/ATen.h>
#include <ATen/record_function.h>
#include <doctest/doctest.h>

#include <atomic>
#include <filesystem>
#include <thread>

#include "tests/support/late_copies.h"

namespace zeroth::zero::gradient_offload_test {
namespace {

using testing::copies_of;
using testing::late_link;

// Additions, and copies, by this thread and by others.
std::thread::id this_thread;
std::atomic<int> by_this_thread = 0, by_others = 0;

std::unique_ptr<at::ObserverContext> count_by_thread(const at::RecordFunction& function) {
  const std::string_view name = function.name();
  if (name != "aten::add_" && name != "aten::copy_") return nullptr;
  ++(std::this_thread::get_id() == this_thread ? by_this_thread : by_others);
  return nullptr;
}

auto num_threads() {
  const std::filesystem::directory_iterator threads("/proc/self/task");
  return std::distance(begin(threads), end(threads));
}

}  // namespace

TEST_CASE("sums over micro-batches on the host have the bits of sums on the device") {
  for (const uint64_t seed : {0, 1, 2, 3}) {
    for (const auto wire : {torch::kFloat, torch::kBFloat16, torch::kHalf}) {
      const auto link = late_link(seed);
      GradientOffload gradient_offload(link, {.chunk_bytes = 100});
      torch::manual_seed(7);
      const torch::Tensor host = gradient_offload.allocate_shard(1000, torch::kFloat);
      const torch::Tensor device = torch::empty({1000});
      for (int micro = 0; micro < 4; ++micro) {
        const torch::Tensor gradient = torch::randn({1000}).to(wire);
        micro == 0 ? device.copy_(gradient) : device.add_(gradient);
        const device::StreamEvent end =
            gradient_offload.start_copy(gradient, host, micro > 0, /*after=*/{});
        link->copies->wait_event(end);
        gradient.zero_();  // free behind the point
      }
      gradient_offload.finish();
      CHECK(at::equal(host, device));
      CHECK(link->copies->is_complete(nullptr));
      CHECK(copies_of(*link).under_way() == 0);
    }
  }
}

TEST_CASE("what is neither widened nor added lands in the shard itself, in one copy") {
  const auto link = late_link();
  GradientOffload gradient_offload(link, {.chunk_bytes = 100});
  const torch::Tensor host = gradient_offload.allocate_shard(1000, torch::kBFloat16);
  const torch::Tensor gradient = torch::arange(1000, torch::kBFloat16);
  gradient_offload.start_copy(gradient, host, /*add=*/false, /*after=*/{});
  CHECK(copies_of(*link).copies() == 1);
  CHECK(host.abs().sum().item<float>() == 0);  // nobody has waited yet
  gradient_offload.finish();
  CHECK(at::equal(host, gradient));
  CHECK(gradient_offload.buffer_bytes() == 0);
}

TEST_CASE("buffers hold two gradients, however many land") {
  const auto link = late_link();
  GradientOffload gradient_offload(link, {.chunk_bytes = 128});
  const torch::Tensor host = gradient_offload.allocate_shard(5000, torch::kFloat);
  CHECK(gradient_offload.shard_bytes() == 20000);
  for (int micro = 0; micro < 3; ++micro) {
    for (const int64_t length : {1, 5000, 333}) {
      gradient_offload.begin_gradient();
      gradient_offload.start_copy(torch::ones({length}), host.narrow(0, 0, length), /*add=*/true,
                                  /*after=*/{});
    }
  }
  gradient_offload.finish();
  CHECK(gradient_offload.buffer_bytes() == (157 + 11) * 128);  // 5000 and 333 elements
  CHECK(host[0].item<float>() == 9);
  CHECK(host[332].item<float>() == 6);
  CHECK(host[4999].item<float>() == 3);
}

TEST_CASE("a landing that ends with copies under way has kept both ends until then") {
  for (const bool add : {false, true}) {
    const auto link = late_link();
    {
      GradientOffload gradient_offload(link, {.chunk_bytes = 100});
      gradient_offload.start_copy(torch::ones({1000}),
                                  gradient_offload.allocate_shard(1000, torch::kFloat), add,
                                  /*after=*/{});
      CHECK(copies_of(*link).under_way() > 0);
    }
    CHECK(copies_of(*link).under_way() == 0);
  }
}

TEST_CASE("another thread adds than the one that lets gradients land, and it is gone at the end") {
  const auto link = late_link();
  const auto before = num_threads();
  {
    GradientOffload gradient_offload(link, {.chunk_bytes = 1 << 20});
    const torch::Tensor host = gradient_offload.allocate_shard(1'000'000, torch::kFloat);
    const torch::Tensor gradient = torch::ones({1'000'000});
    CHECK(num_threads() == before);  // one that adds nothing needs none
    this_thread = std::this_thread::get_id();
    by_this_thread = by_others = 0;
    const auto counting = at::addGlobalCallback(at::RecordFunctionCallback(count_by_thread));
    for (int micro = 0; micro < 3; ++micro) {
      gradient_offload.begin_gradient();
      gradient_offload.start_copy(gradient, host, /*add=*/true, /*after=*/{});
    }
    gradient_offload.finish();
    at::removeCallback(counting);
    CHECK(by_this_thread == 0);
    CHECK(by_others == 3 * 4);
    CHECK(at::equal(host, torch::full({1'000'000}, 3.0)));
    CHECK(num_threads() > before);
    gradient_offload.begin_gradient();
    gradient_offload.start_copy(gradient, host, /*add=*/true, /*after=*/{});
  }
  CHECK(num_threads() == before);
}

TEST_CASE("what goes wrong in an addition is the caller's, once, and what comes after it lands") {
  for (const bool next : {false, true}) {
    const auto link = late_link();
    GradientOffload gradient_offload(link, {.chunk_bytes = 100});
    const torch::Tensor host = gradient_offload.allocate_shard(100, torch::kFloat);
    const torch::Tensor whole_numbers = gradient_offload.allocate_shard(100, torch::kInt);
    gradient_offload.begin_gradient();
    gradient_offload.start_copy(torch::ones({100}), whole_numbers, /*add=*/true, /*after=*/{});
    gradient_offload.begin_gradient();
    gradient_offload.start_copy(torch::ones({100}), host, /*add=*/true, /*after=*/{});
    const auto error = doctest::Contains("can't be cast to the desired output type Int");
    if (next) {
      CHECK_THROWS_WITH(gradient_offload.begin_gradient(), error);
    } else {
      CHECK_THROWS_WITH(gradient_offload.finish(), error);
    }
    gradient_offload.finish();
    CHECK(at::equal(host, torch::ones({100})));
  }
}

TEST_CASE("a copy into the shard and additions to it keep their order") {
  for (const uint64_t seed : {0, 1, 2, 3, 4, 5}) {
    const auto link = late_link(seed);
    GradientOffload gradient_offload(link, {.chunk_bytes = 64});
    const torch::Tensor host = gradient_offload.allocate_shard(64, torch::kFloat);
    for (int step = 0; step < 3; ++step) {
      gradient_offload.start_copy(torch::full({64}, 5.0), host, /*add=*/false, {});
      gradient_offload.start_copy(torch::full({64}, 2.0), host, /*add=*/true, {});
      gradient_offload.finish();
      CHECK(at::equal(host, torch::full({64}, 7.0)));
    }
  }
}

}  // namespace zeroth::zero::gradient_offload_test
