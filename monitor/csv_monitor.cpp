#include "monitor/csv_monitor.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <optional>
#include <string_view>
#include <system_error>

#include "base/error.h"
#include "base/files/regular_file.h"
#include "base/machine/process_limits.h"
#include "base/text/units.h"

namespace zeroth::monitor {
namespace {

constexpr std::string_view kStep = "step,";

// Returns the number before the comma.
std::optional<int64_t> parse_samples(std::string_view row) {
  const size_t comma = row.find(',');
  if (comma == row.npos) return std::nullopt;
  return parse_number<int64_t>(row.substr(0, comma));
}

// Returns the offset of the first row to remove; nothing if there is none, or if the file is not
// ours.
std::optional<int64_t> find_truncation_offset(const std::filesystem::path& path, int64_t samples) {
  bool ours = false;
  std::optional<int64_t> cut;
  int64_t before = 0;
  for_each_line(path, [&](const FileLine& line) {
    if (line.begin == 0) {
      // "lr" must end the file's name "Train_Samples_lr", as it ends the tag.
      ours = line.whole && line.text.starts_with(kStep) &&
             path.stem().string().ends_with(line.text.substr(kStep.size()));
      return;
    }
    const auto row = parse_samples(line.text);
    const bool beyond = !line.whole || (row && *row > samples);
    if (!beyond) cut.reset();
    // The end of an earlier run is no part of this one.
    if (beyond && (!cut || (line.whole && *row <= before))) cut = line.begin;
    before = row.value_or(before);
  });
  return ours ? cut : std::nullopt;
}

}  // namespace

std::string format_python_float(double value) {
  const std::string text = fmt::format("{}", canonicalize_nan(value));
  return text.find_first_not_of("-0123456789") == std::string::npos ? text + ".0" : text;
}

CsvMonitor::TagFile& CsvMonitor::file_for_tag(const std::string& tag) {
  const auto found = files_.find(tag);
  if (found != files_.end()) return found->second;
  std::string name = tag;
  for (const char separator : {'/', ' '}) std::replace(name.begin(), name.end(), separator, '_');
  TagFile file{.path = directory_ / (name + ".csv"), .stream = {}};
  errno = 0;
  file.stream.open(file.path, std::ios::app | std::ios::binary);
  if (!file.stream) {
    throw Error("{} cannot be written: {}", file.path.string(), system_reason(errno));
  }
  if (file.stream.tellp() == 0) file.stream << "step," << tag.substr(tag.rfind('/') + 1) << "\r\n";
  return files_.emplace(tag, std::move(file)).first->second;
}

void CsvMonitor::write(std::span<const Event> events) {
  for (const Event& event : events) {
    TagFile& file = file_for_tag(event.tag);
    errno = 0;
    file.stream << event.x << ',' << format_python_float(event.value) << "\r\n" << std::flush;
    if (!file.stream) {
      throw Error("{}: write failed: {}", file.path.string(), system_reason(errno));
    }
  }
}

// Truncates the files that were changed after `since`.
void CsvMonitor::truncate_rows_after(int64_t samples, double since) {
  std::error_code failure;
  std::filesystem::directory_iterator files(directory_, failure);
  if (failure) throw Error("{}: {}", directory_.string(), system_reason(failure.value()));
  for (const auto& file : files) {
    if (file.path().extension() != ".csv" || !file.is_regular_file(failure)) continue;
    struct stat status {};
    if (::stat(file.path().c_str(), &status) != 0) continue;
    if (static_cast<double>(status.st_mtim.tv_sec) + 1 < since) continue;
    if (const auto place = find_truncation_offset(file.path(), samples))
      truncate_file(file.path(), *place);
  }
}

}  // namespace zeroth::monitor
