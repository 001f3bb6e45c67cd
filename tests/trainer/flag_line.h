// Flags as one would type them.
#pragma once

#include <iterator>
#include <sstream>
#include <string>
#include <vector>

#include "base/error.h"
#include "trainer/flags/flags.h"

namespace zeroth::trainer {

inline Flags parse_line(const std::string& line) {
  std::istringstream words(line);
  return parse_flags({std::istream_iterator<std::string>(words), {}});
}

// Beside a model and data.
inline Flags parse(const std::string& line) {
  return parse_line("--model m --data d.bin " + line);
}

// Empty if the line is accepted.
inline std::string usage_error_line(const std::string& line) {
  try {
    parse_line(line);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

inline std::string usage_error(const std::string& line) {
  return usage_error_line("--model m --data d.bin " + line);
}

}  // namespace zeroth::trainer
