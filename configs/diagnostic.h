// Notes and warnings for the user about a configuration or a run.
#pragma once

#include <fmt/format.h>

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace zeroth::configs {

// A Diagnostic is one note or warning.
struct Diagnostic {
  enum class Kind {
    kNote,
    kWarning,  // possible mistake: a key without effect, inconsistent values
  };
  Kind kind = Kind::kNote;
  std::string key;   // key or flag, as files or command lines spell it; empty: none
  std::string text;  // one line, including the key if needed
};

using Diagnostics = std::vector<Diagnostic>;

// Appends a note or a warning. Formats the text as by fmt.
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

// Returns the texts of one kind.
inline std::vector<std::string> diagnostic_lines(const Diagnostics& notes, Diagnostic::Kind kind) {
  std::vector<std::string> lines;
  for (const Diagnostic& note : notes) {
    if (note.kind == kind) lines.push_back(note.text);
  }
  return lines;
}

// Returns the texts of all diagnostics, warnings first.
inline std::vector<std::string> diagnostic_lines(const Diagnostics& notes) {
  std::vector<std::string> lines = diagnostic_lines(notes, Diagnostic::Kind::kWarning);
  const std::vector<std::string> others = diagnostic_lines(notes, Diagnostic::Kind::kNote);
  lines.insert(lines.end(), others.begin(), others.end());
  return lines;
}

}  // namespace zeroth::configs
