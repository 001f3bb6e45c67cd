#include "data/bpe.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <tuple>

#include "base/error.h"
#include "base/json.h"
#include "base/printable.h"

namespace zeroth::data {
namespace {

using nlohmann::json;

constexpr size_t kCachedWords = 1 << 16;
constexpr size_t kCachedWordBytes = 64;

uint64_t pair_key(int32_t left, int32_t right) {
  return (static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32) | static_cast<uint32_t>(right);
}

void refuse_unless_off(const JsonView& model, const char* key) {
  const auto found = model.find(key);
  if (!found) return;
  const json& value = found->json();
  if (value == false || value == "" || value == 0.0) return;
  throw Error("model: {} = {} is not supported", key, quoted(value));
}

}  // namespace

Bpe::Bpe(const json& given) {
  const JsonView model(given, "model");
  const auto type = model.text("type", "BPE");  // old files leave it out
  if (type != "BPE") {
    throw Error("model type '{}' is not supported, only byte-level BPE", shortened(type));
  }
  for (const char* const key :
       {"dropout", "byte_fallback", "continuing_subword_prefix", "end_of_word_suffix"}) {
    refuse_unless_off(model, key);
  }
  ignore_merges_ = model.flag("ignore_merges", false);
  const JsonView vocab = model.at("vocab");
  for (const auto& [token, id] : vocab.object().items()) {
    const JsonView view(id, "model.vocab." + shortened(token));
    vocabulary_.emplace(token, static_cast<int32_t>(view.integer(0, kMostTokenId)));
  }
  char_ids_.fill(kGone);
  for (int byte = 0; byte < 256; ++byte) {
    std::string token;
    append_byte_level(std::string(1, static_cast<char>(byte)), token);
    const auto found = vocabulary_.find(token);
    if (found != vocabulary_.end()) {
      char_ids_[byte_to_char(static_cast<uint8_t>(byte))] = found->second;
    }
  }
  load_merges(model.at("merges"));
}

// A merge is written as ["a", "b"] or, in older files, as "a b".
void Bpe::load_merges(const JsonView& merges) {
  int32_t rank = 0;
  merges_.reserve(merges.size());
  for (const json& merge : merges.json()) {
    std::string left;
    std::string right;
    const bool pair = merge.is_array() && merge.size() == 2 && merge[0].is_string();
    if (pair && merge[1].is_string()) {
      left = merge[0].get_ref<const std::string&>();
      right = merge[1].get_ref<const std::string&>();
    } else {
      const std::string& text = merge.is_string() ? merge.get_ref<const std::string&>() : left;
      const size_t space = text.find(' ');
      if (space == std::string::npos) {
        throw Error("model.merges[{}] is {}, expected two texts", rank, quoted(merge));
      }
      left = text.substr(0, space);
      right = text.substr(space + 1);
    }
    const std::string both = left + right;
    const auto key = pair_key(id_of(left, both), id_of(right, both));
    merges_[key] = {rank++, id_of(both, both)};
  }
}

int32_t Bpe::id_of(std::string_view token, std::string_view merge) const {
  const auto found = vocabulary_.find(token);
  if (found == vocabulary_.end()) {
    throw Error("model: '{}' of the merge into '{}' is not in the vocabulary", shortened(token),
                shortened(merge));
  }
  return found->second;
}

void Bpe::encode(std::string_view word, std::vector<int32_t>& ids) const {
  if (word.size() > kCachedWordBytes) {
    const auto merged = merge_word(word);
    ids.insert(ids.end(), merged.begin(), merged.end());
    return;
  }
  const std::lock_guard lock(cache_mutex_);
  auto found = cache_.find(word);
  if (found == cache_.end()) {
    if (cache_.size() >= kCachedWords) cache_.clear();
    found = cache_.emplace(std::string(word), merge_word(word)).first;
  }
  ids.insert(ids.end(), found->second.begin(), found->second.end());
}

// Of all neighbours that merge, the pair of lowest rank goes first; of equal ones the leftmost.
std::vector<int32_t> Bpe::merge_word(std::string_view word) const {
  if (ignore_merges_) {
    const auto whole = vocabulary_.find(word);
    if (whole != vocabulary_.end()) return {whole->second};
  }
  std::vector<Symbol> symbols = split_bytes(word);
  std::vector<Candidate> heap;
  for (int32_t i = 0; i < static_cast<int32_t>(symbols.size()); ++i) {
    push_candidate(symbols, i, heap);
  }
  while (!heap.empty()) {
    std::pop_heap(heap.begin(), heap.end(), worse);
    const Candidate best = heap.back();
    heap.pop_back();
    Symbol& left = symbols[best.left];
    if (left.id != best.left_id || left.next < 0) continue;
    Symbol& right = symbols[left.next];
    if (right.id != best.right_id) continue;
    left.id = best.merge.id;
    left.next = right.next;
    right.id = kGone;
    if (left.next >= 0) symbols[left.next].previous = best.left;
    push_candidate(symbols, best.left, heap);
    if (left.previous >= 0) push_candidate(symbols, left.previous, heap);
  }
  std::vector<int32_t> ids;
  for (const Symbol& symbol : symbols) {
    if (symbol.id != kGone) ids.push_back(symbol.id);
  }
  return ids;
}

bool Bpe::worse(const Candidate& a, const Candidate& b) {
  return std::tie(a.merge.rank, a.left) > std::tie(b.merge.rank, b.left);
}

std::vector<Bpe::Symbol> Bpe::split_bytes(std::string_view word) const {
  std::vector<Symbol> symbols;
  symbols.reserve(word.size());
  for (size_t at = 0; at < word.size();) {
    const char32_t character = next_byte_char(word, at);
    const int32_t id = character < kByteCharLimit ? char_ids_[character] : kGone;
    if (id == kGone) {
      throw Error("the tokenizer has no token for byte {:#04x} (in '{}')", char_to_byte(character),
                  shortened(word));
    }
    const auto index = static_cast<int32_t>(symbols.size());
    if (index > 0) symbols.back().next = index;
    symbols.push_back({id, index - 1, -1});
  }
  return symbols;
}

void Bpe::push_candidate(const std::vector<Symbol>& symbols, int32_t left,
                         std::vector<Candidate>& heap) const {
  const Symbol& symbol = symbols[left];
  if (symbol.next < 0) return;
  const int32_t right_id = symbols[symbol.next].id;
  const auto found = merges_.find(pair_key(symbol.id, right_id));
  if (found == merges_.end()) return;
  heap.push_back({found->second, left, symbol.id, right_id});
  std::push_heap(heap.begin(), heap.end(), worse);
}

}  // namespace zeroth::data
