#include "data/pretokenizer.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>

#include "base/error.h"
#include "base/printable.h"
#include "data/byte_level.h"
#include "data/utf8.h"

namespace zeroth::data {
namespace {

using nlohmann::json;

constexpr const char* kGpt2Pattern =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
constexpr const char* kPunctuation = R"([\p{P}!-\/:-@\[-`\{-~])";
constexpr size_t kMostStages = 100;  // each works inside the one before
constexpr int kMostByteMaps = 4;     // each makes a text up to twice as long
constexpr const char* kNumber = R"(\p{N})";

}  // namespace

Pretokenizer::Pretokenizer(const json& pre_tokenizer) {
  if (!pre_tokenizer.is_null()) add(JsonView(pre_tokenizer, "pre_tokenizer"));
  const auto maps = std::count_if(stages_.begin(), stages_.end(), [](const Stage& stage) {
    return std::holds_alternative<ByteMap>(stage);
  });
  if (maps > kMostByteMaps) throw Error("pre_tokenizer: more than {} ByteLevel", kMostByteMaps);
}

void Pretokenizer::add(const JsonView& part) {
  if (stages_.size() >= kMostStages) {
    throw Error("{}: more than {} steps in a pre_tokenizer", part.path(), kMostStages);
  }
  const std::string type = part.at("type").text();
  if (type != "Sequence") return add_step(type, part);
  const JsonView inner = part.at("pretokenizers");
  for (size_t i = 0; i < inner.size(); ++i) add(inner.at(i));
}

void Pretokenizer::add_step(const std::string& type, const JsonView& part) {
  if (type == "ByteLevel") {
    add_byte_level(part);
  } else if (type == "Metaspace") {
    add_metaspace(part);
  } else if (type == "Split") {
    stages_.emplace_back(
        Split{parse_pattern(part), parse_behavior(part), part.flag("invert", false)});
  } else if (type == "Digits") {
    const bool individual = part.flag("individual_digits", false);
    stages_.emplace_back(
        Split{Regex(kNumber), individual ? Behavior::kIsolated : Behavior::kContiguous, false});
  } else if (type == "Punctuation") {
    stages_.emplace_back(Split{Regex(kPunctuation), parse_behavior(part), false});
  } else {
    throw Error("pre_tokenizer type '{}' is not supported", shortened(type));
  }
}

void Pretokenizer::add_byte_level(const JsonView& part) {
  if (part.flag("add_prefix_space", true)) stages_.emplace_back(Prefix{" ", false});
  if (part.flag("use_regex", true)) {
    stages_.emplace_back(Split{Regex(kGpt2Pattern), Behavior::kIsolated, false});
  }
  stages_.emplace_back(ByteMap{});
}

// Old files say "add_prefix_space": false for the scheme "never".
void Pretokenizer::add_metaspace(const JsonView& part) {
  const auto mark = part.text("replacement", "\u2581");
  if (mark.empty() || utf8_length(mark[0]) != mark.size()) {
    part.at("replacement").refuse("a character");
  }
  const auto scheme = part.text("prepend_scheme", "always");
  if (scheme != "always" && scheme != "first" && scheme != "never") {
    part.at("prepend_scheme").refuse("always, first or never");
  }
  if (scheme == "first" && !stages_.empty()) {
    throw Error("{}: prepend_scheme 'first' behind other steps is not supported", part.path());
  }
  const json space = {{"pattern", {{"String", " "}}}, {"content", mark}};
  stages_.emplace_back(Spaces{Replacement(JsonView(space))});
  if (scheme != "never" && part.flag("add_prefix_space", true)) {
    stages_.emplace_back(Prefix{mark, scheme == "first"});
  }
  if (part.flag("split", true)) {
    stages_.emplace_back(Split{Regex(escape_regex(mark)), Behavior::kMergedWithNext, false});
  }
}

bool Pretokenizer::needs_beginning() const {
  return std::any_of(stages_.begin(), stages_.end(), [](const Stage& stage) {
    const auto* const prefix = std::get_if<Prefix>(&stage);
    return prefix != nullptr && prefix->only_at_beginning;
  });
}

Pretokenizer::Behavior Pretokenizer::parse_behavior(const JsonView& part) {
  const auto name = part.text("behavior", "Isolated");
  if (name == "Removed") return Behavior::kRemoved;
  if (name == "Isolated") return Behavior::kIsolated;
  if (name == "MergedWithPrevious") return Behavior::kMergedWithPrevious;
  if (name == "MergedWithNext") return Behavior::kMergedWithNext;
  if (name == "Contiguous") return Behavior::kContiguous;
  throw Error("pre_tokenizer behavior '{}' is not supported", shortened(name));
}

void Pretokenizer::split(std::string_view text, bool begins, const WordSink& word) const {
  run(0, {text, begins}, word);
}

void Pretokenizer::run(size_t stage, Part part, const WordSink& word) const {
  const auto [text, begins] = part;
  if (text.empty()) return;
  if (stage == stages_.size()) return word(text);
  const Stage& now = stages_[stage++];
  if (const auto* const prefix = std::get_if<Prefix>(&now)) {
    const bool put = !text.starts_with(prefix->text) && (begins || !prefix->only_at_beginning);
    return put ? run(stage, {prefix->text + std::string(text), begins}, word)
               : run(stage, part, word);
  }
  if (const auto* const spaces = std::get_if<Spaces>(&now)) {
    return run(stage, {spaces->marks.run(text, most_bytes(text.size())), begins}, word);
  }
  if (std::holds_alternative<ByteMap>(now)) {
    std::string mapped;
    append_byte_level(text, mapped);
    return run(stage, {mapped, begins}, word);
  }
  const auto& split = std::get<Split>(now);
  for (const Piece& piece : merge_pieces(find_pieces(split, text), split.behavior)) {
    const auto [begin, end] = piece.range;
    run(stage, {text.substr(begin, end - begin), begins && begin == 0}, word);
  }
}

// The whole text as pieces that match and pieces between matches.
std::vector<Pretokenizer::Piece> Pretokenizer::find_pieces(const Split& split,
                                                           std::string_view text) {
  std::vector<Piece> pieces;
  Regex::Matches matches(split.regex, text);
  size_t end = 0;
  while (const auto match = matches.next()) {
    if (end < match->begin) pieces.push_back({{end, match->begin}, split.invert});
    pieces.push_back({*match, !split.invert});
    end = match->end;
  }
  if (end < text.size()) pieces.push_back({{end, text.size()}, split.invert});
  return pieces;
}

std::vector<Pretokenizer::Piece> Pretokenizer::merge_pieces(const std::vector<Piece>& pieces,
                                                            Behavior behavior) {
  if (behavior == Behavior::kIsolated) return pieces;
  std::vector<Piece> merged;
  bool previous = false;  // whether the piece before was a match
  for (const Piece& piece : pieces) {
    const bool joins = (behavior == Behavior::kContiguous && piece.match == previous) ||
                       (behavior == Behavior::kMergedWithPrevious && piece.match && !previous) ||
                       (behavior == Behavior::kMergedWithNext && !piece.match && previous);
    previous = piece.match;
    if (behavior == Behavior::kRemoved && piece.match) continue;
    if (joins && !merged.empty()) {
      merged.back().range.end = piece.range.end;
    } else {
      merged.push_back(piece);
    }
  }
  return merged;
}

}  // namespace zeroth::data
