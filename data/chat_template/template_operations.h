// Errors of a chat template, text with the source of each range, and what Python does with values.
// All functions throw a TemplateFailure where Python or Jinja raises an exception.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.h"
#include "data/chat_template/template_syntax.h"

namespace zeroth::data::jinja {

// An error of a template. One that has no offset is at what is being evaluated.
class TemplateFailure : public Error {
 public:
  using Error::Error;
  TemplateFailure(uint32_t at, const std::string& message) : Error(message), offset(at) {}

  std::optional<uint32_t> offset;
};

// Throws a TemplateFailure with this message if the condition holds.
template <typename... Args>
void fail_if(bool condition, fmt::format_string<Args...> message, Args&&... args) {
  if (condition) throw TemplateFailure(fmt::format(message, std::forward<Args>(args)...));
}

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

// Returns Python's name of the type.
std::string_view type_name(const Value& value);
Value new_undefined(Arena& arena, std::string_view message);
[[noreturn]] void throw_undefined(const Value& value);
Value new_sequence(Arena& arena, Kind kind, const std::vector<Value>& items,
                   std::string_view printed = {});
Value new_list(Arena& arena, const std::vector<Value>& items);
Value new_tuple(Arena& arena, const std::vector<Value>& items);
Value new_generator(Arena& arena, const std::vector<Value>& items);
// Returns a dict of the pairs; the last value of an equal key wins.
Value new_dict(Arena& arena, const std::vector<Pair>& pairs);
// Returns a dict's items as dict.items() does.
Value dict_items(Arena& arena, const Dict& dict);
// Returns the value of a key, or null.
const Value* find_key(Arena& arena, const Dict& dict, const Value& key);
void require_hashable(const Value& value);

// Returns what a loop over the value visits.
std::vector<Value> collect(Arena& arena, const Value& value);
// Returns the number of items; nullopt for what has no length.
std::optional<int64_t> length_of(const Value& value);
bool truth(const Value& value);
bool equal(Arena& arena, const Value& left, const Value& right, int depth = 0);
bool less(Arena& arena, const Value& left, const Value& right, int depth = 0);
bool compare(Arena& arena, Operator op, const Value& left, const Value& right);
Value binary(Arena& arena, Operator op, const Value& left, const Value& right);
Value negate(const Value& value);
int64_t to_index(const Value& value);                 // of an int or a bool
std::string_view to_text(const Value& value);         // of a string
std::optional<double> as_double(const Value& value);  // of any number but a big one

}  // namespace zeroth::data::jinja
