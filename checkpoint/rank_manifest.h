// What each rank has written of a checkpoint, and how that becomes one list. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/coverage.h"
#include "checkpoint/manifest.h"

namespace zeroth::checkpoint {

// Bytes of a file that several ranks write, each its own.
struct FileSegment {
  std::string file;  // its name, relative to the checkpoint's folder
  int64_t offset = 0;
  int64_t size = 0;
  uint32_t crc = 0;
  bool operator==(const FileSegment&) const = default;
};

struct RankManifest {
  std::vector<StoredFile> files = {};  // that this rank alone wrote
  std::vector<FileSegment> parts = {};
};

// A rank's contribution, and what all must have in common.
struct RankReport {
  int64_t step = 0;
  std::string attempt;
  StringMap must_equal = {};
  RankManifest rank_manifest = {};
};

std::string to_string(const RankReport& report);
RankReport parse_report(std::string_view text);

// The files of all ranks, with those that came in parts. Throws an Error that names the ranks and
// both values where they are not of one save, and what coverage_errors() says. Parts must make
// up their file from its first byte on.
std::vector<StoredFile> merge_reports(const std::vector<RankReport>& reports,
                                      const std::vector<ExpectedState>& expected);

}  // namespace zeroth::checkpoint
