// Trains a chain of blocks: zeroth::initialize(blocks, config), then train_batch again and again.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "comm/mesh.h"
#include "configs/config.h"
#include "device/memory_use.h"
#include "engine/checkpoint_types.h"
#include "engine/loader.h"
#include "engine/model_sink.h"
#include "engine/outline.h"
#include "engine/run_state.h"
#include "model/block.h"
#include "model/weight_source.h"
#include "offload/access.h"

namespace zeroth::engine {

// Seconds of one step by the clock of the device that works; they add up to the step less what the
// caller does between steps.
struct StepTimes {
  double data = 0;      // Loader::next
  double forward = 0;   // with the waits for gathers in it
  double backward = 0;  // recompute and the start of reductions included
  double reduce = 0;    // waiting for the last reductions, norm
  // On a GPU of the update of the step before, as that of this one still goes on when the step
  // returns; likewise where updates wait for the next forward, whose time they are not part of.
  double update = 0;
};

// What offload cost this rank in one step.
struct OffloadTimes {
  double update = 0;         // seconds in updates that waited for the next use of their parameters
  offload::Traffic traffic;  // between resting places and memory
  // Share of the transfers' time in which this rank did something else. A GPU and its host may wait
  // at once: none then.
  double hidden() const {
    return traffic.waited_s < traffic.under_way_s ? 1 - traffic.waited_s / traffic.under_way_s : 0;
  }
};

// Of one block in one step, all micro-batches together.
struct BlockTime {
  std::string label;
  int64_t parameters = 0;  // whole; a tied weight counts in each of its blocks
  double forward = 0;      // seconds, gathers included
  double backward = 0;     // recompute and the start of reductions included
};

struct MemoryPoint {
  std::string name;  // "after forward"
  device::MemoryUse use;
};

struct StepStats {
  int64_t step = 0;  // 1 for the first
  double loss = 0;   // the mean that Config::loss_mean names
  // Global L2 norm before clipping, unscaled; not finite when the step was skipped.
  double grad_norm = 0;
  double lr = 0;  // rate that this update used
  double loss_scale = 1;
  // Not empty: the run cannot go on (NonFiniteSkips::End) and why. The next train_batch throws it.
  std::string failure;
  // Where and since which step gradients are not finite: "since step 3, first in backward in block
  // head, parameter head.weight". Empty where they are.
  std::string not_finite;
  bool skipped = false;     // gradients were not finite: no update
  bool end_wanted = false;  // some rank's Loader wants training to end; the same on all ranks
  int64_t skipped_total = 0;
  int64_t tokens = 0;          // positions run, over all ranks, padding included
  int64_t trained_tokens = 0;  // over all ranks
  StepTimes times;
  comm::CommTimes comm;  // of this rank in this step
  OffloadTimes offload;
  std::vector<MemoryPoint> memory;  // of this rank, with memory_breakdown; else empty
  std::vector<BlockTime> blocks;    // of this rank, in the step that flops_profiler asks for
};

struct EvalStats {
  double loss = 0;  // mean over all trained tokens of all ranks
  int64_t trained_tokens = 0;
  bool end_wanted = false;  // some rank's Loader wanted it to end: it was left, and has no loss
};

// Which values of the parameters are saved.
enum class SavedValues { kWorking, kMasters };

struct InitOptions {
  // First values of parameters on the meta device; not needed when the blocks' own parameters hold
  // values.
  std::shared_ptr<model::WeightSource> weights = nullptr;
  // False: it is only evaluated and saved. The engine has no gradients, masters and optimizer state
  // then, wherever these would rest.
  bool trains = true;
  // False: the caller has done require_memory (engine/memory_check.h) on every rank.
  bool checks_memory = true;
  // Asked while weights are read: should this rank's run end? Then initialize throws EndWanted on
  // all ranks. All pass one or none does.
  std::function<bool()> wants_end = nullptr;
};

// What InitOptions::wants_end asked for. The ranks agree: nobody waits for another one.
class EndWanted : public Error {
 public:
  EndWanted() : Error("the reading of weights was ended as some rank wished") {}
};

// After an Error the ranks no longer agree on what comes next: end the process without destroying
// the engine or the mesh, whose connections would wait for peers.
class Engine {
 public:
  virtual ~Engine() = default;

  // One optimizer step over gradient_accumulation_steps micro-batches. Collective: all ranks call
  // it. Throws an Error when the global batch has no trained token, a peer is lost, the step before
  // ended the run (StepStats::failure), or the engine was not made to train (InitOptions::trains).
  // Where all ranks throw at the same block the step has not taken place, but its batch is drawn.
  virtual StepStats train_batch(Loader& data) = 0;

  // Loss without training over `micro_batches` micro-batches of every rank (all ranks pass the same
  // number). Blocks are in evaluation meanwhile, as by torch::nn::Module::eval().
  virtual EvalStats eval_batch(Loader& data, int64_t micro_batches) = 0;

  // For a rate that follows evaluations (reduce_lr_on_plateau): one of what is trained came to
  // `loss`, the same on all ranks.
  virtual void evaluated(double loss) = 0;

  // Every parameter once, whole, in working precision, block by block: `sink` is called on rank 0
  // only, the other ranks take part in the gathers. Collective.
  // With kMasters in fp32: the masters of what is trained, the rest widened.
  virtual void save_model(ModelSink& sink, SavedValues values = SavedValues::kWorking) = 0;
  // DIR/model.safetensors with the blocks' own parameter names. Collective; the file is there when
  // any rank returns. Values that are not finite are never saved: rank 0 throws an Error.
  virtual void save_model(const std::filesystem::path& dir) = 0;

  // What a run goes on from, between two steps. Every rank gives its part of masters and states;
  // collective. On a GPU it waits for what is queued.
  virtual void save_states(StateSink& sink) = 0;
  virtual RunCounters counters() const = 0;
  // A checkpoint of all that, DIR/step-N after N steps (docs/checkpoint.md), and the texts beside
  // it. It is there whole, or not at all, whenever the machine ends. Folders of former steps stay.
  // Collective; what fails on one rank is an Error on all, and the run may go on.
  virtual SavedCheckpoint save_checkpoint(const std::filesystem::path& dir,
                                          const ClientState& client_state = {}) = 0;
  // The newest one in `path` that is complete, or the one that `path` is. One whose bytes are not
  // those that were written gives way to the one before it, on all ranks. Nothing where there is
  // none. It may come from any number of ranks, stage, resting place and precision. Collective.
  // Throws an Error where it is of another model or optimizer, or none can be loaded; then the
  // engine is of no use.
  virtual std::optional<LoadedCheckpoint> load_checkpoint(
      const std::filesystem::path& path, LoadedParts parts = LoadedParts::kAll) = 0;

  // Takes over the states and counters of a run of the same model and optimizer: the next step is
  // the one that would have followed there. Collective. After an Error the engine is of no use.
  virtual void load_states(StateSource& source, const RunCounters& counters) = 0;

  virtual const configs::Config& config() const = 0;
  virtual comm::Mesh& mesh() const = 0;
  // What this rank holds, as planned.
  virtual zero::MemoryPlan memory() const = 0;
  virtual int64_t num_parameters() const = 0;  // whole model, tied weights once
  virtual DecayCounts decay_counts() const = 0;
  // What the user should know of this rank's resting places, one line each.
  virtual std::vector<std::string> notes() const = 0;
  // What this rank is doing, or was when it threw: "backward of block layers.3"; empty between
  // calls.
  virtual std::string doing() const = 0;
  // One line for the start-up summary: "ZeRO stage 2: parameters replicated, gradients and
  // optimizer state sharded".
  virtual std::string strategy() const = 0;
};

// Takes over the blocks: their parameters become views of the engine's buffers, in working
// precision on mesh's device. Collective. Throws an Error that names the key or the parameter; and
// before anything is taken, one that says what would fit when this machine has too little host
// memory or disk left.
std::unique_ptr<Engine> initialize(model::Blocks blocks, const configs::Config& config,
                                   std::shared_ptr<comm::Mesh> mesh,
                                   const InitOptions& options = {});

}  // namespace zeroth::engine

namespace zeroth {
using engine::initialize;
}
