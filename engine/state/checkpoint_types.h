// Requests and results of saving and loading the checkpoints of a run.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "checkpoint/manifest.h"
#include "checkpoint/reader.h"
#include "device/tensor.h"
#include "engine/loader.h"
#include "engine/state/run_state.h"
#include "model/hf/lora_plan.h"
#include "model/spec.h"

namespace zeroth::engine {

// ClientState holds the program's own numbers and strings, which a checkpoint carries.
using ClientState = checkpoint::Counters;

// SavedModel describes a model of a family that transformers knows. Checkpoints use its parameter
// names, and are directories that transformers can load: weights in `dtype`, unset: in the working
// precision.
struct SavedModel {
  model::ModelSpec spec;
  std::optional<torch::Dtype> dtype = {};
  // Set: checkpoints are directories that peft can load: an adapter in fp32, under its names.
  std::optional<model::LoraPlan> adapter = {};
};

// A CheckpointRequest is the same on all ranks.
struct CheckpointRequest {
  ClientState client_state = {};
  // DataLoader whose position is saved too; load_checkpoint() restores it into LoadOptions::data.
  const DataLoader* data = nullptr;
  // Settings of the program's configuration, in addition to the engine's own.
  checkpoint::StringMap must_equal = {}, may_change = {};
  bool states = true;                 // false: the model alone, from which no run can resume
  int64_t keep = 0;                   // newest checkpoints to keep, this one included; 0: all
  std::set<int64_t> keep_steps = {};  // additional steps to keep
  // For start_checkpoint(): maximum bytes of copies that a rank holds at a time. Unset: a quarter
  // of what it saves, but at least 64 MiB (or all, if that is less).
  std::optional<int64_t> memory = {};
  // Called on rank 0: writes additional files into the directory. May throw.
  std::function<void(const std::filesystem::path& directory)> write_files = {};
};

struct SavedCheckpoint {
  std::filesystem::path path;  // "DIR/step-8"
  // Failures after the commit, which remains valid: an old checkpoint that could not be removed.
  std::vector<std::string> warnings = {};
  double blocked_s = 0;  // how long the save blocked this rank's training thread
  // Seconds to create, write, sync and commit the files on this rank: the duration of a save
  // without concurrent training. Excludes the time that the thread of start_checkpoint() waited for
  // updates, and the time from its end until finish_checkpoint().
  double writing_s = 0;
};

enum class LoadedParts {
  kAll,
  kWithoutOptimizer,  // weights and counters; the optimizer's states stay unchanged
  kWeights            // weights alone
};

struct LoadOptions {
  LoadedParts parts = LoadedParts::kAll;
  // DataLoader that continues where CheckpointRequest::data was. Loading throws an Error if no
  // position was saved.
  DataLoader* data = nullptr;
  // Called on every rank for each checkpoint that is tried, before its states are loaded. Rejects
  // it by an Error; with checkpoint::CorruptCheckpoint all ranks try the previous one.
  std::function<void(checkpoint::CheckpointReader& reader)> accept = {};
  // Called while states are read, on this rank's thread.
  OnRead on_read = {};
};

struct LoadedCheckpoint {
  std::filesystem::path path;
  ClientState client_state;
  // Newer checkpoints, skipped as damaged; and that coded states were quantized anew.
  std::vector<std::string> warnings = {};
};

}  // namespace zeroth::engine
