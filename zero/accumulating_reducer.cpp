// Reducers that keep the full gradient of every unit from the first micro-batch to the last.
#include "optim/squared_norm.h"
#include "zero/buffer_pool.h"
#include "zero/grad_exchange.h"
#include "zero/grad_reducer.h"
#include "zero/grad_views.h"

namespace zeroth::zero {
namespace {

class AccumulatingReducer final : public GradReducer {
 public:
  AccumulatingReducer(const UnitPlan& plan, const comm::DeviceMesh& mesh,
                      const GradReducerOptions& options, bool shards)
      : plan_(plan),
        mesh_(mesh),
        device_(options.device),
        shards_(shards),
        pool_(options.device),
        exchange_(options, pool_),
        units_(plan.units.size()) {
    const auto like = torch::TensorOptions(options.device).dtype(options.accumulation);
    for (size_t unit = 0; unit < units_.size(); ++unit) {
      if (!plan.units[unit].trainable) continue;
      units_[unit].whole = torch::empty({plan.units[unit].layout.numel()}, like);
      if (!options.gradient_offload) continue;
      units_[unit].host =
          options.gradient_offload->allocate_shard(range(unit).size(), options.wire);
    }
  }

  void open(size_t block) override {
    for (const size_t unit : plan_.block_units[block]) {
      if (!plan_.units[unit].trainable) continue;
      open_grad_views(plan_.units[unit], units_[unit].whole, units_[unit].holds_sum);
    }
  }

  void add(size_t block, bool last) override {
    for (const size_t unit : plan_.block_units[block]) {
      if (!plan_.units[unit].trainable) continue;
      FullGradient& state = units_[unit];
      close_grad_views(plan_.units[unit], state.whole, state.holds_sum, state.got);
      state.holds_sum = true;
      // Backward reaches the first user of a tied weight last.
      if (!last || plan_.units[unit].blocks.front() != block) continue;
      exchange_.start({.shard_group = mesh_.shard_group(plan_.units[unit].num_replicas),
                       .whole = state.whole,
                       .range = range(unit),
                       .target = summed(unit),
                       .host = state.host,
                       .what = "gradients of " + plan_.units[unit].label()});
    }
  }

  torch::Tensor finish() override {
    exchange_.drain();
    std::vector<torch::Tensor> owned;
    for (size_t unit = 0; unit < units_.size(); ++unit) {
      FullGradient& state = units_[unit];
      if (!state.whole.defined()) continue;
      if (!state.holds_sum) {  // no block opened it
        state.whole.zero_();
        if (state.host.defined()) state.host.zero_();
      }
      state.holds_sum = true;
      const Range part = plan_.units[unit].shard();
      owned.push_back(state.whole.narrow(0, part.begin, part.size()));
    }
    return optim::squared_norm(owned, device_);
  }

  torch::Tensor grad(size_t unit) const override {
    if (!units_[unit].whole.defined()) return {};
    return units_[unit].host.defined() ? units_[unit].host : summed(unit);
  }

  Range range(size_t unit) const override {
    return shards_ ? plan_.units[unit].shard() : Range{0, plan_.units[unit].layout.numel()};
  }

  bool got_gradient(size_t unit, size_t slot) const override {
    return slot < units_[unit].got.size() && units_[unit].got[slot];
  }

  void reset() override {
    exchange_.drain();
    for (FullGradient& unit : units_) {
      unit.holds_sum = false;
      unit.got.clear();
    }
  }

  int64_t persistent_bytes() const override {
    int64_t bytes = pool_.allocated_bytes();
    for (const FullGradient& unit : units_) bytes += unit.whole.defined() ? unit.whole.nbytes() : 0;
    return bytes;
  }

  int64_t buffer_bytes() const override { return pool_.allocated_bytes(); }

 private:
  struct FullGradient {
    torch::Tensor host;      // [range().size()], the range on the CPU; or undefined
    torch::Tensor whole;     // sum of this rank's micro-batches so far, then over the shard group
    bool holds_sum = false;  // whole has this step's content
    std::vector<bool> got;   // [slot]: a gradient in this step
  };

  torch::Tensor summed(size_t unit) const {
    return units_[unit].whole.narrow(0, range(unit).begin, range(unit).size());
  }

  const UnitPlan& plan_;
  const comm::DeviceMesh& mesh_;
  torch::Device device_;
  bool shards_;
  BufferPool pool_;
  GradExchange exchange_;
  std::vector<FullGradient> units_;
};

}  // namespace

std::unique_ptr<GradReducer> make_full_reducer(const UnitPlan& plan, const comm::DeviceMesh& mesh,
                                               const GradReducerOptions& options) {
  return std::make_unique<AccumulatingReducer>(plan, mesh, options, /*shards=*/false);
}

std::unique_ptr<GradReducer> make_late_scatter_reducer(const UnitPlan& plan,
                                                       const comm::DeviceMesh& mesh,
                                                       const GradReducerOptions& options) {
  return std::make_unique<AccumulatingReducer>(plan, mesh, options, /*shards=*/true);
}

}  // namespace zeroth::zero
