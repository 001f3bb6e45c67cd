#include "data/added_tokens.h"

#include <utf8proc.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/json_view.h"
#include "data/bpe.h"
#include "data/utf8.h"

namespace zeroth::data {
namespace {

using nlohmann::json;

utf8proc_int32_t code_at(std::string_view text, size_t at) {
  utf8proc_int32_t code = 0;
  utf8proc_iterate(reinterpret_cast<const utf8proc_uint8_t*>(text.data()) + at,
                   static_cast<utf8proc_ssize_t>(text.size() - at), &code);
  return code;
}

// Start of the character that ends at `end`.
size_t previous(std::string_view text, size_t end) {
  do --end;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80);
  return end;
}

bool is_word(utf8proc_int32_t code) {
  switch (utf8proc_category(code)) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO:
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_MC:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_PC:
      return true;
    default:
      return code == 0x200C || code == 0x200D;  // the joiners
  }
}

bool is_space(utf8proc_int32_t code) {
  if ((code >= 0x09 && code <= 0x0D) || code == 0x85) return true;
  const auto category = utf8proc_category(code);
  return category == UTF8PROC_CATEGORY_ZS || category == UTF8PROC_CATEGORY_ZL ||
         category == UTF8PROC_CATEGORY_ZP;
}

bool touches_word(std::string_view text, size_t begin, size_t end) {
  return (begin > 0 && is_word(code_at(text, previous(text, begin)))) ||
         (end < text.size() && is_word(code_at(text, end)));
}

size_t skip_space_before(std::string_view text, size_t begin, size_t limit) {
  while (begin > limit && is_space(code_at(text, previous(text, begin)))) {
    begin = previous(text, begin);
  }
  return begin;
}

size_t skip_space_after(std::string_view text, size_t end) {
  while (end < text.size() && is_space(code_at(text, end))) end += utf8_length(text[end]);
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
    tokens.push_back({.id = static_cast<int32_t>(entry.at("id").integer(0, kMostTokenId)),
                      .content = entry.at("content").text(),
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
                tokens_.end());  // the first stays
  std::erase_if(tokens_, [](const AddedToken& token) { return token.content.empty(); });
  for (const AddedToken& token : tokens_) begins_[static_cast<uint8_t>(token.content[0])] = true;
}

// The tokens that share what was read are neighbours; their range gets narrower byte by byte.
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
  size_t done = 0;  // everything before is given out
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
    if (match->lstrip) begin = skip_space_before(input, begin, done);
    if (match->rstrip) end = skip_space_after(input, end);
    if (done < begin) text(input.substr(done, begin - done));
    token(match->id);
    done = end;
  }
  if (done < input.size()) text(input.substr(done));
}

}  // namespace zeroth::data
