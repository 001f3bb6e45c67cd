// The list of a checkpoint's contents, which makes it complete: each listed file exists with the
// listed size, and other files do not belong to it.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "checkpoint/chunk_file.h"
#include "checkpoint/counters.h"
#include "checkpoint/file_system.h"

namespace zeroth::checkpoint {

inline constexpr int64_t kVersion = 1;
inline constexpr std::string_view kChunkDirectory = "zeroth";
inline constexpr std::string_view kManifest = "zeroth/manifest.json";

// Returns "zeroth/pieces-00001.safetensors", the file that the rank writes.
std::string chunk_file_name(int64_t rank);

// A CorruptCheckpoint reports bytes that differ from those written. Loaders try the previous
// checkpoint.
class CorruptCheckpoint : public Error {
 public:
  using Error::Error;
};

using StringMap = std::map<std::string, std::string>;

// A Parent is the checkpoint that a run resumed from.
struct Parent {
  int64_t step = 0;
  uint32_t crc = 0;  // of its manifest
  bool operator==(const Parent&) const = default;
};

struct Manifest {
  int64_t step = 0;
  std::string run_id = {};
  std::string attempt = {};  // to save; unique in a directory of checkpoints
  int64_t written = 0;       // seconds since 1970
  std::optional<Parent> parent = {};
  StringMap must_equal = {};  // configuration, by key; a difference refuses a resume
  StringMap may_change = {};  // configuration, by key; a difference is reported
  Counters counters = {};     // all values that are not tensors
  StringMap layout = {};      // ranks and ZeRO stage, informational
  std::vector<StoredFile> files = {};

  bool operator==(const Manifest&) const = default;
};

// Throws an Error if it could not be parsed back: it exceeds a reader's limits, or a chunk is
// invalid.
std::string to_string(const Manifest& manifest);

// Throws CorruptCheckpoint if the text is invalid or of another format or version. The message
// begins with `name` and has the key.
Manifest parse_manifest(std::string_view text, const std::string& name);

// Returns the CRC of the text without its last line but one, which is the CRC that the text stores
// near its end. Returns nothing if the text does not end as a manifest does.
std::optional<uint32_t> manifest_crc(std::string_view text);

struct ManifestFile {
  Manifest manifest;
  uint32_t crc = 0;
  int64_t size = 0;
};

// Reads the manifest of the checkpoint in `directory` ("" is the file system's root). Checks that
// all its files exist with their sizes. Throws CorruptCheckpoint otherwise.
ManifestFile read_manifest(FileSystem& file_system, const std::string& directory);

// A Difference is a key with unequal values, or on one side only: "lr: 0.1 there, 0.2 here".
struct Difference {
  std::string key;
  std::optional<std::string> stored, now;
};
std::vector<Difference> differences(const StringMap& stored, const StringMap& now);

}  // namespace zeroth::checkpoint
