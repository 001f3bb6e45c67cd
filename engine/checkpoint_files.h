// An engine's checkpoints: its states and counters in a folder, and back.
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "checkpoint/commit.h"
#include "checkpoint/find.h"
#include "comm/mesh.h"
#include "configs/config.h"
#include "engine/checkpoint_types.h"
#include "engine/mesh_ranks.h"
#include "engine/run_state.h"

namespace zeroth::engine {

// What a rank has to save, or where it loads to.
struct EngineValues {
  HeldValues held;
  const configs::Config& config;
  const std::string& strategy;  // for people
};

// All calls are collective, and what fails on one rank is an Error on all.
class CheckpointFiles {
 public:
  explicit CheckpointFiles(comm::Mesh& mesh) : ranks_(mesh) {}

  // As Engine::save_checkpoint.
  SavedCheckpoint save(const std::filesystem::path& folder, const EngineValues& values,
                       const RunCounters& counters, const ClientState& client_state);

  struct Loaded {
    LoadedCheckpoint told;
    RunCounters counters;
  };
  // As Engine::load_checkpoint; values are loaded, and the counters are to be taken over.
  std::optional<Loaded> load(const std::filesystem::path& path, const EngineValues& values,
                             LoadedParts parts);

 private:
  checkpoint::Saver& saver(const std::filesystem::path& folder);
  // The same for all ranks.
  checkpoint::Place locate(const std::filesystem::path& path);
  MeshRanks ranks_;
  std::map<std::filesystem::path, std::unique_ptr<checkpoint::Saver>> savers_;
  std::optional<checkpoint::Parent> parent_;
};

}  // namespace zeroth::engine
