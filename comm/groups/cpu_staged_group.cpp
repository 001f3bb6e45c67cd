#include "comm/groups/cpu_staged_group.h"

#include <ATen/ops/empty.h>

#include <utility>

namespace zeroth::comm {
namespace {

torch::Tensor pinned(const torch::Tensor& like) {
  return torch::empty(like.sizes(), like.options().device(torch::kCPU).pinned_memory(true));
}

torch::Tensor to_cpu(const torch::Tensor& tensor) {
  return pinned(tensor).copy_(tensor);  // returns when the copy is complete
}

class CpuStagedHandle final : public CollectiveHandle::Impl {
 public:
  CpuStagedHandle(CollectiveHandle pending, torch::Tensor cpu, torch::Tensor device)
      : pending_(std::move(pending)), cpu_(std::move(cpu)), device_(std::move(device)) {}

  // The allocator of pinned memory keeps it until the stream has read it.
  void wait() override {
    pending_.wait();
    device_.copy_(cpu_, /*non_blocking=*/true);
  }

 private:
  CollectiveHandle pending_;
  torch::Tensor cpu_, device_;
};

class CpuStagedGroup final : public Group {
 public:
  explicit CpuStagedGroup(std::unique_ptr<Group> cpu) : cpu_(std::move(cpu)) {}

  int rank() const override { return cpu_->rank(); }
  int size() const override { return cpu_->size(); }
  CommTimes times() const override { return cpu_->times(); }

  std::unique_ptr<Group> split(const Partition& partition) override {
    return make_cpu_staged_group(cpu_->split(partition));
  }

  CollectiveHandle issue(const Collective& collective) override {
    if (collective.out.is_cpu()) return cpu_->issue(collective);
    const bool in_place = collective.out.is_same(collective.in);
    Collective staged = collective;
    staged.in = to_cpu(collective.in);
    staged.out = in_place ? staged.in : pinned(collective.out);
    return CollectiveHandle(
        std::make_shared<CpuStagedHandle>(cpu_->issue(staged), staged.out, collective.out));
  }

 private:
  std::unique_ptr<Group> cpu_;
};

}  // namespace

std::unique_ptr<Group> make_cpu_staged_group(std::unique_ptr<Group> cpu) {
  return std::make_unique<CpuStagedGroup>(std::move(cpu));
}

}  // namespace zeroth::comm
