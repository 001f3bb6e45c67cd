// Text of a chat template with the source of each range: construction, slices, search, case, and
// the ways in which Python prints a value.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "data/chat_template/template_value.h"

namespace zeroth::data::jinja {

inline constexpr size_t kBytesPerStep = 16;

// Concatenates text and remembers the source of each range.
class TextBuilder {
 public:
  // `max_bytes` is the limit of the text; 0 stands for the limit of the arena.
  explicit TextBuilder(Arena& arena, size_t max_bytes = 0)
      : arena_(arena),
        limit_(max_bytes),
        text_(std::move(arena.spare_text)),
        spans_(std::move(arena.spare_spans)) {
    text_.clear();
    spans_.clear();
  }
  ~TextBuilder() {
    arena_.spare_text = std::move(text_);
    arena_.spare_spans = std::move(spans_);
  }
  TextBuilder(const TextBuilder&) = delete;
  TextBuilder& operator=(const TextBuilder&) = delete;

  void append(std::string_view text, SourceId source = 0);
  void append(const Value& string);  // with its sources
  void append_char(char32_t character, SourceId source);
  void append_times(const Value& string, int64_t count);
  void mark_since(size_t begin, SourceId source);  // what has no source yet
  void mark_generated();                           // everything

  size_t size() const { return text_.size(); }
  const std::vector<Span>& spans() const { return spans_; }
  Arena& arena() const { return arena_; }

  // Returns the text as a value.
  Value build(bool safe = false) const;
  // Moves the text out.
  std::string take_text() { return std::move(text_); }

 private:
  void add_span(size_t begin, size_t end, SourceId source);

  Arena& arena_;
  size_t limit_;
  std::string text_;
  std::vector<Span> spans_;
};

// Returns a string that refers to `text`, which has to outlive it.
Value view_string(Arena& arena, std::string_view text, SourceId source = 0);
// Returns a string with a copy of `text`.
Value copy_string(Arena& arena, std::string_view text);
// Returns a part of a string by byte offsets, with its sources.
Value substring(Arena& arena, const Value& string, size_t begin, size_t end);
Value concat(Arena& arena, const Value& left, const Value& right);
// Returns a number of decimal digits with an optional sign, as kInt or kBigInt.
Value parse_integer(Arena& arena, std::string_view digits);
// Returns the byte offset of a character; the size if there are fewer.
size_t char_offset(const String& string, int64_t index);
// Returns the source of the byte at `offset`.
SourceId source_at(const Value& string, size_t offset);

bool is_python_space(char32_t character);
// Returns where the white space, or the text without it, ends after `at`.
size_t skip_spaces(std::string_view text, size_t at, bool spaces = true);
enum class Side { kLeft, kRight, kBoth };
// Returns a string without the leading or trailing characters of the set `chars`; of white space as
// Python defines it if there is none.
Value strip(Arena& arena, const Value& string, Side side,
            std::optional<std::string_view> chars = std::nullopt);
// Return the parts between separators, or between runs of white space. A negative `max_splits` is
// no limit.
std::vector<Value> split(Arena& arena, const Value& string, std::string_view separator,
                         int64_t max_splits = -1);
std::vector<Value> split_spaces(Arena& arena, const Value& string, int64_t max_splits);
std::vector<Value> split_lines(Arena& arena, const Value& string, bool keep_ends);
Value replace(Arena& arena, const Value& string, std::string_view old, const Value& replacement,
              int64_t max_count);
// Returns the string with &, <, >, ' and " as HTML entities, marked safe; a safe one unchanged.
Value escape_html(Arena& arena, const Value& string);

// kTitle capitalizes each run of letters, kCapitalize the first character of the string.
enum class LetterCase { kLower, kUpper, kTitle, kCapitalize };
Value convert_case(Arena& arena, const Value& string, LetterCase mode);

// Return or append a value as str() of Python prints it. Throw a TemplateFailure for what prints an
// address in memory.
void append_str(TextBuilder& out, const Value& value);
Value to_string_value(Arena& arena, const Value& value);

struct JsonStyle {
  bool ensure_ascii = false;
  bool sort_keys = false;
  std::optional<std::string> indent;
  std::string item_separator = ", ";
  std::string key_separator = ": ";
};
// Appends a value as json.dumps prints it.
void append_json(TextBuilder& out, const Value& value, const JsonStyle& style);

}  // namespace zeroth::data::jinja
