// Engine: trains a chain of blocks. Call zeroth::initialize(blocks, config), then train_batch
// repeatedly.
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
#include "configs/config.h"
#include "engine/loader.h"
#include "engine/state/checkpoint_types.h"
#include "engine/state/run_state.h"
#include "engine/step/step_stats.h"
#include "model/block.h"

namespace zeroth::device {
struct HostLink;
}
namespace zeroth::zero {
struct MemoryPlan;
}

namespace zeroth::engine {

struct DecayCounts;
class ModelSink;

// SavedValues selects the values of the parameters that are saved.
enum class SavedValues { kWorking, kMasters };

struct InitOptions {
  // Initial values of parameters on the meta device; not needed if the blocks' own parameters hold
  // values.
  std::shared_ptr<model::WeightSource> weights = nullptr;
  // True: load_checkpoint() loads all saved values before any other call, and `weights` is not read
  // for them.
  bool awaits_checkpoint = false;
  // False: the engine only evaluates and saves. It has no gradients, masters and optimizer states
  // then, on any device.
  bool trains = true;
  // False: checkpoints and saved models hold the trainable parameters only. The frozen ones are
  // read from `weights`, also if the engine awaits a checkpoint.
  bool saves_frozen = true;
  // False: the caller has called require_memory (engine/memory/memory_check.h) on every rank.
  bool checks_memory = true;
  // Seconds that each block takes for a micro-batch, which divide the blocks among the stages of a
  // pipeline by time (configs::PipelineConfig::partition); the same on all ranks. Empty: unknown.
  std::vector<double> block_times = {};
  // Called while weights are read: returns whether this rank requests a stop. Then initialize
  // throws StopRequested on all ranks. Either all ranks pass a function or none does.
  std::function<bool()> stop_requested = nullptr;
  // Called while weights are read, on this rank's thread.
  OnRead on_read = nullptr;
  // True: start_checkpoint() will be called, so its memory is counted.
  bool saves_beside_training = false;
  // Model saved in checkpoints; unset: they use the blocks' own parameter names, and hold no model.
  std::optional<SavedModel> saved_model = {};
};

// StopRequested is thrown when InitOptions::stop_requested returned true on some rank. The ranks
// agree on it, so that no rank waits for another.
class StopRequested : public Error {
 public:
  StopRequested() : Error("reading weights was stopped at the request of a rank") {}
};

// Engine trains, evaluates and saves one model. After an Error the ranks no longer agree on the
// next operation: end the process without destroying the engine or the mesh, whose connections
// would wait for peers.
class Engine {
 public:
  // Makes the engine of initialize(), whose parameters have no values yet: for initialize() itself,
  // and for tests, which pass `link` on to zero::make_strategy.
  Engine(model::Blocks blocks, const configs::Config& config,
         std::shared_ptr<comm::DeviceMesh> mesh, const InitOptions& options = {},
         std::shared_ptr<device::HostLink> link = nullptr);
  ~Engine();

  // Runs one optimizer step over gradient_accumulation_steps micro-batches. Collective over all
  // ranks. Throws an Error if the global batch has no label token, a peer is lost, the previous
  // step ended the run (StepDecision::failure), or the engine was not made to train
  // (InitOptions::trains). If all ranks throw at the same block, the step has not taken place, but
  // its batch is consumed.
  StepStats train_batch(DataLoader& data);
  // Makes the next train_batch() fill rank 0's StepStats::timelines, for which the ranks, and their
  // devices, wait for each other before it and after it. All ranks must call it.
  void trace_next_step();
  // Returns what the ranks agreed on in the last train_batch().
  const StepDecision& decision() const;

  // Returns the loss, without training, over `micro_batches` micro-batches of every rank (all ranks
  // pass the same number). Blocks are in evaluation mode meanwhile, as by
  // torch::nn::Module::eval().
  EvalStats eval_batch(DataLoader& data, int64_t micro_batches);

  // Reports an evaluation's loss, the same on all ranks, to a schedule that follows evaluations
  // (reduce_lr_on_plateau).
  void evaluated(double loss);

  // Saves every full parameter once, in working precision, block by block. Calls `sink` on rank 0,
  // and in a pipeline on the ranks whose sinks join it; the others take part in the gathers.
  // Collective. With kMasters values are in fp32: masters of trainable parameters, and the other
  // parameters widened. Without InitOptions::saves_frozen only units of trainable parameters are
  // gathered, and saved.
  void save_model(ModelSink& sink, SavedValues values = SavedValues::kWorking);
  // Writes DIR/model.safetensors with the blocks' own parameter names. Collective; the file exists
  // when any rank returns. Rank 0 throws an Error if a value is not finite, and saves nothing.
  void save_model(const std::filesystem::path& dir);

  // Saves the states from which a run resumes, between two steps. Every rank writes its part of
  // masters and states. Collective. On a GPU it waits for queued work.
  void save_states(StateSink& sink);
  RunCounters counters() const;
  // Saves states, counters and what the request adds as checkpoint DIR/step-N after N steps
  // (docs/checkpoint.md). The commit is atomic, even if the machine crashes. Directories of earlier
  // steps stay. Collective; a failure on one rank is an Error on all, and the run may continue.
  SavedCheckpoint save_checkpoint(const std::filesystem::path& dir,
                                  const CheckpointRequest& request = {});
  // Starts a checkpoint that is written while training continues. Returns once later updates cannot
  // change what is saved: they copy values that are not written yet (CheckpointRequest::memory),
  // and wait while there is no room for copies. The run's results do not change by a bit. An
  // immediate failure is an Error on all ranks; finish_checkpoint() throws a later one. A pending
  // checkpoint is finished first, and returned; if that throws, none is pending. save_checkpoint(),
  // load_checkpoint() and load_states() finish it likewise. Destroying the engine abandons it: no
  // checkpoint results. Collective.
  std::optional<SavedCheckpoint> start_checkpoint(const std::filesystem::path& dir,
                                                  const CheckpointRequest& request = {});
  // Waits until everything is written, and commits the checkpoint. Collective; a failure on one
  // rank is an Error on all, and the run may continue.
  SavedCheckpoint finish_checkpoint();
  bool has_pending_checkpoint() const;
  // Removes the checkpoints in `dir` except the `newest` ones and `steps`. Rank 0 returns the
  // failures.
  std::vector<std::string> keep_checkpoints(const std::filesystem::path& dir, int64_t newest,
                                            const std::set<int64_t>& steps);
  // Loads the newest complete checkpoint in `path`, or the one that `path` is. All ranks fall back
  // to the previous checkpoint if one's bytes are corrupt. Returns nullopt if there is none. Number
  // of ranks, stage, offload device and precision may differ from the saved run's. Collective.
  // Throws an Error if the checkpoint belongs to another model or optimizer, or none can be loaded;
  // the engine is unusable then.
  std::optional<LoadedCheckpoint> load_checkpoint(const std::filesystem::path& path,
                                                  const LoadOptions& options = {});

  // Loads the states and counters of a run of the same model and optimizer: the next step is the
  // one that would have followed there. Collective. After an Error the engine is unusable.
  void load_states(StateSource& source, const RunCounters& counters);

  const configs::Config& config() const;
  comm::DeviceMesh& mesh() const;
  // Returns this rank's planned memory.
  zero::MemoryPlan memory() const;
  int64_t num_parameters() const;  // of the full model, tied weights once; of NF4 its bytes
  DecayCounts decay_counts() const;
  // Returns notes for the user on this rank's offload devices, one line each.
  std::vector<std::string> notes() const;
  // Returns this rank's operation, or the one during which it threw: "backward of block layers.3",
  // in a pipeline "backward of block layers.3 (stage 1)"; empty between calls.
  std::string current_operation() const;
  // Returns one line for the start-up summary: "ZeRO stage 2: parameters replicated, gradients and
  // optimizer state sharded".
  std::string strategy() const;
  // Returns what a measurement at the start chose if offload_optimizer.step is kAuto: kCpu or kGpu.
  // A run that resumes with the same bits gets this value.
  std::optional<configs::OffloadOptimizerConfig::UpdateDevice> measured_step() const;

  class Impl;
  // Returns the implementation (engine/engine_impl.h), for initialize() and for tests that inspect
  // the engine.
  Impl& impl() { return *impl_; }

 private:
  std::unique_ptr<Impl> impl_;
};

// Takes over the blocks: their parameters become views of the engine's buffers, in working
// precision on the mesh's device. Collective. Throws an Error that names the key or the parameter.
// Throws one that suggests a fitting configuration, before it allocates anything, if this node has
// too little CPU memory or disk space left.
std::unique_ptr<Engine> initialize(model::Blocks blocks, const configs::Config& config,
                                   std::shared_ptr<comm::DeviceMesh> mesh,
                                   const InitOptions& options = {});

}  // namespace zeroth::engine

namespace zeroth {
using engine::initialize;
}
