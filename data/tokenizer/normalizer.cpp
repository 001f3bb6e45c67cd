#include "data/tokenizer/normalizer.h"

#include <nlohmann/json.hpp>

#include "base/text/printable.h"
#include "data/tokenizer/unicode.h"

namespace zeroth::data {
namespace {

using nlohmann::json;

TextRange strip(std::string_view text, bool left, bool right) {
  TextRange kept{0, text.size()};
  while (left && kept.begin < kept.end && is_space(char_at(text, kept.begin))) {
    kept.begin += utf8_length(text[kept.begin]);
  }
  while (right && kept.begin < kept.end && is_space(char_at(text, previous_char(text, kept.end)))) {
    kept.end = previous_char(text, kept.end);
  }
  return kept;
}

// Converts to a normal form. An aligned text is converted in segments that begin with an ASCII
// character: none is ever combined with what is before it. What a segment becomes stands for all of
// it, unless it stays as it is.
void convert_segments(Rewriter& out, NormalForm form) {
  const std::string_view text = out.input().text;
  const std::string whole = to_normal_form(text, form);
  if (whole == text) return out.copy(0, text.size());
  if (!out.aligned()) return out.put(whole, 0, text.size());
  for (size_t begin = 0, end = 0; begin < text.size(); begin = end) {
    ++end;
    while (end < text.size() && static_cast<uint8_t>(text[end]) >= 0x80) ++end;
    const std::string_view segment = text.substr(begin, end - begin);
    const std::string converted = to_normal_form(segment, form);
    if (converted == segment) {
      out.copy(begin, end);
    } else {
      out.put(converted, begin, end);
    }
  }
}

void convert_to_lower(Rewriter& out) {
  const std::string_view text = out.input().text;
  if (!out.aligned()) return out.put(to_lower(text), 0, text.size());
  for (size_t at = 0, end = 0; at < text.size(); at = end) {
    end = at + utf8_length(text[at]);
    out.put(to_lower(text.substr(at, end - at)), at, end);
  }
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
    return [form](Rewriter& text) { convert_segments(text, *form); };
  }
  if (type == "Lowercase") return convert_to_lower;
  if (type == "Strip") {
    const bool left = part.at("strip_left").flag();
    const bool right = part.at("strip_right").flag();
    strips_beginning_ = strips_beginning_ || left;
    return [=](Rewriter& text) {
      const TextRange kept = strip(text.input().text, left, right);
      text.copy(kept.begin, kept.end);
    };
  }
  if (type == "Prepend") {
    return [before = part.at("prepend").text()](Rewriter& text) {
      const size_t size = text.input().text.size();
      if (size > 0) text.put(before, 0, 0);
      text.copy(0, size);
    };
  }
  if (type == "Replace") {
    strips_beginning_ = strips_beginning_ || part.at("content").text().empty();
    return [replacement = Replacement(part)](Rewriter& text) {
      replacement.rewrite(text, max_output_bytes(text.input().text.size()));
    };
  }
  throw Error("normalizer type '{}' is not supported", shortened(type));
}

std::string Normalizer::run(std::string_view text) const {
  std::string normal;
  run({.text = text}, /*aligned=*/false, [&](const AlignedText& result) { normal = result.text; });
  return normal;
}

void Normalizer::run(const AlignedText& text, bool aligned, const TextSink& sink) const {
  run(0, text, text.text.size(), aligned, sink);
}

void Normalizer::run(size_t step, const AlignedText& text, size_t size, bool aligned,
                     const TextSink& sink) const {
  if (step == steps_.size()) return sink(text);
  Rewriter next(text, aligned);
  steps_[step](next);
  require_growth("normalizer", size, next.result().text.size());
  run(step + 1, next.result(), size, aligned, sink);
}

Regex parse_pattern(const JsonView& part) {
  const JsonView pattern = part.at("pattern");
  const auto regex = pattern.find("Regex");
  return Regex(regex ? regex->text() : escape_regex(pattern.at("String").text()));
}

size_t max_output_bytes(size_t size) {
  return 64 * size + 4096;
}

void require_growth(std::string_view kind, size_t size, size_t grown) {
  if (grown <= max_output_bytes(size)) return;
  throw Error("{}: a text of {} bytes grows beyond {}", kind, size, max_output_bytes(size));
}

Replacement::Replacement(const JsonView& part) : content_(part.at("content").text()) {
  const auto plain = part.at("pattern").find("String");
  if (plain) plain_ = plain->text();
  if (plain_.empty()) regex_ = parse_pattern(part);
}

std::string Replacement::run(std::string_view text, size_t max_bytes) const {
  Rewriter replaced({.text = text}, /*aligned=*/false);
  rewrite(replaced, max_bytes);
  return std::string(replaced.result().text);
}

void Replacement::rewrite(Rewriter& out, size_t max_bytes) const {
  const std::string_view text = out.input().text;
  if (text.empty()) return;  // there is not even an empty match
  size_t done = 0;
  const auto replace = [&](size_t begin, size_t end) {
    out.copy(done, begin);
    out.put(content_, begin, end);
    done = end;
    return out.result().text.size() <= max_bytes;
  };
  if (regex_) {
    Regex::Matches matches(*regex_, text);
    auto match = matches.next();
    while (match && replace(match->begin, match->end)) match = matches.next();
  } else {
    size_t at = text.find(plain_);
    while (at != text.npos && replace(at, at + plain_.size())) at = text.find(plain_, done);
  }
  out.copy(done, text.size());
}

}  // namespace zeroth::data
