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

  std::unique_ptr<Group> split(const Partition& partition) override {
    return make_host_staged_group(host_->split(partition));
  }

  Pending issue(const Collective& collective) override {
    if (collective.out.is_cpu()) return host_->issue(collective);
    const bool in_place = collective.out.is_same(collective.in);
    Collective staged = collective;
    staged.in = to_host(collective.in);
    staged.out = in_place ? staged.in : pinned(collective.out);
    return Pending(
        std::make_shared<StagedPending>(host_->issue(staged), staged.out, collective.out));
  }

 private:
  std::unique_ptr<Group> host_;
};

}  // namespace

std::unique_ptr<Group> make_host_staged_group(std::unique_ptr<Group> host) {
  return std::make_unique<HostStagedGroup>(std::move(host));
}

}  // namespace zeroth::comm
