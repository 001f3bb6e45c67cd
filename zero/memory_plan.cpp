#include "zero/memory_plan.h"

#include <algorithm>
#include <memory>

#include "comm/device_mesh.h"
#include "device/host_link.h"
#include "offload/io_worker.h"
#include "offload/staging.h"
#include "zero/dtype.h"
#include "zero/gradient_offload.h"
#include "zero/offload_plan.h"
#include "zero/optimizer_device.h"
#include "zero/strategy.h"
#include "zero/unit.h"

namespace zeroth::zero {
namespace {

using configs::OffloadDevice;

// A FakeGroup is the group of the first of `size` ranks. Its collectives move nothing and, if there
// are other ranks, last until a caller waits.
class FakeGroup final : public comm::Group {
 public:
  explicit FakeGroup(int size) : size_(size) {}
  int rank() const override { return 0; }
  int size() const override { return size_; }
  comm::CollectiveHandle issue(const comm::Collective&) override {
    return size_ > 1 ? comm::CollectiveHandle(std::make_shared<FakeWork>())
                     : comm::CollectiveHandle();
  }
  std::unique_ptr<comm::Group> split(const comm::Partition& partition) override {
    return std::make_unique<FakeGroup>(static_cast<int>(partition.part_of(0).size()));
  }

 private:
  struct FakeWork final : comm::CollectiveHandle::Impl {
    void wait() override {}
  };

  int size_;
};

// A FakeCopyStream makes copies that move nothing and last until a caller waits.
class FakeCopyStream final : public device::CopyStream {
 public:
  device::StreamEvent record_event() override { return {}; }
  device::StreamEvent copy(const torch::Tensor&, const torch::Tensor&,
                           const std::vector<device::StreamEvent>&) override {
    return std::make_shared<int>();
  }
  void wait_event(const device::StreamEvent&) override {}
  void wait(const device::StreamEvent&) override {}
  bool is_complete(const device::StreamEvent& point) override { return !point; }
  void drain() noexcept override {}
};

// Returns the same units with parameters that have no memory and belong to no block.
UnitPlan make_meta_copy(const UnitPlan& plan) {
  UnitPlan copy = plan;
  for (Unit& unit : copy.units) {
    for (size_t i = 0; i < unit.params.size(); ++i) {
      unit.params[i] =
          at::empty(unit.layout.slots()[i].shape(), torch::TensorOptions(torch::kMeta));
    }
  }
  return copy;
}

class MemoryPlanner {
 public:
  MemoryPlanner(const UnitPlan& plan, const configs::Config& config, torch::DeviceType device)
      : separate_device_(device != torch::kCPU),
        plan_(plan),
        config_(config),
        offload_plan_(assign_placement(plan_, config, separate_device_)) {}

  MemoryPlan make(const StepEstimate& step) {
    add_parameters();
    add_optimizer();
    add_offload(offload_plan_.parameters);
    add_offload(offload_plan_.updates);
    add_step(step);
    add_loading();
    result_.measuring = calibration_bytes(offload_plan_);
    return result_;
  }

 private:
  static void put(TierBytes& bytes, OffloadDevice place, bool pinned, int64_t count) {
    switch (place) {
      case OffloadDevice::kNone:
        bytes.device += count;
        return;
      case OffloadDevice::kCpu:
        (pinned ? bytes.pinned : bytes.host) += count;
        return;
      case OffloadDevice::kNvme:
        bytes.file += offload::file_aligned(count);
    }
  }

  void add_parameters() {
    const int64_t width = element_bytes(offload_plan_.working);
    for (size_t unit = 0; unit < plan_.units.size(); ++unit) {
      const OffloadPlan::ShardPlacement& released = offload_plan_.units[unit].parameters;
      put(result_.parameters, released.device, offload_plan_.parameters.pinned,
          released.elements * width);
      const Unit& own = plan_.units[unit];
      const int64_t own_width = element_bytes(own.dtype(offload_plan_.working));
      if (released.elements == 0) {
        result_.parameters.device += own.full_range().size() * own_width;
      } else if (const int size = hpz_partition_size(plan_, config_); size > 1) {
        // The secondary shard.
        result_.parameters.device +=
            own.layout.shard_numel() * (plan_.shape[comm::MeshDim::kDp] / size) * own_width;
      }
    }
  }

  void add_optimizer() {
    for (const OffloadPlan::UnitPlacement& unit : offload_plan_.units) {
      const auto& [elements, place] = unit.updates;
      const bool pinned = offload_plan_.updates.pinned;
      if (unit.arrays.master)
        put(result_.masters, place, pinned, elements * unit.arrays.master_bytes());
      for (const auto& state : unit.arrays.states) {
        put(result_.states, place, pinned, state.entries(elements) * element_bytes(state.dtype));
      }
    }
  }

  // Adds a file's buffers; and on the device the chunks in use, the prefetched ones and two
  // gradients' chunks.
  void add_offload(const TensorOffload& offloaded) {
    put(result_.file_buffers, offload_plan_.host, offloaded.pinned,
        offloaded.buffers * offloaded.buffer_bytes);
    result_.staging.device += (offloaded.tiles_in_use + offloaded.depth + 2) * offloaded.tile_bytes;
  }

  // Adds saved inputs. If they are offloaded to the CPU, one stays and two more are in flight.
  void add_saved_inputs(const StepEstimate& step) {
    const bool leave = config_.recompute.cpu_checkpointing && separate_device_;
    const int64_t left = leave ? std::max<int64_t>(step.saved_inputs - 1, 0) : 0;
    const int64_t here = step.saved_inputs - std::max<int64_t>(left - 2, 0);
    result_.saved_inputs = {.device = here * step.saved_input_bytes,
                            .pinned = left * step.saved_input_bytes};
  }

  void add_step(const StepEstimate& step) {
    const UnitPlan dry = make_meta_copy(plan_);
    comm::DeviceMesh mesh(torch::kMeta, std::make_unique<FakeGroup>(plan_.shape.ranks()));
    mesh.set_shape(plan_.shape);
    add_gathered(dry, mesh, step.accesses);
    add_saved_inputs(step);
    result_.activations.device = step.activation_bytes;
    add_gradients(dry, mesh, step.backward_order);
  }

  // Adds a step's gather pool. Runs the gathers on tensors without memory, as add_gradients() runs
  // the reductions.
  void add_gathered(const UnitPlan& dry, const comm::DeviceMesh& mesh,
                    const std::vector<size_t>& accesses) {
    // Without secondary shards.
    ParamStore store(dry, mesh, torch::kMeta, {.dtype = offload_plan_.working});
    GatherPrefetcher ahead(dry, gather_limits(plan_, config_, separate_device_));
    ahead.set_access_order(accesses);
    const std::vector<PendingUpdate> none(dry.units.size(), PendingUpdate::kNone);
    for (const size_t block : accesses) {
      const std::vector<size_t> units = ahead.access(block, {store.present(), none});
      store.release_all_but(units);
      for (const size_t unit : units) store.begin_gather(unit);
      const Lease lease = store.lease(block);
    }
    result_.gathered.device = store.buffers().pooled_bytes();
  }

  void add_gradients(const UnitPlan& dry, const comm::DeviceMesh& mesh,
                     const std::vector<size_t>& backward_order) {
    std::shared_ptr<GradientOffload> gradient_offload;
    if (offload_plan_.offload_gradients) {
      const auto link = std::make_shared<device::HostLink>(
          device::HostLink{device::HostMemory(), std::make_unique<FakeCopyStream>()});
      gradient_offload =
          std::make_shared<GradientOffload>(link, GradientOffloadOptions{.host = torch::kMeta});
    }
    const auto grads = make_reducer(dry, config_, offload_plan_, mesh, gradient_offload);
    grads->set_backward_order(backward_order);
    for (const size_t block : backward_order) {
      grads->open(block);
      grads->add(block);
    }
    grads->finish();
    result_.gradients.device = grads->persistent_bytes() - grads->buffer_bytes();
    result_.gradient_buffers.device = grads->buffer_bytes();
    if (!gradient_offload) return;
    const bool pinned = offload_plan_.link_pinned;
    put(result_.gradients, offload_plan_.host, pinned, gradient_offload->shard_bytes());
    put(result_.gradient_buffers, offload_plan_.host, pinned, gradient_offload->buffer_bytes());
    put(result_.staging, offload_plan_.host, pinned,
        offload::Staging::kMaxBuffers * offload_plan_.max_updated_elements *
            element_bytes(offload_plan_.working));
  }

  // Adds the buffers through which values are loaded. Masters are read in fp32; frozen values are
  // read into their place, or for a GPU into memory of their own dtype.
  void add_loading() {
    int64_t trained = 0, frozen = 0;
    for (const Unit& unit : plan_.units) {
      const int64_t width =
          element_bytes(unit.trainable ? torch::kFloat : unit.dtype(offload_plan_.working));
      int64_t& largest = unit.trainable ? trained : frozen;
      largest = std::max(largest, unit.owned_range().size() * width);
    }
    result_.loading.device = trained;
    if (separate_device_) result_.loading.host = std::max(trained, frozen);
  }

  bool separate_device_;  // CPU memory is not the device's
  UnitPlan plan_;
  const configs::Config& config_;
  OffloadPlan offload_plan_;
  MemoryPlan result_;
};

TierBytes max_of(const TierBytes& a, const TierBytes& b) {
  return {.device = std::max(a.device, b.device),
          .pinned = std::max(a.pinned, b.pinned),
          .host = std::max(a.host, b.host),
          .file = std::max(a.file, b.file)};
}

}  // namespace

TierBytes& TierBytes::operator+=(const TierBytes& other) {
  device += other.device;
  pinned += other.pinned;
  host += other.host;
  file += other.file;
  return *this;
}

TierBytes MemoryPlan::peak() const {
  // allocated from the first loaded value to the end
  const TierBytes persistent = runtime + gpu_runtime + parameters + masters + file_buffers;
  const TierBytes before_training =
      max_of(runtime + gpu_runtime + held + measuring, held + persistent + loading);
  return max_of(before_training, persistent + gathered + gradients + gradient_buffers + states +
                                     staging + saved_inputs + saving + activations);
}

MemoryPlan plan_memory(const UnitPlan& plan, const configs::Config& config,
                       torch::DeviceType device, const StepEstimate& step) {
  return MemoryPlanner(plan, config, device).make(step);
}

}  // namespace zeroth::zero
