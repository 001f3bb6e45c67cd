// The records of a file, as texts.
#include <algorithm>
#include <string_view>

#include "base/error.h"
#include "data/samples/record_reader.h"
#include "data/tokenizer/unicode.h"

namespace zeroth::data {
namespace {

constexpr std::string_view kBlank = " \t\r\n";
constexpr std::string_view kBlankLine = " \t\r\n\v\f";  // includes blanks that JSON does not allow

// A JsonCursor is a position in a text, which advances value by value.
class JsonCursor {
 public:
  JsonCursor(std::string_view text, int64_t line, const std::string& path)
      : text_(text), line_(line), path_(path) {}

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
};

void for_each_array_element(JsonCursor& cursor, const OnRecord& on_record) {
  cursor.consume('[');
  if (cursor.consume(']')) return;
  do {
    cursor.at_end();
    const int64_t line = cursor.line();
    const std::string_view record = cursor.consume_value();
    if (record.empty()) cursor.throw_expected("a record");
    on_record(record, line);
  } while (cursor.consume(','));
  if (!cursor.consume(']')) cursor.throw_expected("',' or ']' after a record");
}

// Calls `on_record` for the elements of `object`'s "data": [...]; returns whether it has that.
bool for_each_data_element(std::string_view object, int64_t line, const std::string& path,
                           const OnRecord& on_record) {
  JsonCursor cursor(object, line, path);
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

int64_t for_each_line(std::string_view file, const OnRecord& on_record) {
  int64_t blank = 0;
  file = without_byte_order_mark(file);
  for (int64_t line = 1; !file.empty(); ++line) {
    const size_t end = std::min(file.find('\n'), file.size());
    const std::string_view record = file.substr(0, end);
    if (without_byte_order_mark(record).find_first_not_of(kBlankLine) == std::string_view::npos) {
      ++blank;
    } else {
      on_record(record, line);
    }
    file.remove_prefix(std::min(end + 1, file.size()));
  }
  return blank;
}

void for_each_element(std::string_view file, const std::string& path, const OnRecord& on_record) {
  file = without_byte_order_mark(file);
  JsonCursor cursor(file, 1, path);
  if (cursor.next_is('[')) {
    for_each_array_element(cursor, on_record);
    if (!cursor.at_end()) cursor.throw_expected("nothing after the array");
    return;
  }
  for (bool first = true; !cursor.at_end(); first = false) {
    const int64_t line = cursor.line();
    const std::string_view record = cursor.consume_value();
    if (record.empty()) cursor.throw_expected("a record");
    const bool alone = first && cursor.at_end();
    if (!alone || !for_each_data_element(record, line, path, on_record)) on_record(record, line);
  }
}

}  // namespace zeroth::data
