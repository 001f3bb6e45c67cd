#include "data/text_ends.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/printable.h"
#include "base/units.h"
#include "data/tokenizer.h"

namespace zeroth::data {
namespace {

// Templates write a line break after the end token; no tokenizer makes more ids of it.
constexpr size_t kMaxBlankIds = 8;

void append(std::vector<int32_t>& ids, std::span<const int32_t> more) {
  ids.insert(ids.end(), more.begin(), more.end());
}

}  // namespace

TextEnds::TextEnds(const Tokenizer& tokenizer, int32_t end_of_text, bool doubles)
    : tokenizer_(tokenizer),
      end_of_text_(end_of_text),
      end_token_(tokenizer.token(end_of_text)),
      prefix_(tokenizer.prefix()),
      suffix_(tokenizer.suffix()),
      doubles_(doubles),
      suffix_ends_(doubles ? !suffix_.empty() && suffix_.back() == end_of_text
                           : std::count(suffix_.begin(), suffix_.end(), end_of_text) > 0) {}

bool TextEnds::has_begin(std::span<const int32_t> ids) const {
  return !doubles_ && !prefix_.empty() && !ids.empty() && ids.front() == prefix_.front();
}

// The end token is the last one, but for white space.
bool TextEnds::has_end(std::span<const int32_t> ids, std::string_view text) const {
  if (doubles_) return false;
  if (!ids.empty() && ids.back() == end_of_text_) return true;
  const auto last = ids.last(std::min(ids.size(), kMaxBlankIds));
  if (std::count(last.begin(), last.end(), end_of_text_) == 0) return false;
  return text.substr(0, text.find_last_not_of(" \t\r\n") + 1).ends_with(end_token_);
}

std::vector<int32_t> TextEnds::around(std::span<const int32_t> ids, size_t last,
                                      std::string_view text, size_t& begin) {
  const bool begun = has_begin(ids), ended = has_end(ids.subspan(last), text);
  std::vector<int32_t> all;
  if (!begun) all = prefix_;
  begin = all.size();
  append(all, ids);
  if (!ended && !suffix_ends_) all.push_back(end_of_text_);
  if (!ended || !suffix_ends_) append(all, suffix_);
  ++texts_;
  begun_ += begun ? 1 : 0;
  ended_ += ended ? 1 : 0;
  return all;
}

std::string TextEnds::own_tokens() const {
  if (begun_ == 0 && ended_ == 0) return "";
  std::string text = fmt::format("of {}", counted(texts_, "text"));
  if (begun_ > 0) {
    text += fmt::format(", {} begin with the begin token {}", begun_,
                        shortened(tokenizer_.token(prefix_.front())));
  }
  if (ended_ > 0) {
    text += fmt::format("{} {} end with the end token {}", begun_ > 0 ? " and" : ",", ended_,
                        shortened(end_token_));
  }
  return text + ": no second one is added to these";
}

}  // namespace zeroth::data
