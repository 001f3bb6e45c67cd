// The records of a file, as texts: lines, and elements of an array.
#include <algorithm>
#include <string_view>

#include "base/error.h"
#include "base/text/units.h"
#include "data/records/record_source.h"
#include "data/tokenizer/unicode.h"

namespace zeroth::data {
namespace {

constexpr std::string_view kBlank = " \t\r\n";
constexpr std::string_view kBlankLine = " \t\r\n\v\f";  // includes blanks that JSON does not allow
constexpr size_t kPassedBytes = size_t{1} << 20;        // between two calls of `on_passed`

using OnPassed = std::function<void(std::string_view)>;

// A JsonCursor is a position in a text, which advances value by value.
class JsonCursor {
 public:
  JsonCursor(std::string_view text, int64_t line, const std::string& path,
             const OnPassed& on_passed)
      : text_(text), line_(line), path_(path), on_passed_(on_passed) {}

  int64_t line() const { return line_; }

  // Skips blanks; returns whether the text ends there.
  bool at_end() {
    while (at_ < text_.size() && kBlank.find(text_[at_]) != std::string_view::npos) advance();
    return at_ == text_.size();
  }
  bool next_is(char expected_char) { return !at_end() && text_[at_] == expected_char; }

  bool consume(char expected_char) {
    if (!next_is(expected_char)) return false;
    advance();
    return true;
  }

  // Consumes an object, array or string to its end, or anything else up to a separator.
  std::string_view consume_value() {
    if (at_end()) return {};
    const size_t begin = at_;
    size_t depth = 0;
    do {
      if (text_[at_] == '"') {
        skip_text();
        continue;
      }
      const bool opens = text_[at_] == '{' || text_[at_] == '[';
      const bool closes = text_[at_] == '}' || text_[at_] == ']';
      if (depth == 0 && (closes || text_[at_] == ',' || text_[at_] == ':')) break;
      depth += opens ? 1 : 0;
      depth -= closes ? 1 : 0;
      advance();
    } while (at_ < text_.size() && (depth > 0 || is_inside_word()));
    return text_.substr(begin, at_ - begin);
  }

  [[noreturn]] void throw_expected(std::string_view expected) const {
    throw Error("{}:{}: expected {}", path_, line_, expected);
  }

 private:
  void advance() {
    if (text_[at_] == '\n') ++line_;
    ++at_;
    if (at_ % kPassedBytes == 0 && on_passed_) {
      // Twice as much, as the pages between two calls belong to neither alone.
      const size_t begin = at_ - std::min(at_, 2 * kPassedBytes);
      on_passed_(text_.substr(begin, at_ - begin));
    }
  }

  void skip_text() {
    advance();
    while (at_ < text_.size() && text_[at_] != '"') {
      if (text_[at_] == '\\' && at_ + 1 < text_.size()) advance();
      advance();
    }
    if (at_ < text_.size()) advance();
  }

  // Returns whether the position is within a number or a literal: neither the byte before nor the
  // next one is blank or structural.
  bool is_inside_word() const {
    constexpr std::string_view kStructure = " \t\r\n{}[],:\"";
    return kStructure.find(text_[at_]) == std::string_view::npos &&
           kStructure.find(text_[at_ - 1]) == std::string_view::npos;
  }

  std::string_view text_;
  size_t at_ = 0;
  int64_t line_;
  const std::string& path_;
  const OnPassed& on_passed_;
};

// Returns whether `on_record` said to go on.
bool for_each_array_element(JsonCursor& cursor, const OnRecord& on_record) {
  cursor.consume('[');
  if (cursor.consume(']')) return true;
  do {
    cursor.at_end();
    const int64_t line = cursor.line();
    const std::string_view record = cursor.consume_value();
    if (record.empty()) cursor.throw_expected("a record");
    if (!on_record({.text = record, .row = nullptr, .line = line})) return false;
  } while (cursor.consume(','));
  if (!cursor.consume(']')) cursor.throw_expected("',' or ']' after a record");
  return true;
}

// Calls `on_record` for the elements of an object's "data": [...]; returns whether it has that.
bool for_each_data_element(JsonCursor cursor, const OnRecord& on_record) {
  cursor.consume('{');
  do {
    const std::string_view key = cursor.consume_value();
    if (!cursor.consume(':')) return false;
    if (key == "\"data\"" && cursor.next_is('[')) {
      for_each_array_element(cursor, on_record);
      return true;
    }
    cursor.consume_value();
  } while (cursor.consume(','));
  return false;
}

}  // namespace

int64_t for_each_line(ByteSource& source, const OnRecord& on_record, size_t max_bytes) {
  int64_t blank = 0, line = 0;
  std::string begun;  // a line whose end is in a later piece
  const auto emit = [&](std::string_view text) {
    ++line;
    const std::string_view unmarked = without_byte_order_mark(text);
    if (unmarked.find_first_not_of(kBlankLine) == std::string_view::npos) {
      ++blank;
      return true;
    }
    return on_record({.text = line == 1 ? unmarked : text, .row = nullptr, .line = line});
  };
  for (std::string_view piece = source.next(); !piece.empty(); piece = source.next()) {
    for (size_t end = piece.find('\n'); end != std::string_view::npos; end = piece.find('\n')) {
      const std::string_view rest = piece.substr(0, end);
      if (!emit(begun.empty() ? rest : begun += rest)) return blank;
      begun.clear();
      piece.remove_prefix(end + 1);
    }
    begun += piece;
    if (begun.size() > max_bytes) {
      throw Error("{}:{}: the line has more than {}", source.path(), line + 1,
                  format_bytes(static_cast<int64_t>(max_bytes)));
    }
  }
  if (!begun.empty()) emit(begun);
  return blank;
}

void for_each_element(std::string_view text, const std::string& path, const OnRecord& on_record,
                      const OnPassed& on_passed) {
  text = without_byte_order_mark(text);
  JsonCursor cursor(text, 1, path, on_passed);
  if (cursor.next_is('[')) {
    if (for_each_array_element(cursor, on_record) && !cursor.at_end()) {
      cursor.throw_expected("nothing after the array");
    }
    return;
  }
  for (bool first = true; !cursor.at_end(); first = false) {
    const int64_t line = cursor.line();
    const std::string_view record = cursor.consume_value();
    if (record.empty()) cursor.throw_expected("a record");
    const bool alone = first && cursor.at_end();
    if (alone && for_each_data_element({record, line, path, on_passed}, on_record)) return;
    if (!on_record({.text = record, .row = nullptr, .line = line})) return;
  }
}

}  // namespace zeroth::data
