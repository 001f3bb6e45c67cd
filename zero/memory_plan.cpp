#include "zero/memory_plan.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <memory>

#include "comm/group.h"
#include "offload/file_lane.h"
#include "zero/dtype.h"
#include "zero/grad_landing.h"
#include "zero/resting_places.h"
#include "zero/rests.h"
#include "zero/strategy.h"
#include "zero/updater.h"

namespace zeroth::zero {
namespace {

using configs::RestingPlace;

// One of `size` ranks, whose collectives move nothing and, if there are others, last until somebody
// waits.
class DryGroup final : public comm::Group {
 public:
  explicit DryGroup(int size) : size_(size) {}
  int rank() const override { return 0; }
  int size() const override { return size_; }
  comm::Pending all_reduce(const torch::Tensor&, comm::Reduce, std::string_view) override {
    return pending();
  }
  comm::Pending all_gather(const torch::Tensor&, const torch::Tensor&, std::string_view) override {
    return pending();
  }
  comm::Pending reduce_scatter(const torch::Tensor&, const torch::Tensor&,
                               std::string_view) override {
    return pending();
  }
  comm::Pending broadcast(const torch::Tensor&, int, std::string_view) override {
    return pending();
  }

 private:
  struct Dry final : comm::Pending::Impl {
    void wait() override {}
  };
  comm::Pending pending() const {
    return size_ > 1 ? comm::Pending(std::make_shared<Dry>()) : comm::Pending();
  }

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

UnitPlan with_retention(UnitPlan plan, const configs::Config& config, torch::DeviceType device) {
  set_retention(plan, config, device);
  return plan;
}

// What the pools of a step come to is found by running its gathers and reductions on tensors
// without memory.
int64_t gathered_bytes(const UnitPlan& plan, const GatherLimits& limits, torch::Dtype dtype,
                       const std::vector<size_t>& visits, DryGroup& group) {
  ParamStore store(plan, group, torch::kMeta, {.dtype = dtype});
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

// `lands`: they come to rest on the host.
GradientBytes gradient_bytes(const UnitPlan& plan, const configs::Config& config, DryGroup& group,
                             bool lands) {
  std::shared_ptr<GradLanding> landing;
  if (lands) {
    const auto link = std::make_shared<device::HostLink>(
        device::HostLink{device::HostMemory(), std::make_unique<DryCopies>()});
    landing = std::make_shared<GradLanding>(link, GradLanding::Options{.host = torch::kMeta});
  }
  const auto grads = make_reducer(plan, config, group, torch::kMeta, landing);
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
          .kept_on_host = lands ? landing->shard_bytes() : 0,
          .host_buffers = lands ? landing->buffer_bytes() : 0};
}

int64_t on_file(int64_t bytes) {
  return static_cast<int64_t>(offload::on_file(static_cast<uint64_t>(bytes)));
}

int64_t largest_of(const std::vector<int64_t>& numels) {
  return numels.empty() ? 0 : *std::max_element(numels.begin(), numels.end());
}

int64_t width_of(torch::Dtype dtype) {
  return static_cast<int64_t>(c10::elementSize(dtype));
}

class Planner {
 public:
  Planner(const UnitPlan& plan, const configs::Config& config, torch::DeviceType device)
      : plan_(with_retention(plan, config, device)),
        config_(config),
        device_(device),
        dtype_(dtype_of(config.precision)),
        places_(resting_places(plan_, config.zero)) {}

  MemoryPlan make(const StepOutline& step) {
    add_parameters();
    add_optimizer();
    add_step(step);
    add_loading();
    return result_;
  }

 private:
  void put(PlaceBytes& bytes, RestingPlace place, bool pin, int64_t count) const {
    if (place == RestingPlace::kNvme) {
      bytes.file += on_file(count);
    } else if (place == RestingPlace::kDevice || device_ == torch::kCPU) {
      bytes.device += count;
    } else {
      (pin ? bytes.pinned : bytes.host) += count;
    }
  }

  // A buffer takes no more than the largest shard in the file needs.
  void add_buffers(const FileTiles& tiles, bool pin, int64_t largest_bytes) {
    put(result_.file_buffers, RestingPlace::kCpu, pin,
        tiles.buffers * std::min(on_file(tiles.buffer_bytes), on_file(largest_bytes)));
  }

  void add_parameters() {
    const configs::OffloadParamConfig& offload = config_.zero.offload_param;
    const int64_t width = width_of(dtype_);
    for (size_t unit = 0; unit < plan_.units.size(); ++unit) {
      if (!plan_.units[unit].released()) {
        result_.parameters.device += plan_.units[unit].layout.numel() * width;
      } else {
        put(result_.parameters, places_.parameters[unit], offload.pin_memory,
            places_.released[unit] * width);
      }
    }
    const int64_t largest = places_.largest_parameters_in_file();
    if (largest > 0) {
      add_buffers(parameter_tiles(offload, largest, width), offload.pin_memory, largest * width);
    }
    if (offload.device == RestingPlace::kDevice || device_ == torch::kCPU) return;
    // One is gathered, one is to be, and two wait for the end of a copy.
    result_.staging.device += 4 * largest_of(places_.released) * width;
  }

  void add_optimizer() {
    const configs::OffloadOptimizerConfig& offload = config_.zero.offload_optimizer;
    const auto rule = optim::make_update_rule(config_.optimizer, torch::kCPU);
    const auto count = static_cast<int64_t>(rule->state_names().size());
    const int64_t state = width_of(rule->state_dtype());
    const int64_t master = has_master(config_, *rule) ? width_of(rule->master_dtype()) : 0;
    // With auto, where a measurement is to tell, as if it were copied.
    using Step = configs::OffloadOptimizerConfig::Step;
    const bool pin = offload.pin_memory && offload.step != Step::kCpu;
    for (size_t unit = 0; unit < plan_.units.size(); ++unit) {
      const RestingPlace place = places_.updates[unit];
      const int64_t numel = places_.updated[unit];
      put(result_.masters, place, pin, numel * master);
      for (int64_t i = 0; i < count; ++i) {
        put(result_.states, place, pin, numel * state);
      }
    }
    const int64_t arrays = count + (master > 0 ? 1 : 0);
    const auto away = [](RestingPlace place) { return place != RestingPlace::kDevice; };
    if (arrays == 0 || std::none_of(places_.updates.begin(), places_.updates.end(), away)) return;
    add_update_staging(arrays);
    const int64_t largest = places_.largest_update_in_file();
    if (largest == 0) return;
    add_buffers(optimizer_tiles(config_.zero, largest, arrays), pin,
                largest * std::max(master, count > 0 ? state : 0));
  }

  // Tiles on their way between a GPU and what rests elsewhere, whoever updates: those of the arrays
  // that are updated and of the next ones, and two of gradients; or two shards of parameters.
  void add_update_staging(int64_t arrays) {
    if (device_ == torch::kCPU) return;
    lands_ = true;
    const int64_t largest = largest_of(places_.updated);
    const int64_t tile = std::min(optimizer_tiles(config_.zero, largest, arrays).elements, largest);
    result_.staging.device += (2 * arrays + 2) * tile * static_cast<int64_t>(sizeof(float));
    put(result_.staging, RestingPlace::kCpu, config_.zero.offload_optimizer.pin_memory,
        2 * largest * width_of(dtype_));
  }

  // Of those that leave for the host one stays, and two more are on their way.
  void add_kept_inputs(const StepOutline& step) {
    const bool leave = config_.recompute.cpu_checkpointing && device_ != torch::kCPU;
    const int64_t left = leave ? std::max<int64_t>(step.kept_inputs - 1, 0) : 0;
    const int64_t here = step.kept_inputs - std::max<int64_t>(left - 2, 0);
    result_.kept_inputs = {.device = here * step.kept_input_bytes,
                           .pinned = left * step.kept_input_bytes};
  }

  void add_step(const StepOutline& step) {
    const UnitPlan dry = hollow(plan_);
    DryGroup group(num_shards());
    result_.gathered.device =
        gathered_bytes(dry, gather_limits(plan_, config_, device_), dtype_, step.visits, group);
    add_kept_inputs(step);
    result_.activations.device = step.activation_bytes;
    const GradientBytes gradients = gradient_bytes(dry, config_, group, lands_);
    result_.gradients.device = gradients.kept;
    result_.gradient_buffers.device = gradients.buffers;
    if (!lands_) return;
    const bool pin = config_.zero.offload_optimizer.pin_memory;
    put(result_.gradients, RestingPlace::kCpu, pin, gradients.kept_on_host);
    put(result_.gradient_buffers, RestingPlace::kCpu, pin, gradients.host_buffers);
  }

  void add_loading() {
    int64_t largest = 0;
    for (const Unit& unit : plan_.units) largest = std::max(largest, unit.share_numel());
    result_.loading.device = largest * static_cast<int64_t>(sizeof(float));
    if (device_ != torch::kCPU) result_.loading.host = result_.loading.device;
  }

  int num_shards() const {
    return plan_.units.empty() ? 1 : plan_.units.front().layout.num_shards();
  }

  UnitPlan plan_;
  const configs::Config& config_;
  torch::DeviceType device_;
  torch::Dtype dtype_;  // working precision
  RestingPlaces places_;
  bool lands_ = false;  // gradients rest on the host
  MemoryPlan result_;
};

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
  PlaceBytes both;  // from the first value that is loaded to the end
  for (const PlaceBytes* part : {&parameters, &masters, &file_buffers}) both += *part;
  PlaceBytes before = both;
  before += loading;
  PlaceBytes training = both;
  for (const PlaceBytes* part :
       {&gathered, &gradients, &gradient_buffers, &states, &staging, &kept_inputs, &activations}) {
    training += *part;
  }
  return most(before, training);
}

MemoryPlan plan_memory(const UnitPlan& plan, const configs::Config& config,
                       torch::DeviceType device, const StepOutline& step) {
  return Planner(plan, config, device).make(step);
}

}  // namespace zeroth::zero
