#include "offload/staging.h"

#include <ATen/ops/equal.h>
#include <doctest/doctest.h>

#include "base/error.h"
#include "tests/support/late_copies.h"

namespace zeroth::offload::staging_test {
namespace {

using testing::copies_of;
using testing::kFakeDevice;
using testing::late_link;

}  // namespace

TEST_CASE("where a tensor rests its lease is the tensor") {
  const auto link = late_link();
  Staging staging(link, torch::kMeta);
  const torch::Tensor stored = torch::ones({10});
  for (const Access access : {Access::kRead, Access::kReadWrite, Access::kWrite}) {
    CHECK(staging.lease(stored, torch::kCPU, access, {}).tensor().is_same(stored));
  }
  CHECK(copies_of(*link).copies() == 0);
  CHECK(link->memory.bytes() == 0);
}

TEST_CASE("the host reads and changes a device's tensors tile by tile through a few buffers") {
  for (const uint64_t seed : {0, 1, 2, 3}) {
    const auto link = late_link(seed);
    Staging staging(link, kFakeDevice);
    const torch::Tensor stored = torch::arange(1000, torch::kFloat);
    for (int64_t begin = 0; begin < 1000; begin += 100) {
      const ChunkLease lease = staging.lease(stored.narrow(0, begin, 100), torch::kCPU,
                                             Access::kReadWrite, staging.copies().record_event());
      CHECK(lease.tensor().data_ptr() != stored.narrow(0, begin, 100).data_ptr());
      CHECK(lease.tensor()[0].item<float>() == static_cast<float>(begin));
      lease.tensor().mul_(2);
    }
    link->copies->drain();
    CHECK(at::equal(stored, torch::arange(1000, torch::kFloat) * 2));
    CHECK(link->memory.bytes() == 4096);  // of whole pages
  }
}

TEST_CASE("what is only read is not written back, what is only written is not read") {
  const auto link = late_link();
  Staging staging(link, kFakeDevice);
  const torch::Tensor stored = torch::ones({10});
  staging.lease(stored, torch::kCPU, Access::kRead, {}).tensor().fill_(5);
  CHECK(at::equal(stored, torch::ones({10})));
  CHECK(copies_of(*link).copies() == 1);
  staging.lease(stored, torch::kCPU, Access::kWrite, {}).tensor().fill_(6);
  CHECK(at::equal(stored, torch::full({10}, 6.0)));
  CHECK(copies_of(*link).copies() == 2);
}

TEST_CASE("a host tensor is read on the device and not changed there") {
  const auto link = late_link();
  Staging staging(link, kFakeDevice);
  const torch::Tensor stored = torch::arange(10, torch::kFloat);
  {
    const ChunkLease lease = staging.lease(stored, kFakeDevice, Access::kRead, {});
    CHECK(at::equal(lease.tensor(), stored));
    lease.tensor().zero_();
  }
  CHECK(stored[9].item<float>() == 9);
  CHECK_THROWS_AS(staging.lease(stored, kFakeDevice, Access::kReadWrite, {}), InternalError);
}

}  // namespace zeroth::offload::staging_test
