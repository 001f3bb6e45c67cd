#include "configs/json_text.h"

#include <algorithm>
#include <limits>
#include <set>
#include <string_view>

#include "base/error.h"

namespace zeroth::configs {
namespace {

using Json = nlohmann::ordered_json;

// Python writes numbers that JSON does not have. They go through the parser as strings of the same
// length, with a byte in front that no text has.
struct Special {
  std::string_view text;
  std::string_view stand_in;
  double value;
};

constexpr char kMark = '\x7f';
constexpr Special kSpecials[] = {
    {"NaN", "\"\x7f\"", std::numeric_limits<double>::quiet_NaN()},
    {"Infinity", "\"\x7f+inf.\"", std::numeric_limits<double>::infinity()},
    {"-Infinity", "\"\x7f-inf..\"", -std::numeric_limits<double>::infinity()},
};

void restore_specials(Json& value) {
  if (value.is_structured()) {
    for (auto& entry : value) restore_specials(entry);
  } else if (value.is_string() && value.get_ref<const std::string&>().starts_with(kMark)) {
    const std::string quoted = "\"" + value.get<std::string>() + "\"";
    for (const Special& special : kSpecials) {
      if (quoted == special.stand_in) value = special.value;
    }
  }
}

// Replaces a special number at `position`; returns how many bytes it is long, or 0.
size_t hide_special(std::string& text, size_t position) {
  for (const Special& special : kSpecials) {
    if (text.compare(position, special.text.size(), special.text) != 0) continue;
    text.replace(position, special.text.size(), special.stand_in);
    return special.text.size();
  }
  return 0;
}

// Blanks # comments, hides special numbers and leaves every other byte, so that positions stay
// true.
std::string plain_json(std::string text) {
  enum class In { kCode, kString, kLine, kBlock, kHash } in = In::kCode;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    const char next = i + 1 < text.size() ? text[i + 1] : '\0';
    if (in == In::kCode) {
      if (c == '"') in = In::kString;
      if (c == '/' && next == '/') in = In::kLine;
      if (c == '/' && next == '*') {
        in = In::kBlock;
        ++i;
      }
      if (c == '#') in = In::kHash;
      if (const size_t length = hide_special(text, i); length > 0) i += length - 1;
    } else if (in == In::kString) {
      if (c == '\\') ++i;
      if (c == '"') in = In::kCode;
    } else if (in == In::kBlock) {
      if (c == '*' && next == '/') in = In::kCode;
    } else if (c == '\n') {
      in = In::kCode;
    }
    if (in == In::kHash) text[i] = ' ';
  }
  return text;
}

// Follows the parser through the text: knows the path, collects duplicates, builds nothing.
class Follower : public nlohmann::json_sax<Json> {
 public:
  bool null() override { return value(); }
  bool boolean(bool) override { return value(); }
  bool number_integer(number_integer_t) override { return value(); }
  bool number_unsigned(number_unsigned_t) override { return value(); }
  bool number_float(number_float_t, const string_t&) override { return value(); }
  bool string(string_t&) override { return value(); }
  bool binary(binary_t&) override { return value(); }
  bool start_object(size_t) override { return open(false); }
  bool start_array(size_t) override { return open(true); }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }

  bool key(string_t& name) override {
    levels_.back().name = name;
    if (!levels_.back().seen.insert(name).second) duplicates.push_back(path());
    return true;
  }

  bool parse_error(size_t position, const std::string&,
                   const nlohmann::detail::exception& failure) override {
    error_position = position;
    error = failure.what();
    return false;
  }

  std::string path() const {
    std::string text;
    for (const Level& level : levels_) {
      if (level.is_array) {
        text += fmt::format("[{}]", level.index);
      } else if (!level.name.empty()) {
        text += (text.empty() ? "" : ".") + level.name;
      }
    }
    return text;
  }

  std::vector<std::string> duplicates;
  size_t error_position = 0;  // bytes read, the offending one included
  std::string error;

 private:
  struct Level {
    bool is_array = false;
    size_t index = 0;
    std::string name;
    std::set<std::string> seen;
  };

  bool value() {
    if (!levels_.empty()) ++levels_.back().index;
    return true;
  }

  bool open(bool is_array) {
    levels_.push_back({.is_array = is_array, .index = 0, .name = {}, .seen = {}});
    return true;
  }

  bool close() {
    levels_.pop_back();
    return value();
  }

  std::vector<Level> levels_;
};

[[noreturn]] void throw_syntax_error(const std::string& text, const std::string& name,
                                     const Follower& follower) {
  const size_t position = std::min(follower.error_position, text.size());
  const std::string before = text.substr(0, position == 0 ? 0 : position - 1);
  const size_t line = 1 + static_cast<size_t>(std::count(before.begin(), before.end(), '\n'));
  const size_t column = before.size() - (before.rfind('\n') + 1) + 1;
  std::string reason = follower.error;
  for (const char* lead : {"syntax error ", "] "}) {
    if (const size_t found = reason.find(lead); found != std::string::npos) {
      reason = reason.substr(found + (lead[0] == ']' ? 2 : 0));
      break;
    }
  }
  const std::string path = follower.path();
  throw Error("{}:{}:{}: {}{}", name, line, column, path.empty() ? "" : path + ": ", reason);
}

}  // namespace

ParsedJson parse_json(const std::string& text, const std::string& name) {
  constexpr bool kStrict = true, kIgnoreComments = true;
  const std::string clean = plain_json(text);
  Follower follower;
  if (!Json::sax_parse(clean, &follower, Json::input_format_t::json, kStrict, kIgnoreComments)) {
    throw_syntax_error(clean, name, follower);
  }
  ParsedJson parsed{Json::parse(clean, nullptr, true, kIgnoreComments),
                    std::move(follower.duplicates)};
  restore_specials(parsed.root);
  return parsed;
}

std::optional<std::string> decode_base64(const std::string& text) {
  constexpr std::string_view kAlphabet =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  const std::string digits = text.substr(0, text.find_last_not_of('=') + 1);
  if (digits.empty() || digits.size() % 4 == 1 || text.size() - digits.size() > 2) {
    return std::nullopt;
  }
  std::string bytes;
  uint32_t bits = 0;
  int count = 0;
  for (const char c : digits) {
    const size_t digit = kAlphabet.find(c == '-' ? '+' : c == '_' ? '/' : c);
    if (digit == std::string_view::npos) return std::nullopt;
    bits = (bits << 6) | static_cast<uint32_t>(digit);
    count += 6;
    if (count >= 8) {
      count -= 8;
      bytes.push_back(static_cast<char>((bits >> count) & 0xff));
    }
  }
  return bytes;
}

}  // namespace zeroth::configs
