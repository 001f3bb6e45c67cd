// Reports of what each rank has written of a checkpoint, and their merge into one list. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/manifest.h"
#include "checkpoint/tensor_chunk.h"

namespace zeroth::checkpoint {

// A FileSegment is one rank's bytes of a file that several ranks write.
struct FileSegment {
  std::string file;  // name, relative to the checkpoint's directory
  int64_t offset = 0;
  int64_t size = 0;
  uint32_t crc = 0;
  bool operator==(const FileSegment&) const = default;
};

struct RankManifest {
  std::vector<StoredFile> files = {};  // written by this rank alone
  std::vector<FileSegment> parts = {};
};

// A RankReport is a rank's manifest and the values that all ranks must share. The manifest has the
// step, the attempt, must_equal and the files that this rank has written alone.
struct RankReport {
  Manifest manifest;
  std::vector<FileSegment> parts = {};
};

std::string to_string(const RankReport& report);
RankReport parse_report(std::string_view text);

// Returns the files of all ranks, including those written in segments. Throws an Error that names
// the ranks and both values if the reports are not of one save, and an Error with coverage_errors()
// if there are any. Segments must cover their file from its first byte on.
std::vector<StoredFile> merge_reports(const std::vector<RankReport>& reports,
                                      const std::vector<StoredState>& expected);

}  // namespace zeroth::checkpoint
