// Shorthands of the configuration tests.
#pragma once

#include <doctest/doctest.h>

#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/error.h"
#include "configs/resolve.h"
#include "configs/schema/check.h"
#include "configs/schema/keys.h"

namespace zeroth::configs {

inline const RunFacts kFacts{.world_size = 2, .hidden_size = 64, .total_steps = 100};

inline Resolved resolve_text(const std::string& text, const FlagValues& flags = {},
                             const RunFacts& facts = kFacts) {
  return resolve(parse_text(text, "test.json"), flags, facts);
}

inline Config config_of(const std::string& text, const FlagValues& flags = {},
                        const RunFacts& facts = kFacts) {
  return resolve_text(text, flags, facts).config;
}

// The message of the Error that this configuration ends in; empty when it is fine.
inline std::string error_of(const std::string& text, const FlagValues& flags = {},
                            const RunFacts& facts = kFacts) {
  try {
    resolve_text(text, flags, facts);
    return {};
  } catch (const Error& error) {
    return error.what();
  }
}

inline bool contains(const std::vector<std::string>& lines, const std::string& text) {
  for (const std::string& line : lines) {
    if (line.find(text) != std::string::npos) return true;
  }
  return false;
}

inline std::vector<std::string> warnings_of(const Resolved& resolved) {
  return diagnostic_lines(resolved.notes, Diagnostic::Kind::kWarning);
}

inline bool has_note(const Resolved& resolved, const std::string& text) {
  return contains(diagnostic_lines(resolved.notes, Diagnostic::Kind::kNote), text);
}

inline bool has_warning(const Resolved& resolved, const std::string& text) {
  return contains(warnings_of(resolved), text);
}

inline std::string read_source(const std::string& path) {
  std::ifstream file(std::string(ZEROTH_SOURCE_DIR) + "/" + path);
  CHECK_MESSAGE(file.good(), path);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

// {"a": {"b": value}} for the path "a.b".
inline std::string nested(const std::string& path, const std::string& value) {
  nlohmann::ordered_json root = nlohmann::ordered_json::parse(value);
  std::string rest = path;
  while (!rest.empty()) {
    const size_t dot = rest.rfind('.');
    nlohmann::ordered_json outer;
    outer[rest.substr(dot == std::string::npos ? 0 : dot + 1)] = root;
    root = outer;
    rest = dot == std::string::npos ? "" : rest.substr(0, dot);
  }
  return root.dump();
}

// The complaints of the key check alone, one a line: no flags, no facts.
inline std::string complaints_of(const std::string& text) {
  return fmt::format("{}", fmt::join(parse_text(text, "test.json").keys().errors, "\n"));
}

// A row of the table does what its state says, at its default, at what it accepts besides, and at
// something else.
inline void check_row(const ConfigKey& key) {
  const std::string path(key.path);
  CAPTURE(path);
  CHECK(complaints_of(nested(path, std::string(key.default_value))) == "");
  if (key.state != KeyState::kRefused) return;
  if (key.field.type != KeyType::kSection) {
    for (const std::string_view value : split_values(key.accepts)) {
      CHECK(complaints_of(nested(path, std::string(value))).empty());
    }
    const std::string message = complaints_of(nested(path, "\"something else\""));
    CHECK(message.starts_with(path + ": \"something else\" is refused: " + std::string(key.text)));
    CHECK(message.find('\n') == std::string::npos);
    return;
  }
  const std::vector<Switch> switches = parse_switches(key);
  const auto check_on = [&](const std::string& section) {
    const std::string message = complaints_of(nested(path, section));
    CHECK(message.starts_with(path + ": refused: " + std::string(key.text)));
    CHECK(message.find('\n') == std::string::npos);
  };
  if (switches.empty()) check_on("{}");
  for (const auto& [name, off] : switches) {
    check_on(nested(std::string(name), "\"on\""));
    for (const std::string_view value : split_values(off)) {
      CHECK(complaints_of(nested(path, nested(std::string(name), std::string(value)))).empty());
    }
  }
}

}  // namespace zeroth::configs
