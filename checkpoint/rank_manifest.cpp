#include "checkpoint/rank_manifest.h"

#include <algorithm>
#include <limits>
#include <map>
#include <utility>

#include "base/files/crc32c.h"
#include "base/json/json.h"
#include "base/json/json_view.h"
#include "base/text/diagnostics.h"
#include "base/text/printable.h"
#include "checkpoint/verify.h"

namespace zeroth::checkpoint {
namespace {

constexpr int64_t kMaxBytes = std::numeric_limits<int64_t>::max() / 4;  // bytes
constexpr const char* kReport = "a rank's report";

void require_same(const std::vector<RankReport>& reports) {
  const Manifest& first = reports.front().manifest;
  for (size_t rank = 1; rank < reports.size(); ++rank) {
    const Manifest& report = reports[rank].manifest;
    if (report.step != first.step) {
      throw Error("rank 0 saves step {}, rank {} step {}", first.step, rank, report.step);
    }
    if (report.attempt != first.attempt) {
      throw Error("rank 0 saves in attempt {}, rank {} in {}", first.attempt, rank,
                  shortened(report.attempt));
    }
    const auto different = differences(first.must_equal, report.must_equal);
    if (different.empty()) continue;
    const Difference& one = different.front();
    throw Error("{} is {} on rank 0 and {} on rank {}", shortened(one.key),
                shortened(one.stored.value_or("not set")), shortened(one.now.value_or("not set")),
                rank);
  }
}

StoredFile join_segments(const std::string& name, std::vector<FileSegment> parts) {
  std::sort(parts.begin(), parts.end(), [](const FileSegment& a, const FileSegment& b) {
    return std::pair(a.offset, a.size) < std::pair(b.offset, b.size);
  });
  StoredFile file{.name = name};
  for (const FileSegment& part : parts) {
    if (part.offset != file.size) {
      throw Error("{}: ranks wrote bytes from offset {}, expected offset {}", name, part.offset,
                  file.size);
    }
    file.crc = crc32c_combine(file.crc, part.crc, static_cast<uint64_t>(part.size));
    file.size += part.size;
  }
  return file;
}

bool have_equal_stride(const FileSegment& first, const FileSegment& second,
                       const FileSegment& third) {
  return third.file == second.file && third.size == second.size &&
         third.offset - second.offset == second.offset - first.offset;
}

// Returns the end of the segments from `first` on that share its file, size and first stride.
size_t end_of_stride(const std::vector<FileSegment>& parts, size_t first) {
  size_t end = first + 1;
  if (end == parts.size() || parts[end].file != parts[first].file ||
      parts[end].size != parts[first].size || parts[end].offset < parts[first].offset) {
    return end;
  }
  for (++end; end < parts.size(); ++end) {
    if (!have_equal_stride(parts[end - 2], parts[end - 1], parts[end])) break;
  }
  return end;
}

// Returns [file, offset, size, crc], or for many equidistant segments of a matrix's rows [file,
// offset, size, stride, "crcs"]: a rank that has some of its columns has millions in a large model.
nlohmann::json segments_json(const std::vector<FileSegment>& parts) {
  nlohmann::json list = nlohmann::json::array();
  for (size_t i = 0; i < parts.size();) {
    const FileSegment& first = parts[i];
    const size_t end = end_of_stride(parts, i);
    if (end - i < 3) {
      list.push_back({first.file, first.offset, first.size, first.crc});
      ++i;
      continue;
    }
    const int64_t stride = parts[i + 1].offset - first.offset;
    std::string crcs;
    for (; i < end; ++i) crcs += format_crc(parts[i].crc);
    list.push_back({first.file, first.offset, first.size, stride, crcs});
  }
  return list;
}

void add_strided_segments(const JsonView& rows, FileSegment first,
                          std::vector<FileSegment>& parts) {
  constexpr size_t kDigits = 8;
  const std::string_view crcs = rows.at(4).text();
  const auto count = static_cast<int64_t>((crcs.size() + kDigits - 1) / kDigits);
  const int64_t stride = rows.at(3).integer(0, kMaxBytes / std::max<int64_t>(count, 1));
  for (int64_t i = 0; i < count; ++i, first.offset += stride) {
    const auto crc = parse_crc(crcs.substr(static_cast<size_t>(i) * kDigits, kDigits));
    if (!crc) rows.at(4).refuse("CRCs of eight digits");
    first.crc = *crc;
    parts.push_back(first);
  }
}

std::vector<FileSegment> parse_segments(const JsonView& list) {
  std::vector<FileSegment> parts;
  for (size_t i = 0; i < list.size(); ++i) {
    const JsonView item = list.at(i);
    FileSegment part{item.at(size_t{0}).text(), item.at(1).integer(0, kMaxBytes),
                     item.at(2).integer(0, kMaxBytes), 0};
    if (!is_safe_path(part.file)) {
      item.at(size_t{0}).refuse("the name of a file within the checkpoint");
    }
    if (item.size() > 4) {
      add_strided_segments(item, std::move(part), parts);
      continue;
    }
    part.crc = static_cast<uint32_t>(item.at(3).integer(0, std::numeric_limits<uint32_t>::max()));
    parts.push_back(std::move(part));
  }
  return parts;
}

}  // namespace

// Returns the segments on one line, then the manifest.
std::string to_string(const RankReport& report) {
  return segments_json(report.parts).dump() + "\n" + to_string(report.manifest);
}

RankReport parse_report(std::string_view text) {
  const size_t end = text.find('\n');
  if (end == text.npos) throw Error("{} is cut short", kReport);
  Manifest manifest = parse_manifest(text.substr(end + 1), kReport);
  const nlohmann::json tree = parse_json(text.substr(0, end), {.name = kReport});
  return {std::move(manifest), parse_segments(JsonView(tree, "parts"))};
}

std::vector<StoredFile> merge_reports(const std::vector<RankReport>& reports,
                                      const std::vector<StoredState>& expected) {
  require_same(reports);
  std::vector<StoredFile> files;
  std::map<std::string, std::vector<FileSegment>> parts;
  for (const RankReport& report : reports) {
    files.insert(files.end(), report.manifest.files.begin(), report.manifest.files.end());
    for (const FileSegment& part : report.parts) parts[part.file].push_back(part);
  }
  for (auto& [name, of_file] : parts) files.push_back(join_segments(name, std::move(of_file)));
  std::map<std::string, size_t> writers;
  for (const StoredFile& file : files) {
    if (++writers[file.name] > 1) throw Error("{} was written by two ranks", file.name);
  }
  const auto errors = coverage_errors(files, expected);
  if (!errors.empty()) throw Error("{}", listed(errors));
  return files;
}

}  // namespace zeroth::checkpoint
