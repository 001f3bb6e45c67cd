// What a user should know of a configuration or a run.
#pragma once

#include <fmt/format.h>

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace zeroth::configs {

struct Diagnostic {
  enum class Kind {
    kNote,
    kWarning,  // it may have been meant otherwise: a key without effect, values that do not fit
  };
  Kind kind = Kind::kNote;
  std::string key;   // that it is about, as files or command lines spell it; empty: none
  std::string text;  // one line, with the key where it needs one
};

using Diagnostics = std::vector<Diagnostic>;

// Appends one of either kind; the text as by fmt.
template <typename... Args>
void note(Diagnostics& notes, std::string_view key, fmt::format_string<Args...> format,
          Args&&... args) {
  notes.push_back({Diagnostic::Kind::kNote, std::string(key),
                   fmt::format(format, std::forward<Args>(args)...)});
}
template <typename... Args>
void warn(Diagnostics& notes, std::string_view key, fmt::format_string<Args...> format,
          Args&&... args) {
  notes.push_back({Diagnostic::Kind::kWarning, std::string(key),
                   fmt::format(format, std::forward<Args>(args)...)});
}

// The lines of one kind.
inline std::vector<std::string> diagnostic_lines(const Diagnostics& notes, Diagnostic::Kind kind) {
  std::vector<std::string> lines;
  for (const Diagnostic& note : notes) {
    if (note.kind == kind) lines.push_back(note.text);
  }
  return lines;
}

// All of them, warnings first.
inline std::vector<std::string> diagnostic_lines(const Diagnostics& notes) {
  std::vector<std::string> lines = diagnostic_lines(notes, Diagnostic::Kind::kWarning);
  const std::vector<std::string> others = diagnostic_lines(notes, Diagnostic::Kind::kNote);
  lines.insert(lines.end(), others.begin(), others.end());
  return lines;
}

}  // namespace zeroth::configs
