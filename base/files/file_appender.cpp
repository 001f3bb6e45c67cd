#include "base/files/file_appender.h"

#include <cerrno>

#include "base/machine/process_limits.h"
#include "base/machine/standard_streams.h"

namespace zeroth {
namespace {

constexpr size_t kPieceBytes = size_t{1} << 20;

}  // namespace

void FileAppender::append(std::string_view bytes) {
  pending_ += bytes;
  bytes_ += static_cast<int64_t>(bytes.size());
  if (pending_.size() >= kPieceBytes) flush();
}

void FileAppender::flush() {
  if (!write_all(fd_, pending_))
    throw WriteError("{} cannot be written: {}", name_, system_reason(errno));
  pending_.clear();
}

}  // namespace zeroth
