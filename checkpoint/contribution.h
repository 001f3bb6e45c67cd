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
struct FilePart {
  std::string file;  // its name, relative to the checkpoint's folder
  int64_t offset = 0;
  int64_t size = 0;
  uint32_t crc = 0;
  bool operator==(const FilePart&) const = default;
};

struct Contribution {
  std::vector<StoredFile> files = {};  // that this rank alone wrote
  std::vector<FilePart> parts = {};
};

// A rank's contribution, and what all must have in common.
struct Report {
  int64_t step = 0;
  std::string attempt;
  Texts must_equal = {};
  Contribution contribution = {};
};

std::string text_of(const Report& report);
Report parse_report(std::string_view text);

// The files of all ranks, with those that came in parts. Throws an Error that names the ranks and
// both values where they are not of one save, and what coverage_complaints() says. Parts must make
// up their file from its first byte on.
std::vector<StoredFile> merged(const std::vector<Report>& reports,
                               const std::vector<WholeState>& expected);

}  // namespace zeroth::checkpoint
