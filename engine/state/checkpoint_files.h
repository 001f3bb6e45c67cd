// Checkpoints of an engine: saves its states and counters into a directory, and loads them.
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "checkpoint/commit.h"
#include "checkpoint/find.h"
#include "comm/device_mesh.h"
#include "configs/config.h"
#include "engine/state/checkpoint_types.h"
#include "engine/state/mesh_ranks.h"
#include "engine/state/run_state.h"
#include "engine/state/snapshot.h"
#include "engine/state/state_files.h"
#include "model/hf/model_layout.h"

namespace zeroth::engine {

// EngineValues is what a rank saves, or loads into.
struct EngineValues {
  ShardedState held;
  const configs::Config& config;
  const std::string& strategy;  // for messages
};

// CheckpointFiles saves and loads checkpoints. All calls are collective, and a failure on one rank
// is an Error on all.
class CheckpointFiles {
 public:
  explicit CheckpointFiles(comm::DeviceMesh& mesh);
  ~CheckpointFiles();

  // Sets InitOptions::saved_model. Call it before any other method.
  void set_saved_model(std::optional<SavedModel> model) { model_ = std::move(model); }

  // Implements Engine::save_checkpoint.
  SavedCheckpoint save(const std::filesystem::path& directory, const EngineValues& values,
                       const RunCounters& counters, const CheckpointRequest& request);
  // Implement Engine::start_checkpoint (while none is pending) and finish_checkpoint (while one
  // is).
  void start(const std::filesystem::path& directory, const EngineValues& values,
             const RunCounters& counters, const CheckpointRequest& request);
  SavedCheckpoint finish();
  bool is_saving() const { return async_save_ != nullptr; }
  // Called at the end of each step: writes() returns whether this rank still writes a checkpoint;
  // set_ranks_writing() then gets the number of ranks that do, the same on all.
  bool writes();
  void set_ranks_writing(int64_t ranks_that_write);
  bool written() const { return is_saving() && written_; }
  // Called after each step's update.
  void after_update();
  // Implements Engine::keep_checkpoints.
  std::vector<std::string> keep(const std::filesystem::path& directory, int64_t newest,
                                const std::set<int64_t>& steps);

  struct LoadResult {
    LoadedCheckpoint checkpoint;
    RunCounters counters;
  };
  // Implements Engine::load_checkpoint: loads into `values`, and returns the counters, which the
  // caller takes over.
  std::optional<LoadResult> load(const std::filesystem::path& path, const EngineValues& values,
                                 const LoadOptions& options);

 private:
  checkpoint::Saver& saver(const std::filesystem::path& directory);
  StoredName stored_name() const;
  // Returns the layout of the model that the ranks save together; nullopt if no model is to be
  // saved.
  std::optional<model::ModelLayout> model_layout(const ShardedState& held) const;
  struct PreparedSave;
  struct AsyncSave;
  PreparedSave begin(const std::filesystem::path& directory, const EngineValues& values,
                     const RunCounters& counters, const CheckpointRequest& request);
  SavedCheckpoint commit(PreparedSave& prepared, checkpoint::RankManifest mine);
  // Finds the checkpoint. The result is the same on all ranks.
  checkpoint::CheckpointLocation locate(const std::filesystem::path& path);

  MeshRanks ranks_;
  std::optional<SavedModel> model_;
  std::map<std::filesystem::path, std::unique_ptr<checkpoint::Saver>> savers_;
  std::optional<checkpoint::Parent> parent_;
  std::string run_id_;  // empty: not known yet
  std::unique_ptr<SnapshotMemory> memory_;
  std::unique_ptr<AsyncSave> async_save_;
  bool written_ = false;  // the same on all ranks
};

}  // namespace zeroth::engine
