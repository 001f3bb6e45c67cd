// Cuts a text into the words that BPE works on, as tokenizer.json's `pre_tokenizer` says.
#pragma once

#include <functional>
#include <string_view>
#include <variant>
#include <vector>

#include "base/json_view.h"
#include "data/regex.h"

namespace zeroth::data {

class Pretokenizer {
 public:
  // Throws Error naming a type, behaviour or pattern that is not supported, or if no ByteLevel is
  // among them.
  explicit Pretokenizer(const nlohmann::json& pre_tokenizer);

  // Calls `word` for each word of valid UTF-8 text, written in the byte alphabet; the view lives
  // during the call.
  using WordSink = std::function<void(std::string_view)>;
  void split(std::string_view text, const WordSink& word) const;

 private:
  enum class Behavior { kRemoved, kIsolated, kMergedWithPrevious, kMergedWithNext, kContiguous };

  struct PrefixSpace {};
  struct Split {
    Regex regex;
    Behavior behavior;
    bool invert;
  };
  struct ByteMap {};
  using Stage = std::variant<PrefixSpace, Split, ByteMap>;

  struct Piece {
    TextRange range;
    bool match;
  };

  static Behavior parse_behavior(const JsonView& part);
  static std::vector<Piece> find_pieces(const Split& split, std::string_view text);
  static std::vector<Piece> merge_pieces(const std::vector<Piece>& pieces, Behavior behavior);

  void add(const JsonView& part);
  void add_split(const JsonView& part);
  void run(size_t stage, std::string_view text, const WordSink& word) const;

  std::vector<Stage> stages_;
};

}  // namespace zeroth::data
