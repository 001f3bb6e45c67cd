#include "comm/c10d_group.h"

#include <torch/csrc/distributed/c10d/Backend.hpp>

#include <utility>
#include <vector>

#include "base/error.h"
#include "comm/call.h"

namespace zeroth::comm {
namespace {

c10d::ReduceOp to_c10d(Reduce op) {
  switch (op) {
    case Reduce::kMax:
      return c10d::ReduceOp::MAX;
    case Reduce::kMin:
      return c10d::ReduceOp::MIN;
    default:
      return c10d::ReduceOp::SUM;
  }
}

// What a group and its collectives under way share.
struct State {
  c10::intrusive_ptr<c10d::Backend> backend;
  C10dGroupOptions options;
  CommTimes times;
  uint64_t issued = 0;

  [[noreturn]] void fail(const Call& call, uint64_t number, const std::exception& cause) const {
    std::string reason = cause.what();
    reason = reason.substr(0, reason.find('\n'));
    const std::string peers =
        options.table ? options.table->explain(number, {}) : std::string("its peers are not known");
    throw Error("rank {} of {}: {} over '{}' failed: {}; {}", backend->getRank(),
                backend->getSize(), call.describe(), options.name, reason, peers);
  }
};

class C10dPending final : public Pending::Impl {
 public:
  C10dPending(std::shared_ptr<State> state, c10::intrusive_ptr<c10d::Work> work, Call call,
              uint64_t number)
      : state_(std::move(state)), work_(std::move(work)), call_(std::move(call)), number_(number) {}

  void wait() override {
    const Stopwatch waiting;
    try {
      work_->wait();
    } catch (const std::exception& cause) {
      state_->fail(call_, number_, cause);
    }
    state_->times.waiting_s += waiting.seconds();
    state_->times.under_way_s += since_issue_.seconds();
    if (state_->options.table) state_->options.table->finish(number_);
  }

 private:
  std::shared_ptr<State> state_;
  c10::intrusive_ptr<c10d::Work> work_;
  Call call_;
  uint64_t number_;
  Stopwatch since_issue_;
};

class C10dGroup final : public Group {
 public:
  C10dGroup(c10::intrusive_ptr<c10d::Backend> backend, C10dGroupOptions options)
      : state_(std::make_shared<State>()) {
    state_->backend = std::move(backend);
    state_->options = std::move(options);
  }

  int rank() const override { return state_->backend->getRank(); }
  int size() const override { return state_->backend->getSize(); }
  CommTimes times() const override { return state_->times; }

  Pending all_reduce(const torch::Tensor& tensor, Reduce op, std::string_view what) override {
    return start({"all-reduce", what, tensor}, [&](c10d::Backend& backend) {
      std::vector<torch::Tensor> tensors = {tensor};
      c10d::AllreduceOptions options;
      options.reduceOp = to_c10d(op);
      return backend.allreduce(tensors, options);
    });
  }

  Pending all_gather(const torch::Tensor& out, const torch::Tensor& in,
                     std::string_view what) override {
    ZEROTH_CHECK(out.numel() == in.numel() * size(), "out {}, in {}", out.numel(), in.numel());
    return start({"all-gather", what, out}, [&](c10d::Backend& backend) {
      torch::Tensor to = out, from = in;
      return backend._allgather_base(to, from);
    });
  }

  Pending reduce_scatter(const torch::Tensor& out, const torch::Tensor& in,
                         std::string_view what) override {
    ZEROTH_CHECK(in.numel() == out.numel() * size(), "out {}, in {}", out.numel(), in.numel());
    return start({"reduce-scatter", what, in}, [&](c10d::Backend& backend) {
      torch::Tensor to = out, from = in;
      return backend._reduce_scatter_base(to, from);
    });
  }

  Pending broadcast(const torch::Tensor& tensor, int root, std::string_view what) override {
    return start({"broadcast", what, tensor}, [&](c10d::Backend& backend) {
      std::vector<torch::Tensor> tensors = {tensor};
      c10d::BroadcastOptions options;
      options.rootRank = root;
      return backend.broadcast(tensors, options);
    });
  }

 private:
  template <typename Issue>
  Pending start(Call call, Issue&& issue) {
    const uint64_t number = ++state_->issued;
    if (state_->options.table) state_->options.table->issue(number, call.describe());
    state_->times.bytes += call.bytes;
    ++state_->times.collectives;
    try {
      return Pending(
          std::make_shared<C10dPending>(state_, issue(*state_->backend), std::move(call), number));
    } catch (const std::exception& cause) {
      state_->fail(call, number, cause);
    }
  }

  std::shared_ptr<State> state_;
};

}  // namespace

std::unique_ptr<Group> make_c10d_group(c10::intrusive_ptr<c10d::Backend> backend,
                                       C10dGroupOptions options) {
  return std::make_unique<C10dGroup>(std::move(backend), std::move(options));
}

}  // namespace zeroth::comm
