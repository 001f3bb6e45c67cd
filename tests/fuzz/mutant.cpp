#include "tests/fuzz/mutant.h"

#include <algorithm>
#include <cctype>
#include <cstddef>
#include <nlohmann/json.hpp>
#include <random>
#include <string_view>

namespace zeroth::fuzz {
namespace {

using nlohmann::json;

constexpr size_t kMaxBytes = size_t{1} << 16;
constexpr int kMaxDepth = 100;  // of JSON

const std::vector<std::string> kPieces = {"[[[[[[[[",
                                          "{\"a\":",
                                          "]",
                                          "}",
                                          "\"",
                                          "\\u0000",
                                          "\\ud800",
                                          "null",
                                          "true",
                                          ",",
                                          ":",
                                          "\n",
                                          std::string(1, '\0'),
                                          "\x1b[2J",
                                          "\x7f",
                                          "\xc2\x9b",
                                          "\xff",
                                          "\xef\xbb\xbf",
                                          "NaN",
                                          "-Infinity",
                                          "//",
                                          "/*",
                                          "auto",
                                          "../",
                                          "--",
                                          "=",
                                          "\"\":",
                                          "e\u0301\u0323",
                                          std::string(200, '['),
                                          std::string(300, 'k')};

const std::vector<std::string> kNumbers = {"0",
                                           "-1",
                                           "1",
                                           "1e9990",
                                           "-1e300",
                                           "1e300",
                                           "100000000",
                                           "2147483648",
                                           "4294967297",
                                           "9223372036854775807",
                                           "9223372036854775808",
                                           "18446744073709551616",
                                           "0.5",
                                           "1e-400",
                                           "00"};

const std::vector<json> kValues = {nullptr,
                                   true,
                                   false,
                                   0,
                                   -1,
                                   1,
                                   2,
                                   3,
                                   4,
                                   64,
                                   0.5,
                                   1.5,
                                   1e300,
                                   -1e300,
                                   1e-300,
                                   2147483648,
                                   18446744073709551615U,
                                   "",
                                   "x",
                                   std::string(300, 'k'),
                                   "\x1b[2J",
                                   json::array(),
                                   json::object(),
                                   {1, 2},
                                   {nullptr, "x"},
                                   {{"x", 1}},
                                   {{"type", "yarn"}, {"factor", 0}}};

// Returns the object, or null if the text is anything else.
json parse_object(const std::string& text) {
  const auto is_shallow = [](int depth, json::parse_event_t, const json&) {
    return depth < kMaxDepth;
  };
  json object = json::parse(text, is_shallow, false);
  return object.is_object() ? object : json();
}

class Changes {
 public:
  explicit Changes(uint64_t seed) : random_(seed) {}

  size_t below(size_t end) { return end == 0 ? 0 : static_cast<size_t>(random_() % end); }

  const std::string& one_of(const std::vector<std::string>& list) {
    return list[below(list.size())];
  }

  void change(std::string& bytes, const std::vector<std::string>& originals) {
    const size_t at = below(bytes.size() + 1);
    const size_t length = below(std::min<size_t>(bytes.size() - at, 64) + 1);
    switch (below(8)) {
      case 0:
        if (at < bytes.size()) bytes[at] = static_cast<char>(bytes[at] ^ (1 << below(8)));
        break;
      case 1:
        if (at < bytes.size()) bytes[at] = static_cast<char>(random_());
        break;
      case 2:
        bytes.erase(at, length);
        break;
      case 3:
        bytes.insert(at, bytes.substr(at, length));
        break;
      case 4:
        bytes.insert(at, one_of(kPieces));
        break;
      case 5:
        replace_number(bytes, at);
        break;
      case 6: {
        const std::string& other = one_of(originals);
        bytes.insert(at, other, below(other.size() + 1), below(128));
        break;
      }
      default:
        if (below(8) == 0) bytes.resize(at);
    }
  }

  // Returns a value of the tree, at any depth but rather near its root.
  json& value_of(json& tree) {
    json* value = &tree;
    while (!value->empty() && value->is_structured() && (value == &tree || below(2) == 0)) {
      auto entry = value->begin();
      std::advance(entry, static_cast<ptrdiff_t>(below(value->size())));
      value = &*entry;
    }
    return *value;
  }

  // `other` is another object of this kind, which may be the same.
  void change(json& object, json other) {
    json& value = value_of(object);
    switch (below(5)) {
      case 0:
      case 1:
        value = kValues[below(kValues.size())];
        break;
      case 2:
        value = json(value_of(other));
        break;
      case 3:
        if (object.is_object() && other.is_object() && !other.empty()) {
          auto entry = other.begin();
          std::advance(entry, static_cast<ptrdiff_t>(below(other.size())));
          object[entry.key()] = entry.value();
        }
        break;
      default:
        if (value.is_structured() && !value.empty()) {
          auto entry = value.begin();
          std::advance(entry, static_cast<ptrdiff_t>(below(value.size())));
          value.erase(entry);
        } else if (object.is_object() && !object.empty()) {
          auto entry = object.begin();
          std::advance(entry, static_cast<ptrdiff_t>(below(object.size())));
          object.erase(entry);
        }
    }
  }

 private:
  // The first one behind `at`.
  void replace_number(std::string& bytes, size_t at) {
    const auto is_digit = [](unsigned char byte) { return std::isdigit(byte) != 0; };
    const auto begin =
        std::find_if(bytes.begin() + static_cast<ptrdiff_t>(at), bytes.end(), is_digit);
    const auto end = std::find_if_not(begin, bytes.end(), is_digit);
    bytes.replace(begin, end, one_of(kNumbers));
  }

  std::mt19937_64 random_;
};

}  // namespace

std::string mutant(const std::vector<std::string>& originals, uint64_t seed) {
  Changes changes(seed);
  std::string bytes = changes.one_of(originals);
  for (size_t left = 1 + changes.below(6); left > 0; --left) changes.change(bytes, originals);
  return bytes.substr(0, kMaxBytes);
}

std::optional<std::string> json_mutant(const std::vector<std::string>& originals, uint64_t seed) {
  Changes changes(seed);
  json object = parse_object(changes.one_of(originals));
  if (object.is_null()) return std::nullopt;
  for (size_t left = 1 + changes.below(4); left > 0; --left)
    changes.change(object, parse_object(changes.one_of(originals)));
  const std::string text = object.dump(-1, ' ', false, json::error_handler_t::replace);
  return text.substr(0, kMaxBytes);
}

}  // namespace zeroth::fuzz
