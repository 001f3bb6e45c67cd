#include "zero/buffer_pool.h"

#include <doctest/doctest.h>

namespace zeroth::zero::buffer_pool_test {

TEST_CASE("memory that was given back is taken again") {
  BufferPool pool(torch::kCPU);
  c10::DataPtr memory = pool.acquire(4096);
  void* address = memory.get();
  pool.release(4096, std::move(memory));
  CHECK((pool.acquire(4096).get() == address));
  CHECK(pool.allocated_bytes() == 4096);
}

TEST_CASE("buffers of nearly one size share memory, others do not") {
  BufferPool pool(torch::kCPU);
  pool.release(1'000'000, pool.acquire(1'000'000));
  pool.release(1'010'000, pool.acquire(1'010'000));
  const int64_t shared = pool.allocated_bytes();
  CHECK(shared >= 1'010'000);
  CHECK(shared < 1'200'000);
  pool.acquire(600'000);
  CHECK(pool.allocated_bytes() > shared);
}

TEST_CASE("tensors of another size or dtype are not mixed up") {
  BufferPool pool(torch::kCPU);
  pool.release_tensor(pool.acquire_tensor(8, torch::kFloat));
  CHECK((pool.acquire_tensor(8, torch::kBFloat16).scalar_type() == torch::kBFloat16));
  CHECK(pool.acquire_tensor(9, torch::kFloat).numel() == 9);
  CHECK(pool.allocated_bytes() == 8 * 4 + 8 * 2 + 9 * 4);
  CHECK(pool.acquire_tensor(8, torch::kFloat).numel() == 8);
  CHECK(pool.allocated_bytes() == 8 * 4 + 8 * 2 + 9 * 4);
}

}  // namespace zeroth::zero::buffer_pool_test
