// Byte-pair encoding of single words.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/json/json_view.h"
#include "data/tokenizer/pair_table.h"

namespace zeroth::data {

// Exceeds any vocabulary, but keeps a table by id small.
inline constexpr int32_t kMaxTokenId = (1 << 22) - 1;

struct StringHash {
  using is_transparent = void;
  size_t operator()(std::string_view text) const { return std::hash<std::string_view>{}(text); }
};
using Vocabulary = std::unordered_map<std::string, int32_t, StringHash, std::equal_to<>>;

// Bpe encodes words. It is immutable except for a counter, and a cache of words behind a mutex.
class Bpe {
 public:
  // Loads tokenizer.json's `model`. Throws an Error that names a type or setting that is not
  // supported, a key with a value of the wrong type, or a merge that is not in the vocabulary.
  explicit Bpe(const nlohmann::json& config);

  // Appends the ids of a word, which must be valid UTF-8. A character without a token, and without
  // tokens for its bytes, becomes the unknown token; if there is no such token it is dropped, as in
  // `tokenizers`, and counted. Appends to `ends`, unless it is null, the end of each token in the
  // word; it begins where the previous one ends.
  void encode(std::string_view word, std::vector<int32_t>& ids,
              std::vector<uint32_t>* ends = nullptr) const;

  // Returns the number of characters dropped so far.
  int64_t num_dropped_chars() const { return num_dropped_chars_; }

  const Vocabulary& vocabulary() const { return vocabulary_; }

 private:
  struct Merge {
    int32_t rank = 0;
    int32_t id = 0;
  };
  struct Symbol {
    int32_t id = 0;  // kNoToken once merged into the previous one
    uint32_t end = 0;
    int32_t previous = -1;
    int32_t next = -1;
  };
  struct Candidate {
    Merge merge;
    int32_t left = 0;  // index of the left symbol
    int32_t left_id = 0;
    int32_t right_id = 0;
  };
  static constexpr int32_t kNoToken = -1;
  static bool has_lower_priority(const Candidate& a, const Candidate& b);

  void load_vocabulary(const JsonView& vocab);
  void load_merges(const JsonView& merges);
  int32_t token_to_id(std::string_view token, std::string_view merge) const;
  std::optional<int32_t> find(std::string_view token) const;

  // Ids and ends of a part of a word.
  struct Encoded {
    void add(int32_t id, size_t end);

    std::vector<int32_t> ids;
    std::vector<uint32_t> ends;
  };
  void encode_part(std::string_view word, size_t begin, size_t end, std::vector<int32_t>& ids,
                   std::vector<uint32_t>* ends) const;
  size_t next_split(std::string_view word, size_t begin) const;
  Encoded merge_word(std::string_view word) const;
  Encoded char_ids(std::string_view word) const;
  bool append_bytes(std::string_view character, size_t begin, Encoded& encoded) const;
  void push_candidate(const std::vector<Symbol>& symbols, int32_t left,
                      std::vector<Candidate>& heap) const;

  bool ignore_merges_ = false;  // a word of the vocabulary is one token
  bool byte_fallback_ = false;  // a character without a token is encoded as tokens like <0xE2>
  bool fuse_unknown_ = false;   // adjacent characters without tokens become one unknown token
  std::optional<int32_t> unknown_id_;
  Vocabulary vocabulary_;
  std::array<int32_t, 256> byte_ids_{};  // of tokens like <0xE2>; kNoToken if missing
  PairTable<Merge> merges_;              // by left id and right id
  PairTable<bool> mergeable_chars_;      // by the characters between which a merge joins two tokens

  mutable std::atomic<int64_t> num_dropped_chars_ = 0;
  mutable std::mutex cache_mutex_;
  mutable std::unordered_map<std::string, Encoded, StringHash, std::equal_to<>> cache_;
};

}  // namespace zeroth::data
