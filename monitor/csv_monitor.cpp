#include "monitor/csv_monitor.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>

#include "base/error.h"
#include "base/process_limits.h"
#include "base/units.h"

namespace zeroth::monitor {

std::string python_number(double value) {
  const std::string text = fmt::format("{}", without_sign_of_nan(value));
  return text.find_first_not_of("-0123456789") == std::string::npos ? text + ".0" : text;
}

CsvMonitor::File& CsvMonitor::file_of(const std::string& tag) {
  const auto found = files_.find(tag);
  if (found != files_.end()) return found->second;
  std::string name = tag;
  for (char& character : name) {
    if (character == '/' || character == ' ') character = '_';
  }
  File file{.path = folder_ / (name + ".csv"), .stream = {}};
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
    File& file = file_of(event.tag);
    errno = 0;
    file.stream << event.samples << ',' << python_number(event.value) << "\r\n" << std::flush;
    if (!file.stream) {
      throw Error("{}: write failed: {}", file.path.string(), system_reason(errno));
    }
  }
}

}  // namespace zeroth::monitor
