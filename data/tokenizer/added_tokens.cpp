#include "data/tokenizer/added_tokens.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/json/json_view.h"
#include "data/tokenizer/bpe.h"
#include "data/tokenizer/unicode.h"

namespace zeroth::data {
namespace {

using nlohmann::json;

bool touches_word(std::string_view text, size_t begin, size_t end) {
  return (begin > 0 && is_word(char_at(text, previous_char(text, begin)))) ||
         (end < text.size() && is_word(char_at(text, end)));
}

size_t skip_space_before(std::string_view text, size_t begin, size_t limit) {
  while (begin > limit && is_space(char_at(text, previous_char(text, begin)))) {
    begin = previous_char(text, begin);
  }
  return begin;
}

size_t skip_space_after(std::string_view text, size_t end) {
  while (end < text.size() && is_space(char_at(text, end))) end += utf8_length(text[end]);
  return end;
}

}  // namespace

std::vector<AddedToken> parse_added_tokens(const json& added_tokens) {
  std::vector<AddedToken> tokens;
  if (added_tokens.is_null()) return tokens;
  const JsonView list(added_tokens, "added_tokens");
  for (size_t i = 0; i < list.size(); ++i) {
    const JsonView entry = list.at(i);
    const bool special = entry.flag("special", false);
    tokens.push_back({.id = static_cast<int32_t>(entry.at("id").integer(0, kMaxTokenId)),
                      .content = entry.at("content").text(),
                      .special = special,
                      .single_word = entry.flag("single_word", false),
                      .lstrip = entry.flag("lstrip", false),
                      .rstrip = entry.flag("rstrip", false),
                      .normalized = entry.flag("normalized", !special)});
  }
  return tokens;
}

AddedTokenSplitter::AddedTokenSplitter(std::vector<AddedToken> tokens)
    : tokens_(std::move(tokens)) {
  std::stable_sort(tokens_.begin(), tokens_.end(),
                   [](const AddedToken& a, const AddedToken& b) { return a.content < b.content; });
  const auto same = [](const AddedToken& a, const AddedToken& b) { return a.content == b.content; };
  tokens_.erase(std::unique(tokens_.begin(), tokens_.end(), same),
                tokens_.end());  // keeps the first
  std::erase_if(tokens_, [](const AddedToken& token) { return token.content.empty(); });
  for (const AddedToken& token : tokens_) begins_[static_cast<uint8_t>(token.content[0])] = true;
}

// Returns the longest match. The tokens that share the bytes read so far are adjacent; each byte
// narrows their range.
const AddedToken* AddedTokenSplitter::match_at(std::string_view input, size_t at) const {
  if (!begins_[static_cast<uint8_t>(input[at])]) return nullptr;
  const AddedToken* longest = nullptr;
  auto first = tokens_.begin(), last = tokens_.end();
  for (size_t length = 0; first != last; ++length) {
    if (first->content.size() == length) longest = &*first++;
    if (at + length == input.size()) break;
    const auto next = static_cast<uint8_t>(input[at + length]);
    const auto byte_of = [=](const AddedToken& token) {
      return static_cast<uint8_t>(token.content[length]);
    };
    first = std::partition_point(first, last, [&](const auto& t) { return byte_of(t) < next; });
    last = std::partition_point(first, last, [&](const auto& t) { return byte_of(t) == next; });
  }
  return longest;
}

void AddedTokenSplitter::split(std::string_view input, const TokenSink& token,
                               const TextSink& text) const {
  size_t done = 0;  // everything before is output
  for (size_t at = 0; at < input.size();) {
    const AddedToken* const match = match_at(input, at);
    if (match == nullptr) {
      ++at;
      continue;
    }
    size_t begin = at;
    size_t end = at + match->content.size();
    at = end;
    if (match->single_word && touches_word(input, begin, end)) continue;
    if (match->lstrip) begin = std::max(skip_space_before(input, begin, done), done);
    if (match->rstrip) end = skip_space_after(input, end);
    if (begin >= end) continue;  // white space that the previous token has consumed
    if (done < begin) text({done, begin});
    token(match->id, {begin, end});
    done = end;
  }
  if (done < input.size()) text({done, input.size()});
}

}  // namespace zeroth::data
