#include "comm/groups/group.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "comm/collective_info.h"

namespace zeroth::comm {
namespace {

class SoloGroup final : public Group {
 public:
  int rank() const override { return 0; }
  int size() const override { return 1; }
  std::unique_ptr<Group> split(const Partition&) override { return make_solo_group(); }
  CollectiveHandle issue(const Collective& collective) override {
    check_tensor_shapes(collective, size());
    if (collective.out.data_ptr() != collective.in.data_ptr()) collective.out.copy_(collective.in);
    return {};
  }
};

// Issues the collective with copy(its input) and memory(its output) instead of its tensors. wait()
// copies the result, which is on the device that the group accepts, to where it belongs.
template <typename Copy, typename Memory>
CollectiveHandle issue_staged(Group& group, const Collective& collective, const Copy& copy,
                              const Memory& memory) {
  Collective staged = collective;
  staged.in = copy(collective.in);
  staged.out = collective.out.is_same(collective.in) ? staged.in : memory(collective.out);
  // A copy to the CPU is complete on return. The allocator of pinned memory keeps it until the
  // stream has read it.
  return make_handle(
      [pending = group.issue(staged), result = staged.out, out = collective.out]() mutable {
        pending.wait();
        out.copy_(result, /*non_blocking=*/!out.is_cpu());
      },
      [] { return false; });
}

torch::Tensor pinned(const torch::Tensor& like) {
  return at::empty(like.sizes(), like.options().device(torch::kCPU).pinned_memory(true));
}

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
    const auto to_cpu = [](const torch::Tensor& tensor) {
      return pinned(tensor).copy_(tensor);  // returns when the copy is complete
    };
    return issue_staged(*cpu_, collective, to_cpu, pinned);
  }

 private:
  std::unique_ptr<Group> cpu_;
};

class DeviceStagedGroup final : public Group {
 public:
  DeviceStagedGroup(Group& group, torch::Device device) : group_(group), device_(device) {}

  int rank() const override { return group_.rank(); }
  int size() const override { return group_.size(); }

  CollectiveHandle issue(const Collective& collective) override {
    return issue_staged(
        group_, collective,
        [this](const torch::Tensor& tensor) {
          return tensor.to(device_, /*non_blocking=*/false, /*copy=*/true);
        },
        [this](const torch::Tensor& like) { return at::empty_like(like, device_); });
  }

  std::unique_ptr<Group> split(const Partition& partition) override {
    return group_.split(partition);
  }

 private:
  Group& group_;
  torch::Device device_;
};

}  // namespace

const std::vector<int>& Partition::part_of(int rank) const {
  const auto part = std::find_if(parts.begin(), parts.end(), [&](const std::vector<int>& ranks) {
    return std::find(ranks.begin(), ranks.end(), rank) != ranks.end();
  });
  ZEROTH_CHECK(part != parts.end(), "rank {} is in no part of '{}'", rank, name);
  return *part;
}

std::unique_ptr<Group> make_solo_group() {
  return std::make_unique<SoloGroup>();
}

std::unique_ptr<Group> make_cpu_staged_group(std::unique_ptr<Group> cpu) {
  return std::make_unique<CpuStagedGroup>(std::move(cpu));
}

std::unique_ptr<Group> make_device_staged_group(Group& group, torch::Device device) {
  return std::make_unique<DeviceStagedGroup>(group, device);
}

}  // namespace zeroth::comm
