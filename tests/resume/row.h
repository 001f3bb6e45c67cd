// One way to run a tiny model, which is ended and goes on.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "configs/config.h"

namespace zeroth::resume {

inline constexpr int64_t kGlobalBatch = 24;
inline constexpr int64_t kSamples = 40;  // so that three steps reach into a second epoch

struct Row {
  int stage = 0;
  configs::OffloadDevice offload_device =
      configs::OffloadDevice::kNone;  // optimizer, in stage 3 all
  configs::Precision precision = configs::Precision::kFp32;
  int64_t accumulation = 1;
  bool recompute = false;
  double dropout = 0;
  int ranks = 1;   // that see different samples
  int tensor = 1;  // for each of these so many that share every layer
  int pipe = 1;    // stages of as many ranks as these together
  configs::PipelineConfig::Schedule schedule = configs::PipelineConfig::Schedule::k1F1B;
  std::string model = "llama";  // a folder of tests/model/fixtures
};

std::string name_of(const Row& row);

// Steps from .. to of a run; where there are none what was loaded is saved again.
struct Part {
  int64_t from = 0, to = 6;
  std::filesystem::path load = {};  // a checkpoint behind step `from`
  // The folder for one behind step `save_at`, written while training goes on, and one at the end.
  std::filesystem::path save = {};
  int64_t save_at = 3;
};

struct Seen {
  std::vector<double> losses, norms;
  std::vector<bool> skipped;
  std::map<int64_t, std::multiset<int64_t>> samples;  // by step, from 0
};

Seen run(const Row& row, const Part& part);

// The bytes of a checkpoint's files, by name; its manifest, which has times in it, left out.
std::map<std::string, std::string> bytes_of(const std::filesystem::path& checkpoint);

}  // namespace zeroth::resume
