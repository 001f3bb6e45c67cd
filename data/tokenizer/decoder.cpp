#include "data/tokenizer/decoder.h"

#include <charconv>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/error.h"
#include "base/text/printable.h"
#include "data/tokenizer/byte_level.h"
#include "data/tokenizer/normalizer.h"
#include "data/tokenizer/unicode.h"

namespace zeroth::data {
namespace {

using nlohmann::json;
using Tokens = std::vector<std::string>;

std::string join(const Tokens& tokens, std::string_view between = "") {
  std::string text;
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (i > 0) text += between;
    text += tokens[i];
  }
  return text;
}

size_t total_bytes(const Tokens& tokens) {
  size_t sum = 0;
  for (const std::string& token : tokens) sum += token.size();
  return sum;
}

Tokens decode_bytes(const Tokens& tokens) {
  std::string bytes;
  for (const std::string& token : tokens) bytes += decode_byte_level(token);
  return {to_valid_utf8(bytes)};
}

// Returns the byte of a token like <0x0A>; nullopt for other tokens.
std::optional<char> named_byte(const std::string& token) {
  if (token.size() != 6 || !token.starts_with("<0x") || token[5] != '>') return std::nullopt;
  uint8_t byte = 0;
  const char* const digits = token.data() + 3;
  const auto [end, error] = std::from_chars(digits, digits + 2, byte, 16);
  if (error != std::errc() || end != digits + 2) return std::nullopt;
  return static_cast<char>(byte);
}

// Joins consecutive byte tokens to text, or replaces each of them by U+FFFD if they are invalid.
Tokens decode_named_bytes(const Tokens& tokens) {
  Tokens decoded;
  std::string row;
  const auto finish_row = [&] {
    if (row.empty()) return;
    if (find_invalid_utf8(row)) {
      decoded.insert(decoded.end(), row.size(), "\ufffd");
    } else {
      decoded.push_back(row);
    }
    row.clear();
  };
  for (const std::string& token : tokens) {
    if (const auto byte = named_byte(token)) {
      row += *byte;
    } else {
      finish_row();
      decoded.push_back(token);
    }
  }
  finish_row();
  return decoded;
}

std::function<Tokens(Tokens)> each(const std::function<std::string(std::string_view)>& change) {
  return [change](Tokens tokens) {
    for (std::string& token : tokens) token = change(token);
    return tokens;
  };
}

std::function<Tokens(Tokens)> make_metaspace(const JsonView& part) {
  const std::string mark = part.text("replacement", "\u2581");
  const bool prepended = part.text("prepend_scheme", "always") != "never";
  const auto with = [](const std::string& pattern, const char* content) {
    return Replacement(JsonView(json{{"pattern", {{"String", pattern}}}, {"content", content}}));
  };
  return [first = with(mark, prepended ? "" : " "), others = with(mark, " ")](Tokens tokens) {
    for (size_t i = 0; i < tokens.size(); ++i) {
      tokens[i] = (i == 0 ? first : others).run(tokens[i], tokens[i].size());
    }
    return tokens;
  };
}

std::function<Tokens(Tokens)> make_strip(const JsonView& part) {
  const std::string content = part.at("content").text();
  if (content.empty()) part.at("content").refuse("a character");
  const int64_t max_count = int64_t{1} << 20;
  return each([content, start = part.at("start").integer(0, max_count),
               stop = part.at("stop").integer(0, max_count)](std::string_view token) {
    for (int64_t i = 0; i < start && token.starts_with(content); ++i) {
      token.remove_prefix(content.size());
    }
    for (int64_t i = 0; i < stop && token.ends_with(content); ++i) {
      token.remove_suffix(content.size());
    }
    return std::string(token);
  });
}

std::function<Tokens(Tokens)> make_replace(const JsonView& part) {
  return each([replacement = Replacement(part)](std::string_view token) {
    return replacement.run(token, max_output_bytes(token.size()));
  });
}

std::function<Tokens(Tokens)> make_step(const std::string& type, const JsonView& part) {
  if (type == "ByteLevel") return decode_bytes;
  if (type == "ByteFallback") return decode_named_bytes;
  if (type == "Fuse") return [](const Tokens& tokens) { return Tokens{join(tokens)}; };
  if (type == "Metaspace") return make_metaspace(part);
  if (type == "Strip") return make_strip(part);
  if (type == "Replace") return make_replace(part);
  return [type](const Tokens&) -> Tokens {
    throw Error("decoder type '{}' is not supported", shortened(type));
  };
}

}  // namespace

Decoder::Decoder(const json& decoder) : joined_by_spaces_(decoder.is_null()) {
  if (joined_by_spaces_) return;
  for_each_step(JsonView(decoder, "decoder"), "decoder", "decoders", steps_,
                [this](const std::string& type, const JsonView& part) {
                  steps_.push_back(make_step(type, part));
                });
}

std::string Decoder::run(Tokens tokens) const {
  const size_t size = total_bytes(tokens);
  for (const Step& step : steps_) {
    tokens = step(std::move(tokens));
    require_growth("decoder", size, total_bytes(tokens));
  }
  return join(tokens, joined_by_spaces_ ? " " : "");
}

}  // namespace zeroth::data
