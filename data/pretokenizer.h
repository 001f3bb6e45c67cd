// Cuts a text into the words that BPE works on, as tokenizer.json's `pre_tokenizer` says.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/json_view.h"
#include "data/regex.h"
#include "data/replacement.h"

namespace zeroth::data {

class Pretokenizer {
 public:
  // `pre_tokenizer` may be null: the whole text is one word. Throws Error naming a type, behaviour
  // or pattern that is not supported.
  explicit Pretokenizer(const nlohmann::json& pre_tokenizer);

  // Calls `word` for each word of valid UTF-8 text; the view lives during the call. `begins`:
  // whether this part of a text is its beginning.
  using WordSink = std::function<void(std::string_view)>;
  void split(std::string_view text, bool begins, const WordSink& word) const;

  // Whether words depend on `begins`.
  bool needs_beginning() const;

 private:
  enum class Behavior { kRemoved, kIsolated, kMergedWithPrevious, kMergedWithNext, kContiguous };

  // Puts `text` before a text that does not begin with it.
  struct Prefix {
    std::string text;
    bool only_at_beginning;
  };
  struct Spaces {
    Replacement marks;
  };
  struct Split {
    Regex regex;
    Behavior behavior;
    bool invert;
  };
  struct ByteMap {};
  using Stage = std::variant<Prefix, Spaces, Split, ByteMap>;

  struct Piece {
    TextRange range;
    bool match;
  };

  static Behavior parse_behavior(const JsonView& part);
  static std::vector<Piece> find_pieces(const Split& split, std::string_view text);
  static std::vector<Piece> merge_pieces(const std::vector<Piece>& pieces, Behavior behavior);

  void add(const JsonView& part);
  void add_step(const std::string& type, const JsonView& part);
  void add_byte_level(const JsonView& part);
  void add_metaspace(const JsonView& part);

  struct Part {
    std::string_view text;
    bool begins;
  };
  void run(size_t stage, Part part, const WordSink& word) const;

  std::vector<Stage> stages_;
};

}  // namespace zeroth::data
