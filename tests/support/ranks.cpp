#include "tests/support/ranks.h"

#include <torch/csrc/distributed/c10d/HashStore.hpp>

#include <cstdlib>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

#include "comm/gloo_group.h"

namespace zeroth::testing {
namespace {

std::shared_ptr<comm::Mesh> join(const c10::intrusive_ptr<c10d::Store>& store, int rank,
                                 int count) {
  auto group = count == 1 ? comm::make_solo_group()
                          : comm::make_gloo_group(store, rank, count,
                                                  {.address = "127.0.0.1",
                                                   .timeout = std::chrono::milliseconds(60'000)});
  return std::make_shared<comm::Mesh>(torch::kCPU, std::move(group));
}

}  // namespace

void run_ranks(int count, const std::function<void(std::shared_ptr<comm::Mesh>)>& fn) {
  // c10d's flight recorder is one per process and not safe with several ranks in it.
  setenv("TORCH_FR_BUFFER_SIZE", "0", /*overwrite=*/1);
  const auto store = c10::make_intrusive<c10d::HashStore>();
  std::mutex mutex;
  std::exception_ptr first;
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < count; ++rank) {
    ranks.emplace_back([&, rank] {
      try {
        at::set_num_threads(1);
        fn(join(store, rank, count));
      } catch (...) {
        const std::lock_guard lock(mutex);
        if (!first) first = std::current_exception();
      }
    });
  }
  for (std::thread& rank : ranks) rank.join();
  if (first) std::rethrow_exception(first);
}

}  // namespace zeroth::testing
