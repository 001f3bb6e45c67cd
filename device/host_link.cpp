#include "device/host_link.h"

#include "device/gpu.h"

namespace zeroth::device {
namespace {

class GpuLocker final : public PageLocker {
 public:
  std::string lock(std::span<std::byte> memory) override { return gpu_.lock_pages(memory); }
  void unlock(std::span<std::byte> memory) noexcept override { gpu_.unlock_pages(memory); }

 private:
  Gpu& gpu_ = load_gpu();
};

}  // namespace

std::shared_ptr<HostLink> make_host_link(torch::Device device, bool pin_memory) {
  std::shared_ptr<PageLocker> locker;
  if (pin_memory && !device.is_cpu()) locker = std::make_shared<GpuLocker>();
  return std::make_shared<HostLink>(
      HostLink{HostMemory(std::move(locker)), make_copy_stream(device)});
}

}  // namespace zeroth::device
