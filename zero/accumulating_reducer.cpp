// Reducers that keep the whole fp32 gradient of every unit from the first micro-batch to the last.
#include "base/error.h"
#include "zero/buffer_pool.h"
#include "zero/grad_reducer.h"
#include "zero/grad_views.h"
#include "zero/in_flight.h"

namespace zeroth::zero {
namespace {

class AccumulatingReducer : public GradReducer {
 public:
  AccumulatingReducer(const UnitPlan& plan, comm::Group& group, const GradReducerOptions& options)
      : plan_(plan),
        group_(group),
        options_(options),
        pool_(options.device),
        in_flight_(options.max_in_flight, options.max_in_flight_elements,
                   [this](Reduction reduction) { retire(std::move(reduction)); }) {
    const auto fp32 = torch::TensorOptions(options.device).dtype(torch::kFloat);
    for (const Unit& unit : plan.units) {
      whole_.push_back(unit.trainable ? torch::empty({unit.layout.numel()}, fp32)
                                      : torch::Tensor());
    }
    holds_sum_.resize(whole_.size());
  }

  void open(size_t block) override {
    for (const size_t unit : plan_.block_units[block]) {
      if (!plan_.units[unit].trainable) continue;
      begin_sum(unit);
      open_grad_views(plan_.units[unit], whole_[unit]);
    }
  }

  void add(size_t block, bool last) override {
    if (!last) return;
    for (const size_t unit : plan_.block_units[block]) {
      // Backward comes to the first user of a tied weight last.
      if (!plan_.units[unit].trainable || plan_.units[unit].blocks.front() != block) continue;
      in_flight_.push(start(unit), plan_.units[unit].layout.numel());
    }
  }

  torch::Tensor finish() override {
    in_flight_.drain();
    std::vector<torch::Tensor> owned;
    for (size_t unit = 0; unit < whole_.size(); ++unit) {
      if (!whole_[unit].defined()) continue;
      begin_sum(unit);  // a unit that no block opened has no gradient
      const Range part = plan_.units[unit].layout.shard(group_.rank());
      owned.push_back(whole_[unit].narrow(0, part.begin, part.size()));
    }
    return squared_norm(owned, options_.device);
  }

  torch::Tensor grad(size_t unit) const override {
    if (!whole_[unit].defined()) return {};
    return whole_[unit].narrow(0, range(unit).begin, range(unit).size());
  }

  void reset() override { holds_sum_.assign(whole_.size(), false); }

  int64_t resting_bytes() const override {
    int64_t bytes = pool_.allocated_bytes();
    for (const torch::Tensor& whole : whole_) bytes += whole.defined() ? whole.nbytes() : 0;
    return bytes;
  }

 protected:
  struct Reduction {
    comm::Pending pending;
    torch::Tensor from;    // what crosses the group: the whole buffer or a copy in the wire's dtype
    torch::Tensor result;  // where the sum arrives
    torch::Tensor target;  // the fp32 elements that shall hold it
  };

  virtual Reduction start(size_t unit) = 0;

  bool wire_is_fp32() const { return options_.wire == torch::kFloat; }
  // The buffer itself, or a copy of it in the wire's dtype.
  torch::Tensor to_wire(const torch::Tensor& whole) {
    if (wire_is_fp32()) return whole;
    torch::Tensor copy = pool_.take_tensor(whole.numel(), options_.wire);
    return copy.copy_(whole);
  }

  const UnitPlan& plan_;
  comm::Group& group_;
  GradReducerOptions options_;
  BufferPool pool_;
  std::vector<torch::Tensor> whole_;  // [unit]

 private:
  // Clears the buffer when the step first needs it: then it is in the cache for what backward adds.
  void begin_sum(size_t unit) {
    if (!holds_sum_[unit]) whole_[unit].zero_();
    holds_sum_[unit] = true;
  }

  void retire(Reduction reduction) {
    reduction.pending.wait();
    if (reduction.result.data_ptr() != reduction.target.data_ptr()) {
      reduction.target.copy_(reduction.result);
      if (!reduction.result.is_same(reduction.from)) pool_.give_tensor(std::move(reduction.result));
    }
    if (!wire_is_fp32()) pool_.give_tensor(std::move(reduction.from));
  }

  std::vector<bool> holds_sum_;  // [unit]: the buffer has this step's content
  InFlight<Reduction> in_flight_;
};

class WholeReducer final : public AccumulatingReducer {
 public:
  using AccumulatingReducer::AccumulatingReducer;
  Range range(size_t unit) const override { return {0, plan_.units[unit].layout.numel()}; }

 private:
  Reduction start(size_t unit) override {
    Reduction reduction;
    reduction.target = whole_[unit];
    reduction.from = reduction.result = to_wire(whole_[unit]);
    reduction.pending = group_.all_reduce(reduction.from);
    return reduction;
  }
};

class LateScatterReducer final : public AccumulatingReducer {
 public:
  using AccumulatingReducer::AccumulatingReducer;
  Range range(size_t unit) const override { return plan_.units[unit].layout.shard(group_.rank()); }

 private:
  Reduction start(size_t unit) override {
    Reduction reduction;
    reduction.target = grad(unit);
    reduction.from = to_wire(whole_[unit]);
    reduction.result = pool_.take_tensor(range(unit).size(), options_.wire);
    reduction.pending = group_.reduce_scatter(reduction.result, reduction.from);
    return reduction;
  }
};

}  // namespace

std::unique_ptr<GradReducer> make_whole_reducer(const UnitPlan& plan, comm::Group& group,
                                                const GradReducerOptions& options) {
  return std::make_unique<WholeReducer>(plan, group, options);
}

std::unique_ptr<GradReducer> make_late_scatter_reducer(const UnitPlan& plan, comm::Group& group,
                                                       const GradReducerOptions& options) {
  return std::make_unique<LateScatterReducer>(plan, group, options);
}

}  // namespace zeroth::zero
