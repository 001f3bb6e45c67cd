// An engine's checkpoints: its states and counters in a directory, and back.
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
#include "engine/checkpoint_types.h"
#include "engine/mesh_ranks.h"
#include "engine/run_state.h"
#include "engine/snapshot.h"
#include "engine/state_files.h"
#include "model/hf/model_layout.h"

namespace zeroth::engine {

// What a rank has to save, or where it loads to.
struct EngineValues {
  ShardedState held;
  const configs::Config& config;
  const std::string& strategy;  // for people
};

// All calls are collective, and what fails on one rank is an Error on all.
class CheckpointFiles {
 public:
  explicit CheckpointFiles(comm::DeviceMesh& mesh);
  ~CheckpointFiles();

  // As InitOptions::saved_model; before the first call.
  void set_saved_model(std::optional<SavedModel> model) { model_ = std::move(model); }

  // As Engine::save_checkpoint.
  SavedCheckpoint save(const std::filesystem::path& directory, const EngineValues& values,
                       const RunCounters& counters, const CheckpointRequest& request);
  // As Engine::start_checkpoint, where none is under way, and finish_checkpoint, where one is.
  void start(const std::filesystem::path& directory, const EngineValues& values,
             const RunCounters& counters, const CheckpointRequest& request);
  SavedCheckpoint finish();
  bool is_saving() const { return async_save_ != nullptr; }
  // At the end of each step: whether this rank still writes one; then how many ranks do, which is
  // the same on all.
  bool writes();
  void set_ranks_writing(int64_t ranks_that_write);
  bool written() const { return is_saving() && written_; }
  // Behind each step's update.
  void after_update();
  // As Engine::keep_checkpoints.
  std::vector<std::string> keep(const std::filesystem::path& directory, int64_t newest,
                                const std::set<int64_t>& steps);

  struct LoadResult {
    LoadedCheckpoint checkpoint;
    RunCounters counters;
  };
  // As Engine::load_checkpoint; values are loaded, and the counters are to be taken over.
  std::optional<LoadResult> load(const std::filesystem::path& path, const EngineValues& values,
                                 const LoadOptions& options);

 private:
  checkpoint::Saver& saver(const std::filesystem::path& directory);
  StoredName stored_name() const;
  // Of what the ranks save; nothing where no model is asked for.
  std::optional<model::ModelLayout> model_layout(const ShardedState& held) const;
  struct PreparedSave;
  struct AsyncSave;
  PreparedSave begin(const std::filesystem::path& directory, const EngineValues& values,
                     const RunCounters& counters, const CheckpointRequest& request);
  SavedCheckpoint commit(PreparedSave& prepared, checkpoint::RankManifest mine);
  // The same for all ranks.
  checkpoint::CheckpointLocation locate(const std::filesystem::path& path);

  MeshRanks ranks_;
  std::optional<SavedModel> model_;
  std::map<std::filesystem::path, std::unique_ptr<checkpoint::Saver>> savers_;
  std::optional<checkpoint::Parent> parent_;
  std::string run_id_;  // empty: none is known yet
  std::unique_ptr<SnapshotMemory> memory_;
  std::unique_ptr<AsyncSave> async_save_;
  bool written_ = false;  // as all ranks know
};

}  // namespace zeroth::engine
