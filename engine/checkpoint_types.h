// What a program says about the checkpoints of its run, and what saving and loading say to it.
#pragma once

#include <torch/types.h>

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "checkpoint/manifest.h"
#include "checkpoint/reader.h"
#include "engine/loader.h"
#include "engine/run_state.h"
#include "model/spec.h"

namespace zeroth::engine {

// Numbers and texts of one's own that a checkpoint carries.
using ClientState = checkpoint::Counters;

// A model of a family that transformers knows. Checkpoints have its names for parameters, and are
// folders that transformers loads: the weights in `dtype`, unset: working precision.
struct SavedModel {
  model::ModelSpec spec;
  std::optional<torch::Dtype> dtype = {};
};

// The same on all ranks.
struct CheckpointRequest {
  ClientState client_state = {};
  // Whose position is saved, too: where load_checkpoint() sends LoadOptions::data.
  const Loader* data = nullptr;
  // Of the program's configuration, beside what the engine says itself.
  checkpoint::StringMap must_equal = {}, may_change = {};
  bool states = true;                 // false: the model alone, of which no run goes on
  int64_t keep = 0;                   // so many of the newest stay, this one included; 0: all
  std::set<int64_t> keep_steps = {};  // and these
  // Of start_checkpoint(): bytes of copies that a rank may make at a time. Unset: a quarter of what
  // it saves, and 64 MiB of that in any case.
  std::optional<int64_t> memory = {};
  // On rank 0: writes what else belongs into the directory. May throw.
  std::function<void(const std::filesystem::path& directory)> write_files = {};
};

struct SavedCheckpoint {
  std::filesystem::path path;  // "DIR/step-8"
  // What went wrong behind the commit, which stands: an old one that could not be removed.
  std::vector<std::string> warnings = {};
  double blocked_s = 0;  // of this rank's training thread
  // To make, write, sync and commit the files, on this rank: as long as a save takes that has
  // nothing beside it. What the thread of start_checkpoint() waited for updates is not in it, nor
  // the time from its end until finish_checkpoint().
  double writing_s = 0;
};

enum class LoadedParts {
  kAll,
  kWithoutOptimizer,  // weights and counters; the optimizer's states stay as they are
  kWeights            // these alone
};

struct LoadOptions {
  LoadedParts parts = LoadedParts::kAll;
  // Goes on where CheckpointRequest::data was. An Error where no position was saved.
  Loader* data = nullptr;
  // On every rank, for each checkpoint that is tried, before its states are loaded. An Error
  // refuses it; checkpoint::CorruptCheckpoint sends all ranks to the one before.
  std::function<void(checkpoint::CheckpointReader& reader)> accept = {};
  // Called while states are read, on this rank's thread.
  OnRead on_read = {};
};

struct LoadedCheckpoint {
  std::filesystem::path path;
  ClientState client_state;
  std::vector<std::string> warnings = {};  // newer ones that are damaged, and were passed by
};

}  // namespace zeroth::engine
