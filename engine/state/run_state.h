// State of a training run between two steps, except its data: masters and optimizer states, of
// which every rank holds a part, and counters. A run that loads them continues as this one would,
// on any number of ranks and with any strategy. A new run begins with initial values: from a source
// for parameters on the meta device, otherwise from the blocks themselves.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/tensor_slice.h"
#include "device/tensor.h"
#include "engine/verify/parameter_faults.h"
#include "model/block.h"
#include "optim/loss_scaler.h"
#include "optim/schedule/hf_schedule.h"
#include "zero/optimizer_states.h"

namespace zeroth::model {
class WeightSource;
}
namespace zeroth::zero {
class ParamStore;
class ShardedOptimizer;
struct Slot;
}  // namespace zeroth::zero

namespace zeroth::engine {

// A StateSlice is the elements [begin, end) of a TensorSlice of a parameter's master or state, in
// row-major order.
struct StateSlice {
  std::string parameter;  // global name: "layers.3.attention.q.weight"
  // "master" or a name of optim::UpdateRule::state_arrays(); "weight" if the parameter is frozen.
  std::string state;
  torch::Dtype dtype;  // stored precision
  // The full parameter, unless ranks share its layer. The maxima of coded states form a tensor of
  // one dimension; if ranks share the layer, one of the parameter's shape, where a block's maximum
  // is repeated for each of its elements (repeats_maxima()).
  TensorSlice box;
  int64_t begin = 0;
  int64_t end = 0;
  int64_t size() const { return end - begin; }
};

// Returns whether the slot holds a part of its parameter, whose code blocks are no others' then.
bool repeats_maxima(const zero::Slot& slot);

// Returns the slice of an array that holds `part`, elements of the slot.
StateSlice make_slice(const zero::Slot& slot, const zero::OptimizerStates::Array& array,
                      const zero::Range& part);

// OnRead is called with the number of elements read so far, out of all that this rank reads.
using OnRead = std::function<void(int64_t elements, int64_t all)>;

class StateSink {
 public:
  virtual ~StateSink() = default;
  // Announces all slices that this rank will write. The slices of all ranks cover every element of
  // every saved unit's masters, states and frozen weights once.
  virtual void begin(const std::vector<StateSlice>& pieces) = 0;
  // Receives elements of slice `index` from its element `first` on: `values` is 1-D on the CPU, of
  // the slice's dtype, valid during the call only. Each element comes once, in any order. All calls
  // come from one thread at a time, not necessarily the one that created the sink.
  virtual void write(size_t index, int64_t first, const torch::Tensor& values) = 0;
};

class StateSource {
 public:
  virtual ~StateSource() = default;
  // Fills `values` [size], on the CPU and of the slice's dtype, converting from the saved
  // precision. Throws an Error that names the parameter if no such slice is stored.
  virtual void read(const StateSlice& piece, torch::Tensor values) = 0;
  // Returns whether the state is stored as a tensor of the slice's shape.
  virtual bool stores(const StateSlice& piece) = 0;
};

struct RunCounters {
  int64_t steps = 0;            // completed train_batch calls
  int64_t applied_updates = 0;  // steps that were not skipped
  int64_t nominal_divisor = 0;  // LossNormalizer::nominal(); 0: no step has run
  optim::LossScaler::ScaleState loss_scale;
  std::optional<optim::Plateau::PlateauState> plateau = {};  // of reduce_lr_on_plateau
  NonFiniteSkips::State skips;
  bool operator==(const RunCounters&) const = default;
};

// ShardedState refers to the parts of an engine that hold values.
struct ShardedState {
  const zero::UnitPlan& plan;
  zero::ParamStore& params;
  zero::ShardedOptimizer& optimizer;
};

// Applies the pending updates. Collective if the update rule has a norm pass. The calls below do
// not communicate after it, so that a rank whose disk fails does not block the others.
void apply_pending_updates(const ShardedState& held);

// Returns this rank's slices: replicated values are partitioned, so that each element comes from
// one rank.
std::vector<StateSlice> slices_to_save(const ShardedState& held);
void save_states(const ShardedState& held, StateSink& sink);

// Returns the bytes of slices_to_save().
int64_t bytes_to_save(const ShardedState& held);

// Returns the states that the slices of all ranks form together, each in full: [begin, end) is the
// parameter.
std::vector<StateSlice> global_states(const ShardedState& held);

// Reads what this rank holds into masters, states and working weights. `weights_only`: no states.
// Returns whether coded states were quantized anew, because other slices of parameters were saved.
bool load_states(const ShardedState& held, StateSource& source, bool weights_only = false,
                 const OnRead& on_read = {});

// Reads the coded states of a unit. Where the elements of each code block were in one block when
// they were saved, codes and maxima become the stored ones, bit for bit: on any number of data
// ranks, at any stage. Otherwise, as on another number of tensor-parallel ranks, the moments are
// quantized anew; returns whether any were.
bool load_coded_states(const ShardedState& held, StateSource& source, size_t unit);

// Returns the blocks' own values, broadcast from the first rank that holds the same ones: rank 0,
// unless ranks share layers, where a block holds this rank's slices. The blocks' parameters must
// hold values. Collective. Call it before a ParamStore takes over the parameters.
std::shared_ptr<model::WeightSource> values_of_blocks(const model::Blocks& blocks,
                                                      comm::DeviceMesh& mesh);

// Returns whether any parameter is on the meta device, and so has no values.
bool has_meta_parameters(const model::Blocks& blocks);

// LoadedUnits selects units: all, or those that no checkpoint holds (zero::Unit::is_saved).
enum class LoadedUnits { kAll, kWithoutSaved };

// Reads only this rank's range of the units, into masters and parameters. Calls `should_stop`
// before each unit, and returns false once it returns true; its results must be the same on all
// ranks.
bool load_values(
    const ShardedState& held, model::WeightSource& source, LoadedUnits units = LoadedUnits::kAll,
    const std::function<bool()>& should_stop = [] { return false; }, const OnRead& on_read = {});

}  // namespace zeroth::engine
