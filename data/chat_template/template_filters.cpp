// Filters of single values; template_list_filters.cpp has those of lists.
#include <algorithm>
#include <charconv>
#include <cmath>

#include "base/text/printable.h"
#include "data/chat_template/template_evaluator.h"
#include "data/tokenizer/unicode.h"

namespace zeroth::data::jinja {
namespace {

Value plain(Value string) {
  string.safe = false;
  return string;
}

template <LetterCase kMode>
Value change_case(const Call& call) {
  return convert_case(call.arena, call.text(), kMode);
}

// Jinja begins words after white space, hyphens and opening brackets, Python after what is no
// letter.
Value title(const Call& call) {
  const Value string = call.text();
  for (const char c : string.text()) {
    fail_if(std::isalpha(static_cast<unsigned char>(c)) == 0 && c != ' ' && c != '-',
            "'title' of other characters than letters is not supported");
  }
  return convert_case(call.arena, string, LetterCase::kTitle);
}

Value trim(const Call& call) {
  std::optional<std::string_view> chars;
  if (call.has_value(0)) chars = call.string(0);
  return strip(call.arena, call.text(), Side::kBoth, chars);
}

Value replace_filter(const Call& call) {
  const auto string = [&](const Value& value) { return plain(to_string_value(call.arena, value)); };
  const int64_t count = call.has_value(2) ? to_index(call[2]) : -1;
  return replace(call.arena, plain(call.text()), string(call[0]).text(), string(call[1]), count);
}

Value default_value(const Call& call) {
  const bool absent = call.self.is(Kind::kUndefined) || (call.flag(1) && !truth(call.self));
  if (!absent) return call.self;
  return call.has(0) ? call[0] : view_string(call.arena, "");
}

Value string_filter(const Call& call) {
  return call.text();
}

Value safe(const Call& call) {
  Value string = call.text();
  string.safe = true;
  return string;
}

Value escape(const Call& call) {
  return escape_html(call.arena, call.text());
}

Value length(const Call& call) {
  const auto size = length_of(call.self);
  if (size) return Value::of_int(*size);
  throw TemplateFailure("object of type '{}' has no len()", type_name(call.self));
}

Value absolute(const Call& call) {
  if (call.self.is(Kind::kFloat)) return Value::of_float(std::abs(call.self.real));
  fail_if(!call.self.is_integral(), "bad operand type for abs(): '{}'", type_name(call.self));
  return call.self.as_integer() < 0 ? negate(call.self) : Value::of_int(call.self.as_integer());
}

// Returns the number that a text of a usual form stands for: kMissing if it has no digit.
Value parse_number(Arena& arena, const Value& string) {
  const std::string_view text = strip(arena, string, Side::kBoth).text();
  const std::string_view digits = text.substr(text.starts_with('-') ? 1 : 0);
  double value = 0;
  const auto result = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  const bool complete = result.ec == std::errc() && result.ptr == digits.data() + digits.size();
  const bool is_word = text.find_first_of("0123456789_") == text.npos && !complete &&
                       std::all_of(text.begin(), text.end(), [](char c) { return c > 0; });
  if (is_word) return {};
  const bool integer = digits.find_first_not_of("0123456789") == digits.npos;
  fail_if(!complete || !std::isfinite(value) || digits[0] == '-' || (integer && value >= 0x1p53),
          "the number '{}' is not supported", shortened(text));
  value = text.starts_with('-') ? -value : value;
  return integer ? Value::of_int(static_cast<int64_t>(value)) : Value::of_float(value);
}

// Returns int(value) of a float.
Value truncate_float(double value) {
  if (std::abs(value) < 0x1p63) return Value::of_int(static_cast<int64_t>(value));
  throw TemplateFailure("an integer of a float beyond 64 bits is not supported");
}

Value int_filter(const Call& call) {
  const Value& self = call.self;
  const Value fallback = call.has(0) ? call[0] : Value::of_int(0);
  if (self.is(Kind::kUndefined)) throw_undefined(self);
  if (self.is_integral()) return Value::of_int(self.as_integer());
  if (self.is(Kind::kBigInt)) return self;
  const Value number = self.is_string() ? parse_number(call.arena, self) : self;
  if (number.is(Kind::kFloat)) return truncate_float(number.real);
  return number.is(Kind::kInt) ? number : fallback;
}

Value float_filter(const Call& call) {
  const Value& self = call.self;
  if (self.is(Kind::kUndefined)) throw_undefined(self);
  if (self.is(Kind::kBigInt)) throw TemplateFailure("'float' of an integer beyond 64 bits");
  const auto number = as_double(self.is_string() ? parse_number(call.arena, self) : self);
  if (number) return Value::of_float(*number);
  return call.has(0) ? call[0] : Value::of_float(0);
}

// Rounds like Python: correctly, and halves to even.
Value round_filter(const Call& call) {
  const int64_t precision = call.integer(0, 0);
  if (call.self.is(Kind::kUndefined)) throw_undefined(call.self);
  const double number = as_double(call.self).value_or(NAN);
  fail_if(call.has(1) || !std::isfinite(number) || precision < 0 || precision > 22,
          "this rounding of '{}' is not supported", type_name(call.self));
  if (call.self.is_integral()) return Value::of_int(call.self.as_integer());
  const std::string text = fmt::format("{:.{}f}", number, static_cast<int>(precision));
  return Value::of_float(std::strtod(text.c_str(), nullptr));
}

// Returns an argument as white space of that width, or a string as it is.
std::string read_indent(const Call& call, size_t i) {
  if (call[i].is_string()) return std::string(call[i].text());
  const auto width = static_cast<size_t>(std::max<int64_t>(to_index(call[i]), 0));
  call.arena.require(width);
  return std::string(width, ' ');
}

Value indent(const Call& call) {
  fail_if(!call.self.is_string() || call.self.safe, "'indent' of '{}' is not supported",
          call.self.safe ? "a safe string" : type_name(call.self));
  const std::string width = call.has(0) ? read_indent(call, 0) : std::string(4, ' ');
  const Value ended = concat(call.arena, call.self, view_string(call.arena, "\n"));
  const std::vector<Value> lines = split_lines(call.arena, ended, false);
  TextBuilder out(call.arena);
  for (size_t i = 0; i < lines.size(); ++i) {
    if (i > 0) out.append("\n");
    const bool is_blank = lines[i].string->size == 0;
    if (i == 0 ? call.flag(1) : call.flag(2) || !is_blank) out.append(width);
    out.append(lines[i]);
  }
  return out.build();
}

Value truncate(const Call& call) {
  const int64_t length = call.integer(0, 255);
  if (call.self.is_string() && !call.has(2) && length >= 3) {
    if (call.self.string->length() <= length + call.integer(3, 5)) return call.self;
  }
  throw TemplateFailure("shortening with 'truncate' is not supported");
}

Value center(const Call& call) {
  const Value string = plain(call.text());
  const int64_t width = call.integer(0, 80);
  const int64_t space = width - int64_t{string.string->length()};
  const int64_t before = space / 2 + (space & width & 1);
  if (space <= 0) return string;
  const Value fill = view_string(call.arena, " ");
  TextBuilder out(call.arena);
  out.append_times(fill, before);
  out.append(string);
  out.append_times(fill, space - before);
  return out.build();
}

Value word_count(const Call& call) {
  const std::string_view text = call.text().text();
  int64_t words = 0;
  bool in_word = false;
  for (size_t at = 0; at < text.size(); at += utf8_length(text[at])) {
    const bool word = is_word(char_at(text, at));
    if (word && !in_word) ++words;
    in_word = word;
  }
  return Value::of_int(words);
}

Value format_filter(const Call& call) {
  if (!call.all.named.empty()) throw TemplateFailure("'format' by names is not supported");
  return format_percent(call.arena, call.text(), new_tuple(call.arena, call.all.positional));
}

Value to_json(const Call& call) {
  JsonStyle style;
  style.ensure_ascii = call.flag(0);
  style.sort_keys = call.flag(3);
  if (call.has_value(1)) {
    style.item_separator = ",";
    style.indent = read_indent(call, 1);
  }
  if (call.has_value(2)) {
    const std::vector<Value> pair = collect(call.arena, call[2]);
    fail_if(pair.size() != 2 || !pair[0].is_string() || !pair[1].is_string(),
            "the separators of 'tojson' have to be two strings");
    style.item_separator = pair[0].text();
    style.key_separator = pair[1].text();
  }
  TextBuilder out(call.arena);
  append_json(out, call.self, style);
  return out.build();
}

Builtins make_filters() {
  Builtins filters = {
      {"abs", {}, 0, absolute},
      {"capitalize", {}, 0, change_case<LetterCase::kCapitalize>},
      {"center", {"width"}, 0, center},
      {"count", {}, 0, length},
      {"d", {"default_value", "boolean"}, 0, default_value},
      {"default", {"default_value", "boolean"}, 0, default_value},
      {"e", {}, 0, escape},
      {"escape", {}, 0, escape},
      {"float", {"default"}, 0, float_filter},
      {"format", {"*"}, 0, format_filter},
      {"indent", {"width", "first", "blank"}, 0, indent},
      {"int", {"default"}, 0, int_filter},
      {"length", {}, 0, length},
      {"lower", {}, 0, change_case<LetterCase::kLower>},
      {"replace", {"old", "new", "count"}, 2, replace_filter},
      {"round", {"precision", "method"}, 0, round_filter},
      {"safe", {}, 0, safe},
      {"string", {}, 0, string_filter},
      {"title", {}, 0, title},
      {"tojson", {"ensure_ascii", "indent", "separators", "sort_keys"}, 0, to_json},
      {"trim", {"chars"}, 0, trim},
      {"truncate", {"length", "killwords", "end", "leeway"}, 0, truncate},
      {"upper", {}, 0, change_case<LetterCase::kUpper>},
      {"wordcount", {}, 0, word_count},
  };
  add_unsupported(filters,
                  "attr filesizeformat forceescape pprint random slice striptags urlencode "
                  "urlize wordwrap xmlattr");
  return filters;
}

}  // namespace

const Builtins& filters() {
  static const Builtins kFilters = make_filters();
  return kFilters;
}

}  // namespace zeroth::data::jinja
