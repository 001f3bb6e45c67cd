#define PCRE2_CODE_UNIT_WIDTH 8
#include "data/tokenizer/regex.h"

#include <pcre2.h>

#include "base/error.h"
#include "base/text/printable.h"
#include "data/tokenizer/unicode.h"

namespace zeroth::data {
namespace {

constexpr size_t kMaxPatternBytes = size_t{64} << 10;
constexpr size_t kShown = 500;  // max bytes of a pattern in a message

// Describes an error; PCRE2's own messages are about its functions and options.
std::string match_error(int code) {
  if (code == PCRE2_ERROR_MATCHLIMIT || code == PCRE2_ERROR_DEPTHLIMIT) {
    return "match limit exceeded";
  }
  if (code == PCRE2_ERROR_HEAPLIMIT || code == PCRE2_ERROR_NOMEMORY) {
    return "out of memory";
  }
  return fmt::format("PCRE2 error {}", code);
}

pcre2_code* as_code(const std::shared_ptr<void>& code) {
  return static_cast<pcre2_code*>(code.get());
}

}  // namespace

std::string escape_regex(std::string_view text) {
  std::string escaped;
  for (const char c : text) {
    if (std::string_view("\\^$.[]|()?*+{}-#&~").find(c) != std::string_view::npos) escaped += '\\';
    escaped += c;
  }
  return escaped;
}

Regex::Regex(const std::string& oniguruma) : source_(oniguruma) {
  if (oniguruma.size() > kMaxPatternBytes) {
    throw Error("regular expression '{}' is too long: at most {} bytes are supported",
                shortened(oniguruma), kMaxPatternBytes);
  }
  const std::string pattern = to_pcre2(oniguruma);
  int error = 0;
  PCRE2_SIZE offset = 0;
  const std::shared_ptr<pcre2_compile_context> context(pcre2_compile_context_create(nullptr),
                                                       pcre2_compile_context_free);
  pcre2_set_newline(context.get(), PCRE2_NEWLINE_LF);
  code_ = std::shared_ptr<void>(
      pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(),
                    PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE, &error, &offset, context.get()),
      [](void* code) { pcre2_code_free(static_cast<pcre2_code*>(code)); });
  if (!code_) {
    throw Error("regular expression '{}' is invalid at offset {} of '{}' (PCRE2 error {})",
                shortened(oniguruma, kShown), offset, shortened(pattern, kShown), error);
  }
  pcre2_jit_compile(as_code(code_), PCRE2_JIT_COMPLETE);  // on failure matching is only slower
}

Regex::Matches::Matches(const Regex& regex, std::string_view text)
    : regex_(regex), text_(text), match_data_(pcre2_match_data_create(1, nullptr), [](void* data) {
        pcre2_match_data_free(static_cast<pcre2_match_data*>(data));
      }) {}

std::optional<TextRange> Regex::Matches::find(size_t from) {
  auto* const data = static_cast<pcre2_match_data*>(match_data_.get());
  const auto match = [&](uint32_t options) {
    return pcre2_match(as_code(regex_.code_), reinterpret_cast<PCRE2_SPTR>(text_.data()),
                       text_.size(), from, options | PCRE2_NO_UTF_CHECK, data, nullptr);
  };
  int result = match(0);
  if (result == PCRE2_ERROR_JIT_STACKLIMIT) result = match(PCRE2_NO_JIT);
  if (result == PCRE2_ERROR_NOMATCH) return std::nullopt;
  if (result < 0) {
    throw Error("regular expression '{}' failed at byte {} of a text of {} bytes: {}",
                shortened(regex_.source_, kShown), from, text_.size(), match_error(result));
  }
  const PCRE2_SIZE* const range = pcre2_get_ovector_pointer(data);
  return TextRange{range[0], range[1]};
}

// Returns the next match. An empty match directly after the last one does not count: the search
// continues one character later.
std::optional<TextRange> Regex::Matches::next() {
  while (from_ <= text_.size()) {
    const auto range = find(from_);
    if (!range) break;
    if (range->begin != range->end || last_end_ != range->end) {
      from_ = range->end;
      last_end_ = range->end;
      return range;
    }
    from_ += from_ < text_.size() ? utf8_length(text_[from_]) : 1;
  }
  from_ = text_.size() + 1;
  return std::nullopt;
}

}  // namespace zeroth::data
