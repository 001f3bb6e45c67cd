// Environment variables of a test.
#pragma once

#include <map>
#include <string>

#include "base/env_reader.h"

namespace zeroth::testing {

using Variables = std::map<std::string, std::string>;

// Looks up these variables, which have to outlive the result.
inline EnvLookup lookup_in(const Variables& variables) {
  return [&variables](const char* name) -> const char* {
    const auto found = variables.find(name);
    return found == variables.end() ? nullptr : found->second.c_str();
  };
}

}  // namespace zeroth::testing
