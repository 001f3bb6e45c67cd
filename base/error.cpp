#include "base/error.h"

namespace zeroth::detail {

void check_failed(const char* file, int line, const char* expression, const std::string& message) {
  throw InternalError(fmt::format("{}:{}: check failed: {}: {}", file, line, expression, message));
}

}  // namespace zeroth::detail
