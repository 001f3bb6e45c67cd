#define PCRE2_CODE_UNIT_WIDTH 8
#include "model/hf/module_pattern.h"

#include <fmt/format.h>
#include <pcre2.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <utility>

#include "base/error.h"
#include "base/text/printable.h"

namespace zeroth::model {
namespace {

constexpr size_t kMaxPatternBytes = 10'000;
constexpr size_t kShown = 200;              // max bytes of an expression in a message
constexpr uint32_t kMaxSteps = 1'000'000;   // of one match; paths are short
constexpr uint32_t kMaxHeapKib = 16 << 10;  // of one match
constexpr const char* kIndexGroup = "idx";

// A PatternTranslator turns a regular expression of Python into one of PCRE2. It refuses what
// Python does not have, or has with another meaning: such a pattern would select other modules when
// peft reads it.
class PatternTranslator {
 public:
  explicit PatternTranslator(std::string_view python) : python_(python) {}

  // Throws an Error with the reason.
  std::string run() {
    while (at_ < python_.size()) {
      const char c = python_[at_];
      if (c == '\\') {
        translate_escape();
      } else if (in_class_) {
        translate_in_class(c);
      } else if (c == '(') {
        check_group();
      } else if (c == '{') {
        translate_braces();
      } else {
        if (c == '[') begin_class();
        copy(1);
      }
    }
    return std::move(pcre2_);
  }

 private:
  bool starts_with(std::string_view text) const { return python_.substr(at_).starts_with(text); }

  void copy(size_t bytes) {
    pcre2_ += python_.substr(at_, bytes);
    at_ += bytes;
  }

  void translate_escape() {
    if (at_ + 1 == python_.size()) throw Error("it ends in a backslash");
    const char c = python_[at_ + 1];
    const auto is_hex = [&](size_t at) {
      return at < python_.size() && std::isxdigit(static_cast<unsigned char>(python_[at])) != 0;
    };
    if (c == 'Z' && !in_class_) {
      pcre2_ += "\\z";
      at_ += 2;
    } else if (c == 'x' && is_hex(at_ + 2) && is_hex(at_ + 3)) {
      copy(4);
    } else if (std::isalpha(static_cast<unsigned char>(c)) != 0 &&
               std::string_view("AbBdDsSwWafnrt").find(c) == std::string_view::npos) {
      throw Error("\\{} is not supported", c);
    } else {
      copy(2);
    }
  }

  void begin_class() {
    in_class_ = true;
    // A bracket at the begin of a class is a literal one.
    class_begin_ = at_ + (python_.substr(at_ + 1).starts_with('^') ? 2 : 1);
  }

  void translate_in_class(char c) {
    for (const char* named :
         {"[:", "[.", "[="}) {  // classes by name in PCRE2, characters in Python
      if (starts_with(named)) throw Error("'{}' in a character class is not supported", named);
    }
    if (c == ']' && at_ != class_begin_) in_class_ = false;
    copy(1);
  }

  void check_group() {
    if (starts_with("(*")) throw Error("'(*' is invalid: nothing to repeat");
    if (starts_with("(?")) {
      const std::string_view rest = python_.substr(at_ + 2);
      bool known = false;
      for (const char* kind : {":", "=", "!", ">", "<=", "<!", "P<", "P="}) {
        known = known || rest.starts_with(kind);
      }
      const size_t flags_end = std::min(rest.find_first_not_of("ims-"), rest.size());
      const bool has_flags = flags_end > 0 && flags_end < rest.size();
      known = known || (has_flags && rest[flags_end] == ':') ||
              (has_flags && rest[flags_end] == ')' && at_ == 0);
      if (!known) throw Error("'{}' is not supported", shortened(python_.substr(at_, 4)));
    }
    copy(1);
  }

  // PCRE2 takes "{,3}" literally.
  void translate_braces() {
    copy(1);
    const std::string_view rest = python_.substr(at_);
    if (!rest.starts_with(',')) return;
    const size_t end = rest.find_first_not_of("0123456789", 1);
    if (end != std::string_view::npos && rest[end] == '}') pcre2_ += '0';
  }

  std::string_view python_;
  std::string pcre2_;
  size_t at_ = 0;
  size_t class_begin_ = 0;
  bool in_class_ = false;
};

pcre2_code* as_code(const std::shared_ptr<void>& code) {
  return static_cast<pcre2_code*>(code.get());
}

std::string pcre2_message(int error) {
  std::array<PCRE2_UCHAR, 256> text{};
  pcre2_get_error_message(error, text.data(), text.size());
  return quotation(reinterpret_cast<const char*>(text.data()));
}

// Returns null, with the reason in `reason`, if the expression is invalid.
std::shared_ptr<void> compile_code(const std::string& pattern, std::string& reason) {
  const std::shared_ptr<pcre2_compile_context> context(pcre2_compile_context_create(nullptr),
                                                       pcre2_compile_context_free);
  pcre2_set_newline(context.get(), PCRE2_NEWLINE_LF);
  int error = 0;
  PCRE2_SIZE offset = 0;
  pcre2_code* const code = pcre2_compile(
      reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(),
      PCRE2_UTF | PCRE2_UCP | PCRE2_NEVER_BACKSLASH_C, &error, &offset, context.get());
  if (code == nullptr) {
    reason = fmt::format("{} at byte {} of '{}'", pcre2_message(error), offset,
                         shortened(pattern, kShown));
    return nullptr;
  }
  return {code, [](void* owned) { pcre2_code_free(static_cast<pcre2_code*>(owned)); }};
}

// Returns a path's ends after a dot, the shortest first, and the path itself.
std::vector<std::string> ends_of(const std::string& path) {
  std::vector<std::string> ends;
  for (size_t dot = path.rfind('.'); dot != path.npos && dot > 0; dot = path.rfind('.', dot - 1))
    ends.push_back(path.substr(dot + 1));
  ends.push_back(path);
  return ends;
}

std::string translate(const std::string& pattern, std::string& reason) {
  try {
    return PatternTranslator(pattern).run();
  } catch (const Error& error) {
    reason = error.what();
    return {};
  }
}

}  // namespace

ModulePattern::ModulePattern(std::string key, std::string expression, std::string_view before,
                             std::string_view after)
    : key_(std::move(key)), expression_(std::move(expression)) {
  if (expression_.size() > kMaxPatternBytes) {
    throw Error("{}: regular expression '{}' is too long: at most {} bytes are supported", key_,
                shortened(expression_), kMaxPatternBytes);
  }
  const std::string python = fmt::format("{}{}{}", before, expression_, after);
  std::string reason;
  const std::string pattern = translate(python, reason);
  if (reason.empty()) code_ = compile_code(pattern, reason);
  if (!code_) {
    throw Error("{}: regular expression '{}' is invalid: {}", key_, shortened(expression_, kShown),
                reason);
  }
}

std::shared_ptr<void> ModulePattern::find(std::string_view path, unsigned options) const {
  const std::shared_ptr<pcre2_match_context> context(pcre2_match_context_create(nullptr),
                                                     pcre2_match_context_free);
  pcre2_set_match_limit(context.get(), kMaxSteps);
  pcre2_set_heap_limit(context.get(), kMaxHeapKib);
  std::shared_ptr<pcre2_match_data> data(
      pcre2_match_data_create_from_pattern(as_code(code_), nullptr), pcre2_match_data_free);
  const int result =
      pcre2_match(as_code(code_), reinterpret_cast<PCRE2_SPTR>(path.data()), path.size(), 0,
                  PCRE2_ANCHORED | options, data.get(), context.get());
  if (result == PCRE2_ERROR_NOMATCH) return nullptr;
  if (result < 0) {
    const bool limited = result == PCRE2_ERROR_MATCHLIMIT || result == PCRE2_ERROR_DEPTHLIMIT ||
                         result == PCRE2_ERROR_HEAPLIMIT;
    throw Error("{}: regular expression '{}' {} on '{}'. Write a simpler one.", key_,
                shortened(expression_, kShown),
                limited ? "takes too many steps" : "fails with " + pcre2_message(result),
                shortened(path));
  }
  return data;
}

bool ModulePattern::full_match(std::string_view path) const {
  return find(path, PCRE2_ENDANCHORED) != nullptr;
}

bool ModulePattern::match(std::string_view path) const {
  return find(path, 0) != nullptr;
}

std::optional<std::string> ModulePattern::match_index(std::string_view path) const {
  const std::shared_ptr<void> found = find(path, 0);
  if (!found) return std::nullopt;
  auto* const data = static_cast<pcre2_match_data*>(found.get());
  PCRE2_UCHAR* text = nullptr;
  PCRE2_SIZE size = 0;
  const auto* const name = reinterpret_cast<PCRE2_SPTR>(kIndexGroup);
  if (pcre2_substring_get_byname(data, name, &text, &size) != 0) return std::string();
  const std::shared_ptr<PCRE2_UCHAR> owned(text, pcre2_substring_free);
  return std::string(reinterpret_cast<const char*>(text), size);
}

std::optional<ModulePattern> compile_pattern(std::vector<std::string>& errors, std::string key,
                                             const std::string& expression, std::string_view before,
                                             std::string_view after) {
  try {
    return ModulePattern(std::move(key), expression, before, after);
  } catch (const Error& error) {
    errors.emplace_back(error.what());
    return std::nullopt;
  }
}

TargetMatcher::TargetMatcher(const configs::LoraConfig& config, std::vector<std::string>& errors)
    : targets_(compile(config.target_modules, "lora.target_modules", errors)),
      excluded_(compile(config.exclude_modules, "lora.exclude_modules", errors)),
      layers_(config.layers_to_transform.begin(), config.layers_to_transform.end()) {
  for (const std::string& name : config.modules_to_save) {
    auto pattern =
        compile_pattern(errors, "lora.modules_to_save", name, R"((^|.*\.))", R"(($|\..*))");
    if (pattern) saved_.push_back(std::move(*pattern));
  }
  constexpr const char* kLayersKey = "lora.layers_pattern";
  constexpr const char* kNumber = R"(\.(?P<idx>\d+)\.)";
  for (const std::string& name : config.layers_pattern) {
    auto pattern = compile_pattern(errors, kLayersKey, name, R"((?:^|.*?\.))", kNumber);
    if (pattern) layer_patterns_.push_back(std::move(*pattern));
  }
  // The first number that has a parent.
  if (config.layers_pattern.empty()) {
    layer_patterns_.emplace_back(kLayersKey, R"([^.]*)", R"(.*?\.)", kNumber);
  }
}

TargetMatcher::Names TargetMatcher::compile(const configs::ModuleNames& names, const char* key,
                                            std::vector<std::string>& errors) {
  Names compiled{.pattern = {}, .names = {names.names.begin(), names.names.end()}};
  if (!names.pattern.empty()) compiled.pattern = compile_pattern(errors, key, names.pattern);
  return compiled;
}

bool TargetMatcher::Names::has_end_of(std::string_view path) const {
  for (size_t dot = path.find('.'); dot != path.npos; dot = path.find('.', dot + 1)) {
    if (names.contains(path.substr(dot + 1))) return true;
  }
  return false;
}

bool TargetMatcher::is_excluded(std::string_view path) const {
  if (excluded_.pattern) return excluded_.pattern->full_match(path);
  return excluded_.names.contains(path) || excluded_.has_end_of(path);
}

bool TargetMatcher::is_saved(std::string_view path) const {
  return std::any_of(saved_.begin(), saved_.end(),
                     [&](const ModulePattern& pattern) { return pattern.match(path); });
}

bool TargetMatcher::is_selected(std::string_view path) const {
  if (targets_.pattern) return targets_.pattern->full_match(path);
  if (targets_.names.contains(path)) return true;  // in any layer
  return targets_.has_end_of(path) && (layers_.empty() || is_in_layers(path));
}

bool TargetMatcher::is_in_layers(std::string_view path) const {
  for (const ModulePattern& pattern : layer_patterns_) {
    const std::optional<std::string> text = pattern.match_index(path);
    if (!text) continue;
    int64_t layer = 0;
    const auto [end, error] = std::from_chars(text->data(), text->data() + text->size(), layer);
    return error == std::errc() && end == text->data() + text->size() && layers_.contains(layer);
  }
  return false;
}

PatternMatcher::PatternMatcher(const char* key, const configs::PatternValues& values,
                               std::vector<std::string>& errors)
    : key_(key) {
  for (const auto& [expression, value] : values) {
    auto pattern = compile_pattern(errors, key, expression, R"((.*\.)?()", ")$");
    if (pattern) entries_.push_back({expression, value, std::move(*pattern)});
  }
}

std::optional<double> PatternMatcher::find(std::string_view path) const {
  for (const Entry& entry : entries_) {
    if (entry.pattern.match(path)) return entry.value;
  }
  return std::nullopt;
}

void PatternMatcher::check_used(const std::vector<std::string>& paths,
                                std::vector<std::string>& errors) const {
  for (const Entry& entry : entries_) {
    const bool is_used = std::ranges::any_of(
        paths, [&](const std::string& path) { return entry.pattern.match(path); });
    if (is_used) continue;
    errors.push_back(
        fmt::format("{}: '{}' matches no module with an adapter: remove it, or match the end of a "
                    "path such as {}",
                    key_, shortened(entry.expression, kShown), paths.front()));
  }
}

std::vector<std::string> shortest_ends(const std::vector<std::string>& names,
                                       const std::vector<std::string>& paths) {
  const std::set<std::string> selected(names.begin(), names.end());
  const auto has_end_in = [](const std::vector<std::string>& ends, const auto& set) {
    return std::ranges::any_of(ends, [&](const std::string& end) { return set.contains(end); });
  };
  std::set<std::string> ends_of_others;
  for (const std::string& path : paths) {
    const std::vector<std::string> ends = ends_of(path);
    if (!has_end_in(ends, selected)) ends_of_others.insert(ends.begin(), ends.end());
  }
  std::set<std::vector<std::string>> items;
  for (const std::string& name : selected) items.insert(ends_of(name));
  std::set<std::string> chosen;
  for (const std::vector<std::string>& ends : items) {
    if (has_end_in(ends, chosen)) continue;
    const auto own = std::ranges::find_if(
        ends, [&](const std::string& end) { return !ends_of_others.contains(end); });
    if (own != ends.end()) chosen.insert(*own);
  }
  if (chosen.empty() || chosen.size() >= selected.size()) return names;
  return {chosen.begin(), chosen.end()};
}

}  // namespace zeroth::model
