#include "data/pretokenizer.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>

#include "base/error.h"
#include "base/printable.h"
#include "data/byte_level.h"

namespace zeroth::data {
namespace {

using nlohmann::json;

constexpr const char* kGpt2Pattern =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
constexpr const char* kPunctuation = R"([\p{P}!-\/:-@\[-`\{-~])";
constexpr size_t kMostStages = 100;  // each works inside the one before
constexpr const char* kNumber = R"(\p{N})";

}  // namespace

Pretokenizer::Pretokenizer(const json& pre_tokenizer) {
  if (!pre_tokenizer.is_null()) add(JsonView(pre_tokenizer, "pre_tokenizer"));
  const bool byte_level = std::any_of(stages_.begin(), stages_.end(), [](const Stage& stage) {
    return std::holds_alternative<ByteMap>(stage);
  });
  if (!byte_level) {
    throw Error("pre_tokenizer has no ByteLevel; only byte-level BPE is supported");
  }
}

void Pretokenizer::add(const JsonView& part) {
  if (stages_.size() >= kMostStages) {
    throw Error("{}: more than {} steps in a pre_tokenizer", part.path(), kMostStages);
  }
  const std::string& type = part.at("type").text();
  if (type == "Sequence") {
    const JsonView inner = part.at("pretokenizers");
    for (size_t i = 0; i < inner.size(); ++i) add(inner.at(i));
  } else if (type == "ByteLevel") {
    if (part.flag("add_prefix_space", true)) stages_.emplace_back(PrefixSpace{});
    if (part.flag("use_regex", true)) {
      stages_.emplace_back(Split{Regex(kGpt2Pattern), Behavior::kIsolated, false});
    }
    stages_.emplace_back(ByteMap{});
  } else if (type == "Split") {
    add_split(part);
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

void Pretokenizer::add_split(const JsonView& part) {
  const JsonView pattern = part.at("pattern");
  const auto regex = pattern.find("Regex");
  const std::string source = regex ? regex->text() : escape_regex(pattern.at("String").text());
  stages_.emplace_back(Split{Regex(source), parse_behavior(part), part.flag("invert", false)});
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

void Pretokenizer::split(std::string_view text, const WordSink& word) const {
  run(0, text, word);
}

void Pretokenizer::run(size_t stage, std::string_view text, const WordSink& word) const {
  if (text.empty()) return;
  if (stage == stages_.size()) return word(text);
  if (std::holds_alternative<PrefixSpace>(stages_[stage])) {
    return text.starts_with(' ') ? run(stage + 1, text, word)
                                 : run(stage + 1, " " + std::string(text), word);
  }
  if (std::holds_alternative<ByteMap>(stages_[stage])) {
    std::string mapped;
    append_byte_level(text, mapped);
    return run(stage + 1, mapped, word);
  }
  const auto& split = std::get<Split>(stages_[stage]);
  for (const Piece& piece : merge_pieces(find_pieces(split, text), split.behavior)) {
    run(stage + 1, text.substr(piece.range.begin, piece.range.end - piece.range.begin), word);
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
