#include "data/tokenizer/normalizer.h"

#include <nlohmann/json.hpp>

#include "base/text/printable.h"
#include "data/tokenizer/unicode.h"

namespace zeroth::data {
namespace {

using nlohmann::json;

std::string_view strip(std::string_view text, bool left, bool right) {
  while (left && !text.empty() && is_space(char_at(text, 0))) {
    text.remove_prefix(utf8_length(text[0]));
  }
  while (right && !text.empty() && is_space(char_at(text, previous_char(text, text.size())))) {
    text.remove_suffix(text.size() - previous_char(text, text.size()));
  }
  return text;
}

}  // namespace

Normalizer::Normalizer(const json& normalizer) {
  if (normalizer.is_null()) return;
  for_each_step(JsonView(normalizer, "normalizer"), "normalizer", "normalizers", steps_,
                [this](const std::string& type, const JsonView& part) {
                  steps_.push_back(make_step(type, part));
                });
}

Normalizer::Step Normalizer::make_step(const std::string& type, const JsonView& part) {
  if (const auto form = find_normal_form(type)) {
    return [form](const std::string& text) { return to_normal_form(text, *form); };
  }
  if (type == "Lowercase") return [](const std::string& text) { return to_lower(text); };
  if (type == "Strip") {
    const bool left = part.at("strip_left").flag();
    const bool right = part.at("strip_right").flag();
    strips_beginning_ = strips_beginning_ || left;
    return [=](const std::string& text) { return std::string(strip(text, left, right)); };
  }
  if (type == "Prepend") {
    return [before = part.at("prepend").text()](const std::string& text) {
      return text.empty() ? text : before + text;
    };
  }
  if (type == "Replace") {
    strips_beginning_ = strips_beginning_ || part.at("content").text().empty();
    return [replacement = Replacement(part)](const std::string& text) {
      return replacement.run(text, max_output_bytes(text.size()));
    };
  }
  throw Error("normalizer type '{}' is not supported", shortened(type));
}

std::string Normalizer::run(std::string_view text) const {
  std::string normal(text);
  for (const Step& step : steps_) {
    normal = step(std::move(normal));
    require_growth("normalizer", text.size(), normal);
  }
  return normal;
}

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
