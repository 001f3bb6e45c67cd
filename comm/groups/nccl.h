// NCCL, which is in the GPU library (device/gpu.h).
#pragma once

#include <chrono>
#include <functional>
#include <memory>

#include "comm/groups/group.h"
#include "device/gpu.h"
#include "device/tensor.h"

namespace c10d {
class Backend;
class Store;
}  // namespace c10d

namespace zeroth::comm {

class PeerReports;
class RankTable;

struct NcclOptions {
  std::chrono::milliseconds timeout{600'000};
  // Returns a table of the ranks of this rank's part, for errors. Collective over all ranks. May be
  // empty, or return null.
  std::function<std::shared_ptr<RankTable>(const Partition&)> tables = {};
  // Status reports of ranks on several nodes, which no table covers. May be null.
  std::shared_ptr<PeerReports> reports = nullptr;
  HangHandler on_hang = {};  // see Watchdog
};

class Nccl {
 public:
  virtual ~Nccl() = default;
  // Returns NCCL's version as NCCL_VERSION_CODE: 23004 for 2.30.4.
  virtual int version() const = 0;
  // Makes a group of ranks, this one with the selected GPU. Collective. Throws an Error that names
  // rank and cause.
  virtual std::unique_ptr<Group> make_group(const c10::intrusive_ptr<c10d::Store>& store, int rank,
                                            int size, const NcclOptions& options) = 0;
};

// An NcclGroupSpec is c10d's input to connect one rank with the other ranks of its group.
struct NcclGroupSpec {
  c10::intrusive_ptr<c10d::Store> store;  // a store for this group only
  int rank, size;
  torch::Device device;
  std::chrono::milliseconds timeout;
  // Priority of the group's stream: with it, the few thread blocks of a collective start before
  // those of a matmul kernel that is already queued, and not only after that has finished.
  bool high_priority = true;
};
using NcclBackend = std::function<c10::intrusive_ptr<c10d::Backend>(const NcclGroupSpec&)>;

// Implements Nccl::make_group() over such backends, for the GPU libraries.
std::unique_ptr<Group> make_nccl_group(const c10::intrusive_ptr<c10d::Store>& store, int rank,
                                       int size, const NcclOptions& options,
                                       const NcclBackend& make_backend);

using NcclEntry = Nccl* (*)();
inline constexpr const char* kNcclEntry = "zeroth_nccl_entry";

// Loads NCCL. Throws an Error like device::load_gpu().
inline Nccl& load_nccl() {
  return *reinterpret_cast<NcclEntry>(device::gpu_entry(kNcclEntry))();
}

}  // namespace zeroth::comm
