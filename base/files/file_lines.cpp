#include "base/files/file_lines.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <string>

#include "base/error.h"
#include "base/files/regular_file.h"
#include "base/machine/process_limits.h"

namespace zeroth {
namespace {

// A LineSplitter assembles parts of a file to lines.
class LineSplitter {
 public:
  explicit LineSplitter(const std::function<void(const FileLine&)>& visit) : visit_(visit) {}

  void add(std::string_view part) {
    while (!part.empty()) {
      const size_t found = part.find('\n');
      const size_t size = found == part.npos ? part.size() : found + 1;
      text_ += part.substr(0, std::min(size, kMaxLineBytes - text_.size()));
      end_ += static_cast<int64_t>(size);
      if (found != part.npos) emit(/*whole=*/true);
      part.remove_prefix(size);
    }
  }
  void finish() {
    if (end_ > begin_) emit(/*whole=*/false);
  }

 private:
  void emit(bool whole) {
    std::string_view text = text_;
    if (whole && text.ends_with('\n')) text.remove_suffix(1);
    if (whole && text.ends_with('\r')) text.remove_suffix(1);
    visit_({.text = text, .begin = begin_, .end = end_, .whole = whole});
    text_.clear();
    begin_ = end_;
  }

  const std::function<void(const FileLine&)>& visit_;
  std::string text_;
  int64_t begin_ = 0;
  int64_t end_ = 0;
};

}  // namespace

void for_each_line(const std::filesystem::path& path,
                   const std::function<void(const FileLine&)>& visit) {
  const RegularFile file(path);
  std::string bytes(size_t{1} << 20, '\0');
  LineSplitter lines(visit);
  while (true) {
    const ssize_t count = ::read(file.descriptor(), bytes.data(), bytes.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) throw Error("cannot read {}: {}", path.string(), system_reason(errno));
    if (count == 0) break;
    lines.add(std::string_view(bytes).substr(0, static_cast<size_t>(count)));
  }
  lines.finish();
}

void truncate_file(const std::filesystem::path& path, int64_t bytes) {
  while (::truncate(path.c_str(), bytes) != 0) {
    if (errno != EINTR)
      throw Error("{} cannot be truncated: {}", path.string(), system_reason(errno));
  }
}

}  // namespace zeroth
