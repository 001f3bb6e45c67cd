// What Python does with a string.
#include "data/chat_template/template_operations.h"

#include <utf8proc.h>

#include <algorithm>
#include <array>
#include <utility>

#include "data/tokenizer/unicode.h"

namespace zeroth::data::jinja {
namespace {

constexpr char32_t kCapitalDottedI = 0x130;
constexpr char32_t kCapitalSharpS = 0x1E9E;
constexpr char32_t kCapitalSigma = 0x3A3;
constexpr int kMaxFolded = 4;
constexpr std::string_view kHtmlCharacters = "&<>'\"";
constexpr std::array<std::string_view, 5> kHtmlEntities = {"&amp;", "&lt;", "&gt;", "&#39;",
                                                           "&#34;"};

bool is_stripped(std::string_view character, std::optional<std::string_view> chars) {
  if (!chars) return is_python_space(char_at(character, 0));
  return chars->find(character) != std::string_view::npos;
}

// Returns the bytes of the line break at `at`, 0 if there is none.
size_t line_break(std::string_view text, size_t at) {
  const char32_t c = char_at(text, at);
  if (c == '\r') return at + 1 < text.size() && text[at + 1] == '\n' ? 2 : 1;
  const bool breaks = (c >= '\n' && c <= '\r') || (c >= 0x1C && c <= 0x1E) || c == 0x85 ||
                      c == 0x2028 || c == 0x2029;
  return breaks ? utf8_length(text[at]) : 0;
}

char32_t lower_one(char32_t c) {
  return static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(c)));
}

char32_t upper_one(char32_t c) {
  return static_cast<char32_t>(utf8proc_toupper(static_cast<utf8proc_int32_t>(c)));
}

bool is_cased(char32_t c) {
  const auto category = utf8proc_category(static_cast<utf8proc_int32_t>(c));
  return lower_one(c) != c || upper_one(c) != c ||
         (category >= UTF8PROC_CATEGORY_LU && category <= UTF8PROC_CATEGORY_LT);
}

void append_lower(TextBuilder& out, char32_t c, SourceId source) {
  fail_if(c == kCapitalSigma, "the lower case of a capital sigma is not supported");
  if (c == kCapitalDottedI) return out.append("i\u0307", source);
  out.append_char(lower_one(c), source);
}

// Appends the upper case of a character, or its title case. A character whose upper case has
// several is one whose case folding has several.
void append_upper(TextBuilder& out, char32_t c, SourceId source, bool title) {
  const auto code = static_cast<utf8proc_int32_t>(c);
  std::array<utf8proc_int32_t, kMaxFolded> folded{};
  utf8proc_ssize_t count = 1;
  if (c >= 0x80 && c != kCapitalDottedI && c != kCapitalSharpS) {
    const auto options = static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_CASEFOLD);
    count = utf8proc_decompose_char(code, folded.data(), kMaxFolded, options, nullptr);
  }
  if (count <= 1 || count > kMaxFolded) {
    const auto simple = static_cast<char32_t>(title ? utf8proc_totitle(code) : upper_one(c));
    return out.append_char(simple, source);
  }
  if (title) throw TemplateFailure("the title case of U+{:04X} is not supported", code);
  for (utf8proc_ssize_t i = 0; i < count; ++i) {
    out.append_char(upper_one(static_cast<char32_t>(folded[static_cast<size_t>(i)])), source);
  }
}

}  // namespace

bool is_python_space(char32_t character) {
  if (character < 0x80) {
    return (character >= 0x09 && character <= 0x0D) || (character >= 0x1C && character <= 0x20);
  }
  return is_space(character);
}

size_t skip_spaces(std::string_view text, size_t at, bool spaces) {
  while (at < text.size() && is_python_space(char_at(text, at)) == spaces) {
    at += utf8_length(text[at]);
  }
  return at;
}

Value strip(Arena& arena, const Value& string, Side side, std::optional<std::string_view> chars) {
  const std::string_view text = string.text();
  size_t begin = 0;
  size_t end = text.size();
  while (side != Side::kRight && begin < end) {
    const size_t bytes = utf8_length(text[begin]);
    if (!is_stripped(text.substr(begin, bytes), chars)) break;
    begin += bytes;
  }
  while (side != Side::kLeft && end > begin) {
    const size_t previous = previous_char(text, end);
    if (!is_stripped(text.substr(previous, end - previous), chars)) break;
    end = previous;
  }
  const size_t cost = chars ? 1 + chars->size() / kBytesPerStep : 1;
  arena.charge((text.size() - (end - begin)) * cost / kBytesPerStep);
  return substring(arena, string, begin, end);
}

std::vector<Value> split(Arena& arena, const Value& string, std::string_view separator,
                         int64_t max_splits) {
  if (separator.empty()) throw TemplateFailure("empty separator");
  const std::string_view text = string.text();
  arena.charge(text.size() / kBytesPerStep);
  std::vector<Value> parts;
  size_t begin = 0;
  while (max_splits < 0 || std::ssize(parts) < max_splits) {
    const size_t end = text.find(separator, begin);
    if (end == text.npos) break;
    arena.charge(1);
    parts.push_back(substring(arena, string, begin, end));
    begin = end + separator.size();
  }
  parts.push_back(substring(arena, string, begin, text.size()));
  return parts;
}

std::vector<Value> split_spaces(Arena& arena, const Value& string, int64_t max_splits) {
  const std::string_view text = string.text();
  arena.charge(text.size() / kBytesPerStep);
  std::vector<Value> parts;
  size_t begin = skip_spaces(text, 0, true);
  while (begin < text.size()) {
    const bool last = max_splits >= 0 && std::ssize(parts) == max_splits;
    const size_t end = last ? text.size() : skip_spaces(text, begin, false);
    arena.charge(1);
    parts.push_back(substring(arena, string, begin, end));
    begin = skip_spaces(text, end, true);
  }
  return parts;
}

std::vector<Value> split_lines(Arena& arena, const Value& string, bool keep_ends) {
  const std::string_view text = string.text();
  arena.charge(text.size() / kBytesPerStep);
  std::vector<Value> lines;
  size_t begin = 0;
  for (size_t at = 0; at < text.size();) {
    const size_t bytes = line_break(text, at);
    if (bytes == 0) {
      at += utf8_length(text[at]);
      continue;
    }
    arena.charge(1);
    lines.push_back(substring(arena, string, begin, keep_ends ? at + bytes : at));
    at += bytes;
    begin = at;
  }
  if (begin < text.size()) lines.push_back(substring(arena, string, begin, text.size()));
  return lines;
}

Value replace(Arena& arena, const Value& string, std::string_view old, const Value& replacement,
              int64_t max_count) {
  const std::string_view text = string.text();
  TextBuilder out(arena);
  size_t at = 0;
  for (int64_t count = 0; max_count < 0 || count < max_count; ++count) {
    size_t found = old.empty() ? at : text.find(old, at);
    if (old.empty() && count > 0) {
      if (at >= text.size()) break;
      found = at + utf8_length(text[at]);
    }
    if (found == std::string_view::npos) break;
    arena.charge(1);
    out.append(substring(arena, string, at, found));
    out.append(replacement);
    at = found + old.size();
  }
  if (at == 0 && out.size() == 0) return string;
  out.append(substring(arena, string, at, text.size()));
  return out.build();
}

Value escape_html(Arena& arena, const Value& string) {
  if (string.safe) return string;
  const std::string_view text = string.text();
  TextBuilder out(arena);
  size_t begin = 0;
  for (size_t at = 0; at < text.size(); ++at) {
    const size_t special = kHtmlCharacters.find(text[at]);
    if (special == std::string_view::npos) continue;
    out.append(substring(arena, string, begin, at));
    out.append(kHtmlEntities[special], source_at(string, at));
    begin = at + 1;
  }
  out.append(substring(arena, string, begin, text.size()));
  return out.build(/*safe=*/true);
}

Value convert_case(Arena& arena, const Value& string, LetterCase mode) {
  const std::string_view text = string.text();
  arena.charge(text.size());
  TextBuilder out(arena);
  bool in_word = false;
  for (size_t at = 0; at < text.size(); at += utf8_length(text[at])) {
    const char32_t c = char_at(text, at);
    const bool stays_lower = mode == LetterCase::kTitle ? in_word : at > 0;
    if (mode == LetterCase::kLower || (mode != LetterCase::kUpper && stays_lower)) {
      append_lower(out, c, source_at(string, at));
    } else {
      append_upper(out, c, source_at(string, at), mode != LetterCase::kUpper);
    }
    if (mode == LetterCase::kTitle) in_word = is_cased(c);
  }
  return out.build(string.safe);
}

}  // namespace zeroth::data::jinja
