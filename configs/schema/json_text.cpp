#include "configs/schema/json_text.h"

#include <algorithm>
#include <limits>
#include <string_view>

#include "base/error.h"
#include "base/json/json.h"

namespace zeroth::configs {
namespace {

using Json = nlohmann::ordered_json;

// A Special is a number that Python writes and JSON does not have. It passes through the parser as
// a string of the same length, with a first byte that occurs in no text.
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

// Replaces a special number at `position`. Returns its length in bytes, or 0 if there is none.
size_t hide_special(std::string& text, size_t position) {
  for (const Special& special : kSpecials) {
    if (text.compare(position, special.text.size(), special.text) != 0) continue;
    text.replace(position, special.text.size(), special.stand_in);
    return special.text.size();
  }
  return 0;
}

// Blanks comments, hides special numbers and keeps every other byte, so that positions stay
// correct.
std::string plain_json(std::string text, const JsonSource& source) {
  enum class In { kCode, kString, kLine, kBlock } in = In::kCode;
  size_t comment = 0;  // its start
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    const char next = i + 1 < text.size() ? text[i + 1] : '\0';
    if (in == In::kCode) {
      if (c == '"') in = In::kString;
      if (c == '#' || (c == '/' && next == '/')) in = In::kLine;
      if (c == '/' && next == '*') in = In::kBlock;
      comment = i;
      if (const size_t length = hide_special(text, i); length > 0) i += length - 1;
    } else if (in == In::kString) {
      if (c == '\\') ++i;
      if (c == '"') in = In::kCode;
    } else if (in == In::kLine && c == '\n') {
      in = In::kCode;
    } else if (in == In::kBlock && c == '/' && i > comment + 2 && text[i - 1] == '*') {
      in = In::kCode;
      std::replace_if(
          text.begin() + static_cast<ptrdiff_t>(comment),
          text.begin() + static_cast<ptrdiff_t>(i) + 1, [](char byte) { return byte != '\n'; },
          ' ');
    }
    if (in == In::kLine) text[i] = ' ';
  }
  if (in == In::kBlock) {
    throw_json_error(text, comment, source, "not JSON: a comment without its closing */");
  }
  return text;
}

}  // namespace

ParsedJson parse_json(const std::string& text, const std::string& name) {
  const JsonSource source{.name = name, .limits = kConfigLimits};
  ParsedJson parsed;
  parsed.root = parse_ordered_json(plain_json(text, source), source, &parsed.duplicate_keys);
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
