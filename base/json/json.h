// The only entry point for JSON: it parses a text or a file to a tree, or throws an Error that
// begins with "file:line:column: ". No message of the underlying library reaches a user. Whatever
// the text contains, the tree is small enough to copy, print and destroy.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace zeroth {

// Maximum levels of nesting, the same as serde_json's, with which Hugging Face reads the same
// files.
inline constexpr size_t kMaxJsonDepth = 128;

struct JsonLimits {
  size_t bytes = size_t{64} << 20;
  // Maximum number of objects, lists, numbers and texts. A large vocabulary with its merges has two
  // million of them. A tree uses about 100 bytes for each.
  size_t values = 2'500'000;
};
// Limits for files that people write.
inline constexpr JsonLimits kConfigLimits = {.bytes = size_t{16} << 20, .values = 300'000};

// DuplicateKeyPolicy selects the treatment of a key that appears twice in one object.
enum class DuplicateKeyPolicy {
  kLastWins,  // as in Python
  kReject,
};

// DuplicateKeys lists the keys that appear twice in one object. A text can have hundreds of
// thousands of them, each with a long path, so only the first ones are named and the others are
// counted.
struct DuplicateKeys {
  std::vector<std::string> paths;  // at most kMaxErrors
  size_t count = 0;
};

// JsonSource describes a text: its name in messages, and how to parse it.
struct JsonSource {
  std::string name;  // of the file
  int64_t line = 1;  // at which the text starts in the file
  JsonLimits limits = {};
  DuplicateKeyPolicy duplicate_keys = DuplicateKeyPolicy::kLastWins;
  // Rejects integers that 64 bits do not hold. Otherwise they become the nearest double.
  bool exact_integers = false;
};

// Parses UTF-8 text with or without a byte order mark. Throws an Error for any other text, for a
// number that does not fit a double, and beyond the limits.
nlohmann::json parse_json(std::string_view text, const JsonSource& source);

// Parses the file `source.name`. Also throws an Error if it cannot be read or is no regular file.
nlohmann::json read_json(const JsonSource& source);

// Parses like parse_json() and keeps members in the file's order. Stores the keys that appear twice
// in one object in `duplicate_keys` unless it is null; the last value of such a key wins.
nlohmann::ordered_json parse_ordered_json(std::string_view text, const JsonSource& source,
                                          DuplicateKeys* duplicate_keys = nullptr);

// Parses a text that this program contains, such as the table of keys, or has just written. Throws
// an InternalError if it is invalid.
nlohmann::ordered_json parse_trusted_json(std::string_view text);

// Throws an Error "name:line:column: reason" for the byte at `offset`.
[[noreturn]] void throw_json_error(std::string_view text, size_t offset, const JsonSource& source,
                                   const std::string& reason);

// Returns JSON in one line. Bytes that are not UTF-8 become U+FFFD.
template <typename Json>
std::string to_line(const Json& json) {
  return json.dump(-1, ' ', /*ensure_ascii=*/false, Json::error_handler_t::replace);
}

// Returns JSON for messages: printable, and truncated after `max_bytes` bytes.
std::string quoted(const nlohmann::json& value, size_t max_bytes = 80);
std::string quoted(const nlohmann::ordered_json& value, size_t max_bytes = 80);

struct FlatValue {
  std::string path;  // "optimizer.params.lr"
  std::string text;  // a string's own text, or any other value as JSON in one line
};

// Returns every value below the object `json` that is not an object itself, in order. `path` is the
// path of `json` itself and becomes the prefix of all paths. Bytes that are not UTF-8 become
// U+FFFD. The texts are not printable().
std::vector<FlatValue> flat_values(const nlohmann::ordered_json& json,
                                   const std::string& path = "");

}  // namespace zeroth
