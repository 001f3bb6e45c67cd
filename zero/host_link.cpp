#include "zero/host_link.h"

#include "comm/gpu.h"

namespace zeroth::zero {
namespace {

class GpuLocker final : public offload::PageLocker {
 public:
  std::string lock(std::span<std::byte> memory) override { return gpu_.lock_pages(memory); }
  void unlock(std::span<std::byte> memory) noexcept override { gpu_.unlock_pages(memory); }

 private:
  comm::Gpu& gpu_ = comm::load_gpu();
};

}  // namespace

std::shared_ptr<offload::HostLink> make_host_link(torch::Device device, bool pin_memory) {
  std::shared_ptr<offload::PageLocker> locker;
  if (pin_memory && !device.is_cpu()) locker = std::make_shared<GpuLocker>();
  return std::make_shared<offload::HostLink>(
      offload::HostLink{offload::HostMemory(std::move(locker)), offload::make_copy_stream(device)});
}

}  // namespace zeroth::zero
