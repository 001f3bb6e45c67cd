#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>

#include "base/text/printable.h"
#include "data/chat_template/template_operations.h"
#include "data/chat_template/template_syntax.h"
#include "data/tokenizer/unicode.h"

namespace zeroth::data::jinja {
namespace {

constexpr size_t kNone = std::string_view::npos;
// Longer ones first.
constexpr std::array<std::string_view, 26> kOperators = {
    "//", "**", "==", "!=", ">=", "<=", "+", "-", "/", "*", "%", "~", "[",
    "]",  "(",  ")",  "{",  "}",  ">",  "<", "=", ".", ":", "|", ",", ";"};

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

bool is_hex_digit(char c) {
  return std::isxdigit(static_cast<unsigned char>(c)) != 0;
}

bool is_name_char(char c) {
  return is_digit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}

class Lexer {
 public:
  explicit Lexer(std::string_view source) : source_(source) {}

  std::vector<Token> run() {
    while (at_ < source_.size()) read_root();
    add(TokenKind::kEnd, at_, "the end of the template");
    return std::move(tokens_);
  }

 private:
  [[noreturn]] void fail(size_t at, const std::string& message) const {
    throw TemplateFailure(static_cast<uint32_t>(at), message);
  }

  void add(TokenKind kind, size_t at, std::string_view text = {}) {
    tokens_.push_back({kind, static_cast<uint32_t>(at), std::string(text)});
  }

  bool starts(size_t at, std::string_view text) const {
    return source_.substr(std::min(at, source_.size())).starts_with(text);
  }

  // Returns the text without white space at its end.
  static std::string_view right_stripped(std::string_view text) {
    while (!text.empty()) {
      const size_t last = previous_char(text, text.size());
      if (!is_python_space(char_at(text, last))) break;
      text = text.substr(0, last);
    }
    return text;
  }

  // Adds the text before a tag. White space goes as the tag's sign and `lstrip_blocks` demand.
  void add_data(size_t begin, size_t end, char sign, bool is_print) {
    std::string_view text = source_.substr(begin, end - begin);
    if (sign == '-') {
      text = right_stripped(text);
    } else if (sign != '+' && !is_print) {
      const size_t line = text.rfind('\n') + 1;  // 0 if there is none
      const std::string_view rest = text.substr(line);
      if ((line > 0 || line_starting_) && right_stripped(rest).empty()) text = text.substr(0, line);
    }
    if (!text.empty()) add(TokenKind::kData, begin, text);
  }

  // Returns the offset after the end tag at `at`; kNone if there is none.
  size_t end_of_tag(size_t at, std::string_view close, bool trims) const {
    if (starts(at, close)) {
      const size_t end = at + close.size();
      return trims && starts(end, "\n") ? end + 1 : end;
    }
    if (!starts(at + 1, close)) return kNone;
    if (source_[at] == '-') return skip_spaces(source_, at + 1 + close.size());
    return source_[at] == '+' && trims ? at + 1 + close.size() : kNone;
  }

  size_t find_open(size_t from) const {
    for (size_t at = source_.find('{', from); at != kNone; at = source_.find('{', at + 1)) {
      if (starts(at + 1, "%") || starts(at + 1, "{") || starts(at + 1, "#")) return at;
    }
    return kNone;
  }

  void advance(size_t to) {
    at_ = to;
    line_starting_ = to > 0 && source_[to - 1] == '\n';
  }

  void read_root() {
    const size_t open = find_open(at_);
    if (open == kNone) {
      add(TokenKind::kData, at_, source_.substr(at_));
      return advance(source_.size());
    }
    size_t inner = open + 2;
    char sign = 0;
    if (inner < source_.size() && (source_[inner] == '-' || source_[inner] == '+')) {
      sign = source_[inner++];
    }
    const char type = source_[open + 1];
    add_data(at_, open, sign, type == '{');
    if (type == '#') return read_comment(inner);
    if (type == '%') {
      if (const size_t raw = end_of_raw_tag(inner); raw != kNone) return read_raw(raw);
    }
    add(type == '%' ? TokenKind::kBlockBegin : TokenKind::kPrintBegin, open);
    advance(inner);
    read_tag(type == '%');
  }

  void read_comment(size_t at) {
    const size_t close = source_.find("#}", at);
    if (close == kNone) {
      if (at < source_.size()) fail(at, "the end of the comment is missing");
      return advance(at);
    }
    const bool sign = close > at && (source_[close - 1] == '-' || source_[close - 1] == '+');
    advance(end_of_tag(sign ? close - 1 : close, "#}", true));
  }

  // Returns the offset after "raw %}"; kNone if something else follows.
  size_t end_of_raw_tag(size_t at) const {
    at = skip_spaces(source_, at);
    if (!starts(at, "raw")) return kNone;
    return end_of_tag(skip_spaces(source_, at + 3), "%}", false);
  }

  void read_raw(size_t begin) {
    advance(begin);
    for (size_t open = source_.find("{%", begin); open != kNone;
         open = source_.find("{%", open + 1)) {
      size_t at = open + 2;
      char sign = 0;
      if (at < source_.size() && (source_[at] == '-' || source_[at] == '+')) sign = source_[at++];
      at = skip_spaces(source_, at);
      if (!starts(at, "endraw")) continue;
      const size_t end = end_of_tag(skip_spaces(source_, at + 6), "%}", true);
      if (end == kNone) continue;
      add_data(begin, open, sign, false);
      return advance(end);
    }
    if (begin < source_.size()) fail(begin, "the end of the raw block is missing");
  }

  void read_tag(bool block) {
    open_brackets_ = 0;
    while (at_ < source_.size()) {
      const size_t start = at_;
      if (open_brackets_ == 0) {
        const size_t end = end_of_tag(at_, block ? "%}" : "}}", block);
        if (end != kNone) {
          add(block ? TokenKind::kBlockEnd : TokenKind::kPrintEnd, start, block ? "%}" : "}}");
          return advance(end);
        }
      }
      if (const size_t next = skip_spaces(source_, at_); next != at_) {
        at_ = next;
        continue;
      }
      if (read_number() || read_name() || read_string()) continue;
      read_operator();
    }
    line_starting_ = false;
  }

  // Returns the end of digits that underscores may separate; `at` if there are none.
  size_t skip_digits(size_t at, bool (*is_one)(char) = is_digit) const {
    size_t end = at;
    const auto is_one_at = [&](size_t i) { return i < source_.size() && is_one(source_[i]); };
    while (is_one_at(end) || (end > at && starts(end, "_") && is_one_at(end + 1))) ++end;
    return end;
  }

  bool read_number() {
    if (!is_digit(source_[at_])) return false;
    const bool is_hex = starts(at_, "0x") || starts(at_, "0X");
    size_t end = is_hex ? skip_digits(at_ + 2, is_hex_digit) : skip_digits(at_);
    bool real = false;
    // After a dot it is an index: "x.0.1".
    if (!is_hex && (at_ == 0 || source_[at_ - 1] != '.')) {
      const size_t fraction = starts(end, ".") ? skip_digits(end + 1) : end;
      real = fraction > end + 1;
      if (real) end = fraction;
      const bool has_exponent = starts(end, "e") || starts(end, "E");
      const size_t sign = end + (starts(end + 1, "+") || starts(end + 1, "-") ? 2 : 1);
      const size_t exponent = has_exponent ? skip_digits(sign) : sign;
      real |= exponent > sign;
      if (exponent > sign) end = exponent;
    }
    std::string digits(source_.substr(at_, end - at_));
    std::erase(digits, '_');
    const bool octal = !is_hex && !real && digits.size() > 1 && digits[0] == '0';
    if (octal || (end < source_.size() && is_name_char(source_[end]))) {
      fail(at_, "this number is not supported");
    }
    add(real ? TokenKind::kFloat : TokenKind::kInteger, at_, digits);
    at_ = end;
    return true;
  }

  bool read_name() {
    size_t end = at_;
    while (end < source_.size() && is_name_char(source_[end])) ++end;
    if (end < source_.size() && static_cast<uint8_t>(source_[end]) >= 0x80) {
      fail(end, "a name with characters other than ASCII is not supported");
    }
    if (end == at_) return false;
    add(TokenKind::kName, at_, source_.substr(at_, end - at_));
    at_ = end;
    return true;
  }

  bool read_string() {
    const char quote = source_[at_];
    if (quote != '\'' && quote != '"') return false;
    size_t end = at_ + 1;
    while (end < source_.size() && source_[end] != quote) end += source_[end] == '\\' ? 2 : 1;
    if (end >= source_.size()) fail(at_, "the end of the string is missing");
    add(TokenKind::kString, at_, unescape(at_ + 1, end));
    at_ = end + 1;
    return true;
  }

  void read_operator() {
    const auto found = std::find_if(kOperators.begin(), kOperators.end(),
                                    [&](std::string_view op) { return starts(at_, op); });
    if (found == kOperators.end()) {
      fail(at_, fmt::format("unexpected character '{}'",
                            printable(source_.substr(at_, utf8_length(source_[at_])))));
    }
    if (std::string_view("([{").find(found->front()) != kNone) ++open_brackets_;
    if (std::string_view(")]}").find(found->front()) != kNone && open_brackets_-- == 0) {
      fail(at_, fmt::format("unexpected '{}'", *found));
    }
    add(TokenKind::kOperator, at_, *found);
    at_ += found->size();
  }

  // Appends what the escape with the character at `at` stands for; returns the offset after it.
  size_t unescape_one(size_t at, size_t end, std::string& out) const {
    constexpr std::string_view kNames = "\n\\'\"abfnrtv";
    constexpr std::string_view kValues = "\n\\'\"\a\b\f\n\r\t\v";
    const char c = source_[at];
    const size_t num_digits = c == 'x' ? 2 : c == 'u' ? 4 : c == 'U' ? 8 : 0;
    if (num_digits > 0) {
      const std::string_view digits = source_.substr(at + 1, std::min(num_digits, end - at - 1));
      uint32_t code = 0;
      const auto result = std::from_chars(digits.data(), digits.data() + digits.size(), code, 16);
      const bool complete = result.ptr == digits.data() + num_digits;
      const bool is_surrogate = code >= 0xD800 && code < 0xE000;
      if (!complete || code > 0x10FFFF || is_surrogate) fail(at, "this escape is not supported");
      append_char(code, out);
      return at + 1 + num_digits;
    }
    if (is_digit(c) || c == 'N' || static_cast<uint8_t>(c) >= 0x80) {
      fail(at, "an escape by an octal code or a name is not supported");
    }
    const size_t known = kNames.find(c);
    if (known == kNone) out += '\\';
    if (c != '\n') out += known == kNone ? c : kValues[known];
    return at + 1;
  }

  std::string unescape(size_t begin, size_t end) const {
    std::string out;
    for (size_t at = begin; at < end;) {
      if (source_[at] == '\\') {
        at = unescape_one(at + 1, end, out);
      } else {
        out += source_[at++];
      }
    }
    return out;
  }

  std::string_view source_;
  std::vector<Token> tokens_;
  size_t at_ = 0;
  int open_brackets_ = 0;  // of the current tag
  bool line_starting_ = true;
};

}  // namespace

std::string normalize_newlines(std::string_view source) {
  std::string result;
  result.reserve(source.size());
  for (size_t at = 0; at < source.size(); ++at) {
    if (source[at] == '\r') {
      if (at + 1 < source.size() && source[at + 1] == '\n') ++at;
      result += '\n';
    } else {
      result += source[at];
    }
  }
  if (result.ends_with('\n')) result.pop_back();
  return result;
}

std::vector<Token> tokenize(std::string_view source) {
  return Lexer(source).run();
}

}  // namespace zeroth::data::jinja
