// Trains a chain of blocks: zeroth::initialize(blocks, config), then train_batch again and again.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/error.h"
#include "comm/device_mesh.h"
#include "configs/config.h"
#include "engine/checkpoint_types.h"
#include "engine/loader.h"
#include "engine/memory_estimate.h"
#include "engine/model_sink.h"
#include "engine/run_state.h"
#include "engine/step_stats.h"
#include "model/block.h"
#include "model/weight_source.h"

namespace zeroth::engine {

// Which values of the parameters are saved.
enum class SavedValues { kWorking, kMasters };

struct InitOptions {
  // First values of parameters on the meta device; not needed when the blocks' own parameters hold
  // values.
  std::shared_ptr<model::WeightSource> weights = nullptr;
  // True: load_checkpoint() brings all values before anything else is asked for, and `weights` is
  // not read.
  bool awaits_checkpoint = false;
  // False: it is only evaluated and saved. The engine has no gradients, masters and optimizer state
  // then, wherever these would rest.
  bool trains = true;
  // False: the caller has done require_memory (engine/memory_check.h) on every rank.
  bool checks_memory = true;
  // Asked while weights are read: should this rank's run end? Then initialize throws StopRequested
  // on all ranks. All pass one or none does.
  std::function<bool()> stop_requested = nullptr;
  // Called while weights are read, on this rank's thread.
  OnRead on_read = nullptr;
  // True: there will be calls of start_checkpoint(), whose memory is counted.
  bool saves_beside_training = false;
  // Of checkpoints; unset: they have the blocks' own names for parameters, and hold no model.
  std::optional<SavedModel> saved_model = {};
};

// What InitOptions::stop_requested asked for. The ranks agree: nobody waits for another one.
class StopRequested : public Error {
 public:
  StopRequested() : Error("the reading of weights was ended as some rank wished") {}
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
  // A checkpoint of all that, DIR/step-N after N steps (docs/checkpoint.md), and what the request
  // adds. It is there whole, or not at all, whenever the machine ends. Folders of former steps
  // stay. Collective; what fails on one rank is an Error on all, and the run may go on.
  virtual SavedCheckpoint save_checkpoint(const std::filesystem::path& dir,
                                          const CheckpointRequest& request = {}) = 0;
  // The same while training goes on: it returns once what is saved cannot change any more, and
  // updates make copies of what is not written yet (CheckpointRequest::memory); where these have
  // no more room, updates wait. Not a bit of the run changes. What fails now is an Error on all
  // ranks; what fails later is one of finish_checkpoint(). One that is under way is ended first,
  // and returned; its Error leaves none under way. So do save_checkpoint(), load_checkpoint() and
  // load_states(). An engine that goes leaves it: there is no such checkpoint then. Collective.
  virtual std::optional<SavedCheckpoint> start_checkpoint(
      const std::filesystem::path& dir, const CheckpointRequest& request = {}) = 0;
  // Waits for what is not written yet, and makes it a checkpoint. Collective; what failed on one
  // rank is an Error on all, and the run may go on.
  virtual SavedCheckpoint finish_checkpoint() = 0;
  virtual bool has_pending_checkpoint() const = 0;
  // Of the checkpoints in `dir` keeps `newest` and `steps`. Rank 0 returns what went wrong.
  virtual std::vector<std::string> keep_checkpoints(const std::filesystem::path& dir,
                                                    int64_t newest,
                                                    const std::set<int64_t>& steps) = 0;
  // The newest one in `path` that is complete, or the one that `path` is. One whose bytes are not
  // those that were written gives way to the one before it, on all ranks. Nothing where there is
  // none. Ranks, stage, resting place and precision may be others. Collective.
  // Throws an Error where it is of another model or optimizer, or none can be loaded; then the
  // engine is of no use.
  virtual std::optional<LoadedCheckpoint> load_checkpoint(const std::filesystem::path& path,
                                                          const LoadOptions& options = {}) = 0;

  // Takes over the states and counters of a run of the same model and optimizer: the next step is
  // the one that would have followed there. Collective. After an Error the engine is of no use.
  virtual void load_states(StateSource& source, const RunCounters& counters) = 0;

  virtual const configs::Config& config() const = 0;
  virtual comm::DeviceMesh& mesh() const = 0;
  // What this rank holds, as planned.
  virtual zero::MemoryPlan memory() const = 0;
  virtual int64_t num_parameters() const = 0;  // whole model, tied weights once
  virtual DecayCounts decay_counts() const = 0;
  // What the user should know of this rank's resting places, one line each.
  virtual std::vector<std::string> notes() const = 0;
  // What this rank is doing, or was when it threw: "backward of block layers.3"; empty between
  // calls.
  virtual std::string current_operation() const = 0;
  // One line for the start-up summary: "ZeRO stage 2: parameters replicated, gradients and
  // optimizer state sharded".
  virtual std::string strategy() const = 0;
  // What a measurement at the start chose where offload_optimizer.step is kAuto: kCpu or kGpu. A
  // run that goes on with the same bits is told it.
  virtual std::optional<configs::OffloadOptimizerConfig::UpdateDevice> measured_step() const = 0;
};

// Takes over the blocks: their parameters become views of the engine's buffers, in working
// precision on mesh's device. Collective. Throws an Error that names the key or the parameter; and
// before anything is taken, one that says what would fit when this machine has too little host
// memory or disk left.
std::unique_ptr<Engine> initialize(model::Blocks blocks, const configs::Config& config,
                                   std::shared_ptr<comm::DeviceMesh> mesh,
                                   const InitOptions& options = {});

}  // namespace zeroth::engine

namespace zeroth {
using engine::initialize;
}
