#include "data/samples/special_tokens.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/text/printable.h"
#include "base/text/units.h"
#include "data/tokenizer/tokenizer.h"

namespace zeroth::data {
namespace {

// Templates add a line break after the end token; no tokenizer encodes it as more ids.
constexpr size_t kMaxBlankIds = 8;

}  // namespace

SpecialTokens::SpecialTokens(const Tokenizer& tokenizer, int32_t end_of_text, bool allow_duplicates)
    : tokenizer_(tokenizer),
      end_of_text_(end_of_text),
      end_token_(tokenizer.id_to_token(end_of_text)),
      prefix_(tokenizer.text_template().prefix),
      suffix_(tokenizer.text_template().suffix),
      allow_duplicates_(allow_duplicates),
      suffix_has_end_(allow_duplicates
                          ? !suffix_.empty() && suffix_.back() == end_of_text
                          : std::count(suffix_.begin(), suffix_.end(), end_of_text) > 0) {}

bool SpecialTokens::has_begin(std::span<const int32_t> ids) const {
  return !allow_duplicates_ && !prefix_.empty() && !ids.empty() && ids.front() == prefix_.front();
}

// Returns whether the end token is the last one, except for white space.
bool SpecialTokens::has_end(std::span<const int32_t> ids, std::string_view text) const {
  if (allow_duplicates_) return false;
  if (!ids.empty() && ids.back() == end_of_text_) return true;
  const auto last = ids.last(std::min(ids.size(), kMaxBlankIds));
  if (std::count(last.begin(), last.end(), end_of_text_) == 0) return false;
  return text.substr(0, text.find_last_not_of(" \t\r\n") + 1).ends_with(end_token_);
}

std::vector<int32_t> SpecialTokens::add_special_tokens(std::span<const int32_t> ids, size_t last,
                                                       std::string_view text, size_t& begin) {
  const bool with_begin = has_begin(ids), with_end = has_end(ids.subspan(last), text);
  std::vector<int32_t> all;
  if (!with_begin) all = prefix_;
  begin = all.size();
  all.insert(all.end(), ids.begin(), ids.end());
  if (!with_end && !suffix_has_end_) all.push_back(end_of_text_);
  if (!with_end || !suffix_has_end_) all.insert(all.end(), suffix_.begin(), suffix_.end());
  ++num_texts_;
  num_with_begin_ += with_begin ? 1 : 0;
  num_with_end_ += with_end ? 1 : 0;
  return all;
}

void SpecialTokens::add_counts(const SpecialTokens& other) {
  num_texts_ += other.num_texts_;
  num_with_begin_ += other.num_with_begin_;
  num_with_end_ += other.num_with_end_;
}

std::string SpecialTokens::own_special_tokens() const {
  if (num_with_begin_ == 0 && num_with_end_ == 0) return "";
  std::string text = fmt::format("of {}", pluralize(num_texts_, "text"));
  if (num_with_begin_ > 0) {
    text += fmt::format(", {} begin with the begin token {}", num_with_begin_,
                        shortened(tokenizer_.id_to_token(prefix_.front())));
  }
  if (num_with_end_ > 0) {
    text += fmt::format("{} {} end with the end token {}", num_with_begin_ > 0 ? " and" : ",",
                        num_with_end_, shortened(end_token_));
  }
  return text + ": no second one is added to these";
}

}  // namespace zeroth::data
