// The reducer that reduces in every micro-batch and keeps only this rank's shard.
#include "zero/buffer_pool.h"
#include "zero/grad_reducer.h"
#include "zero/grad_views.h"
#include "zero/in_flight.h"

namespace zeroth::zero {
namespace {

class ScatterReducer final : public GradReducer {
 public:
  ScatterReducer(const UnitPlan& plan, comm::Group& group, const GradReducerOptions& options)
      : plan_(plan),
        group_(group),
        options_(options),
        pool_(options.device),
        units_(plan.units.size()),
        in_flight_(options.max_in_flight, options.max_in_flight_elements,
                   [this](Reduction reduction) { retire(std::move(reduction)); }) {
    const auto fp32 = torch::TensorOptions(options.device).dtype(torch::kFloat);
    for (size_t unit = 0; unit < units_.size(); ++unit) {
      if (!plan.units[unit].trainable) continue;
      units_[unit].shard = torch::empty({plan.units[unit].layout.shard_numel()}, fp32);
    }
  }

  void open(size_t block) override {
    for (const size_t unit : plan_.block_units[block]) {
      if (!plan_.units[unit].trainable) continue;
      units_[unit].open =
          pool_.take_tensor(plan_.units[unit].layout.numel(), options_.wire).zero_();
      open_grad_views(plan_.units[unit], units_[unit].open);
    }
  }

  void add(size_t block, bool /*last*/) override {
    for (const size_t unit : plan_.block_units[block]) {
      if (!plan_.units[unit].trainable) continue;
      close_grad_views(plan_.units[unit]);
      in_flight_.push(start(unit), plan_.units[unit].layout.numel());
    }
  }

  torch::Tensor finish() override {
    in_flight_.drain();
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

  void reset() override {
    for (UnitState& unit : units_) unit.holds_sum = false;
  }

  int64_t resting_bytes() const override {
    int64_t bytes = pool_.allocated_bytes();
    for (const UnitState& unit : units_) bytes += unit.shard.defined() ? unit.shard.nbytes() : 0;
    return bytes;
  }

 private:
  struct UnitState {
    torch::Tensor shard;     // fp32 sum over the step's micro-batches so far
    torch::Tensor open;      // whole gradient of the micro-batch, wire dtype
    bool holds_sum = false;  // shard has this step's content
  };
  struct Reduction {
    size_t unit;
    comm::Pending pending;
    torch::Tensor from;
    torch::Tensor result;
  };

  Reduction start(size_t unit) {
    UnitState& state = units_[unit];
    Reduction reduction{unit, {}, std::move(state.open), {}};
    // The step's first sum lands in the shard itself where dtypes allow it.
    const bool direct = options_.wire == torch::kFloat && !state.holds_sum;
    reduction.result = direct ? state.shard : pool_.take_tensor(state.shard.numel(), options_.wire);
    reduction.pending = group_.reduce_scatter(reduction.result, reduction.from);
    if (direct) state.holds_sum = true;
    return reduction;
  }

  void retire(Reduction reduction) {
    reduction.pending.wait();
    UnitState& state = units_[reduction.unit];
    if (reduction.result.data_ptr() != state.shard.data_ptr()) {
      state.holds_sum ? state.shard.add_(reduction.result) : state.shard.copy_(reduction.result);
      state.holds_sum = true;
      pool_.give_tensor(std::move(reduction.result));
    }
    pool_.give_tensor(std::move(reduction.from));
  }

  const UnitPlan& plan_;
  comm::Group& group_;
  GradReducerOptions options_;
  BufferPool pool_;
  std::vector<UnitState> units_;
  InFlight<Reduction> in_flight_;
};

}  // namespace

std::unique_ptr<GradReducer> make_scatter_reducer(const UnitPlan& plan, comm::Group& group,
                                                  const GradReducerOptions& options) {
  return std::make_unique<ScatterReducer>(plan, group, options);
}

}  // namespace zeroth::zero
