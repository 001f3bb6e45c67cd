// Groups of ranks that exchange tensors. All ranks of a group issue the same collectives in the
// same order, each from one thread, which also serves all groups split from one another.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "device/tensor.h"

namespace zeroth::comm {

enum class ReduceOp { kSum, kMax, kMin };

// A CollectiveHandle is a collective in progress. Its tensors must live, and must not be written,
// until wait() has returned.
class CollectiveHandle {
 public:
  class Impl {
   public:
    virtual ~Impl() = default;
    virtual void wait() = 0;
    // Implements CollectiveHandle::block_current_stream(); false if only wait() is supported.
    virtual bool block_current_stream() { return false; }
    // Implements CollectiveHandle::ready(); false if only wait() can find out.
    virtual bool ready() { return false; }
  };

  CollectiveHandle() = default;  // done
  explicit CollectiveHandle(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}

  // Blocks until the result is available (CPU), or makes the current stream wait (CUDA). Throws an
  // Error that names the collective and the rank if a peer is lost or the time limit has passed:
  // usually of this collective, else of one in another group that the wait has driven. A second
  // call has no effect.
  void wait() {
    if (!impl_) return;
    auto impl = std::move(impl_);
    impl->wait();
  }
  // Makes the current stream wait (CUDA). The caller must still call wait(), which may be on
  // another stream. Calls wait() on other devices.
  void block_current_stream() {
    if (impl_ && !impl_->block_current_stream()) wait();
  }
  bool done() const { return impl_ == nullptr; }
  // Returns whether wait() is known to return, or throw, at once. Moves no data.
  bool ready() const { return done() || impl_->ready(); }

 private:
  std::shared_ptr<Impl> impl_;
};

// Makes the handle of a collective from wait() and ready() of its CollectiveHandle::Impl.
template <typename Wait, typename Ready>
CollectiveHandle make_handle(Wait wait, Ready ready) {
  struct FunctionHandle final : CollectiveHandle::Impl {
    FunctionHandle(Wait its_wait, Ready its_ready)
        : wait_(std::move(its_wait)), ready_(std::move(its_ready)) {}
    void wait() override { wait_(); }
    bool ready() override { return ready_(); }

    Wait wait_;
    Ready ready_;
  };
  return CollectiveHandle(std::make_shared<FunctionHandle>(std::move(wait), std::move(ready)));
}

// Statistics of a group since its construction. The difference of two readings covers a step.
struct CommTimes {
  double working_s = 0;    // time in which this thread moved and reduced bytes
  double waiting_s = 0;    // time in which this thread was blocked until the peers' bytes arrived
  double in_flight_s = 0;  // from issue to the end of wait(), summed over collectives
  int64_t bytes = 0;       // bytes of the whole tensors: reduced, gathered, scattered
  int64_t bytes_sent = 0;  // bytes from this rank to other nodes, if the group spans several
  int64_t collectives = 0;

  CommTimes& operator+=(const CommTimes& other) {
    working_s += other.working_s;
    waiting_s += other.waiting_s;
    in_flight_s += other.in_flight_s;
    bytes += other.bytes;
    bytes_sent += other.bytes_sent;
    collectives += other.collectives;
    return *this;
  }
};

// A Collective describes an operation on the tensors of the ranks. The functions of Group define
// what each type does.
struct Collective {
  enum class OpType { kAllReduce, kAllGather, kReduceScatter, kBroadcast, kAllToAll };

  OpType kind;
  torch::Tensor out;             // receives the result
  torch::Tensor in;              // this rank's input; `out` itself for an in-place collective
  std::string_view what;         // names the data for messages; read only during issue
  ReduceOp op = ReduceOp::kSum;  // for an all-reduce
  int root = 0;                  // for a broadcast

  // Returns the longer of the two: the data of all ranks together.
  const torch::Tensor& whole() const { return kind == OpType::kReduceScatter ? in : out; }
};

// A Partition divides the ranks of a group into parts; each rank is in one.
struct Partition {
  std::string name;                     // name of each part, for messages: "tensor"
  std::vector<std::vector<int>> parts;  // ranks, ascending

  const std::vector<int>& part_of(int rank) const;
};

// A Group issues collectives on contiguous tensors of one dtype. `what` names the data for messages
// ("parameters of block 3 (layers.2)").
class Group {
 public:
  virtual ~Group() = default;

  virtual int rank() const = 0;
  virtual int size() const = 0;

  // Reduces `tensor` in place, element-wise over the ranks.
  CollectiveHandle all_reduce(const torch::Tensor& tensor, ReduceOp op = ReduceOp::kSum,
                              std::string_view what = {}) {
    return issue({Collective::OpType::kAllReduce, tensor, tensor, what, op});
  }
  // Sets out [size * n] to the concatenation of the ranks' in [n]; `in` may be this rank's own part
  // of `out`.
  CollectiveHandle all_gather(const torch::Tensor& out, const torch::Tensor& in,
                              std::string_view what = {}) {
    return issue({Collective::OpType::kAllGather, out, in, what});
  }
  // Sets out [n] to this rank's part of the sum of all ranks' in [size * n]. `in` may be
  // overwritten.
  CollectiveHandle reduce_scatter(const torch::Tensor& out, const torch::Tensor& in,
                                  std::string_view what = {}) {
    return issue({Collective::OpType::kReduceScatter, out, in, what});
  }
  // Copies `tensor` of `root` to all ranks.
  CollectiveHandle broadcast(const torch::Tensor& tensor, int root, std::string_view what = {}) {
    return issue({Collective::OpType::kBroadcast, tensor, tensor, what, ReduceOp::kSum, root});
  }
  // Sets out [size * n] to the concatenation of the n elements for this rank from each rank's `in`
  // [size * n]. `out` and `in` share no memory.
  CollectiveHandle all_to_all(const torch::Tensor& out, const torch::Tensor& in,
                              std::string_view what = {}) {
    return issue({Collective::OpType::kAllToAll, out, in, what});
  }
  // Implements the functions above. Throws an InternalError if sizes or dtypes do not fit.
  virtual CollectiveHandle issue(const Collective& collective) = 0;

  // Returns the group of this rank's part, whose ranks are numbered from 0 in their order. Must be
  // called on a group of all ranks, whose ranks messages use, and once per name. Collective over
  // all parts. Throws an Error that names the part.
  virtual std::unique_ptr<Group> split(const Partition& partition) = 0;

  // Returns the statistics; all zero if nothing crosses ranks.
  virtual CommTimes times() const { return {}; }
};

// Ends the process, which cannot continue, because a device waits forever (comm/groups/watchdog.h).
// Called once, on a thread of its own.
using HangHandler = std::function<void(const std::string& message)>;

// Makes the group of one rank, which only copies data that a result needs.
std::unique_ptr<Group> make_solo_group();

// Makes a group of CPU tensors accept device tensors, too: copies them to pinned host memory when a
// collective is issued, which waits for the current stream, and copies the results back on the
// stream that is current in wait(). CPU tensors pass unchanged.
std::unique_ptr<Group> make_cpu_staged_group(std::unique_ptr<Group> cpu);

// Makes a group for CPU tensors over one that accepts only device tensors: copies them to the
// device and back. Keeps a reference to `group`.
std::unique_ptr<Group> make_device_staged_group(Group& group, torch::Device device);

}  // namespace zeroth::comm
