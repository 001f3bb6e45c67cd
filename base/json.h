// The one door for JSON: from a text or a file to a tree, or to an Error in our words that begins
// with "file:line:column: ". No message of the library below reaches a user, and whatever stands in
// the text, the tree is small enough to be copied, printed and taken down.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace zeroth {

// Levels of nesting, as serde_json has it, with which Hugging Face reads the same files.
inline constexpr size_t kMaxJsonDepth = 128;

struct JsonLimits {
  size_t bytes = size_t{64} << 20;
  // Objects, lists, numbers, texts: a large vocabulary with its merges has two million. A tree
  // takes about 100 bytes for each.
  size_t values = 2'500'000;
};
// For files that people write.
inline constexpr JsonLimits kConfigLimits = {.bytes = size_t{16} << 20, .values = 300'000};

// A key that stands twice in one object.
enum class DuplicateKeyPolicy {
  kLastWins,  // as in Python
  kReject,
};

// Keys that stand twice in one object. A text may have hundreds of thousands, each with a long
// path: the first ones are named, the others counted.
struct DuplicateKeys {
  std::vector<std::string> paths;  // at most kMaxErrors
  size_t count = 0;
};

// What messages call the text, and how it is read.
struct JsonSource {
  std::string name;  // of the file
  int64_t line = 1;  // of the text's start in it
  JsonLimits limits = {};
  DuplicateKeyPolicy duplicate_keys = DuplicateKeyPolicy::kLastWins;
};

// UTF-8, with or without a byte order mark. Throws Error for all else, for a number that a double
// does not hold, and beyond the limits.
nlohmann::json parse_json(std::string_view text, const JsonSource& source);

// The file at `source.name`. Throws Error also when it cannot be read or is no regular file.
nlohmann::json read_json(const JsonSource& source);

// The same with members in the file's order. `duplicate_keys`, where it is given, becomes the keys
// that stand twice in one object, of which the last counts.
nlohmann::ordered_json parse_ordered_json(std::string_view text, const JsonSource& source,
                                          DuplicateKeys* duplicate_keys = nullptr);

// A text of our own, as in the table of keys, or one that we have just written: what is wrong with
// it is an InternalError.
nlohmann::ordered_json parse_trusted_json(std::string_view text);

// [[noreturn]] "name:line:column: reason", for the byte at `offset`.
[[noreturn]] void throw_json_error(std::string_view text, size_t offset, const JsonSource& source,
                                   const std::string& reason);

// JSON for messages: printable, and cut behind `max_bytes` bytes.
std::string quoted(const nlohmann::json& value, size_t max_bytes = 80);
std::string quoted(const nlohmann::ordered_json& value, size_t max_bytes = 80);

}  // namespace zeroth
