// What makes a run the same run after it was ended, on whichever ranks: what must be equal where it
// goes on, and what is only told.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "checkpoint/manifest.h"

namespace zeroth::trainer {

struct RunPlan;

struct RunFingerprint {
  checkpoint::StringMap must_equal, may_change;
};

// Reads config.json, the tokenizer's file and the training samples. Throws an Error that names the
// one that cannot be read.
RunFingerprint compute_fingerprint(const RunPlan& plan);

// A file by its size and CRC32C: of all its bytes up to 64 MiB, beyond that of 1,024 parts of 64
// KiB at equal distances, the first and the last one among them.
struct FileDigest {
  int64_t bytes = 0;
  uint32_t crc = 0;
};
FileDigest digest_file(const std::filesystem::path& path);

// How the samples of a run that goes on are made (data::kDataVersion).
int read_data_version(const RunFingerprint& fingerprint);

// Whether --allow-change may let a key differ that must be equal.
bool is_changeable(const std::string& key);

}  // namespace zeroth::trainer
