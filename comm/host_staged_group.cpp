#include "comm/host_staged_group.h"

#include <ATen/ops/empty.h>

#include <utility>

namespace zeroth::comm {
namespace {

torch::Tensor pinned(const torch::Tensor& like) {
  return torch::empty(like.sizes(), like.options().device(torch::kCPU).pinned_memory(true));
}

torch::Tensor to_host(const torch::Tensor& tensor) {
  return pinned(tensor).copy_(tensor);  // returns when it is there
}

class StagedPending final : public Pending::Impl {
 public:
  StagedPending(Pending pending, torch::Tensor host, torch::Tensor device)
      : pending_(std::move(pending)), host_(std::move(host)), device_(std::move(device)) {}

  // The allocator of pinned memory keeps it until the stream has read it.
  void wait() override {
    pending_.wait();
    device_.copy_(host_, /*non_blocking=*/true);
  }

 private:
  Pending pending_;
  torch::Tensor host_, device_;
};

class HostStagedGroup final : public Group {
 public:
  explicit HostStagedGroup(std::unique_ptr<Group> host) : host_(std::move(host)) {}

  int rank() const override { return host_->rank(); }
  int size() const override { return host_->size(); }
  CommTimes times() const override { return host_->times(); }

  Pending all_reduce(const torch::Tensor& tensor, Reduce op, std::string_view what) override {
    if (tensor.is_cpu()) return host_->all_reduce(tensor, op, what);
    const torch::Tensor staged = to_host(tensor);
    return back(host_->all_reduce(staged, op, what), staged, tensor);
  }

  Pending all_gather(const torch::Tensor& out, const torch::Tensor& in,
                     std::string_view what) override {
    if (out.is_cpu()) return host_->all_gather(out, in, what);
    const torch::Tensor staged = pinned(out);
    return back(host_->all_gather(staged, to_host(in), what), staged, out);
  }

  Pending reduce_scatter(const torch::Tensor& out, const torch::Tensor& in,
                         std::string_view what) override {
    if (out.is_cpu()) return host_->reduce_scatter(out, in, what);
    const torch::Tensor staged = pinned(out);
    return back(host_->reduce_scatter(staged, to_host(in), what), staged, out);
  }

  Pending broadcast(const torch::Tensor& tensor, int root, std::string_view what) override {
    if (tensor.is_cpu()) return host_->broadcast(tensor, root, what);
    const torch::Tensor staged = to_host(tensor);
    return back(host_->broadcast(staged, root, what), staged, tensor);
  }

 private:
  static Pending back(Pending pending, torch::Tensor host, torch::Tensor device) {
    return Pending(
        std::make_shared<StagedPending>(std::move(pending), std::move(host), std::move(device)));
  }

  std::unique_ptr<Group> host_;
};

}  // namespace

std::unique_ptr<Group> make_host_staged_group(std::unique_ptr<Group> host) {
  return std::make_unique<HostStagedGroup>(std::move(host));
}

}  // namespace zeroth::comm
