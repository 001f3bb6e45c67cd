// What libzeroth_gpu.so knows of NCCL.
#include "comm/nccl.h"

#include <c10/cuda/CUDAFunctions.h>
#include <torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp>

#include "base/error.h"
#include "comm/c10d_group.h"
#include "comm/call.h"

namespace zeroth::comm {
namespace {

// Our watchdog names block and ranks, and does not count time in which the job is suspended. c10d's
// own, which kills with a stack trace, counts it, and so must never come first.
constexpr std::chrono::hours kBackstop{24 * 365};

class CudaNccl final : public Nccl {
 public:
  int version() const override {
    int version = 0;
    ncclGetVersion(&version);
    return version;
  }

  std::unique_ptr<Group> make_group(const c10::intrusive_ptr<c10d::Store>& store, int rank,
                                    int size, const NcclOptions& settings) override {
    const auto watchdog = std::make_shared<Watchdog>(settings.timeout, settings.on_stuck);
    const auto guard = watchdog->guard([=, table = settings.table](const std::string& why) {
      return fmt::format("rank {} of {}: cannot connect over NCCL: {}; {}", rank, size, why,
                         table ? table->explain(0, {}) : "its peers are not known");
    });
    try {
      auto options = c10d::ProcessGroupNCCL::Options::create();
      options->timeout = settings.timeout + kBackstop;
      auto backend = c10::make_intrusive<c10d::ProcessGroupNCCL>(store, rank, size, options);
      backend->eagerConnectSingleDevice(
          torch::Device(torch::kCUDA, static_cast<c10::DeviceIndex>(c10::cuda::current_device())));
      return make_c10d_group(backend, {.table = settings.table, .watchdog = watchdog});
    } catch (const std::exception& cause) {
      throw Error("rank {} of {}: cannot connect over NCCL: {}", rank, size, words_of(cause));
    }
  }
};

}  // namespace
}  // namespace zeroth::comm

extern "C" __attribute__((visibility("default"))) zeroth::comm::Nccl& zeroth_nccl_entry() {
  static zeroth::comm::CudaNccl nccl;
  return nccl;
}
