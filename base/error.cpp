#include "base/error.h"

#include <filesystem>
#include <new>
#include <system_error>

#include "base/machine/process_limits.h"
#include "base/text/printable.h"

namespace zeroth {

std::string describe_exception(const std::exception& error) {
  if (dynamic_cast<const Error*>(&error) != nullptr ||
      dynamic_cast<const InternalError*>(&error) != nullptr) {
    return error.what();
  }
  if (const auto* file = dynamic_cast<const std::filesystem::filesystem_error*>(&error)) {
    const std::string path = file->path1().string();
    return fmt::format("{}: {}", path.empty() ? "the working folder" : path,
                       system_reason(file->code().value()));
  }
  if (const auto* system = dynamic_cast<const std::system_error*>(&error)) {
    return system_reason(system->code().value());
  }
  if (dynamic_cast<const std::bad_alloc*>(&error) != nullptr) {
    const std::string limit = address_space_limit();
    return limit.empty() ? "out of memory" : fmt::format("out of memory ({})", limit);
  }
  return fmt::format("an unexpected failure: {}", quotation(error.what()));
}

void detail::check_failed(const char* file, int line, const char* expression,
                          const std::string& message) {
  throw InternalError(fmt::format("{}:{}: check failed: {}: {}", file, line, expression, message));
}

}  // namespace zeroth
