// Byte-pair encoding of single words in the byte alphabet.
#pragma once

#include <array>
#include <cstdint>
#include <mutex>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/json_view.h"
#include "data/byte_level.h"

namespace zeroth::data {

// Larger than any vocabulary: a table by id stays small.
inline constexpr int32_t kMostTokenId = (1 << 22) - 1;

struct StringHash {
  using is_transparent = void;
  size_t operator()(std::string_view text) const { return std::hash<std::string_view>{}(text); }
};
using Vocabulary = std::unordered_map<std::string, int32_t, StringHash, std::equal_to<>>;

// Immutable but for a cache of words behind a lock.
class Bpe {
 public:
  // tokenizer.json's `model`. Throws Error naming a type or setting that is not supported, a key
  // with a value of the wrong kind, or a merge that is not in the vocabulary.
  explicit Bpe(const nlohmann::json& given);

  // Appends the ids of a word. Throws Error if a byte has no token.
  void encode(std::string_view word, std::vector<int32_t>& ids) const;

  const Vocabulary& vocabulary() const { return vocabulary_; }

 private:
  struct Merge {
    int32_t rank = 0;
    int32_t id = 0;
  };
  struct Symbol {
    int32_t id = 0;  // kGone once merged into the one before
    int32_t previous = -1;
    int32_t next = -1;
  };
  struct Candidate {
    Merge merge;
    int32_t left = 0;  // index of the left symbol
    int32_t left_id = 0;
    int32_t right_id = 0;
  };
  static constexpr int32_t kGone = -1;
  static bool worse(const Candidate& a, const Candidate& b);

  void load_merges(const JsonView& merges);
  int32_t id_of(std::string_view token, std::string_view merge) const;
  std::vector<int32_t> merge_word(std::string_view word) const;
  std::vector<Symbol> split_bytes(std::string_view word) const;
  void push_candidate(const std::vector<Symbol>& symbols, int32_t left,
                      std::vector<Candidate>& heap) const;

  bool ignore_merges_ = false;  // a word of the vocabulary is taken whole
  Vocabulary vocabulary_;
  std::array<int32_t, kByteCharLimit> char_ids_{};
  std::unordered_map<uint64_t, Merge> merges_;  // key: left id, right id

  mutable std::mutex cache_mutex_;
  mutable std::unordered_map<std::string, std::vector<int32_t>, StringHash, std::equal_to<>> cache_;
};

}  // namespace zeroth::data
