// What a training run is between two steps, beside its data: masters and optimizer states, of which
// every rank gives its part, and counters. A run that takes them over goes on as this one would, on
// any number of ranks and with any strategy.
#pragma once

#include <torch/types.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/tensor_slice.h"
#include "engine/non_finite.h"
#include "optim/loss_scaler.h"
#include "optim/plateau.h"

namespace zeroth::zero {
class ParamStore;
class ShardedOptimizer;
struct UnitPlan;
}  // namespace zeroth::zero

namespace zeroth::engine {

// Elements [begin, end) of a box of a parameter's master or state, row by row.
struct StateSlice {
  std::string parameter;  // of the whole one: "layers.3.attention.q.weight"
  // "master" or one of optim::UpdateRule::state_names(); of what is not trained: "weight".
  std::string state;
  torch::Dtype dtype;  // in which it rests
  TensorSlice box;     // all of the parameter, but where ranks share its layer
  int64_t begin = 0;
  int64_t end = 0;
  int64_t size() const { return end - begin; }
};

// Called with how many of the elements that this rank reads have been read.
using OnRead = std::function<void(int64_t elements, int64_t all)>;

class StateSink {
 public:
  virtual ~StateSink() = default;
  // All pieces that will come from this rank. Those of all ranks cover every element of every
  // master, state and frozen weight once.
  virtual void begin(const std::vector<StateSlice>& pieces) = 0;
  // Elements of piece `index` from its `first` one on: `values` 1-D on the CPU, of the piece's
  // dtype, valid during the call only. Each element comes once, in any order. All calls come from
  // one thread at a time, which need not be the one that made the sink.
  virtual void write(size_t index, int64_t first, const torch::Tensor& values) = 0;
};

class StateSource {
 public:
  virtual ~StateSource() = default;
  // Fills `values` [size], on the CPU and of the piece's dtype, from what may have been saved in
  // another one. Throws an Error that names the parameter where there is no such piece.
  virtual void read(const StateSlice& piece, torch::Tensor values) = 0;
};

struct RunCounters {
  int64_t steps = 0;            // train_batch calls that ended
  int64_t applied_updates = 0;  // of these, the ones that were not skipped
  int64_t nominal_divisor = 0;  // LossNormalizer::nominal(); 0: no step has taken place
  optim::LossScaler::ScaleState loss_scale;
  std::optional<optim::Plateau::PlateauState> plateau = {};  // of a rate that follows evaluations
  NonFiniteSkips::State skips;
  bool operator==(const RunCounters&) const = default;
};

// The parts of an engine that hold values.
struct ShardedState {
  const zero::UnitPlan& plan;
  zero::ParamStore& params;
  zero::ShardedOptimizer& optimizer;
};

// Makes the updates that wait. Collective where the update rule has a norm pass; behind it the
// calls below are each rank's own, so that a disk that fails one of them keeps nobody waiting.
void apply_pending_updates(const ShardedState& held);

// This rank's part: what is replicated is dealt out, so that each element comes from one rank.
std::vector<StateSlice> slices_to_save(const ShardedState& held);
void save_states(const ShardedState& held, StateSink& sink);

// Bytes of these pieces.
int64_t bytes_to_save(const ShardedState& held);

// All that the pieces of all ranks make up, each whole: [begin, end) is the parameter.
std::vector<StateSlice> global_states(const ShardedState& held);

// Reads what this rank holds, into masters, states and working weights. `weights_only`: no states.
void load_states(const ShardedState& held, StateSource& source, bool weights_only = false,
                 const OnRead& on_read = {});

}  // namespace zeroth::engine
