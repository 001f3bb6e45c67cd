#include "device/host_link.h"

#include <ATen/ATen.h>
#include <doctest/doctest.h>

namespace zeroth::device {

TEST_CASE("on the CPU the host's side is plain memory, and copies end at once") {
  for (const bool pin : {true, false}) {
    const auto link = make_host_link(torch::kCPU, pin);
    const torch::Tensor values = link->memory.zeros(100, torch::kFloat);
    CHECK(link->memory.locked_bytes() == 0);
    CHECK(link->memory.notes().empty());
    CHECK(link->copies->is_complete(link->copies->copy(values, torch::ones({100}), {})));
    CHECK(at::equal(values, torch::ones({100})));
  }
}

}  // namespace zeroth::device
