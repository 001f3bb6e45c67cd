#include "device/copy_stream.h"

#include <ATen/ops/equal.h>
#include <doctest/doctest.h>

#include "base/error.h"

namespace zeroth::device::copy_stream_test {

TEST_CASE("on the CPU a copy has ended when it was begun") {
  const auto copies = make_copy_stream(torch::kCPU);
  const torch::Tensor from = torch::arange(10, torch::kFloat), to = torch::zeros({10});
  const StreamEvent end = copies->copy(to, from, {copies->record_event()});
  CHECK(at::equal(to, from));
  CHECK(copies->is_complete(end));
  copies->wait_event(end);
  copies->wait(end);
  CHECK(copies->stats().bytes_to_host == 0);  // nothing crossed a link
}

TEST_CASE("a copy that would convert or cut is a broken invariant") {
  const auto copies = make_copy_stream(torch::kCPU);
  const torch::Tensor to = torch::zeros({10});
  CHECK_THROWS_AS(copies->copy(to, torch::zeros({9}), {}), InternalError);
  CHECK_THROWS_AS(copies->copy(to, torch::zeros({10}, torch::kHalf), {}), InternalError);
  CHECK_THROWS_AS(copies->copy(to, torch::zeros({20}).slice(0, 0, 20, 2), {}), InternalError);
}

}  // namespace zeroth::device::copy_stream_test
