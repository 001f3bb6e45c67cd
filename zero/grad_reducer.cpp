#include "zero/grad_reducer.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "model/blocks/main_grad.h"
#include "optim/squared_norm.h"
#include "zero/buffer_pool.h"
#include "zero/dtype.h"
#include "zero/grad_exchange.h"
#include "zero/unit.h"
#include "zero/unit_buffers.h"

namespace zeroth::zero {
namespace {

// Zeroes the gaps between the parameters.
void zero_padding(const FlatLayout& layout, const torch::Tensor& flat) {
  const std::vector<Slot>& slots = layout.slots();
  for (size_t i = 0; i < slots.size(); ++i) {
    const int64_t begin = slots[i].offset + slots[i].numel;
    const int64_t end = i + 1 < slots.size() ? slots[i + 1].offset : layout.numel();
    if (begin < end) flat.narrow(0, begin, end - begin).zero_();
  }
}

// Sets mutable_grad() of every parameter to its slot of `flat` [layout.numel()], any floating
// dtype. With `holds_sum` backward adds to the content. Otherwise the content is unspecified: only
// parameters whose blocks initialize their gradients themselves see it, the others see zeros.
void open_grad_views(const Unit& unit, const torch::Tensor& flat, bool holds_sum) {
  const torch::NoGradGuard no_grad;
  const bool fresh = !holds_sum && unit.begins_gradients;
  if (fresh) zero_padding(unit.layout, flat);
  if (!fresh && !holds_sum) flat.zero_();
  for (size_t i = 0; i < unit.params.size(); ++i) {
    unit.params[i].mutable_grad() =
        model::make_main_grad(slot_view(flat, unit.layout.slots()[i]), fresh);
  }
}

// Ends what open_grad_views began with the same arguments: afterwards all of `flat` holds the sum,
// with zeros where there is none. Sets `got[slot]` for the parameters that backward gave a
// gradient.
void close_grad_views(const Unit& unit, const torch::Tensor& flat, bool holds_sum,
                      std::vector<bool>& got) {
  const torch::NoGradGuard no_grad;
  const bool fresh = !holds_sum && unit.begins_gradients;
  got.resize(unit.params.size());
  for (size_t i = 0; i < unit.params.size(); ++i) {
    const bool written = model::was_written(unit.params[i].grad(), fresh);
    if (written) got[i] = true;
    if (fresh && !written) slot_view(flat, unit.layout.slots()[i]).zero_();
    unit.params[i].mutable_grad() = torch::Tensor();
  }
}

// A UnitReducer reduces the gradients of trainable units, one by one. Its subclasses keep them.
class UnitReducer : public GradReducer {
 public:
  // `shards`: range(u) is this rank's shard, otherwise all of u.
  UnitReducer(const UnitPlan& plan, const comm::DeviceMesh& mesh, const GradReducerOptions& options,
              bool shards)
      : plan_(plan),
        mesh_(mesh),
        options_(options),
        pool_(options.device),
        exchange_(options, pool_),
        shards_(shards),
        got_(plan.units.size()) {
    std::vector<int64_t> counted;
    for (const Unit& unit : plan.units) {
      if (!unit.trainable) continue;
      if (unit.is_counted) counted.push_back(num_trainable_);
      ++num_trainable_;
      if (unit.pp_ranks.size() > 1) tied_group(unit);
    }
    counted_ = at::tensor(counted, torch::kLong).to(options.device);
  }

  void set_backward_order(std::vector<size_t> blocks) final {
    expected_ = std::move(blocks);
    position_ = 0;
    uses_left_.assign(plan_.units.size(), 0);
    for (const size_t block : expected_) {
      for (const size_t unit : plan_.block_units[block]) ++uses_left_[unit];
    }
  }

  void open(size_t block) final {
    ZEROTH_CHECK(position_ < expected_.size() && expected_[position_] == block,
                 "block {} is not the next of the {} whose gradients are expected", block,
                 expected_.size());
    for (const size_t unit : plan_.block_units[block]) {
      if (plan_.units[unit].is_trained_here()) open_unit(unit, is_repeated());
    }
  }

  void add(size_t block) final {
    const bool repeated = is_repeated();
    ++position_;
    for (const size_t unit : plan_.block_units[block]) {
      const bool last = --uses_left_[unit] == 0;
      if (plan_.units[unit].is_trained_here()) add_unit(unit, {.repeated = repeated, .last = last});
    }
  }

  Range range(size_t unit) const final {
    return shards_ ? plan_.units[unit].shard() : plan_.units[unit].full_range();
  }

  bool got_gradient(size_t unit, size_t slot) const final {
    return slot < got_[unit].size() && got_[unit][slot];
  }

  void reset() override {
    exchange_.drain();
    for (std::vector<bool>& slots : got_) slots.clear();
  }

  int64_t buffer_bytes() const final { return pool_.allocated_bytes(); }
  int64_t persistent_bytes() const final { return buffer_bytes() + kept_bytes_; }

 protected:
  // A use of a unit in the backward pass of a block.
  struct Use {
    bool repeated = false;  // the same block's next pass follows at once
    bool last = false;      // of the step
  };

  virtual void open_unit(size_t unit, bool repeated) = 0;
  virtual void add_unit(size_t unit, const Use& use) = 0;

  // Returns memory on the device for sums, which is kept from step to step.
  torch::Tensor allocate(int64_t numel) {
    kept_bytes_ += numel * element_bytes(options_.accumulation);
    return torch::empty({numel},
                        torch::TensorOptions(options_.device).dtype(options_.accumulation));
  }
  void close_views(size_t unit, const torch::Tensor& flat, bool holds_sum) {
    close_grad_views(plan_.units[unit], flat, holds_sum, got_[unit]);
  }
  comm::Group& shard_group(size_t unit) const {
    return mesh_.shard_group(plan_.units[unit].num_replicas);
  }
  // Adds up the gradient of a tied weight, on the device or the CPU, over the ranks that hold it.
  void sum_tied(size_t unit, const torch::Tensor& gradient) const {
    const Unit& tied = plan_.units[unit];
    if (tied.pp_ranks.size() == 1) return;
    const torch::Tensor sum = gradient.to(options_.device);
    tied_group(tied).all_reduce(sum, comm::ReduceOp::kSum, label(unit)).wait();
    if (sum.device() != gradient.device()) gradient.copy_(sum);
  }
  // Returns finish()'s norms from those of the units that are counted on this rank, in order.
  torch::Tensor norms_of_all(const torch::Tensor& counted) const {
    if (counted.numel() == num_trainable_) return counted;
    return at::zeros({num_trainable_}, counted.options()).index_copy_(0, counted_, counted);
  }
  std::string label(size_t unit) const { return "gradients of " + plan_.units[unit].label(); }

  const UnitPlan& plan_;
  const comm::DeviceMesh& mesh_;
  const GradReducerOptions options_;
  BufferPool pool_;
  GradExchange exchange_;

 private:
  comm::Group& tied_group(const Unit& tied) const {
    std::vector<int> ranks = tied.pp_ranks;
    std::ranges::sort(ranks);
    return mesh_.pp_group(fmt::format("tied, pipe {}", fmt::join(ranks, " ")), ranks);
  }
  bool is_repeated() const {
    return position_ + 1 < expected_.size() && expected_[position_ + 1] == expected_[position_];
  }

  bool shards_;
  int64_t num_trainable_ = 0;           // units of the chain
  torch::Tensor counted_;               // indices of those that are counted here, among them
  std::vector<size_t> expected_;        // of set_backward_order()
  size_t position_ = 0;                 // of the next one in expected_
  std::vector<size_t> uses_left_;       // [unit]: in this step
  int64_t kept_bytes_ = 0;              // of allocate()
  std::vector<std::vector<bool>> got_;  // [unit][slot]: a gradient in this step
};

// An AccumulatingReducer keeps the full gradient of every unit from the first micro-batch to the
// last, which reduces it.
class AccumulatingReducer final : public UnitReducer {
 public:
  AccumulatingReducer(const UnitPlan& plan, const comm::DeviceMesh& mesh,
                      const GradReducerOptions& options, bool shards)
      : UnitReducer(plan, mesh, options, shards), units_(plan.units.size()) {
    for (size_t unit = 0; unit < units_.size(); ++unit) {
      if (!plan.units[unit].is_trained_here()) continue;
      units_[unit].whole = allocate(plan.units[unit].layout.numel());
      if (!options.gradient_offload) continue;
      units_[unit].host =
          options.gradient_offload->allocate_shard(range(unit).size(), options.wire);
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
      sum_tied(unit, summed(unit));
      if (state.host.defined() && plan_.units[unit].pp_ranks.size() > 1)
        state.host.copy_(summed(unit));
      const Range part = plan_.units[unit].shard();
      if (plan_.units[unit].is_counted)
        owned.push_back(state.whole.narrow(0, part.begin, part.size()));
    }
    return norms_of_all(optim::squared_norms(owned, options_.device));
  }

  torch::Tensor grad(size_t unit) const override {
    if (!units_[unit].whole.defined()) return {};
    return units_[unit].host.defined() ? units_[unit].host : summed(unit);
  }

  void reset() override {
    UnitReducer::reset();
    for (FullGradient& unit : units_) unit.holds_sum = false;
  }

 private:
  struct FullGradient {
    torch::Tensor host;      // [range().size()], the range on the CPU; or undefined
    torch::Tensor whole;     // sum of this rank's micro-batches so far, then over the shard group
    bool holds_sum = false;  // whole has this step's content
  };

  void open_unit(size_t unit, bool /*repeated*/) override {
    open_grad_views(plan_.units[unit], units_[unit].whole, units_[unit].holds_sum);
  }

  void add_unit(size_t unit, const Use& use) override {
    FullGradient& state = units_[unit];
    close_views(unit, state.whole, state.holds_sum);
    state.holds_sum = true;
    if (!use.last) return;
    exchange_.start({.shard_group = shard_group(unit),
                     .whole = state.whole,
                     .range = range(unit),
                     .target = summed(unit),
                     .host = state.host,
                     .what = label(unit)});
  }

  torch::Tensor summed(size_t unit) const {
    return units_[unit].whole.narrow(0, range(unit).begin, range(unit).size());
  }

  std::vector<FullGradient> units_;
};

// A ScatterReducer reduces in every micro-batch and keeps only this rank's shard.
class ScatterReducer final : public UnitReducer {
 public:
  ScatterReducer(const UnitPlan& plan, const comm::DeviceMesh& mesh,
                 const GradReducerOptions& options)
      : UnitReducer(plan, mesh, options, /*shards=*/true), units_(plan.units.size()) {
    for (size_t unit = 0; unit < units_.size(); ++unit) {
      if (!plan.units[unit].is_trained_here()) continue;
      const int64_t numel = plan.units[unit].layout.shard_numel();
      units_[unit].shard = options.gradient_offload ? options.gradient_offload->allocate_shard(
                                                          numel, options.accumulation)
                                                    : allocate(numel);
    }
  }

  torch::Tensor finish() override {
    exchange_.drain();
    std::vector<torch::Tensor> squares;  // by unit; undefined if the shard is yet to be squared
    std::vector<torch::Tensor> whole;
    for (size_t index = 0; index < units_.size(); ++index) {
      ShardGradient& unit = units_[index];
      if (!unit.shard.defined()) continue;
      if (!unit.holds_sum) unit.shard.zero_();  // no block opened it
      sum_tied(index, unit.shard);
      if (!plan_.units[index].is_counted) continue;
      squares.push_back(unit.squared);
      if (!unit.squared.defined()) whole.push_back(unit.shard);
    }
    const torch::Tensor of_whole = optim::squared_norms(whole, options_.device);
    if (whole.size() == squares.size()) return norms_of_all(of_whole);
    int64_t next = 0;
    for (torch::Tensor& square : squares) {
      if (!square.defined()) square = of_whole[next++];
    }
    return norms_of_all(torch::stack(squares));
  }

  torch::Tensor grad(size_t unit) const override { return units_[unit].shard; }

  void reset() override {
    UnitReducer::reset();
    for (ShardGradient& unit : units_) {
      if (unit.open.defined()) pool_.release_tensor(std::exchange(unit.open, torch::Tensor()));
      unit.open_holds_sum = unit.holds_sum = false;
      unit.squared = torch::Tensor();
    }
  }

 private:
  struct ShardGradient {
    torch::Tensor shard;    // sum over the step's micro-batches so far
    torch::Tensor squared;  // squared norm of a shard on its way to the CPU; or undefined
    // Full gradient of the micro-batch in the wire's dtype, or sum of a run of micro-batches in the
    // dtype of accumulation.
    torch::Tensor open;
    bool open_holds_sum = false;  // open has an earlier micro-batch of the run
    bool holds_sum = false;       // shard has, or is about to have, this step's content
  };

  void open_unit(size_t unit, bool repeated) override {
    ShardGradient& state = units_[unit];
    if (!state.open.defined()) {
      state.open = pool_.acquire_tensor(plan_.units[unit].layout.numel(),
                                        repeated ? options_.accumulation : options_.wire);
    }
    open_grad_views(plan_.units[unit], state.open, state.open_holds_sum);
  }

  void add_unit(size_t unit, const Use& use) override {
    ShardGradient& state = units_[unit];
    close_views(unit, state.open, state.open_holds_sum);
    state.open_holds_sum = use.repeated;
    if (use.repeated) return;
    // A gradient that is offloaded once per step is squared before it leaves the device.
    const bool once = use.last && !state.holds_sum && plan_.units[unit].pp_ranks.size() == 1;
    if (options_.gradient_offload && once) {
      state.squared = torch::zeros({}, state.open.options().dtype(torch::kDouble));
    }
    exchange_.start({.shard_group = shard_group(unit),
                     .whole = std::move(state.open),
                     .range = range(unit),
                     .target = options_.gradient_offload ? torch::Tensor() : state.shard,
                     .host = options_.gradient_offload ? state.shard : torch::Tensor(),
                     .squared = state.squared,
                     .add = state.holds_sum,
                     .return_to_pool = true,
                     .what = label(unit)});
    state.holds_sum = true;
  }

  std::vector<ShardGradient> units_;
};

}  // namespace

std::unique_ptr<GradReducer> make_grad_reducer(ReducerKind kind, const UnitPlan& plan,
                                               const comm::DeviceMesh& mesh,
                                               const GradReducerOptions& options) {
  if (kind == ReducerKind::kScatter) return std::make_unique<ScatterReducer>(plan, mesh, options);
  const bool shards = kind == ReducerKind::kLateScatter;
  return std::make_unique<AccumulatingReducer>(plan, mesh, options, shards);
}

}  // namespace zeroth::zero
