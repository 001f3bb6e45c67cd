// The NCCL part of libzeroth_gpu.so.
#include "comm/groups/nccl.h"

#include <torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp>

namespace zeroth::comm {
namespace {

// Our watchdog names block and ranks, and does not count time in which the job is suspended. c10d's
// own counts it and kills with a stack trace, and so must never fire first.
constexpr std::chrono::hours kBackstop{24 * 365};

c10::intrusive_ptr<c10d::Backend> make_backend(const NcclGroupSpec& spec) {
  auto options = c10d::ProcessGroupNCCL::Options::create(spec.high_priority);
  options->timeout = spec.timeout + kBackstop;
  auto backend =
      c10::make_intrusive<c10d::ProcessGroupNCCL>(spec.store, spec.rank, spec.size, options);
  // After this call c10d's send and receive use the group's one communicator and its stream, too,
  // in order with its collectives. NCCL ends a send only with its receive, and c10d records the
  // streams of their tensors in the allocator. So code that adds them (pipelines) has three rules
  // to keep. The pairs of one tick are started together, between startCoalescing and endCoalescing:
  // two neighbors that each send first and then receive would wait for each other forever. They
  // have a communicator of their own along mesh dimension pp, so that they do not queue after
  // gathers and reductions. Their tensors come from a pool that outlives the sends: the allocator
  // would reuse its memory only when it sees that NCCL's stream has passed them.
  backend->eagerConnectSingleDevice(spec.device);
  return backend;
}

class CudaNccl final : public Nccl {
 public:
  int version() const override {
    int version = 0;
    ncclGetVersion(&version);
    return version;
  }

  std::unique_ptr<Group> make_group(const c10::intrusive_ptr<c10d::Store>& store, int rank,
                                    int size, const NcclOptions& options) override {
    return make_nccl_group(store, rank, size, options, make_backend);
  }
};

}  // namespace
}  // namespace zeroth::comm

extern "C" __attribute__((visibility("default"))) zeroth::comm::Nccl* zeroth_nccl_entry() {
  static zeroth::comm::CudaNccl nccl;
  return &nccl;
}
