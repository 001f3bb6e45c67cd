#include "comm/device_staged_group.h"

#include <utility>

namespace zeroth::comm {
namespace {

class DeviceStagedPending final : public Pending::Impl {
 public:
  DeviceStagedPending(Pending pending, torch::Tensor device, torch::Tensor host)
      : pending_(std::move(pending)), device_(std::move(device)), host_(std::move(host)) {}

  void wait() override {
    pending_.wait();
    host_.copy_(device_);  // returns when it is there
  }

 private:
  Pending pending_;
  torch::Tensor device_, host_;
};

class DeviceStagedGroup final : public Group {
 public:
  DeviceStagedGroup(Group& group, torch::Device device) : group_(group), device_(device) {}

  int rank() const override { return group_.rank(); }
  int size() const override { return group_.size(); }

  Pending issue(const Collective& collective) override {
    const bool in_place = collective.out.is_same(collective.in);
    Collective staged = collective;
    staged.in = collective.in.to(device_, /*non_blocking=*/false, /*copy=*/true);
    staged.out = in_place ? staged.in : torch::empty_like(collective.out, device_);
    return Pending(
        std::make_shared<DeviceStagedPending>(group_.issue(staged), staged.out, collective.out));
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
