// Translator of the parts of Oniguruma's syntax that tokenizers use to PCRE2's. It rejects what is
// not known to have the same meaning in both, so that no tokenizer silently splits differently.
#include <algorithm>
#include <cctype>
#include <vector>

#include "base/error.h"
#include "base/text/printable.h"
#include "data/tokenizer/regex.h"
#include "data/tokenizer/unicode.h"

namespace zeroth::data {
namespace {

constexpr size_t kShown = 500;  // max bytes of an expression in a message

class RegexTranslator {
 public:
  explicit RegexTranslator(std::string_view source) : source_(source) {}

  std::string run() {
    while (at_ < source_.size()) step();
    return out_;
  }

 private:
  [[noreturn]] void throw_unsupported(std::string_view what) const {
    throw Error("regular expression '{}', offset {}: '{}' is not supported",
                shortened(source_, kShown), at_, shortened(what));
  }

  bool starts_with(std::string_view text) const { return source_.substr(at_).starts_with(text); }

  void copy(size_t count) {
    out_ += source_.substr(at_, count);
    at_ += count;
  }

  void step() {
    if (in_class_) {
      source_[at_] == '\\' ? escape() : class_item();
    } else if (starts_with("{")) {
      interval();
    } else if (starts_with("+") || starts_with("*") || starts_with("?")) {
      copy(1);
    } else if (starts_with(")") && !groups_.empty()) {
      atom_ = groups_.back();
      groups_.pop_back();
      copy(1);
    } else {
      atom_ = out_.size();
      source_[at_] == '\\' ? escape() : item();
    }
  }

  // Translates an escape. PCRE2's \s includes U+180E, which is not white space since Unicode 6.3.
  void escape() {
    const char kind = at_ + 1 < source_.size() ? source_[at_ + 1] : '\0';
    const auto is_one_of = [&](std::string_view set) { return set.find(kind) != set.npos; };
    if (is_one_of("sS")) {
      out_ += kind == 's' ? "\\p{White_Space}" : "\\P{White_Space}";
      at_ += 2;
    } else if (is_one_of("pP")) {
      property();
    } else if (is_one_of("dDnrtfx") ||
               (kind != '\0' && !std::isalnum(static_cast<uint8_t>(kind)))) {
      const bool braces = kind == 'x' && source_.substr(at_ + 2).starts_with('{');
      copy(braces ? std::min(source_.find('}', at_), source_.size() - 1) + 1 - at_ : 2);
    } else {
      throw_unsupported(source_.substr(at_, 2));
    }
  }

  // Translates \p{...}. \p{L} and \p{Lu} are the same in both; a long name is a script, for PCRE2
  // without its extensions.
  void property() {
    const size_t close = source_.find('}', at_);
    if (!source_.substr(at_ + 2).starts_with('{') || close == source_.npos) {
      throw_unsupported(source_.substr(at_, 2));
    }
    const std::string_view name = source_.substr(at_ + 3, close - at_ - 3);
    if (name.starts_with('^')) throw_unsupported(source_.substr(at_, close + 1 - at_));
    out_ += source_.substr(at_, 3);
    if (name.size() > 2) out_ += "sc:";
    out_ += name;
    out_ += '}';
    at_ = close + 1;
  }

  void class_item() {
    if (source_[at_] == '[') throw_unsupported("[ inside [...]");
    if (starts_with("&&")) throw_unsupported("&& inside [...]");
    if (source_[at_] == ']') in_class_ = false;
    copy(1);
  }

  void item() {
    if (starts_with("[")) {
      in_class_ = true;
      copy(starts_with("[^") ? 2 : 1);
      if (starts_with("]")) throw_unsupported("[]");
    } else if (starts_with("(")) {
      groups_.push_back(atom_);
      group();
    } else {
      copy(utf8_length(source_[at_]));
    }
  }

  // Translates {2}, {1,3} or {1,}. A following + repeats all of it in Oniguruma, but would mean
  // "possessive" in PCRE2.
  void interval() {
    const size_t close = source_.find('}', at_);
    const std::string_view body =
        source_.substr(at_, close == source_.npos ? close : close + 1 - at_);
    const bool known = close != source_.npos && body.size() > 2 && std::isdigit(body[1]) &&
                       body.find_first_not_of("{0123456789,}") == body.npos;
    if (!known) throw_unsupported(body);
    copy(body.size());
    if (starts_with("?") && body.find(',') == body.npos) throw_unsupported(std::string(body) + "?");
    if (starts_with("+")) {
      out_.insert(atom_, "(?:");
      out_ += ')';
      copy(1);
    }
  }

  void group() {
    if (starts_with("(*")) throw_unsupported("(*");
    if (!starts_with("(?")) return copy(1);
    for (const std::string_view known : {"(?:", "(?=", "(?!", "(?<=", "(?<!", "(?>", "(?i:"}) {
      if (starts_with(known)) return copy(known.size());
    }
    throw_unsupported(source_.substr(at_, 4));
  }

  std::string_view source_;
  size_t at_ = 0;
  bool in_class_ = false;
  std::string out_;
  size_t atom_ = 0;             // in out_: begin of what a quantifier would repeat
  std::vector<size_t> groups_;  // atom_ of each open group
};

}  // namespace

std::string to_pcre2(std::string_view oniguruma) {
  return RegexTranslator(oniguruma).run();
}

}  // namespace zeroth::data
