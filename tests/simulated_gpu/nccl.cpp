// NCCL between the simulated GPUs of one process, whose ranks are its threads. Each rank of a group
// has a stream on its device. A collective begins there when the rank's current stream has come to
// it, moves its data when all ranks have begun it, and ends on each of the streams as late as that
// stream likes. The group's wire, a stream too, moves the data a part at a time.
#include "comm/groups/nccl.h"

#include <ATen/ATen.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <c10/core/Event.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <utility>
#include <vector>

#include "base/error.h"
#include "tests/simulated_gpu/device_memory.h"
#include "tests/simulated_gpu/devices.h"
#include "tests/simulated_gpu/queued.h"
#include "tests/simulated_gpu/timeline.h"

namespace zeroth::simulated {
namespace {

using at::Tensor;
using comm::Collective;
using Kind = Collective::OpType;

constexpr int kPoison = 0xff;  // as in DeviceMemory

// Streams behind those of c10's pool. One that is given back is empty and is used again.
class GroupStreams {
 public:
  StreamNumber take(int device) {
    const std::lock_guard lock(mutex_);
    std::set<StreamNumber>& free = free_[device];
    if (free.empty()) free.insert(stream_number(device, kFirst + made_[device]++));
    return free.extract(free.begin()).value();
  }
  void give(StreamNumber stream) {
    const std::lock_guard lock(mutex_);
    free_[device_of(stream)].insert(stream);
  }
  static GroupStreams& get() {
    static auto* streams = new GroupStreams;
    return *streams;
  }

 private:
  static constexpr int64_t kFirst = 64;
  std::mutex mutex_;
  std::map<int, std::set<StreamNumber>> free_;
  std::map<int, int64_t> made_;
};

// A collective, as far as its ranks have begun it. Tensors are of the CPU, over the device's
// memory.
struct Call {
  Kind kind;
  c10d::ReduceOp op = c10d::ReduceOp::SUM;
  int root = 0;
  std::vector<Tensor> outs = {}, ins = {};  // by rank; undefined: not begun
  std::vector<Timeline::Mark> begun = {};
  Timeline::Mark moved = {};

  bool complete() const { return begun.size() == outs.size(); }
  bool lacks(int rank) const { return !outs[static_cast<size_t>(rank)].defined(); }
  bool fits(const Call& other) const {
    return kind == other.kind && op == other.op && root == other.root;
  }
};

Tensor reduced(const Tensor& a, const Tensor& b, c10d::ReduceOp op) {
  if (op == c10d::ReduceOp::MAX) return at::maximum(a, b);
  if (op == c10d::ReduceOp::MIN) return at::minimum(a, b);
  return a + b;  // rounded at each hop
}

// The ranks of a group.
class Ring {
 public:
  Ring(int size, int device) : size_(size), wire_(GroupStreams::get().take(device)) {}
  ~Ring() { GroupStreams::get().give(wire_); }
  Ring(const Ring&) = delete;
  Ring& operator=(const Ring&) = delete;

  // Rank `rank` begins its collective `number` on `stream`, which waits for its end. Under the
  // timeline's mutex, as abandon().
  void begin(uint64_t number, int rank, StreamNumber stream, Call own, const Tensor& out,
             const Tensor& in) {
    const auto [found, is_new] = calls_.try_emplace(number, std::move(own));
    Call& call = found->second;
    if (is_new) {
      call.outs.resize(static_cast<size_t>(size_));
      call.ins.resize(static_cast<size_t>(size_));
      call.moved = Timeline::promise();
    }
    ZEROTH_CHECK(is_new || call.fits(own), "collective {} of rank {} is another than its peers'",
                 number, rank);
    call.outs[static_cast<size_t>(rank)] = out;
    call.ins[static_cast<size_t>(rank)] = in;
    call.begun.push_back(Timeline::get().mark(stream));
    Timeline::get().order(stream, call.moved);
    if (call.complete()) end(found);
  }

  // The rank leaves. What waits for a rank that has left, on one that is leaving, ends now without
  // its data, as with ncclCommAbort.
  void abandon(int rank) {
    left_.insert(rank);
    for (auto call = calls_.begin(); call != calls_.end();) {
      bool lacks = false, holds = false;
      for (const int gone : left_) (call->second.lacks(gone) ? lacks : holds) = true;
      const auto next = std::next(call);
      if (lacks && holds) {
        Timeline::get().mark(wire_, call->second.moved);
        calls_.erase(call);
      }
      call = next;
    }
  }

 private:
  using Calls = std::map<uint64_t, Call>;

  void move(std::function<void()> work) {
    Timeline::get().queue(wire_, [work = std::move(work)] {
      const at::AutoDispatchBelowADInplaceOrView below;
      work();
    });
  }

  void end(Calls::iterator done) {
    const Call call = std::move(done->second);
    calls_.erase(done);
    for (const Timeline::Mark& begun : call.begun) Timeline::get().order(wire_, begun);
    for (int part = 0; part < size_; ++part) move_part(call, part);
    Timeline::get().mark(wire_, call.moved);
  }

  // One rank's part of what moves.
  void move_part(const Call& call, int part) {
    const std::vector<Tensor>& outs = call.outs;
    const std::vector<Tensor>& ins = call.ins;
    const auto own = static_cast<size_t>(part);
    const int64_t count = outs[own].numel(), all = ins[own].numel();
    switch (call.kind) {
      case Kind::kAllReduce: {
        const int64_t length = (count + size_ - 1) / size_;
        const int64_t begin = std::min(part * length, count);
        const int64_t end = std::min(begin + length, count);
        return reduce(call, part, begin, end - begin, [outs, begin, end](const Tensor& sum) {
          for (const Tensor& out : outs) out.narrow(0, begin, end - begin).copy_(sum);
        });
      }
      case Kind::kReduceScatter:
        return reduce(call, part, part * count, count,
                      [out = outs[own]](const Tensor& sum) { out.copy_(sum); });
      case Kind::kAllGather:
        return move([outs, in = ins[own], begin = part * all, all] {
          for (const Tensor& out : outs) out.narrow(0, begin, all).copy_(in);
        });
      case Kind::kBroadcast:
        return move([out = outs[own], in = ins[static_cast<size_t>(call.root)]] { out.copy_(in); });
      case Kind::kAllToAll:
        return move([outs, in = ins[own], part, length = all / size_] {
          for (size_t to = 0; to < outs.size(); ++to)
            outs[to]
                .narrow(0, part * length, length)
                .copy_(in.narrow(0, static_cast<int64_t>(to) * length, length));
        });
    }
  }

  // The part goes round the ring, from the rank behind its own one to that, and each rank adds.
  void reduce(const Call& call, int part, int64_t begin, int64_t length,
              std::function<void(const Tensor&)> put) {
    move([ins = call.ins, op = call.op, part, begin, length, put = std::move(put)] {
      const size_t size = ins.size();
      const auto addend = [&](size_t hop) {
        return ins[(static_cast<size_t>(part) + hop) % size].narrow(0, begin, length);
      };
      Tensor sum = addend(1).clone();
      for (size_t hop = 2; hop <= size; ++hop) sum = reduced(sum, addend(hop), op);
      put(sum);
    });
  }

  int size_;
  StreamNumber wire_;
  Calls calls_;
  std::set<int> left_;
};

// As WorkNCCL: it keeps the outputs, and knows of the end by an event.
class Work final : public c10d::Work {
 public:
  Work(const Tensor& out, const c10::Stream& stream) : outs_{out}, end_(c10::kCUDA) {
    end_.record(stream);
  }
  bool isCompleted() override { return end_.query(); }
  bool wait(std::chrono::milliseconds) override {
    end_.block(c10::impl::VirtualGuardImpl(c10::kCUDA).getStream(end_.device()));
    return true;
  }
  void synchronize() override { wait({}); }
  std::vector<Tensor> result() override { return outs_; }

 private:
  std::vector<Tensor> outs_;
  c10::Event end_;
};

// The ring of a group: of its rank 0 for the others, which are threads of the same process.
std::shared_ptr<Ring> connect(const comm::NcclGroupSpec& place) {
  static std::mutex mutex;
  static std::map<std::string, std::weak_ptr<Ring>> rings;
  static int64_t made = 0;
  std::shared_ptr<Ring> ring;
  if (place.rank == 0) {
    ring = std::make_shared<Ring>(place.size, place.device.index());
    const std::lock_guard lock(mutex);
    const std::string id = fmt::format("process {}, ring {}", getpid(), ++made);
    rings[id] = ring;
    place.store->set("ring", id);
  } else {
    const std::string id = place.store->get_to_str("ring");
    const std::lock_guard lock(mutex);
    ring = rings[id].lock();
    if (!ring) throw Error("the simulated NCCL connects threads of one process, not of two");
  }
  std::vector<std::string> all;
  for (int rank = 0; rank < place.size; ++rank) all.push_back(fmt::format("rank {}", rank));
  place.store->set(all[static_cast<size_t>(place.rank)], "is there");
  place.store->wait(all);  // the ring lives until then
  return ring;
}

class Backend final : public c10d::Backend {
 public:
  explicit Backend(const comm::NcclGroupSpec& place)
      : c10d::Backend(place.rank, place.size),
        device_(place.device),
        ring_(connect(place)),
        stream_(GroupStreams::get().take(place.device.index())) {}
  ~Backend() override { GroupStreams::get().give(stream_); }

  const std::string getBackendName() const override { return "simulated NCCL"; }

  c10::intrusive_ptr<c10d::Work> allreduce(std::vector<Tensor>& tensors,
                                           const c10d::AllreduceOptions& options) override {
    return start({.kind = Kind::kAllReduce, .op = options.reduceOp}, tensors[0], tensors[0]);
  }
  c10::intrusive_ptr<c10d::Work> _allgather_base(Tensor& out, Tensor& in,
                                                 const c10d::AllgatherOptions&) override {
    return start({.kind = Kind::kAllGather}, out, in);
  }
  c10::intrusive_ptr<c10d::Work> _reduce_scatter_base(Tensor& out, Tensor& in,
                                                      const c10d::ReduceScatterOptions&) override {
    return start({.kind = Kind::kReduceScatter}, out, in);
  }
  c10::intrusive_ptr<c10d::Work> broadcast(std::vector<Tensor>& tensors,
                                           const c10d::BroadcastOptions& options) override {
    return start({.kind = Kind::kBroadcast, .root = static_cast<int>(options.rootRank)}, tensors[0],
                 tensors[0]);
  }
  c10::intrusive_ptr<c10d::Work> alltoall_base(Tensor& out, Tensor& in, std::vector<int64_t>&,
                                               std::vector<int64_t>&,
                                               const c10d::AllToAllOptions&) override {
    return start({.kind = Kind::kAllToAll}, out, in);
  }

  // Waits for what is under way, as NCCL does.
  void shutdown() override {
    {
      const std::lock_guard lock(Timeline::get().mutex());
      ring_->abandon(rank_);
    }
    Timeline::get().finish(stream_);
  }

 private:
  c10::intrusive_ptr<c10d::Work> start(Call call, const Tensor& out, const Tensor& in) {
    for (const Tensor& tensor : {out, in}) {
      TORCH_CHECK(tensor.device() == device_ && tensor.is_contiguous(), "a collective on ", device_,
                  " is given a tensor of ", tensor.device(), ", which is to be contiguous");
    }
    Timeline& timeline = Timeline::get();
    const std::lock_guard lock(timeline.mutex());
    timeline.order(stream_, timeline.mark(current_stream()));
    timeline.delay(stream_);
    const Tensor to = on_cpu(out).view(-1), from = on_cpu(in).view(-1);
    spoil(call, to, from);
    ring_->begin(number_++, rank_, stream_, std::move(call), to, from);
    timeline.delay(stream_);
    return c10::make_intrusive<Work>(
        out, c10::Stream(c10::Stream::UNSAFE, device_, stream_ % kStreamsPerDevice));
  }

  // A collective may write its output from its beginning on: who reads it too early gets no result
  // that was there before.
  void spoil(const Call& call, const Tensor& out, const Tensor& in) const {
    const bool in_place = call.kind == Kind::kBroadcast ? rank_ == call.root : overlap(out, in);
    if (in_place) return;
    Timeline::get().queue(
        stream_, [to = out.data_ptr(), bytes = out.nbytes()] { std::memset(to, kPoison, bytes); });
  }
  static bool overlap(const Tensor& a, const Tensor& b) {
    const auto begin = [](const Tensor& x) { return static_cast<const std::byte*>(x.data_ptr()); };
    return begin(a) < begin(b) + b.nbytes() && begin(b) < begin(a) + a.nbytes();
  }

  c10::Device device_;
  std::shared_ptr<Ring> ring_;
  StreamNumber stream_;
  uint64_t number_ = 0;
};

class SimulatedNccl final : public comm::Nccl {
 public:
  int version() const override { return 22800; }
  std::unique_ptr<comm::Group> make_group(const c10::intrusive_ptr<c10d::Store>& store, int rank,
                                          int size, const comm::NcclOptions& options) override {
    return comm::make_nccl_group(store, rank, size, options, [](const comm::NcclGroupSpec& place) {
      return c10::make_intrusive<Backend>(place);
    });
  }
};

}  // namespace
}  // namespace zeroth::simulated

extern "C" __attribute__((visibility("default"))) zeroth::comm::Nccl* zeroth_nccl_entry() {
  static zeroth::simulated::SimulatedNccl nccl;
  return &nccl;
}
