#include "data/tokenizer/pretokenizer.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>

#include "base/error.h"
#include "base/text/printable.h"
#include "data/tokenizer/byte_level.h"
#include "data/tokenizer/unicode.h"

namespace zeroth::data {
namespace {

using nlohmann::json;

constexpr const char* kGpt2Pattern =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
constexpr const char* kPunctuation = R"([\p{P}!-\/:-@\[-`\{-~])";
constexpr int kMaxByteLevelStages = 4;  // each makes a text up to twice as long
constexpr const char* kNumber = R"(\p{N})";

void map_bytes(Rewriter& out) {
  const std::string_view text = out.input().text;
  std::string mapped;
  if (!out.aligned()) {
    append_byte_level(text, mapped);
    return out.put(mapped, 0, text.size());
  }
  for (size_t at = 0; at < text.size(); ++at) {
    mapped.clear();
    append_byte_level(text.substr(at, 1), mapped);
    out.put(mapped, at, at + 1);
  }
}

}  // namespace

Pretokenizer::Pretokenizer(const json& pre_tokenizer) {
  if (pre_tokenizer.is_null()) return;
  for_each_step(JsonView(pre_tokenizer, "pre_tokenizer"), "pre_tokenizer", "pretokenizers", stages_,
                [this](const std::string& type, const JsonView& part) { add_step(type, part); });
  const auto maps = std::count_if(stages_.begin(), stages_.end(), [](const Stage& stage) {
    return std::holds_alternative<ByteLevelStage>(stage);
  });
  if (maps > kMaxByteLevelStages)
    throw Error("pre_tokenizer: more than {} ByteLevel steps", kMaxByteLevelStages);
}

void Pretokenizer::add_step(const std::string& type, const JsonView& part) {
  if (type == "ByteLevel") {
    add_byte_level(part);
  } else if (type == "Metaspace") {
    add_metaspace(part);
  } else if (type == "Split") {
    stages_.emplace_back(
        SplitStage{parse_pattern(part), parse_behavior(part), part.flag("invert", false)});
  } else if (type == "Digits") {
    const bool individual = part.flag("individual_digits", false);
    stages_.emplace_back(SplitStage{
        Regex(kNumber), individual ? Behavior::kIsolated : Behavior::kContiguous, false});
  } else if (type == "Punctuation") {
    stages_.emplace_back(SplitStage{Regex(kPunctuation), parse_behavior(part), false});
  } else {
    throw Error("pre_tokenizer type '{}' is not supported", shortened(type));
  }
}

void Pretokenizer::add_byte_level(const JsonView& part) {
  if (part.flag("add_prefix_space", true)) stages_.emplace_back(PrefixStage{" ", false});
  if (part.flag("use_regex", true)) {
    stages_.emplace_back(SplitStage{Regex(kGpt2Pattern), Behavior::kIsolated, false});
  }
  stages_.emplace_back(ByteLevelStage{});
}

// Adds a Metaspace step. Old files use "add_prefix_space": false for the scheme "never".
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
    throw Error("{}: prepend_scheme 'first' after other steps is not supported", part.path());
  }
  const json space = {{"pattern", {{"String", " "}}}, {"content", mark}};
  stages_.emplace_back(SpaceStage{Replacement(JsonView(space))});
  if (scheme != "never" && part.flag("add_prefix_space", true)) {
    stages_.emplace_back(PrefixStage{mark, scheme == "first"});
  }
  if (part.flag("split", true)) {
    stages_.emplace_back(SplitStage{Regex(escape_regex(mark)), Behavior::kMergedWithNext, false});
  }
}

bool Pretokenizer::depends_on_beginning() const {
  return std::any_of(stages_.begin(), stages_.end(), [](const Stage& stage) {
    const auto* const prefix = std::get_if<PrefixStage>(&stage);
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

void Pretokenizer::split(const AlignedText& text, bool is_beginning, bool aligned,
                         const WordSink& word) const {
  run(0, text, is_beginning, aligned, word);
}

void Pretokenizer::run(size_t stage, const AlignedText& text, bool is_beginning, bool aligned,
                       const WordSink& word) const {
  const size_t size = text.text.size();
  if (size == 0) return;
  if (stage == stages_.size()) return word(text);
  const Stage& now = stages_[stage++];
  if (const auto* const split = std::get_if<SplitStage>(&now)) {
    for (const MatchSpan& span :
         merge_spans(split_at_matches(*split, text.text), split->behavior)) {
      const auto [begin, end] = span.range;
      run(stage, text.part(begin, end), is_beginning && begin == 0, aligned, word);
    }
    return;
  }
  Rewriter next(text, aligned);
  if (const auto* const prefix = std::get_if<PrefixStage>(&now)) {
    if (text.text.starts_with(prefix->text) || (prefix->only_at_beginning && !is_beginning)) {
      return run(stage, text, is_beginning, aligned, word);
    }
    next.put(prefix->text, 0, 0);
    next.copy(0, size);
  } else if (const auto* const spaces = std::get_if<SpaceStage>(&now)) {
    spaces->marks.rewrite(next, max_output_bytes(size));
  } else {
    map_bytes(next);
  }
  run(stage, next.result(), is_beginning, aligned, word);
}

// Returns the full text as matches and the spans between them.
std::vector<Pretokenizer::MatchSpan> Pretokenizer::split_at_matches(const SplitStage& split,
                                                                    std::string_view text) {
  std::vector<MatchSpan> spans;
  Regex::Matches matches(split.regex, text);
  size_t end = 0;
  while (const auto match = matches.next()) {
    if (end < match->begin) spans.push_back({{end, match->begin}, split.invert});
    spans.push_back({*match, !split.invert});
    end = match->end;
  }
  if (end < text.size()) spans.push_back({{end, text.size()}, split.invert});
  return spans;
}

std::vector<Pretokenizer::MatchSpan> Pretokenizer::merge_spans(const std::vector<MatchSpan>& spans,
                                                               Behavior behavior) {
  if (behavior == Behavior::kIsolated) return spans;
  std::vector<MatchSpan> merged;
  bool previous = false;  // whether the previous span was a match
  for (const MatchSpan& span : spans) {
    const bool joins = (behavior == Behavior::kContiguous && span.match == previous) ||
                       (behavior == Behavior::kMergedWithPrevious && span.match && !previous) ||
                       (behavior == Behavior::kMergedWithNext && !span.match && previous);
    previous = span.match;
    if (behavior == Behavior::kRemoved && span.match) continue;
    if (joins && !merged.empty()) {
      merged.back().range.end = span.range.end;
    } else {
      merged.push_back(span);
    }
  }
  return merged;
}

}  // namespace zeroth::data
