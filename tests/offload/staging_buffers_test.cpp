#include "offload/staging.h"

#include <ATen/ops/equal.h>
#include <doctest/doctest.h>

#include <stdexcept>

#include "tests/support/late_copies.h"

namespace zeroth::offload::staging_buffers_test {
namespace {

using testing::copies_of;
using testing::late_link;

// As large as what is asked for.
torch::Tensor like(int64_t bytes) {
  return torch::empty({bytes}, torch::kByte);
}

}  // namespace

TEST_CASE("a buffer that is free is taken again, in the form of what is asked for") {
  StagingBuffers buffers(late_link(), torch::kCPU, 4);
  StagingBuffers::Buffer buffer = buffers.acquire(torch::empty({5, 5}));
  const void* memory = buffer.memory.data_ptr();
  CHECK(buffer.values.sizes() == torch::IntArrayRef{5, 5});
  buffers.release(std::move(buffer));
  const StagingBuffers::Buffer again = buffers.acquire(torch::empty({25}, torch::kHalf));
  CHECK(again.values.data_ptr() == memory);
  CHECK((again.values.scalar_type() == torch::kHalf));
  CHECK(buffers.bytes() == 100);
}

TEST_CASE("of the buffers that are large enough the smallest is taken") {
  StagingBuffers buffers(late_link(), torch::kCPU, 3);
  StagingBuffers::Buffer large = buffers.acquire(like(4096)), small = buffers.acquire(like(64)),
                         middle = buffers.acquire(like(512));
  buffers.release(std::move(large));
  buffers.release(std::move(small));
  buffers.release(std::move(middle));
  CHECK(buffers.acquire(like(100)).memory.numel() == 512);
  CHECK(buffers.acquire(like(64)).memory.numel() == 64);
  CHECK(buffers.acquire(like(64)).memory.numel() == 4096);
  CHECK(buffers.bytes() == 4096 + 64 + 512);
}

TEST_CASE("buffers under a copy are taken in turn once there are as many as may be") {
  const torch::Tensor source = torch::ones({8});
  StagingBuffers buffers(late_link(), torch::kCPU, 2);
  std::vector<void*> used;
  for (int i = 0; i < 6; ++i) {
    StagingBuffers::Buffer buffer = buffers.fetch(source, {});
    used.push_back(buffer.memory.data_ptr());
    buffers.release(std::move(buffer));
  }
  CHECK(buffers.bytes() == 2 * 32);
  CHECK(used[0] != used[1]);
  for (size_t i = 2; i < used.size(); ++i) CHECK(used[i] == used[i - 2]);
}

TEST_CASE("buffers that are all taken grow in number, buffers too small in size") {
  StagingBuffers buffers(late_link(), torch::kCPU, 1);
  StagingBuffers::Buffer first = buffers.acquire(like(16));
  StagingBuffers::Buffer second = buffers.acquire(like(16));
  CHECK(buffers.bytes() == 32);
  buffers.release(std::move(first));
  buffers.release(std::move(second));
  const StagingBuffers::Buffer large = buffers.acquire(like(4096));
  CHECK(large.memory.numel() == 4096);
  CHECK(buffers.bytes() == 4096 + 16);
}

TEST_CASE("buffers made when the largest size is known are never replaced") {
  StagingBuffers buffers(late_link(), torch::kCPU, 2);
  buffers.reserve(4096);
  buffers.reserve(64);
  for (const int64_t bytes : {16, 4096, 64, 4096}) {
    StagingBuffers::Buffer buffer = buffers.acquire(like(bytes));
    CHECK(buffer.memory.numel() == 4096);
    CHECK(buffer.values.numel() == bytes);
    buffers.release(std::move(buffer));
  }
  CHECK(buffers.bytes() == 4096);
}

TEST_CASE("a buffer too small is given up only when its copy has ended") {
  StagingBuffers buffers(late_link(), torch::kCPU, 1);
  const torch::Tensor target = torch::zeros({4});
  StagingBuffers::Buffer buffer = buffers.acquire(target);
  buffer.values.fill_(7);
  buffers.send(buffer, target, {});
  buffers.release(std::move(buffer));
  buffers.acquire(like(4096));
  CHECK(at::equal(target, torch::full({4}, 7.0)));
}

TEST_CASE("a buffer goes on to the next values behind the copy back of those before") {
  for (const uint64_t seed : {0, 1, 2, 3, 4, 5, 6, 7}) {
    StagingBuffers buffers(late_link(seed), torch::kCPU, 1);
    std::vector<torch::Tensor> from, to;
    for (int i = 0; i < 6; ++i) {
      from.push_back(torch::full({2, 4}, static_cast<double>(i)));
      to.push_back(torch::zeros({2, 4}));
      StagingBuffers::Buffer buffer = buffers.fetch(from[i], {});
      buffers.send(buffer, to[i], {});
      buffers.release(std::move(buffer));
    }
    buffers.copies().drain();
    for (int i = 0; i < 6; ++i) CHECK(at::equal(to[i], from[i]));
    CHECK(buffers.bytes() == 32);
  }
}

TEST_CASE("buffers that end with copies under way have waited for them") {
  const auto link = late_link();
  const torch::Tensor target = torch::zeros({4});
  {
    StagingBuffers buffers(link, torch::kCPU, 1);
    StagingBuffers::Buffer buffer = buffers.acquire(target);
    buffer.values.fill_(3);
    buffers.send(buffer, target, {});
    CHECK(copies_of(*link).under_way() == 1);
    buffers.release(std::move(buffer));
  }
  CHECK(at::equal(target, torch::full({4}, 3.0)));
}

TEST_CASE("a failure where nothing may be thrown is thrown once by the next call") {
  DeferredError failure;
  failure.rethrow();
  failure.guard([] { throw std::runtime_error("the link is gone"); });
  failure.guard([] {});
  CHECK_THROWS_WITH(failure.rethrow(), "the link is gone");
  failure.rethrow();
}

}  // namespace zeroth::offload::staging_buffers_test
