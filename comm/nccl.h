// NCCL, which is in the library of the GPU side (device/gpu.h).
#pragma once

#include <torch/types.h>

#include <chrono>
#include <functional>
#include <memory>

#include "comm/group.h"
#include "comm/peer_reports.h"
#include "comm/rank_table.h"
#include "comm/watchdog.h"
#include "device/gpu.h"

namespace c10d {
class Backend;
class Store;
}  // namespace c10d

namespace zeroth::comm {

struct NcclOptions {
  std::chrono::milliseconds timeout{600'000};
  // For errors: a table of the ranks of this rank's part. Collective over all ranks. May be empty,
  // or find none.
  std::function<std::shared_ptr<RankTable>(const Partition&)> tables = {};
  // Of ranks on several machines, which no table has: what they tell each other. May be null.
  std::shared_ptr<PeerReports> reports = nullptr;
  HangHandler on_hang = {};  // see Watchdog
};

class Nccl {
 public:
  virtual ~Nccl() = default;
  // As NCCL_VERSION_CODE: 23004 for 2.30.4.
  virtual int version() const = 0;
  // A group of ranks, this one with the GPU that is selected. Collective. Throws an Error that
  // names rank and cause.
  virtual std::unique_ptr<Group> make_group(const c10::intrusive_ptr<c10d::Store>& store, int rank,
                                            int size, const NcclOptions& options) = 0;
};

// What c10d needs of one rank to connect it with the other ranks of its group.
struct NcclGroupSpec {
  c10::intrusive_ptr<c10d::Store> store;  // of this group alone
  int rank, size;
  torch::Device device;
  std::chrono::milliseconds timeout;
  // Of the group's stream: the few blocks of a collective begin before those of a product's kernel
  // that is queued already, and not when that has come to its end.
  bool high_priority = true;
};
using NcclBackend = std::function<c10::intrusive_ptr<c10d::Backend>(const NcclGroupSpec&)>;

// Nccl::make_group() over such backends, for the libraries of the GPU side.
std::unique_ptr<Group> make_nccl_group(const c10::intrusive_ptr<c10d::Store>& store, int rank,
                                       int size, const NcclOptions& options,
                                       const NcclBackend& make_backend);

using NcclEntry = Nccl* (*)();
inline constexpr const char* kNcclEntry = "zeroth_nccl_entry";

// Throws as device::load_gpu().
inline Nccl& load_nccl() {
  return *reinterpret_cast<NcclEntry>(device::gpu_entry(kNcclEntry))();
}

}  // namespace zeroth::comm
