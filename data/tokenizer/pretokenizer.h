// Pretokenizer: splits a text into the words that BPE encodes, as tokenizer.json's `pre_tokenizer`
// specifies.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/json/json_view.h"
#include "data/tokenizer/normalizer.h"
#include "data/tokenizer/regex.h"

namespace zeroth::data {

class Pretokenizer {
 public:
  // `pre_tokenizer` may be null: the full text is one word. Throws an Error that names an
  // unsupported type, behavior or pattern.
  explicit Pretokenizer(const nlohmann::json& pre_tokenizer);

  // Calls `word` for each word of valid UTF-8 text; the view is valid during the call.
  // `is_beginning`: whether `text` is the beginning of the complete text. See Rewriter for
  // `aligned`.
  using WordSink = std::function<void(const AlignedText&)>;
  void split(const AlignedText& text, bool is_beginning, bool aligned, const WordSink& word) const;

  // Returns whether words depend on `is_beginning`.
  bool depends_on_beginning() const;

 private:
  enum class Behavior { kRemoved, kIsolated, kMergedWithPrevious, kMergedWithNext, kContiguous };

  // PrefixStage prepends `text` to a text that does not begin with it.
  struct PrefixStage {
    std::string text;
    bool only_at_beginning;
  };
  struct SpaceStage {
    Replacement marks;
  };
  struct SplitStage {
    Regex regex;
    Behavior behavior;
    bool invert;
  };
  struct ByteLevelStage {};
  using Stage = std::variant<PrefixStage, SpaceStage, SplitStage, ByteLevelStage>;

  struct MatchSpan {
    TextRange range;
    bool match;
  };

  static Behavior parse_behavior(const JsonView& part);
  static std::vector<MatchSpan> split_at_matches(const SplitStage& split, std::string_view text);
  static std::vector<MatchSpan> merge_spans(const std::vector<MatchSpan>& spans, Behavior behavior);

  void add_step(const std::string& type, const JsonView& part);
  void add_byte_level(const JsonView& part);
  void add_metaspace(const JsonView& part);

  // Runs the stages from `stage` on, each on what the previous one makes of the text.
  void run(size_t stage, const AlignedText& text, bool is_beginning, bool aligned,
           const WordSink& word) const;

  std::vector<Stage> stages_;
};

}  // namespace zeroth::data
