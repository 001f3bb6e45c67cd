// How Python prints values: str(), repr() and json.dumps().
#include <fmt/format.h>
#include <utf8proc.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>

#include "data/chat_template/template_operations.h"
#include "data/tokenizer/unicode.h"

namespace zeroth::data::jinja {
namespace {

// Returns a finite float as Python's repr: "1e+16", "0.1".
std::string float_repr(double value) {
  char buffer[40];
  const auto end =
      std::to_chars(buffer, buffer + sizeof(buffer), value, std::chars_format::scientific);
  const std::string_view text(buffer, static_cast<size_t>(end.ptr - buffer));
  const size_t e = text.find('e');
  const int exponent = std::stoi(std::string(text.substr(e + 1)));
  const bool negative = text.front() == '-';
  std::string digits(text.substr(negative ? 1 : 0, e - (negative ? 1 : 0)));
  std::erase(digits, '.');
  std::string result = negative ? "-" : "";
  const auto count = static_cast<int>(digits.size());
  if (exponent < -4 || exponent >= 16) {
    result += digits.substr(0, 1);
    if (count > 1) result += "." + digits.substr(1);
    return result + fmt::format("e{}{:02}", exponent < 0 ? '-' : '+', std::abs(exponent));
  }
  if (exponent < 0)
    return result + "0." + std::string(static_cast<size_t>(-exponent - 1), '0') + digits;
  if (count <= exponent + 1) {
    return result + digits + std::string(static_cast<size_t>(exponent + 1 - count), '0') + ".0";
  }
  const auto point = static_cast<size_t>(exponent + 1);
  return result + digits.substr(0, point) + "." + digits.substr(point);
}

bool is_printable(char32_t c) {
  if (c < 0x7F) return c >= 0x20;
  switch (utf8proc_category(static_cast<utf8proc_int32_t>(c))) {
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
    case UTF8PROC_CATEGORY_ZS:
      return false;
    default:
      return true;
  }
}

// Returns a character as Python escapes it.
std::string escape_code(char32_t c) {
  const auto code = static_cast<uint32_t>(c);
  if (code < 0x100) return fmt::format("\\x{:02x}", code);
  return code < 0x10000 ? fmt::format("\\u{:04x}", code) : fmt::format("\\U{:08x}", code);
}

// Returns a character as JSON escapes it, with a pair of surrogates if it needs one.
std::string json_code(char32_t c) {
  const auto code = static_cast<uint32_t>(c);
  if (code < 0x10000) return fmt::format("\\u{:04x}", code);
  const uint32_t offset = code - 0x10000;
  return fmt::format("\\u{:04x}\\u{:04x}", 0xD800 + (offset >> 10), 0xDC00 + (offset & 0x3FF));
}

// Prints values for Python (repr) or as JSON, which differ in their words and strings.
class Printer {
 public:
  Printer(TextBuilder& out, const JsonStyle* json) : out_(out), json_(json) {}

  void print(const Value& value, int depth) {
    fail_if(depth > kMaxDepth, "lists and objects are nested deeper than the limit of {}",
            kMaxDepth);
    out_.arena().charge(1);
    const size_t begin = out_.size();
    if (value.is_string()) {
      print_string(value);
    } else if (value.is(Kind::kTuple) && !json_) {
      print_items("(", *value.sequence, value.sequence->size == 1 ? ",)" : ")", depth);
    } else if (value.is_list()) {
      print_items("[", *value.sequence, "]", depth);
    } else if (value.is(Kind::kDict)) {
      print_dict(*value.dict, depth);
    } else if (value.is(Kind::kView) && !json_) {
      out_.append(value.sequence->printed);
      print_items("([", *value.sequence, "])", depth);
    } else {
      out_.append(scalar(value));
    }
    out_.mark_since(begin, value.source);
  }

 private:
  std::string scalar(const Value& value) const {
    switch (value.kind) {
      case Kind::kNone:
        return json_ ? "null" : "None";
      case Kind::kBool:
        if (json_) return value.boolean ? "true" : "false";
        return value.boolean ? "True" : "False";
      case Kind::kInt:
        return fmt::format_int(value.integer).str();
      case Kind::kBigInt:
        return std::string(value.text());
      case Kind::kFloat:
        if (std::isfinite(value.real)) return float_repr(value.real);
        if (std::isnan(value.real)) return json_ ? "NaN" : "nan";
        return (value.real < 0 ? "-" : "") + std::string(json_ ? "Infinity" : "inf");
      default:
        break;
    }
    if (value.is(Kind::kRange) && !json_) return std::string(value.sequence->printed);
    if (value.is(Kind::kUndefined) && !json_) return "Undefined";
    throw TemplateFailure("printing '{}'{} is not supported", type_name(value),
                          json_ ? " as JSON" : "");
  }

  void print_string(const Value& string) {
    fail_if(string.safe && !json_, "printing a safe string in a list is not supported");
    const std::string_view text = string.text();
    const bool single = text.find('\'') == text.npos || text.find('"') != text.npos;
    const char quote = single && !json_ ? '\'' : '"';
    out_.append({&quote, 1});
    size_t begin = 0;
    for (size_t at = 0; at < text.size();) {
      const size_t bytes = utf8_length(text[at]);
      const std::string escaped = escape(char_at(text, at), quote);
      if (!escaped.empty()) {
        out_.append(substring(out_.arena(), string, begin, at));
        out_.append(escaped, source_at(string, at));
        begin = at + bytes;
      }
      at += bytes;
    }
    out_.append(substring(out_.arena(), string, begin, text.size()));
    out_.append({&quote, 1});
  }

  // Returns the escape of a character; nothing if it is printed as it is.
  std::string escape(char32_t c, char quote) const {
    constexpr std::string_view kCharacters = "\n\r\t\\\b\f";
    constexpr std::string_view kNames = "nrt\\bf";
    if (c == static_cast<unsigned char>(quote)) return std::string("\\") + quote;
    const size_t found = c < 0x80 ? kCharacters.find(static_cast<char>(c)) : kCharacters.npos;
    if (found < (json_ ? 6 : 4)) return std::string("\\") + kNames[found];
    if (!json_) return is_printable(c) ? "" : escape_code(c);
    return c < 0x20 || (json_->ensure_ascii && c >= 0x7F) ? json_code(c) : "";
  }

  void print_items(std::string_view begin, const Sequence& items, std::string_view end, int depth) {
    out_.append(begin);
    for (size_t i = 0; i < items.size; ++i) {
      begin_item(i, depth);
      print(items.items[i], depth + 1);
    }
    if (items.size > 0) new_line(depth);
    out_.append(end);
  }

  void print_dict(const Dict& dict, int depth) {
    std::vector<Pair> pairs(dict.begin(), dict.end());
    if (json_ && json_->sort_keys) {
      out_.arena().charge(dict.size * 8);
      std::stable_sort(pairs.begin(), pairs.end(), [&](const Pair& a, const Pair& b) {
        return less(out_.arena(), a.key, b.key);
      });
    }
    out_.append("{");
    for (size_t i = 0; i < pairs.size(); ++i) {
      begin_item(i, depth);
      const bool quoted = json_ && !pairs[i].key.is_string();
      if (quoted) out_.append("\"" + scalar(pairs[i].key) + "\"", pairs[i].key.source);
      if (!quoted) print(pairs[i].key, depth + 1);
      out_.append(json_ ? json_->key_separator : ": ");
      print(pairs[i].value, depth + 1);
    }
    if (dict.size > 0) new_line(depth);
    out_.append("}");
  }

  void begin_item(size_t index, int depth) {
    if (index > 0) out_.append(json_ ? json_->item_separator : ", ");
    new_line(depth + 1);
  }

  void new_line(int depth) {
    if (!json_ || !json_->indent) return;
    out_.append("\n");
    for (int i = 0; i < depth; ++i) out_.append(*json_->indent);
  }

  TextBuilder& out_;
  const JsonStyle* json_;  // null for repr()
};

}  // namespace

void append_str(TextBuilder& out, const Value& value) {
  if (value.is_string()) return out.append(value);
  if (!value.is(Kind::kUndefined)) Printer(out, nullptr).print(value, 0);
}

Value to_string_value(Arena& arena, const Value& value) {
  if (value.is_string()) return value;
  TextBuilder out(arena);
  append_str(out, value);
  return out.build();
}

void append_json(TextBuilder& out, const Value& value, const JsonStyle& style) {
  Printer(out, &style).print(value, 0);
}

}  // namespace zeroth::data::jinja
