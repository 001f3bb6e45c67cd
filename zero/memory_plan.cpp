#include "zero/memory_plan.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <initializer_list>
#include <memory>

#include "comm/mesh.h"
#include "offload/file_lane.h"
#include "offload/staging.h"
#include "zero/dtype.h"
#include "zero/grad_landing.h"
#include "zero/rest_plan.h"
#include "zero/strategy.h"
#include "zero/updater.h"

namespace zeroth::zero {
namespace {

using configs::RestingPlace;

// The first of `size` ranks, whose collectives move nothing and, if there are others, last until
// somebody waits.
class DryGroup final : public comm::Group {
 public:
  explicit DryGroup(int size) : size_(size) {}
  int rank() const override { return 0; }
  int size() const override { return size_; }
  comm::Pending issue(const comm::Collective&) override {
    return size_ > 1 ? comm::Pending(std::make_shared<Dry>()) : comm::Pending();
  }
  std::unique_ptr<comm::Group> split(const comm::Partition& partition) override {
    return std::make_unique<DryGroup>(static_cast<int>(partition.part_of(0).size()));
  }

 private:
  struct Dry final : comm::Pending::Impl {
    void wait() override {}
  };

  int size_;
};

// Copies that move nothing and last until somebody waits.
class DryCopies final : public device::CopyStream {
 public:
  device::Point now() override { return {}; }
  device::Point behind(const std::function<void()>& wait) override {
    wait();
    return {};
  }
  device::Point copy(const torch::Tensor&, const torch::Tensor&,
                     const std::vector<device::Point>&) override {
    return std::make_shared<int>();
  }
  void order(const device::Point&) override {}
  void wait(const device::Point&) override {}
  bool reached(const device::Point& point) override { return !point; }
  void drain() noexcept override {}
};

// The same units with parameters that have no memory and belong to no block.
UnitPlan hollow(const UnitPlan& plan) {
  UnitPlan copy = plan;
  for (Unit& unit : copy.units) {
    for (size_t i = 0; i < unit.params.size(); ++i) {
      unit.params[i] = at::empty(unit.layout.slots()[i].shape, torch::TensorOptions(torch::kMeta));
    }
  }
  return copy;
}

// What the pools of a step come to is found by running its gathers and reductions on tensors
// without memory.
int64_t gathered_bytes(const UnitPlan& plan, const GatherLimits& limits, torch::Dtype dtype,
                       const std::vector<size_t>& visits, const comm::Mesh& mesh) {
  ParamStore store(plan, mesh, torch::kMeta, {.dtype = dtype});  // near shares are counted apart
  GatherAhead ahead(plan, limits);
  ahead.expect(visits);
  const std::vector<Update> none(plan.units.size(), Update::kNone);
  for (const size_t block : visits) {
    const std::vector<size_t> units = ahead.visit(block, {store.present(), none});
    store.release_all_but(units);
    for (const size_t unit : units) store.begin_gather(unit);
    const Lease lease = store.lease(block);
  }
  return store.buffers().pooled_bytes();
}

struct GradientBytes {
  int64_t kept = 0, buffers = 0;  // on the device
  int64_t kept_on_host = 0, host_buffers = 0;
};

GradientBytes gradient_bytes(const UnitPlan& plan, const configs::Config& config,
                             const RestPlan& rest, const comm::Mesh& mesh) {
  std::shared_ptr<GradLanding> landing;
  if (rest.gradients_land) {
    const auto link = std::make_shared<device::HostLink>(
        device::HostLink{device::HostMemory(), std::make_unique<DryCopies>()});
    landing = std::make_shared<GradLanding>(link, GradLanding::Options{.host = torch::kMeta});
  }
  const auto grads = make_reducer(plan, config, rest, mesh, landing);
  const int64_t micros = std::min<int64_t>(config.batch.accumulation_steps, 2);
  for (int64_t micro = 0; micro < micros; ++micro) {
    for (size_t block = plan.block_units.size(); block-- > 0;) {
      grads->open(block);
      grads->add(block, micro + 1 == micros);
    }
  }
  grads->finish();
  return {.kept = grads->resting_bytes() - grads->buffer_bytes(),
          .buffers = grads->buffer_bytes(),
          .kept_on_host = landing ? landing->shard_bytes() : 0,
          .host_buffers = landing ? landing->buffer_bytes() : 0};
}

class MemoryPlanner {
 public:
  MemoryPlanner(const UnitPlan& plan, const configs::Config& config, torch::DeviceType device)
      : apart_(device != torch::kCPU),
        plan_(plan),
        config_(config),
        rest_(settle(plan_, config, apart_)) {}

  MemoryPlan make(const StepOutline& step) {
    add_parameters();
    add_optimizer();
    add_away(rest_.parameters);
    add_away(rest_.updates);
    add_step(step);
    add_loading();
    result_.measuring = measuring_bytes(rest_);
    return result_;
  }

 private:
  static void put(PlaceBytes& bytes, RestingPlace place, bool pinned, int64_t count) {
    switch (place) {
      case RestingPlace::kDevice:
        bytes.device += count;
        return;
      case RestingPlace::kCpu:
        (pinned ? bytes.pinned : bytes.host) += count;
        return;
      case RestingPlace::kNvme:
        bytes.file += offload::on_file(count);
    }
  }

  void add_parameters() {
    const int64_t width = width_of(rest_.working);
    for (size_t unit = 0; unit < plan_.units.size(); ++unit) {
      const RestPlan::Rest& released = rest_.units[unit].parameters;
      put(result_.parameters, released.place, rest_.parameters.pinned, released.elements * width);
      if (released.elements > 0) {
        const int near = near_ranks(plan_, config_);
        if (near > 1) result_.parameters.device += near_elements(plan_.units[unit], near) * width;
        continue;
      }
      result_.parameters.device += plan_.units[unit].layout.numel() * width;
    }
  }

  // That near ranks keep beside their shares.
  int64_t near_elements(const Unit& unit, int near) const {
    return unit.layout.shard_numel() * (plan_.shape[comm::Axis::kData] / near);
  }

  void add_optimizer() {
    const UpdateArrays& arrays = rest_.arrays;
    for (const RestPlan::UnitRest& unit : rest_.units) {
      const auto& [elements, place] = unit.updates;
      const bool pinned = rest_.updates.pinned;
      if (arrays.master) put(result_.masters, place, pinned, elements * width_of(*arrays.master));
      for (int64_t i = 0; i < arrays.states; ++i) {
        put(result_.states, place, pinned, elements * width_of(arrays.state));
      }
    }
  }

  // A file's buffers; and on the device what is used and what is next, and two gradients' tiles.
  void add_away(const AwayPlan& away) {
    put(result_.file_buffers, rest_.host, away.pinned, away.buffers * away.buffer_bytes);
    result_.staging.device += (away.tiles_in_use + away.depth + 2) * away.tile_bytes;
  }

  // Of those that leave for the host one stays, and two more are on their way.
  void add_kept_inputs(const StepOutline& step) {
    const bool leave = config_.recompute.cpu_checkpointing && apart_;
    const int64_t left = leave ? std::max<int64_t>(step.kept_inputs - 1, 0) : 0;
    const int64_t here = step.kept_inputs - std::max<int64_t>(left - 2, 0);
    result_.kept_inputs = {.device = here * step.kept_input_bytes,
                           .pinned = left * step.kept_input_bytes};
  }

  void add_step(const StepOutline& step) {
    const UnitPlan dry = hollow(plan_);
    comm::Mesh mesh(torch::kMeta, std::make_unique<DryGroup>(plan_.shape.ranks()));
    mesh.arrange(plan_.shape);
    result_.gathered.device = gathered_bytes(dry, gather_limits(plan_, config_, apart_),
                                             rest_.working, step.visits, mesh);
    add_kept_inputs(step);
    result_.activations.device = step.activation_bytes;
    const GradientBytes gradients = gradient_bytes(dry, config_, rest_, mesh);
    result_.gradients.device = gradients.kept;
    result_.gradient_buffers.device = gradients.buffers;
    if (!rest_.gradients_land) return;
    const bool pinned = rest_.link_pinned;
    put(result_.gradients, rest_.host, pinned, gradients.kept_on_host);
    put(result_.gradient_buffers, rest_.host, pinned, gradients.host_buffers);
    put(result_.staging, rest_.host, pinned,
        offload::Staging::kMost * rest_.most_updated * width_of(rest_.working));
  }

  void add_loading() {
    int64_t largest = 0;
    for (const Unit& unit : plan_.units) largest = std::max(largest, unit.share().size());
    result_.loading.device = largest * static_cast<int64_t>(sizeof(float));
    if (apart_) result_.loading.host = result_.loading.device;
  }

  bool apart_;  // the host's memory is not the device's
  UnitPlan plan_;
  const configs::Config& config_;
  RestPlan rest_;
  MemoryPlan result_;
};

PlaceBytes sum_of(std::initializer_list<PlaceBytes> parts) {
  PlaceBytes sum;
  for (const PlaceBytes& part : parts) sum += part;
  return sum;
}

PlaceBytes most(const PlaceBytes& a, const PlaceBytes& b) {
  return {.device = std::max(a.device, b.device),
          .pinned = std::max(a.pinned, b.pinned),
          .host = std::max(a.host, b.host),
          .file = std::max(a.file, b.file)};
}

}  // namespace

PlaceBytes& PlaceBytes::operator+=(const PlaceBytes& other) {
  device += other.device;
  pinned += other.pinned;
  host += other.host;
  file += other.file;
  return *this;
}

PlaceBytes MemoryPlan::peak() const {
  // From the first value that is loaded to the end.
  const PlaceBytes resting = sum_of({runtime, gpu_runtime, parameters, masters, file_buffers});
  const PlaceBytes before =
      most(sum_of({runtime, gpu_runtime, held, measuring}), sum_of({held, resting, loading}));
  return most(before, sum_of({resting, gathered, gradients, gradient_buffers, states, staging,
                              kept_inputs, saving, activations}));
}

MemoryPlan plan_memory(const UnitPlan& plan, const configs::Config& config,
                       torch::DeviceType device, const StepOutline& step) {
  return MemoryPlanner(plan, config, device).make(step);
}

}  // namespace zeroth::zero
