// Ranks that exchange tensors. Every collective is issued by all ranks of the group, in the same
// order, from one thread, which is also that of all groups that were split off one another.
#pragma once

#include <torch/types.h>

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace zeroth::comm {

enum class ReduceOp { kSum, kMax, kMin };

// A collective under way. Its tensors must live, and must not be written, until wait() has
// returned.
class CollectiveHandle {
 public:
  class Impl {
   public:
    virtual ~Impl() = default;
    virtual void wait() = 0;
    // As CollectiveHandle::block_current_stream(); false where there is only wait().
    virtual bool block_current_stream() { return false; }
    // As CollectiveHandle::ready(); false where only wait() finds out.
    virtual bool ready() { return false; }
  };

  CollectiveHandle() = default;  // done
  explicit CollectiveHandle(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}

  // On the CPU: blocks until the result is there. On CUDA: makes the current stream wait. Throws an
  // Error that names the collective and the rank when a peer is lost or the time limit has passed:
  // mostly of this one, else of one in another group whose bytes the wait has moved.
  // A second call does nothing.
  void wait() {
    if (!impl_) return;
    auto impl = std::move(impl_);
    impl->wait();
  }
  // On CUDA: makes the current stream wait, which may be another one than the stream that will call
  // wait(): that is still to be done. Elsewhere wait().
  void block_current_stream() {
    if (impl_ && !impl_->block_current_stream()) wait();
  }
  bool done() const { return impl_ == nullptr; }
  // Whether wait() is known to return, or throw, at once. Moves nothing.
  bool ready() const { return done() || impl_->ready(); }

 private:
  std::shared_ptr<Impl> impl_;
};

// What a group has done since it was made. Differences of two readings tell about a step.
struct CommTimes {
  double working_s = 0;    // this thread, moving and reducing bytes
  double waiting_s = 0;    // this thread, blocked until the peers' bytes are there
  double in_flight_s = 0;  // from issue to the end of wait(), summed over collectives
  int64_t bytes = 0;       // of the whole tensors: reduced, gathered into, scattered from
  int64_t bytes_sent = 0;  // by this rank to other machines, where the group knows of several
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

// What a collective does with the tensors of the ranks. Those of one kind have one meaning; the
// verbs of Group say it.
struct Collective {
  enum class OpType { kAllReduce, kAllGather, kReduceScatter, kBroadcast, kAllToAll };

  OpType kind;
  torch::Tensor out;             // where the result will be
  torch::Tensor in;              // this rank's part of it; `out` itself where it is in place
  std::string_view what;         // names the data for messages; only read while it is issued
  ReduceOp op = ReduceOp::kSum;  // of an all-reduce
  int root = 0;                  // of a broadcast

  // The longer of the two: all that the ranks hold together.
  const torch::Tensor& whole() const { return kind == OpType::kReduceScatter ? in : out; }
};

// The ranks of a group in parts: each of them is in one.
struct Partition {
  std::string name;                     // of each part, for messages: "tensor"
  std::vector<std::vector<int>> parts;  // ranks, ascending

  const std::vector<int>& part_of(int rank) const;
};

// Tensors are contiguous and of one dtype. `what` names the data for messages ("parameters of block
// 3 (layers.2)").
class Group {
 public:
  virtual ~Group() = default;

  virtual int rank() const = 0;
  virtual int size() const = 0;

  // In place, element-wise over the ranks.
  CollectiveHandle all_reduce(const torch::Tensor& tensor, ReduceOp op = ReduceOp::kSum,
                              std::string_view what = {}) {
    return issue({Collective::OpType::kAllReduce, tensor, tensor, what, op});
  }
  // out [size * n] = the ranks' in [n] one after the other; `in` may be this rank's own part of
  // `out`.
  CollectiveHandle all_gather(const torch::Tensor& out, const torch::Tensor& in,
                              std::string_view what = {}) {
    return issue({Collective::OpType::kAllGather, out, in, what});
  }
  // out [n] = this rank's part of the sum of all ranks' in [size * n]. `in` may be overwritten.
  CollectiveHandle reduce_scatter(const torch::Tensor& out, const torch::Tensor& in,
                                  std::string_view what = {}) {
    return issue({Collective::OpType::kReduceScatter, out, in, what});
  }
  // tensor of `root` to all.
  CollectiveHandle broadcast(const torch::Tensor& tensor, int root, std::string_view what = {}) {
    return issue({Collective::OpType::kBroadcast, tensor, tensor, what, ReduceOp::kSum, root});
  }
  // out [size * n] = the n elements for this rank of each rank's `in` [size * n], one after the
  // other. They share no memory.
  CollectiveHandle all_to_all(const torch::Tensor& out, const torch::Tensor& in,
                              std::string_view what = {}) {
    return issue({Collective::OpType::kAllToAll, out, in, what});
  }
  // What the verbs above come to. Throws an InternalError where sizes or dtypes do not fit.
  virtual CollectiveHandle issue(const Collective& collective) = 0;

  // The group of this rank's part, in which its ranks are numbered from 0 in their order. To be
  // asked of a group of all ranks, whose numbers messages use, and once for a name. Collective over
  // all parts. Throws an Error that names the part.
  virtual std::unique_ptr<Group> split(const Partition& partition) = 0;

  // All zero where nothing crosses ranks.
  virtual CommTimes times() const { return {}; }
};

// The group of one rank: nothing moves but what a result needs.
std::unique_ptr<Group> make_solo_group();

}  // namespace zeroth::comm
