#include "comm/groups/device_staged_group.h"

#include <utility>

namespace zeroth::comm {
namespace {

class DeviceStagedHandle final : public CollectiveHandle::Impl {
 public:
  DeviceStagedHandle(CollectiveHandle pending, torch::Tensor device, torch::Tensor cpu)
      : pending_(std::move(pending)), device_(std::move(device)), cpu_(std::move(cpu)) {}

  void wait() override {
    pending_.wait();
    cpu_.copy_(device_);  // returns when the copy is complete
  }

 private:
  CollectiveHandle pending_;
  torch::Tensor device_, cpu_;
};

class DeviceStagedGroup final : public Group {
 public:
  DeviceStagedGroup(Group& group, torch::Device device) : group_(group), device_(device) {}

  int rank() const override { return group_.rank(); }
  int size() const override { return group_.size(); }

  CollectiveHandle issue(const Collective& collective) override {
    const bool in_place = collective.out.is_same(collective.in);
    Collective staged = collective;
    staged.in = collective.in.to(device_, /*non_blocking=*/false, /*copy=*/true);
    staged.out = in_place ? staged.in : torch::empty_like(collective.out, device_);
    return CollectiveHandle(
        std::make_shared<DeviceStagedHandle>(group_.issue(staged), staged.out, collective.out));
  }

  std::unique_ptr<Group> split(const Partition& partition) override {
    return group_.split(partition);
  }

 private:
  Group& group_;
  torch::Device device_;
};

}  // namespace

std::unique_ptr<Group> make_device_staged_group(Group& group, torch::Device device) {
  return std::make_unique<DeviceStagedGroup>(group, device);
}

}  // namespace zeroth::comm
