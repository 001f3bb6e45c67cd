// The list of all that a checkpoint consists of, with which it is complete: what is listed is there
// in this size, and what is not listed does not belong to it.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/error.h"
#include "checkpoint/chunk_file.h"
#include "checkpoint/file_system.h"

namespace zeroth::checkpoint {

inline constexpr int64_t kVersion = 1;
inline constexpr std::string_view kChunkDirectory = "zeroth";
inline constexpr std::string_view kManifest = "zeroth/manifest.json";

// "zeroth/pieces-00001.safetensors": what the rank writes.
std::string chunk_file_name(int64_t rank);

// A checkpoint whose bytes are not those that were written. Whoever loads takes the one before.
class CorruptCheckpoint : public Error {
 public:
  using Error::Error;
};

// Doubles come back bit by bit, but for the payload of a NaN.
using Counter = std::variant<int64_t, double, std::string>;
using Counters = std::map<std::string, Counter>;
using StringMap = std::map<std::string, std::string>;

// The checkpoint that a run continued from.
struct Parent {
  int64_t step = 0;
  uint32_t crc = 0;  // of its manifest
  bool operator==(const Parent&) const = default;
};

struct Manifest {
  int64_t step = 0;
  std::string run_id = {};
  std::string attempt = {};  // to save; unique in a folder of checkpoints
  int64_t written = 0;       // seconds since 1970
  std::optional<Parent> parent = {};
  StringMap must_equal = {};  // of the configuration: what resuming refuses to differ, by key
  StringMap may_change = {};  // and what it tells
  Counters counters = {};     // all that is no tensor
  StringMap layout = {};      // ranks, stage: for people
  std::vector<StoredFile> files = {};

  bool operator==(const Manifest&) const = default;
};

// Throws an Error where it would not be read again: beyond the limits of a reader, or no piece.
std::string to_string(const Manifest& manifest);

// Throws CorruptCheckpoint, which begins with `name`, then has the key: for another format or
// version too.
Manifest parse_manifest(std::string_view text, const std::string& name);

// Of the text, its last line but one left out: what the text itself says at its end. Nothing where
// the text does not end as a manifest does.
std::optional<uint32_t> manifest_crc(std::string_view text);

struct ManifestFile {
  Manifest manifest;
  uint32_t crc = 0;
  int64_t size = 0;
};

// Of the checkpoint in `directory` ("": the disk's own). Also looks for all its files and their
// sizes. Throws CorruptCheckpoint.
ManifestFile read_manifest(FileSystem& file_system, const std::string& directory);

// Keys whose value is not the same, and keys that only one side has: "lr: 0.1 there, 0.2 here".
struct Difference {
  std::string key;
  std::optional<std::string> stored, now;
};
std::vector<Difference> differences(const StringMap& stored, const StringMap& now);

}  // namespace zeroth::checkpoint
