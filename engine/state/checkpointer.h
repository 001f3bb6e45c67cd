// Checkpoints of an engine: its states and counters in a directory.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "checkpoint/commit.h"
#include "checkpoint/rank_group.h"
#include "comm/device_mesh.h"
#include "configs/config.h"
#include "engine/state/checkpoint_types.h"
#include "engine/state/run_state.h"
#include "engine/state/snapshot.h"
#include "engine/state/state_files.h"

namespace zeroth::engine {

// MeshRanks presents a mesh's ranks as a checkpoint's RankGroup.
class MeshRanks : public checkpoint::RankGroup {
 public:
  explicit MeshRanks(comm::DeviceMesh& mesh) : mesh_(mesh) {}

  int rank() const override { return mesh_.rank(); }
  int size() const override { return mesh_.world_size(); }
  std::vector<std::string> gather(const std::string& mine) override;

 private:
  comm::DeviceMesh& mesh_;
};

// CheckpointedRun is what checkpoints save of a run, and load into.
struct CheckpointedRun {
  ShardedState held;
  const configs::Config& config;
  const std::string& strategy;      // for messages
  std::optional<SavedModel> model;  // InitOptions::saved_model
};

// Checkpointer saves and loads the checkpoints of an engine. All calls are collective, and a
// failure on one rank is an Error on all.
class Checkpointer {
 public:
  // Keeps references to the mesh and to what `run` refers to.
  Checkpointer(comm::DeviceMesh& mesh, CheckpointedRun run);
  ~Checkpointer();

  // Implement the methods of Engine with such names.
  SavedCheckpoint save(const std::filesystem::path& directory, const RunCounters& counters,
                       const CheckpointRequest& request);
  std::optional<SavedCheckpoint> start(const std::filesystem::path& directory,
                                       const RunCounters& counters,
                                       const CheckpointRequest& request);
  SavedCheckpoint finish();
  bool is_saving() const { return async_save_ != nullptr; }
  // Finishes the pending checkpoint, if there is one.
  std::optional<SavedCheckpoint> finish_pending();
  // Called at the end of each step: writes() returns whether this rank still writes a checkpoint;
  // set_ranks_writing() then gets the number of ranks that do, and returns whether a pending
  // checkpoint is written on all.
  bool writes();
  bool set_ranks_writing(int64_t ranks_that_write);
  // Called after each step's update.
  void after_update();
  // Implements Engine::keep_checkpoints.
  std::vector<std::string> keep(const std::filesystem::path& directory, int64_t newest,
                                const std::set<int64_t>& steps);

  struct LoadResult {
    LoadedCheckpoint checkpoint;
    RunCounters counters;
  };
  // Implements Engine::load_checkpoint, and returns the counters, which the caller takes over.
  std::optional<LoadResult> load(const std::filesystem::path& path, const LoadOptions& options);

 private:
  checkpoint::Saver& saver(const std::filesystem::path& directory);
  StoredName stored_name() const;
  struct PreparedSave;
  struct AsyncSave;
  PreparedSave begin(const std::filesystem::path& directory, const RunCounters& counters,
                     const CheckpointRequest& request);
  SavedCheckpoint commit(PreparedSave& prepared, checkpoint::RankManifest mine);

  MeshRanks ranks_;
  const CheckpointedRun run_;
  std::map<std::filesystem::path, std::unique_ptr<checkpoint::Saver>> savers_;
  std::optional<checkpoint::Parent> parent_;
  std::string run_id_;  // empty: not known yet
  std::unique_ptr<SnapshotMemory> memory_;
  std::unique_ptr<AsyncSave> async_save_;
  bool written_ = false;  // the same on all ranks
};

}  // namespace zeroth::engine
