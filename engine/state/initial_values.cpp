#include "engine/state/initial_values.h"

#include <algorithm>
#include <map>

#include "base/error.h"
#include "device/host_link.h"
#include "zero/parameter_index.h"

namespace zeroth::engine {
namespace {

// BlockValues provides the slices that this rank's blocks hold, and no others.
class BlockValues final : public model::WeightSource {
 public:
  void put(const zero::Slot& slot, const torch::Tensor& value) {
    values_[slot.global.name].push_back({zero::slice_of(slot), value});
  }

  void check(const std::string& name, const std::vector<int64_t>& shape) override {
    ZEROTH_CHECK(values_.at(name).front().box.shape == shape, "{} has another shape", name);
  }

  void read(const model::ParamSlice& part, torch::Tensor out) override {
    out.copy_(find(part).flatten().narrow(0, part.first, out.numel()));
    if (!at::isfinite(out).all().item<bool>())
      throw Error("parameter {} holds a value that is not finite", part.name);
  }

 private:
  struct Held {
    TensorSlice box;
    torch::Tensor value;
  };

  const torch::Tensor& find(const model::ParamSlice& part) const {
    const auto& held = values_.at(part.name);
    const auto same = std::find_if(held.begin(), held.end(),
                                   [&](const Held& one) { return one.box == part.box; });
    ZEROTH_CHECK(same != held.end(), "unexpected slice of {}", part.name);
    return same->value;
  }

  std::map<std::string, std::vector<Held>> values_;  // by the global parameter's name
};

void require_range(const std::string& name, const torch::Tensor& values, torch::Dtype working) {
  if (working != torch::kHalf) return;
  constexpr double kLargestHalf = 65504;
  const double largest = values.abs().max().item<double>();
  if (largest > kLargestHalf) {
    throw Error("parameter {} holds {}, beyond the {} that fp16 can hold (bf16 and fp32 can)", name,
                largest, kLargestHalf);
  }
}

}  // namespace

bool has_meta_parameters(const model::Blocks& blocks) {
  for (const auto& block : blocks) {
    for (const torch::Tensor& parameter : block->parameters()) {
      if (parameter.is_meta()) return true;
    }
  }
  return false;
}

std::shared_ptr<model::WeightSource> values_of_blocks(const model::Blocks& blocks,
                                                      comm::DeviceMesh& mesh) {
  const torch::NoGradGuard no_grad;
  auto source = std::make_shared<BlockValues>();
  for (const zero::Unit& unit : zero::plan_units(blocks, mesh).units) {
    for (size_t i = 0; i < unit.params.size(); ++i) {
      const torch::Tensor value = unit.params[i].detach().to(mesh.device()).contiguous();
      mesh.shard_group(unit.num_replicas).broadcast(value, /*root=*/0, "initial values").wait();
      source->put(unit.layout.slots()[i], value.to(torch::kCPU));
    }
  }
  return source;
}

bool load_values(const zero::UnitPlan& plan, model::WeightSource& source, zero::ParamStore& store,
                 zero::ShardedOptimizer& optimizer, const std::function<bool()>& should_stop,
                 const OnRead& on_read) {
  const torch::NoGradGuard no_grad;
  // One buffer serves all units: allocations between buffers that come and go would fragment the
  // heap. A GPU copies ten times as fast from page-locked memory.
  int64_t largest = 0, done = 0, all = 0;
  for (size_t u = 0; u < plan.units.size(); ++u) {
    largest = std::max(largest, store.range(u).size());
    all += store.range(u).size();
  }
  const auto link = device::make_host_link(store.device(), /*pin_memory=*/true);
  const torch::Tensor buffer = link->memory.zeros(largest, torch::kFloat);
  for (size_t u = 0; u < plan.units.size(); ++u) {
    if (should_stop()) return false;
    const zero::Unit& unit = plan.units[u];
    const zero::Range range = store.range(u);
    const torch::Tensor values = buffer.narrow(0, 0, range.size()).zero_();
    for (size_t i = 0; i < unit.layout.slots().size(); ++i) {
      const zero::Slot& slot = unit.layout.slots()[i];
      source.check(slot.global.name, slot.global.shape);
      const zero::Range part = unit.layout.overlap(i, range);
      if (part.size() == 0) continue;
      const torch::Tensor values_of_slot =
          values.narrow(0, slot.offset + part.begin - range.begin, part.size());
      source.read({slot.global.name, zero::slice_of(slot), part.begin}, values_of_slot);
      require_range(slot.name, values_of_slot, store.dtype());
      done += part.size();
      if (on_read) on_read(done, all);
    }
    if (unit.trainable) {
      optimizer.set_master(u, values);
    } else {
      store.acquire_shard(u, store.device(), offload::Access::kWrite).tensor().copy_(values);
      store.mark_updated(u);
    }
  }
  return true;
}

}  // namespace zeroth::engine
