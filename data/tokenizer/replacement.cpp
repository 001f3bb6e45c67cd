#include "data/tokenizer/replacement.h"

#include "base/error.h"

namespace zeroth::data {

Regex parse_pattern(const JsonView& part) {
  const JsonView pattern = part.at("pattern");
  const auto regex = pattern.find("Regex");
  return Regex(regex ? regex->text() : escape_regex(pattern.at("String").text()));
}

size_t max_output_bytes(size_t size) {
  return 64 * size + 4096;
}

void require_growth(std::string_view kind, size_t size, const std::string& text) {
  if (text.size() <= max_output_bytes(size)) return;
  throw Error("{}: a text of {} bytes grows beyond {}", kind, size, max_output_bytes(size));
}

Replacement::Replacement(const JsonView& part) : content_(part.at("content").text()) {
  const auto plain = part.at("pattern").find("String");
  if (plain) plain_ = plain->text();
  if (plain_.empty()) regex_ = parse_pattern(part);
}

std::string Replacement::run(std::string_view text, size_t max_bytes) const {
  std::string replaced;
  if (text.empty()) return replaced;  // there is not even an empty match
  size_t done = 0;
  const auto replace = [&](size_t begin, size_t end) {
    replaced += text.substr(done, begin - done);
    replaced += content_;
    done = end;
    return replaced.size() <= max_bytes;
  };
  if (regex_) {
    Regex::Matches matches(*regex_, text);
    auto match = matches.next();
    while (match && replace(match->begin, match->end)) match = matches.next();
  } else {
    size_t at = text.find(plain_);
    while (at != text.npos && replace(at, at + plain_.size())) at = text.find(plain_, done);
  }
  replaced += text.substr(done);
  return replaced;
}

}  // namespace zeroth::data
