// The rows of a .csv file.
#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/text/printable.h"
#include "base/text/units.h"
#include "data/records/record_source.h"
#include "data/tokenizer/unicode.h"

namespace zeroth::data {
namespace {

// A CsvParser assembles bytes to rows.
class CsvParser {
 public:
  CsvParser(const std::string& path, const OnRecord& on_record, size_t max_bytes)
      : path_(path), on_record_(on_record), max_bytes_(max_bytes) {}

  int64_t blank_lines() const { return blank_lines_; }

  // Returns whether to go on.
  bool add(std::string_view piece) {
    while (!piece.empty()) {
      // Text without a meaning for the table is copied as a whole.
      const size_t plain = std::min(
          piece.find_first_of(state_ == State::kQuoted ? "\"\n" : "\",\r\n"), piece.size());
      if (plain > 0) add_text(piece.substr(0, plain));
      piece.remove_prefix(plain);
      if (piece.empty()) return true;
      if (!add_special(piece.front())) return false;
      piece.remove_prefix(1);
    }
    return true;
  }

  void finish() {
    if (state_ == State::kQuoted) fail(quote_line_, "a quote that begins here does not end");
    if (!is_row_empty()) end_row();
  }

 private:
  enum class State {
    kBegin,       // of a field
    kPlain,       // inside a field without quotes
    kQuoted,      // between quotes
    kAfterQuote,  // after a quote inside quotes: their end, or the first of two
  };

  bool is_row_empty() const { return state_ == State::kBegin && fields_.empty(); }

  void add_text(std::string_view text) {
    if (state_ == State::kAfterQuote) {
      fail(line_, "text after a closing quote: a quote inside quotes is written twice");
    }
    if (state_ == State::kBegin) state_ = State::kPlain;
    field_ += text;
    count_bytes(text.size());
    after_return_ = false;
  }

  // Adds to the memory of the row.
  void count_bytes(size_t bytes) {
    row_bytes_ += bytes;
    if (row_bytes_ > max_bytes_) {
      fail(row_line_, fmt::format("the row has more than {}; is a quote not closed?",
                                  format_bytes(static_cast<int64_t>(max_bytes_))));
    }
  }

  // Returns whether to go on.
  bool add_special(char byte) {
    const bool second = std::exchange(after_return_, false) && byte == '\n';
    if (second) return true;  // "\r\n" ended the row already
    if (byte == '"') {
      add_quote();
    } else if (state_ == State::kQuoted) {
      ++line_;
      add_text("\n");
    } else if (byte == ',') {
      end_field();
    } else {
      after_return_ = byte == '\r';
      const bool blank = is_row_empty();
      blank_lines_ += blank ? 1 : 0;
      const bool goes_on = blank || end_row();
      row_line_ = ++line_;
      return goes_on;
    }
    return true;
  }

  void add_quote() {
    if (state_ == State::kPlain) {
      add_text("\"");
    } else if (state_ == State::kAfterQuote) {
      state_ = State::kQuoted;
      add_text("\"");
    } else if (state_ == State::kQuoted) {
      state_ = State::kAfterQuote;
    } else {
      state_ = State::kQuoted;
      quote_line_ = line_;
    }
  }

  void end_field() {
    if (const auto at = find_invalid_utf8(field_)) {
      fail(row_line_, fmt::format("field {} is not UTF-8 at its byte {}", fields_.size() + 1, *at));
    }
    fields_.push_back(std::exchange(field_, {}));
    count_bytes(sizeof(std::string));
    state_ = State::kBegin;
  }

  bool end_row() {
    end_field();
    row_bytes_ = 0;
    std::vector<std::string> fields = std::exchange(fields_, {});
    if (columns_.empty()) {
      set_columns(fields);
      return true;
    }
    if (fields.size() != columns_.size()) {
      fail(row_line_, fmt::format("{}, but the header has {}",
                                  pluralize(std::ssize(fields), "field"), columns_.size()));
    }
    nlohmann::ordered_json row = columns_;
    std::move(fields.begin(), fields.end(), row.begin());
    return on_record_({.text = {}, .row = &row, .line = row_line_});
  }

  void set_columns(const std::vector<std::string>& names) {
    for (const std::string& name : names) {
      if (columns_.emplace(name, "").second) continue;
      fail(row_line_, fmt::format("two columns have the name '{}'", shortened(name)));
    }
  }

  [[noreturn]] void fail(int64_t line, const std::string& reason) const {
    throw Error("{}:{}: {}", path_, line, reason);
  }

  const std::string& path_;
  const OnRecord& on_record_;
  size_t max_bytes_;
  nlohmann::ordered_json columns_ = nlohmann::ordered_json::object();  // a row of empty texts
  std::vector<std::string> fields_;                                    // of the row so far
  std::string field_;
  State state_ = State::kBegin;
  bool after_return_ = false;  // the byte before is a '\r' that ended a row
  size_t row_bytes_ = 0;
  int64_t line_ = 1;
  int64_t row_line_ = 1;    // on which the row begins
  int64_t quote_line_ = 1;  // on which the last quoted field begins
  int64_t blank_lines_ = 0;
};

}  // namespace

int64_t for_each_csv_row(ByteSource& source, const OnRecord& on_record, size_t max_bytes) {
  CsvParser parser(source.path(), on_record, max_bytes);
  bool first = true;
  for (std::string_view piece = source.next(); !piece.empty(); piece = source.next()) {
    if (std::exchange(first, false)) piece = without_byte_order_mark(piece);
    if (!parser.add(piece)) return parser.blank_lines();
  }
  parser.finish();
  return parser.blank_lines();
}

}  // namespace zeroth::data
