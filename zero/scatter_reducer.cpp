// The reducer that reduces in every micro-batch and keeps only this rank's shard.
#include <utility>

#include "optim/squared_norm.h"
#include "zero/buffer_pool.h"
#include "zero/grad_exchange.h"
#include "zero/grad_reducer.h"
#include "zero/grad_views.h"

namespace zeroth::zero {
namespace {

class ScatterReducer final : public GradReducer {
 public:
  ScatterReducer(const UnitPlan& plan, const comm::DeviceMesh& mesh,
                 const GradReducerOptions& options)
      : plan_(plan),
        mesh_(mesh),
        options_(options),
        pool_(options.device),
        exchange_(options, pool_),
        units_(plan.units.size()) {
    const auto like = torch::TensorOptions(options.device).dtype(options.accumulation);
    for (size_t unit = 0; unit < units_.size(); ++unit) {
      if (!plan.units[unit].trainable) continue;
      const int64_t numel = plan.units[unit].layout.shard_numel();
      units_[unit].shard = options.gradient_offload ? options.gradient_offload->allocate_shard(
                                                          numel, options.accumulation)
                                                    : torch::empty({numel}, like);
    }
  }

  void open(size_t block) override {
    for (const size_t unit : plan_.block_units[block]) {
      if (!plan_.units[unit].trainable) continue;
      units_[unit].open = pool_.acquire_tensor(plan_.units[unit].layout.numel(), options_.wire);
      open_grad_views(plan_.units[unit], units_[unit].open, /*holds_sum=*/false);
    }
  }

  void add(size_t block, bool last) override {
    for (const size_t unit : plan_.block_units[block]) {
      if (!plan_.units[unit].trainable) continue;
      ShardGradient& state = units_[unit];
      close_grad_views(plan_.units[unit], state.open, /*holds_sum=*/false, state.got);
      // A gradient that is offloaded once per step is squared before it leaves the device.
      const bool once = last && !state.holds_sum && plan_.units[unit].blocks.size() == 1;
      if (options_.gradient_offload && once) {
        state.squared = torch::zeros({}, state.open.options().dtype(torch::kDouble));
      }
      exchange_.start({.shard_group = mesh_.shard_group(plan_.units[unit].num_replicas),
                       .whole = std::move(state.open),
                       .range = range(unit),
                       .target = options_.gradient_offload ? torch::Tensor() : state.shard,
                       .host = options_.gradient_offload ? state.shard : torch::Tensor(),
                       .squared = state.squared,
                       .add = state.holds_sum,
                       .return_to_pool = true,
                       .what = "gradients of " + plan_.units[unit].label()});
      state.holds_sum = true;
    }
  }

  torch::Tensor finish() override {
    exchange_.drain();
    std::vector<torch::Tensor> squares;  // by unit; undefined if the shard is yet to be squared
    std::vector<torch::Tensor> whole;
    for (ShardGradient& unit : units_) {
      if (!unit.shard.defined()) continue;
      if (!unit.holds_sum) unit.shard.zero_();  // no block opened it
      squares.push_back(unit.squared);
      if (!unit.squared.defined()) whole.push_back(unit.shard);
    }
    const torch::Tensor of_whole = optim::squared_norms(whole, options_.device);
    if (whole.size() == squares.size()) return of_whole.sum();
    // Sum in unit order, which gives the bits of squaring all at once.
    int64_t next = 0;
    for (torch::Tensor& square : squares) {
      if (!square.defined()) square = of_whole[next++];
    }
    return torch::stack(squares).sum();
  }

  torch::Tensor grad(size_t unit) const override { return units_[unit].shard; }
  Range range(size_t unit) const override { return plan_.units[unit].shard(); }

  bool got_gradient(size_t unit, size_t slot) const override {
    return slot < units_[unit].got.size() && units_[unit].got[slot];
  }

  void reset() override {
    exchange_.drain();
    for (ShardGradient& unit : units_) {
      if (unit.open.defined()) pool_.release_tensor(std::exchange(unit.open, torch::Tensor()));
      unit.holds_sum = false;
      unit.squared = torch::Tensor();
      unit.got.clear();
    }
  }

  int64_t persistent_bytes() const override {
    int64_t bytes = pool_.allocated_bytes();
    if (options_.gradient_offload) return bytes;
    for (const ShardGradient& unit : units_)
      bytes += unit.shard.defined() ? unit.shard.nbytes() : 0;
    return bytes;
  }

  int64_t buffer_bytes() const override { return pool_.allocated_bytes(); }

 private:
  struct ShardGradient {
    torch::Tensor shard;     // sum over the step's micro-batches so far
    torch::Tensor squared;   // squared norm of a shard on its way to the CPU; or undefined
    torch::Tensor open;      // full gradient of the micro-batch, wire dtype
    bool holds_sum = false;  // shard has, or is about to have, this step's content
    std::vector<bool> got;   // [slot]: a gradient in this step
  };

  const UnitPlan& plan_;
  const comm::DeviceMesh& mesh_;
  GradReducerOptions options_;
  BufferPool pool_;
  GradExchange exchange_;
  std::vector<ShardGradient> units_;
};

}  // namespace

std::unique_ptr<GradReducer> make_scatter_reducer(const UnitPlan& plan,
                                                  const comm::DeviceMesh& mesh,
                                                  const GradReducerOptions& options) {
  return std::make_unique<ScatterReducer>(plan, mesh, options);
}

}  // namespace zeroth::zero
