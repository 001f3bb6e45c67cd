// The fingerprint that identifies a run after a restart, on any ranks: values that must be equal
// when it resumes, and values whose changes are only reported.
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

#include "checkpoint/manifest.h"

namespace zeroth::trainer {

struct ResolvedRun;

struct RunFingerprint {
  checkpoint::StringMap must_equal, may_change;
};

// Reads config.json, the tokenizer's file and the training samples, and with adapters all weights
// of the model, which no checkpoint holds. Throws an Error that names the file that cannot be read.
RunFingerprint compute_fingerprint(const ResolvedRun& run);

// Size and CRC32C of a file: of all its bytes up to `max_full_bytes`; of a larger file, of 1,024
// parts of 64 KiB at equal distances, the first and the last one included.
struct FileDigest {
  int64_t bytes = 0;
  uint32_t crc = 0;
};
FileDigest digest_file(const std::filesystem::path& path,
                       int64_t max_full_bytes = int64_t{64} << 20);

// Returns the version of the samples of a resumed run (data::kDataVersion).
int read_data_version(const RunFingerprint& fingerprint);

// A FlagOnlyValue is a value of a run that no file has a key for, and that --allow-change lets
// differ.
struct FlagOnlyValue {
  std::string_view key, flag;
};
inline constexpr auto kFlagOnlyValues = std::to_array<FlagOnlyValue>({
    {"dropout", "--dropout"},
    {"loss_mean", "--loss-mean"},
    {"optimizer.decays_vectors", "--no-decay"},
});

// Returns whether a key is `above`, or is in the section of that name: "optimizer.params.lr" is
// under "optimizer".
bool is_key_under(std::string_view key, std::string_view above);

// Returns whether --allow-change may let a key differ that must otherwise be equal.
bool is_changeable(const std::string& key);

}  // namespace zeroth::trainer
