#include "checkpoint/contribution.h"

#include <algorithm>
#include <limits>
#include <map>
#include <utility>

#include "base/complaints.h"
#include "base/crc32c.h"
#include "base/json.h"
#include "base/json_view.h"
#include "base/printable.h"

namespace zeroth::checkpoint {
namespace {

constexpr const char* kReport = "a rank's report";

void require_same(const std::vector<Report>& reports) {
  const Report& first = reports.front();
  for (size_t rank = 1; rank < reports.size(); ++rank) {
    const Report& report = reports[rank];
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

StoredFile whole_of(const std::string& name, std::vector<FilePart> parts) {
  std::sort(parts.begin(), parts.end(), [](const FilePart& a, const FilePart& b) {
    return std::pair(a.offset, a.size) < std::pair(b.offset, b.size);
  });
  StoredFile file{.name = name};
  for (const FilePart& part : parts) {
    if (part.offset != file.size) {
      throw Error("{}: ranks wrote bytes from {} on, expected from {} on", name, part.offset,
                  file.size);
    }
    file.crc = crc32c_of_both(file.crc, part.crc, static_cast<uint64_t>(part.size));
    file.size += part.size;
  }
  return file;
}

}  // namespace

// The parts on a line, then what a manifest has of the rest.
std::string text_of(const Report& report) {
  nlohmann::json parts = nlohmann::json::array();
  for (const FilePart& part : report.contribution.parts) {
    parts.push_back({part.file, part.offset, part.size, part.crc});
  }
  return parts.dump() + "\n" +
         text_of(Manifest{.step = report.step,
                          .attempt = report.attempt,
                          .must_equal = report.must_equal,
                          .files = report.contribution.files});
}

Report parse_report(std::string_view text) {
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max() / 2;
  const size_t end = text.find('\n');
  if (end == text.npos) throw Error("{} is cut short", kReport);
  Manifest manifest = parse_manifest(text.substr(end + 1), kReport);
  Report report{.step = manifest.step,
                .attempt = std::move(manifest.attempt),
                .must_equal = std::move(manifest.must_equal)};
  report.contribution.files = std::move(manifest.files);
  const nlohmann::json tree = parse_json(text.substr(0, end), {.name = kReport});
  const JsonView parts(tree, "parts");
  for (size_t i = 0; i < parts.size(); ++i) {
    const JsonView part = parts.at(i);
    report.contribution.parts.push_back(
        {part.at(size_t{0}).text(), part.at(1).integer(0, kMost), part.at(2).integer(0, kMost),
         static_cast<uint32_t>(part.at(3).integer(0, std::numeric_limits<uint32_t>::max()))});
    if (!is_plain_path(report.contribution.parts.back().file)) {
      part.at(size_t{0}).refuse("the name of a file within the checkpoint");
    }
  }
  return report;
}

std::vector<StoredFile> merged(const std::vector<Report>& reports,
                               const std::vector<WholeState>& expected) {
  require_same(reports);
  std::vector<StoredFile> files;
  std::map<std::string, std::vector<FilePart>> parts;
  for (const Report& report : reports) {
    const Contribution& mine = report.contribution;
    files.insert(files.end(), mine.files.begin(), mine.files.end());
    for (const FilePart& part : mine.parts) parts[part.file].push_back(part);
  }
  for (auto& [name, of_file] : parts) files.push_back(whole_of(name, std::move(of_file)));
  std::map<std::string, size_t> writers;
  for (const StoredFile& file : files) {
    if (++writers[file.name] > 1) throw Error("{} was written by two ranks", file.name);
  }
  const auto complaints = coverage_complaints(files, expected);
  if (!complaints.empty()) throw Error("{}", listed(complaints));
  return files;
}

}  // namespace zeroth::checkpoint
