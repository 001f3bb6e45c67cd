// How long a wait took by the message of its end: on a busy machine longer than its limit.
#pragma once

#include <cstdlib>
#include <string>
#include <string_view>

namespace zeroth::testing {

// The seconds of "... timed out after 2.1 s (...)"; -1 where the message says none.
inline double seconds_waited(const std::string& message) {
  constexpr std::string_view kWaited = "timed out after ";
  const size_t at = message.find(kWaited);
  if (at == std::string::npos) return -1;
  char* end = nullptr;
  const double seconds = std::strtod(message.c_str() + at + kWaited.size(), &end);
  return std::string_view(end).starts_with(" s (") ? seconds : -1;
}

}  // namespace zeroth::testing
