// The emulation itself: small kernels with what goes wrong on a GPU.
#include "tests/emulated_gpu/emulation.h"

#include <doctest/doctest.h>

#include <set>
#include <string>
#include <vector>

#include "base/launch.cuh"

namespace zeroth::emulated::emulation_test {
namespace {

__global__ void write_own(int* to) {
  to[int64_t{blockIdx.x} * blockDim.x + threadIdx.x] = static_cast<int>(threadIdx.x);
}

__global__ void write_order(int* next, int* order) {
  order[threadIdx.x] = (*next)++;
}

// Each thread gets what its neighbour has put down.
__global__ void pass_on(const int* from, int* to, bool wait) {
  __shared__ int kept[256];
  kept[threadIdx.x] = from[threadIdx.x];
  if (wait) __syncthreads();
  to[threadIdx.x] = kept[(threadIdx.x + 1) % blockDim.x];
}

__global__ void reach_some(int last, bool leave) {
  if (static_cast<int>(threadIdx.x) > last) {
    if (leave) return;
    __syncthreads();  // another one
    return;
  }
  __syncthreads();
}

__global__ void sum_lanes(unsigned mask, int last, int* sum) {
  if (static_cast<int>(threadIdx.x) > last) return;
  int own = 1 << threadIdx.x % 8;
  for (int offset = kWarp / 2; offset > 0; offset /= 2) own += __shfl_xor_sync(mask, own, offset);
  sum[threadIdx.x] = own;
}

__global__ void shift_lanes(int* to) {
  to[threadIdx.x] = __shfl_down_sync(0xffffffff, static_cast<int>(threadIdx.x), 3);
}

__global__ void wait_in_two_ways(int* to) {
  if (threadIdx.x % kWarp == 5) __syncthreads();
  to[threadIdx.x] = __shfl_xor_sync(0xffffffff, 1, 1);
  __syncthreads();
}

template <typename Launch>
std::string error_of(Launch&& launch) {
  try {
    launch();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("each thread of each block runs once, in an order that the seed draws") {
  std::vector<int> values(3 * 96, -1);
  launch_kernel(write_own, 3, 96, nullptr, values.data());
  for (size_t i = 0; i < values.size(); ++i) CHECK(values[i] == static_cast<int>(i % 96));

  std::set<std::vector<int>> orders;
  for (const uint64_t seed : {0, 1, 2, 3, 1}) {
    order_by(seed);
    int next = 0;
    std::vector<int> order(96);
    launch_kernel(write_order, 1, 96, nullptr, &next, order.data());
    CHECK(next == 96);
    CHECK((seed == 0) == std::ranges::is_sorted(order));
    orders.insert(order);
  }
  order_by(0);
  CHECK(orders.size() == 4);
}

TEST_CASE("some blocks of a grid, however large, run alone") {
  std::vector<int> values(64, -1);
  const OnlyBlocks only({0x7ffffff0});
  launch_kernel(write_own, 0x7fffffff, 64, nullptr, values.data() - int64_t{0x7ffffff0} * 64);
  CHECK(values[63] == 63);
}

TEST_CASE("what is passed through shared memory arrives behind a barrier, and not without it") {
  std::vector<int> from(256), to(256);
  for (int i = 0; i < 256; ++i) from[static_cast<size_t>(i)] = 7 * i;
  bool wrong = false;
  for (uint64_t seed = 0; seed < 9; ++seed) {
    order_by(seed);
    for (const bool wait : {true, false}) {
      launch_kernel(pass_on, 1, 256, nullptr, from.data(), to.data(), wait);
      for (size_t i = 0; i < 256; ++i) {
        if (wait) CHECK(to[i] == from[(i + 1) % 256]);
        wrong |= to[i] != from[(i + 1) % 256];
      }
      for (int& value : from) ++value;  // what an earlier launch left is not right by chance
    }
  }
  order_by(0);
  CHECK(wrong);
}

TEST_CASE("a barrier that some threads do not reach names kernel, block, place and thread") {
  CHECK(error_of([] { launch_kernel(reach_some, 2, 64, nullptr, 63, true); }).empty());
  const std::string left = error_of([] { launch_kernel(reach_some, 2, 64, nullptr, 40, true); });
  CHECK(has(left, "reach_some, block (0, 0, 0)"));
  CHECK(has(left, "the barrier at " __FILE__ ":"));
  CHECK(has(left, "thread 41 has ended"));
  const std::string other = error_of([] { launch_kernel(reach_some, 1, 64, nullptr, 40, false); });
  CHECK(has(other, "thread 41 waits at the barrier at " __FILE__ ":"));
  CHECK(error_of([] { launch_kernel(reach_some, 1, 64, nullptr, 63, true); }).empty());
}

TEST_CASE("lanes exchange values, and all participants have to arrive") {
  for (const uint64_t seed : {0, 5, 6}) {
    order_by(seed);
    std::vector<int> sums(64);
    launch_kernel(sum_lanes, 1, 64, nullptr, 0xffffffff, 63, sums.data());
    for (const int sum : sums) CHECK(sum == 4 * 255);
    launch_kernel(shift_lanes, 1, 64, nullptr, sums.data());
    for (int i = 0; i < 64; ++i) CHECK(sums[static_cast<size_t>(i)] == (i % 32 < 29 ? i + 3 : i));
  }
  order_by(0);
  std::vector<int> sums(64);
  const auto run = [&](unsigned mask, int threads, int last) {
    return error_of(
        [&] { launch_kernel(sum_lanes, 1, threads, nullptr, mask, last, sums.data()); });
  };
  CHECK(has(run(0xffffffff, 64, 50), "thread 51 has ended"));
  CHECK(has(run(0xffffffff, 40, 63), "lanes that the block does not have"));
  CHECK(has(run(0xfffffffe, 32, 63), "by a lane that its mask leaves out"));
  CHECK(has(run(0xffff, 32, 15), "reads a lane outside its mask"));
  const std::string both =
      error_of([&] { launch_kernel(wait_in_two_ways, 1, 64, nullptr, sums.data()); });
  CHECK(has(both, "wait_in_two_ways"));
  CHECK(has(both, "thread 5 waits at the barrier"));
}

TEST_CASE("a launch that no GPU takes is an error") {
  std::vector<int> values(1);
  const auto launch = [&](dim3 grid, dim3 block) {
    return error_of([&] { launch_kernel(write_own, grid, block, nullptr, values.data()); });
  };
  CHECK(has(launch(1, 1025), "no GPU takes"));
  CHECK(has(launch(0, 32), "no GPU takes"));
  CHECK(has(launch(dim3(1, 65536), 32), "no GPU takes"));
}

}  // namespace zeroth::emulated::emulation_test
