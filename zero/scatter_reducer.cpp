// The reducer that reduces in every micro-batch and keeps only this rank's shard.
#include "zero/buffer_pool.h"
#include "zero/grad_exchange.h"
#include "zero/grad_reducer.h"
#include "zero/grad_views.h"

namespace zeroth::zero {
namespace {

class ScatterReducer final : public GradReducer {
 public:
  ScatterReducer(const UnitPlan& plan, comm::Group& group, const GradReducerOptions& options)
      : plan_(plan),
        group_(group),
        options_(options),
        pool_(options.device),
        exchange_(group, options, pool_),
        units_(plan.units.size()) {
    const auto like = torch::TensorOptions(options.device).dtype(options.accumulation);
    for (size_t unit = 0; unit < units_.size(); ++unit) {
      if (!plan.units[unit].trainable) continue;
      units_[unit].shard = torch::empty({plan.units[unit].layout.shard_numel()}, like);
    }
  }

  void open(size_t block) override {
    for (const size_t unit : plan_.block_units[block]) {
      if (!plan_.units[unit].trainable) continue;
      units_[unit].open = pool_.take_tensor(plan_.units[unit].layout.numel(), options_.wire);
      open_grad_views(plan_.units[unit], units_[unit].open, /*holds_sum=*/false);
    }
  }

  void add(size_t block, bool /*last*/) override {
    for (const size_t unit : plan_.block_units[block]) {
      if (!plan_.units[unit].trainable) continue;
      UnitState& state = units_[unit];
      close_grad_views(plan_.units[unit], state.open, /*holds_sum=*/false, state.got);
      exchange_.start({.whole = std::move(state.open),
                       .range = range(unit),
                       .target = state.shard,
                       .add = state.holds_sum,
                       .give_back = true,
                       .what = "gradients of " + plan_.units[unit].place()});
      state.holds_sum = true;
    }
  }

  torch::Tensor finish() override {
    exchange_.drain();
    std::vector<torch::Tensor> shards;
    for (UnitState& unit : units_) {
      if (!unit.shard.defined()) continue;
      if (!unit.holds_sum) unit.shard.zero_();  // no block opened it
      shards.push_back(unit.shard);
    }
    return squared_norm(shards, options_.device);
  }

  torch::Tensor grad(size_t unit) const override { return units_[unit].shard; }
  Range range(size_t unit) const override { return plan_.units[unit].layout.shard(group_.rank()); }

  bool got_gradient(size_t unit, size_t slot) const override {
    return slot < units_[unit].got.size() && units_[unit].got[slot];
  }

  void reset() override {
    for (UnitState& unit : units_) {
      unit.holds_sum = false;
      unit.got.clear();
    }
  }

  int64_t resting_bytes() const override {
    int64_t bytes = pool_.allocated_bytes();
    for (const UnitState& unit : units_) bytes += unit.shard.defined() ? unit.shard.nbytes() : 0;
    return bytes;
  }

 private:
  struct UnitState {
    torch::Tensor shard;     // sum over the step's micro-batches so far
    torch::Tensor open;      // whole gradient of the micro-batch, wire dtype
    bool holds_sum = false;  // shard has, or is about to have, this step's content
    std::vector<bool> got;   // [slot]: a gradient in this step
  };

  const UnitPlan& plan_;
  comm::Group& group_;
  GradReducerOptions options_;
  BufferPool pool_;
  GradExchange exchange_;
  std::vector<UnitState> units_;
};

}  // namespace

std::unique_ptr<GradReducer> make_scatter_reducer(const UnitPlan& plan, comm::Group& group,
                                                  const GradReducerOptions& options) {
  return std::make_unique<ScatterReducer>(plan, group, options);
}

}  // namespace zeroth::zero
