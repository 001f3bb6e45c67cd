#include "data/tokenizer/bpe.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <tuple>

#include "base/error.h"
#include "base/json/json.h"
#include "base/text/printable.h"
#include "data/tokenizer/unicode.h"

namespace zeroth::data {
namespace {

using nlohmann::json;

constexpr size_t kCachedWords = 1 << 16;
constexpr size_t kCachedWordBytes = 64;
constexpr size_t kMaxUnsplitBytes = 16;  // of a word, not of a full text

void require_disabled(const JsonView& model, const char* key) {
  const auto found = model.find(key);
  if (!found) return;
  const json& value = found->json();
  if (value == false || value == "" || value == 0.0) return;
  throw Error("model: {} = {} is not supported", key, quoted(value));
}

// Parses a merge, which is ["a", "b"] or, in older files, "a b".
std::pair<std::string_view, std::string_view> parse_merge(const json& merge, int32_t rank) {
  const bool pair = merge.is_array() && merge.size() == 2 && merge[0].is_string();
  if (pair && merge[1].is_string()) {
    return {merge[0].get_ref<const std::string&>(), merge[1].get_ref<const std::string&>()};
  }
  std::string_view text;
  if (merge.is_string()) text = merge.get_ref<const std::string&>();
  const size_t space = text.find(' ');
  if (space == text.npos || text.find(' ', space + 1) != text.npos) {
    throw Error("model.merges[{}] is {}, expected two strings", rank, quoted(merge));
  }
  return {text.substr(0, space), text.substr(space + 1)};
}

std::string_view char_bytes(std::string_view text, size_t at) {
  return text.substr(at, utf8_length(text[at]));
}

}  // namespace

Bpe::Bpe(const json& config) {
  const JsonView model(config, "model");
  const auto type = model.text("type", "BPE");  // old files omit it
  if (type != "BPE") {
    throw Error("model type '{}' is not supported, only BPE; train on a .bin file of token ids",
                shortened(type));
  }
  for (const char* const key : {"dropout", "continuing_subword_prefix", "end_of_word_suffix"}) {
    require_disabled(model, key);
  }
  ignore_merges_ = model.flag("ignore_merges", false);
  byte_fallback_ = model.flag("byte_fallback", false);
  fuse_unknown_ = model.flag("fuse_unk", false);
  load_vocabulary(model.at("vocab"));
  if (const auto token = model.find("unk_token")) unknown_id_ = find(token->text());
  load_merges(model.at("merges"));
}

void Bpe::load_vocabulary(const JsonView& vocab) {
  for (const auto& [token, id] : vocab.object().items()) {
    const JsonView view(id, "model.vocab." + shortened(token));
    vocabulary_.emplace(token, static_cast<int32_t>(view.integer(0, kMaxTokenId)));
  }
  for (int byte = 0; byte < 256; ++byte) {
    byte_ids_[byte] = find(fmt::format("<0x{:02X}>", byte)).value_or(kNoToken);
  }
}

void Bpe::load_merges(const JsonView& merges) {
  int32_t rank = 0;
  merges_ = PairTable<Merge>(merges.size());
  mergeable_chars_ = PairTable<bool>(merges.size());
  for (const json& merge : merges.json()) {
    const auto [left, right] = parse_merge(merge, rank);
    const std::string both = std::string(left) + std::string(right);
    merges_.set(token_to_id(left, both), token_to_id(right, both),
                {rank++, token_to_id(both, both)});
    if (left.empty() || right.empty()) continue;
    const char32_t last_of_left = char_at(left, previous_char(left, left.size()));
    mergeable_chars_.set(last_of_left, char_at(right, 0), true);
  }
}

int32_t Bpe::token_to_id(std::string_view token, std::string_view merge) const {
  const auto id = find(token);
  if (!id) {
    throw Error("model: '{}' of the merge into '{}' is not in the vocabulary", shortened(token),
                shortened(merge));
  }
  return *id;
}

std::optional<int32_t> Bpe::find(std::string_view token) const {
  const auto found = vocabulary_.find(token);
  return found == vocabulary_.end() ? std::nullopt : std::optional(found->second);
}

void Bpe::Encoded::add(int32_t id, size_t end) {
  ids.push_back(id);
  ends.push_back(static_cast<uint32_t>(end));
}

void Bpe::encode(std::string_view word, std::vector<int32_t>& ids,
                 std::vector<uint32_t>* ends) const {
  if (ignore_merges_) {
    if (const auto whole = find(word)) {
      ids.push_back(*whole);
      if (ends != nullptr) ends->push_back(static_cast<uint32_t>(word.size()));
      return;
    }
  }
  if (word.size() <= kMaxUnsplitBytes) return encode_part(word, 0, word.size(), ids, ends);
  for (size_t begin = 0, end = 0; begin < word.size(); begin = end) {
    end = next_split(word, begin);
    encode_part(word, begin, end, ids, ends);
  }
}

// Returns the end of the word's next part. No token crosses two characters that no merge joins, so
// the parts of a long word are encoded separately, most of them from the cache. Unknown characters
// stay with their neighbors, with which they may be fused.
size_t Bpe::next_split(std::string_view word, size_t begin) const {
  char32_t left = char_at(word, begin);
  size_t at = begin + utf8_length(word[begin]);
  for (size_t before = begin; at < word.size(); at += utf8_length(word[before])) {
    const char32_t right = char_at(word, at);
    if (mergeable_chars_.find(left, right) == nullptr && find(char_bytes(word, before)) &&
        find(char_bytes(word, at))) {
      return at;
    }
    left = right;
    before = at;
  }
  return word.size();
}

void Bpe::encode_part(std::string_view word, size_t begin, size_t end, std::vector<int32_t>& ids,
                      std::vector<uint32_t>* ends) const {
  const std::string_view part = word.substr(begin, end - begin);
  const auto append = [&](const Encoded& more) {
    ids.insert(ids.end(), more.ids.begin(), more.ids.end());
    if (ends == nullptr) return;
    for (const uint32_t at : more.ends) ends->push_back(static_cast<uint32_t>(begin) + at);
  };
  if (part.size() > kCachedWordBytes) return append(merge_word(part));
  const std::lock_guard lock(cache_mutex_);
  const auto found = cache_.find(part);
  if (found != cache_.end()) return append(found->second);
  const int64_t num_dropped_chars = num_dropped_chars_;
  Encoded merged = merge_word(part);
  append(merged);
  if (num_dropped_chars_ != num_dropped_chars) return;  // each occurrence is counted
  if (cache_.size() >= kCachedWords) cache_.clear();
  cache_.emplace(part, std::move(merged));
}

// Merges the neighbors of a word: the pair of lowest rank first, and of equal ones the leftmost.
Bpe::Encoded Bpe::merge_word(std::string_view word) const {
  Encoded encoded = char_ids(word);
  const auto count = static_cast<int32_t>(encoded.ids.size());
  std::vector<Symbol> symbols;
  symbols.reserve(encoded.ids.size());
  for (int32_t i = 0; i < count; ++i) {
    symbols.push_back({.id = encoded.ids[i],
                       .end = encoded.ends[i],
                       .previous = i - 1,
                       .next = i + 1 < count ? i + 1 : -1});
  }
  std::vector<Candidate> heap;
  for (int32_t i = 0; i < static_cast<int32_t>(symbols.size()); ++i) {
    push_candidate(symbols, i, heap);
  }
  while (!heap.empty()) {
    std::pop_heap(heap.begin(), heap.end(), has_lower_priority);
    const Candidate best = heap.back();
    heap.pop_back();
    Symbol& left = symbols[best.left];
    if (left.id != best.left_id || left.next < 0) continue;
    Symbol& right = symbols[left.next];
    if (right.id != best.right_id) continue;
    left.id = best.merge.id;
    left.end = right.end;
    left.next = right.next;
    right.id = kNoToken;
    if (left.next >= 0) symbols[left.next].previous = best.left;
    push_candidate(symbols, best.left, heap);
    if (left.previous >= 0) push_candidate(symbols, left.previous, heap);
  }
  encoded = {};
  for (const Symbol& symbol : symbols) {
    if (symbol.id != kNoToken) encoded.add(symbol.id, symbol.end);
  }
  return encoded;
}

bool Bpe::has_lower_priority(const Candidate& a, const Candidate& b) {
  return std::tie(a.merge.rank, a.left) > std::tie(b.merge.rank, b.left);
}

// Returns the ids of the characters before merges. An unknown token is delayed until those fused
// with it are known, so it follows byte tokens in between, as in `tokenizers`. A dropped character
// belongs to the next token, and at the end of the word to the last one.
Bpe::Encoded Bpe::char_ids(std::string_view word) const {
  Encoded encoded;
  encoded.ids.reserve(word.size());
  encoded.ends.reserve(word.size());
  bool unknown = false;
  for (size_t at = 0, end = 0; at < word.size(); at = end) {
    const std::string_view character = char_bytes(word, at);
    end = at + character.size();
    if (const auto id = find(character)) {
      if (unknown) encoded.add(*unknown_id_, at);
      unknown = false;
      encoded.add(*id, end);
    } else if (!append_bytes(character, at, encoded)) {
      if (unknown && !fuse_unknown_) encoded.add(*unknown_id_, at);
      unknown = unknown_id_.has_value();
      num_dropped_chars_ += unknown ? 0 : 1;
    }
  }
  if (unknown) encoded.add(*unknown_id_, word.size());
  if (!encoded.ends.empty()) encoded.ends.back() = static_cast<uint32_t>(word.size());
  return encoded;
}

bool Bpe::append_bytes(std::string_view character, size_t begin, Encoded& encoded) const {
  const auto byte_token_id = [&](char byte) { return byte_ids_[static_cast<uint8_t>(byte)]; };
  const bool all = byte_fallback_ && std::all_of(character.begin(), character.end(), [&](char c) {
                     return byte_token_id(c) != kNoToken;
                   });
  if (!all) return false;
  for (const char byte : character) encoded.add(byte_token_id(byte), ++begin);
  return true;
}

void Bpe::push_candidate(const std::vector<Symbol>& symbols, int32_t left,
                         std::vector<Candidate>& heap) const {
  const Symbol& symbol = symbols[left];
  if (symbol.next < 0) return;
  const int32_t right_id = symbols[symbol.next].id;
  const Merge* const merge = merges_.find(symbol.id, right_id);
  if (merge == nullptr) return;
  heap.push_back({*merge, left, symbol.id, right_id});
  std::push_heap(heap.begin(), heap.end(), has_lower_priority);
}

}  // namespace zeroth::data
