// Copies between the GPU and the host on streams of their own, and what rests on them.
#include <c10/core/impl/VirtualGuardImpl.h>
#include <doctest/doctest.h>
#include <torch/torch.h>

#include "base/error.h"
#include "device/host_link.h"
#include "offload/file_store.h"
#include "offload/shard_store.h"
#include "offload/staging.h"
#include "tests/support/temp_folder.h"
#include "zero/gradient_offload.h"
#include "zero/optimizer_device.h"

namespace zeroth::offload::offload_test {
namespace {

using torch::Tensor;

const torch::Device kGpu(torch::kCUDA, 0);

std::shared_ptr<device::HostLink> gpu_link() {
  return device::make_host_link(kGpu, /*pin_memory=*/true);
}

struct RefusingPinner final : device::PagePinner {
  std::string pin(std::span<std::byte>) override { return "the test says no"; }
  void unpin(std::span<std::byte>) noexcept override {}
};

// What keeps a GPU busy behind the host. A simulated one is late, or is not, as it pleases.
#ifdef ZEROTH_SIMULATED_GPU
constexpr bool kLate = false;
constexpr int64_t kBusy = 16;
#else
constexpr bool kLate = true;
constexpr int64_t kBusy = 4096;
#endif

// Keeps the current stream busy for some milliseconds; returns a value that follows from it.
Tensor busy() {
  Tensor x = torch::full({kBusy, kBusy}, 1.0 / kBusy, torch::device(kGpu));
  for (int i = 0; i < 8; ++i) x = at::mm(x, x);
  return x.sum() * 0;
}

// Three steps of an update with two arrays, tile by tile, while the stream is behind the host.
void run_updates(ShardStore& store, int64_t numel) {
  constexpr int64_t kTile = 16 * kChunkAlignment;
  for (int step = 1; step <= 3; ++step) {
    std::vector<ShardChunk> order;
    for (int64_t begin = 0; begin < numel; begin += kTile) {
      const int64_t end = std::min(begin + kTile, numel);
      order.push_back({0, begin, end});
      order.push_back({1, begin, end});
    }
    store.prefetch(order);
    const Tensor zero = busy();
    for (size_t i = 0; i < order.size(); i += 2) {
      const ChunkLease moment = store.acquire(order[i], kGpu, Access::kReadWrite);
      const ChunkLease master = store.acquire(order[i + 1], kGpu, Access::kReadWrite);
      const Tensor gradient =
          torch::arange(order[i].begin, order[i].end, torch::device(kGpu).dtype(torch::kFloat))
              .mul_(1e-3 * step)
              .sin_() +
          zero;
      moment.tensor().lerp_(gradient, 0.1);
      master.tensor().sub_(moment.tensor() / (gradient.abs() + 1));
    }
  }
  store.flush();
}

void check_as_on_device(std::unique_ptr<ShardStore> store) {
  constexpr int64_t kNumel = 100 * kChunkAlignment + 77;
  const auto on_device = make_memory_store(kGpu);
  for (int shard = 0; shard < 2; ++shard) {
    store->add(kNumel, torch::kFloat);
    on_device->add(kNumel, torch::kFloat);
  }
  run_updates(*on_device, kNumel);
  run_updates(*store, kNumel);
  for (const size_t shard : {0, 1}) {
    // Tile by tile, as a file wants it.
    for (int64_t begin = 0; begin < kNumel; begin += 16 * kChunkAlignment) {
      const int64_t end = std::min(begin + 16 * kChunkAlignment, kNumel);
      const ChunkLease cpu_lease = store->acquire({shard, begin, end}, torch::kCPU, Access::kRead);
      const ChunkLease lies = on_device->acquire({shard, begin, end}, kGpu, Access::kRead);
      CHECK(at::equal(cpu_lease.tensor(), lies.tensor().to(torch::kCPU)));
    }
  }
}

}  // namespace

TEST_CASE("host memory is locked in whole pages, copies from and to it, and is given back") {
  const auto link = gpu_link();
  {
    const Tensor host = link->memory.zeros(3'000'001, torch::kFloat);
    CHECK(link->memory.notes().empty());
    CHECK(link->memory.pinned_bytes() == link->memory.bytes());
    CHECK(link->memory.bytes() < 12'000'004 + 4096);
    CHECK(host.is_pinned());
    const Tensor device = torch::arange(3'000'001, torch::device(kGpu).dtype(torch::kFloat));
    link->copies->wait(link->copies->copy(host, device, {link->copies->record_event()}));
    CHECK(at::equal(host, device.to(torch::kCPU)));
  }
  CHECK(link->memory.pinned_bytes() == 0);
  CHECK(link->copies->stats().bytes_to_host == 12'000'004);
  CHECK(link->copies->stats().to_host_s > 0);
}

TEST_CASE("a copy waits for what it is told to wait for, and the current stream for it") {
  const auto link = gpu_link();
  device::CopyStream& copies = *link->copies;
  const Tensor host = link->memory.zeros(1 << 22, torch::kFloat);
  const Tensor device = torch::zeros({1 << 22}, torch::device(kGpu));
  const Tensor zero = busy();
  device.add_(zero + 3);  // long after the next line
  const device::StreamEvent out = copies.copy(host, device, {copies.record_event()});
  if (kLate) CHECK_FALSE(copies.is_complete(out));
  copies.wait_event(out);
  device.fill_(7);  // behind the copy
  copies.wait(out);
  CHECK(at::equal(host, torch::full({1 << 22}, 3.0)));
  host.fill_(5);
  const device::StreamEvent in = copies.copy(device, host, {copies.record_event()});
  copies.wait_event(in);
  CHECK(device.sum().item<double>() == 5.0 * (1 << 22));
  if (kLate) CHECK(copies.stats().waited_s > 0);
}

TEST_CASE("states that stream through the GPU have the bits of states that lie there") {
  const auto link = gpu_link();
  check_as_on_device(make_staging_store(make_cpu_store(link), link, kGpu, {.depth = 4}));
  check_as_on_device(make_staging_store(make_cpu_store(link), link, kGpu, {.depth = 1}));
}

TEST_CASE("states in a file stream through the GPU with the same bits") {
  const auto link = gpu_link();
  const TempFolder directory;
  constexpr size_t kBuffers = 8;
  auto file = make_file_store({.place = {directory.path(), "test", 0},
                               .aio = {},
                               .buffers = kBuffers,
                               .buffer_bytes = 16 * kChunkAlignment * 4});
  check_as_on_device(
      make_staging_store(std::move(file), link, kGpu, {.depth = 2, .inner_leases = kBuffers - 2}));
}

TEST_CASE("where memory cannot be locked all is right, and told once") {
  const auto link = std::make_shared<device::HostLink>(device::HostLink{
      device::HostMemory(std::make_shared<RefusingPinner>()), device::make_copy_stream(kGpu)});
  auto store = make_cpu_store(link);
  check_as_on_device(make_staging_store(std::move(store), link, kGpu, {.depth = 4}));
  CHECK(link->memory.notes().size() == 1);
  CHECK(link->memory.pinned_bytes() == 0);
}

TEST_CASE("what the host writes between two uses is what the GPU reads, in any order") {
  const auto link = gpu_link();
  const auto store =
      make_staging_store(make_cpu_store(link), link, kGpu, {.depth = 2, .expected = Access::kRead});
  constexpr int64_t kNumel = 1 << 20;
  for (int shard = 0; shard < 6; ++shard) store->add(kNumel, torch::kBFloat16);
  for (int step = 1; step <= 3; ++step) {
    std::vector<ShardChunk> reads;
    for (size_t shard = 0; shard < 6; ++shard) reads.push_back({shard, 0, kNumel});
    store->prefetch(reads);
    for (const ShardChunk& tile : reads) {
      const double value = static_cast<double>(tile.shard) + step;
      store->acquire(tile, torch::kCPU, Access::kWrite).tensor().fill_(value);
      const Tensor zero = busy();
      const ChunkLease lease = store->acquire(tile, kGpu, Access::kRead);
      const Tensor sum = lease.tensor().to(torch::kDouble).sum() + zero;
      CHECK(sum.item<double>() == value * kNumel);
    }
  }
}

TEST_CASE("the host has a tile when the GPU's copies of it have ended") {
  const auto link = gpu_link();
  const auto store = make_staging_store(make_cpu_store(link), link, kGpu);
  constexpr int64_t kNumel = 1 << 20;
  const ShardChunk tile{store->add(kNumel, torch::kFloat), 0, kNumel};
  store->acquire(tile, kGpu, Access::kReadWrite).tensor().add_(busy() + 3);
  {
    const ChunkLease lease = store->acquire(tile, torch::kCPU, Access::kReadWrite);
    CHECK(lease.tensor().sum().item<double>() == 3.0 * kNumel);
    lease.tensor().fill_(5);
  }
  const Tensor zero = busy();
  const Tensor sum = store->acquire(tile, kGpu, Access::kRead).tensor().sum() + zero;
  store->acquire(tile, torch::kCPU, Access::kWrite).tensor().fill_(7);
  CHECK(sum.item<double>() == 5.0 * kNumel);
}

TEST_CASE("the host computes on tensors of the GPU") {
  const auto link = gpu_link();
  Staging staging(link, kGpu);
  const Tensor stored = torch::ones({8, 1 << 20}, torch::device(kGpu));
  const device::StreamEvent idle = staging.copies().record_event();
  const Tensor zero = busy();  // which the leases do not wait for
  for (int64_t row = 0; row < 8; ++row) {
    const ChunkLease lease = staging.lease(stored[row], torch::kCPU, Access::kReadWrite, idle);
    CHECK(lease.tensor().is_cpu());
    lease.tensor().mul_(row);
  }
  const Tensor sums = stored.sum(1).to(torch::kCPU);
  for (int64_t row = 0; row < 8; ++row) {
    CHECK(sums[row].item<double>() == static_cast<double>(row) * (1 << 20));
  }
  const Tensor host = torch::arange(1000, torch::kFloat);
  const ChunkLease there = staging.lease(host, kGpu, Access::kRead, {});
  CHECK(at::equal(there.tensor().to(torch::kCPU), host));
}

TEST_CASE("gradients that land on the host have the bits of those that stay") {
  const auto link = gpu_link();
  zero::GradientOffload gradient_offload(link, {.chunk_bytes = 1 << 20});
  for (const auto wire : {torch::kBFloat16, torch::kHalf, torch::kFloat}) {
    constexpr int64_t kNumel = 5'000'001;
    const Tensor host = gradient_offload.allocate_shard(kNumel, torch::kFloat);
    const Tensor device = torch::empty({kNumel}, torch::device(kGpu));
    Tensor gradient = torch::empty({kNumel}, torch::device(kGpu).dtype(wire));
    for (int micro = 0; micro < 3; ++micro) {
      const Tensor zero = busy();
      gradient.copy_(torch::arange(kNumel, torch::device(kGpu)).to(torch::kFloat).mul(1.7).sin() *
                         (micro + 1) +
                     zero);
      micro == 0 ? device.copy_(gradient) : device.add_(gradient);
      gradient_offload.begin_gradient();
      link->copies->wait_event(
          gradient_offload.start_copy(gradient, host, micro > 0, link->copies->record_event()));
      gradient.zero_();
    }
    gradient_offload.finish();
    CHECK(at::equal(host, device.to(torch::kCPU)));
  }
  CHECK(gradient_offload.buffer_bytes() > 0);
  CHECK(gradient_offload.buffer_bytes() <= 40 << 20);  // two gradients in fp32
}

TEST_CASE("the link is measured at more than a slow bus gives") {
  const auto link = gpu_link();
  const zero::UpdateRates rates = zero::measure_link(*link, kGpu);
  CHECK(rates.to_device_bytes_per_s > 1e9);
  CHECK(rates.to_host_bytes_per_s > 1e9);
  CHECK(rates.to_device_bytes_per_s < 2e12);
}

}  // namespace zeroth::offload::offload_test
