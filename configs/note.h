// What a user should know of a configuration or a run.
#pragma once

#include <fmt/format.h>

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace zeroth::configs {

struct Note {
  enum class Kind {
    kNote,
    kWarning,  // it may have been meant otherwise: a key without effect, values that do not fit
  };
  Kind kind = Kind::kNote;
  std::string key;   // that it is about, as files or command lines spell it; empty: none
  std::string text;  // one line, with the key where it needs one
};

using Notes = std::vector<Note>;

// Appends one of either kind; the text as by fmt.
template <typename... Args>
void note(Notes& notes, std::string_view key, fmt::format_string<Args...> format, Args&&... args) {
  notes.push_back(
      {Note::Kind::kNote, std::string(key), fmt::format(format, std::forward<Args>(args)...)});
}
template <typename... Args>
void warn(Notes& notes, std::string_view key, fmt::format_string<Args...> format, Args&&... args) {
  notes.push_back(
      {Note::Kind::kWarning, std::string(key), fmt::format(format, std::forward<Args>(args)...)});
}

// The lines of one kind.
inline std::vector<std::string> lines_of(const Notes& notes, Note::Kind kind) {
  std::vector<std::string> lines;
  for (const Note& note : notes) {
    if (note.kind == kind) lines.push_back(note.text);
  }
  return lines;
}

// All of them, warnings first.
inline std::vector<std::string> lines_of(const Notes& notes) {
  std::vector<std::string> lines = lines_of(notes, Note::Kind::kWarning);
  const std::vector<std::string> others = lines_of(notes, Note::Kind::kNote);
  lines.insert(lines.end(), others.begin(), others.end());
  return lines;
}

}  // namespace zeroth::configs
