#include "comm/c10d_group.h"

#include <torch/csrc/distributed/c10d/Backend.hpp>

#include <utility>
#include <vector>

#include "base/error.h"

namespace zeroth::comm {
namespace {

// What a failure message needs to say about a collective.
struct Call {
  const char* what;
  int64_t elements;
  std::string group;
  int rank;
  int size;
};

[[noreturn]] void fail(const Call& call, const std::exception& cause) {
  std::string reason = cause.what();
  reason = reason.substr(0, reason.find('\n'));
  throw Error("rank {} of {}: {} of {} elements over '{}' failed: {}", call.rank, call.size,
              call.what, call.elements, call.group, reason);
}

class C10dPending final : public Pending::Impl {
 public:
  C10dPending(c10::intrusive_ptr<c10d::Work> work, Call call)
      : work_(std::move(work)), call_(std::move(call)) {}
  void wait() override {
    try {
      work_->wait();
    } catch (const std::exception& cause) {
      fail(call_, cause);
    }
  }

 private:
  c10::intrusive_ptr<c10d::Work> work_;
  Call call_;
};

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

class C10dGroup final : public Group {
 public:
  C10dGroup(c10::intrusive_ptr<c10d::Backend> backend, std::string name)
      : backend_(std::move(backend)), name_(std::move(name)) {}

  int rank() const override { return backend_->getRank(); }
  int size() const override { return backend_->getSize(); }

  Pending all_reduce(const torch::Tensor& tensor, Reduce op) override {
    return start("all-reduce", tensor.numel(), [&] {
      std::vector<torch::Tensor> tensors = {tensor};
      c10d::AllreduceOptions options;
      options.reduceOp = to_c10d(op);
      return backend_->allreduce(tensors, options);
    });
  }

  Pending all_gather(const torch::Tensor& out, const torch::Tensor& in) override {
    ZEROTH_CHECK(out.numel() == in.numel() * size(), "out {}, in {}", out.numel(), in.numel());
    return start("all-gather", out.numel(), [&] {
      torch::Tensor to = out, from = in;
      return backend_->_allgather_base(to, from);
    });
  }

  Pending reduce_scatter(const torch::Tensor& out, const torch::Tensor& in) override {
    ZEROTH_CHECK(in.numel() == out.numel() * size(), "out {}, in {}", out.numel(), in.numel());
    return start("reduce-scatter", in.numel(), [&] {
      torch::Tensor to = out, from = in;
      return backend_->_reduce_scatter_base(to, from);
    });
  }

  Pending broadcast(const torch::Tensor& tensor, int root) override {
    return start("broadcast", tensor.numel(), [&] {
      std::vector<torch::Tensor> tensors = {tensor};
      c10d::BroadcastOptions options;
      options.rootRank = root;
      return backend_->broadcast(tensors, options);
    });
  }

 private:
  template <typename Issue>
  Pending start(const char* what, int64_t elements, Issue&& issue) {
    Call call{what, elements, name_, rank(), size()};
    try {
      return Pending(std::make_shared<C10dPending>(issue(), call));
    } catch (const std::exception& cause) {
      fail(call, cause);
    }
  }

  c10::intrusive_ptr<c10d::Backend> backend_;
  std::string name_;
};

}  // namespace

std::unique_ptr<Group> make_c10d_group(c10::intrusive_ptr<c10d::Backend> backend,
                                       std::string name) {
  return std::make_unique<C10dGroup>(std::move(backend), std::move(name));
}

}  // namespace zeroth::comm
