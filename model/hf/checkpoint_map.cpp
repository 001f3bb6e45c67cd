#include "model/hf/checkpoint_map.h"

#include <algorithm>
#include <cctype>
#include <span>
#include <string_view>

#include "base/error.h"
#include "model/hf/families/family.h"

namespace zeroth::model {
namespace {

constexpr std::string_view kHead = "head.";

// Rewrites `name` if it begins with pattern `from`: the index is kept, and so is what follows the
// pattern.
std::optional<std::string> rewrite(std::string_view name, std::string_view from,
                                   std::string_view to) {
  const size_t mark = from.find('#');
  if (mark == std::string_view::npos) {
    const bool whole = from.back() != '.';
    if (whole ? name != from : !name.starts_with(from)) return std::nullopt;
    return std::string(to) + std::string(name.substr(from.size()));
  }
  if (!name.starts_with(from.substr(0, mark))) return std::nullopt;
  const std::string_view rest = name.substr(mark);
  const size_t digits = static_cast<size_t>(
      std::find_if_not(rest.begin(), rest.end(), [](unsigned char c) { return std::isdigit(c); }) -
      rest.begin());
  const std::string_view tail = from.substr(mark + 1);
  if (digits == 0 || !rest.substr(digits).starts_with(tail)) return std::nullopt;
  const size_t to_mark = to.find('#');
  return std::string(to.substr(0, to_mark)) + std::string(rest.substr(0, digits)) +
         std::string(to.substr(to_mark + 1)) + std::string(rest.substr(digits + tail.size()));
}

std::span<const NamePair> own_names(const Family& family, const ModelSpec& spec) {
  return family.names_of == nullptr ? family.names : family.names_of(spec);
}

}  // namespace

std::string stored_name(const ModelSpec& spec, const std::string& canonical) {
  const Family& family = family_of(spec);
  for (const std::span<const NamePair> names : {own_names(family, spec), llama_names()}) {
    for (const NamePair& pair : names) {
      const auto name = rewrite(canonical, pair.canonical, pair.stored);
      if (name) return std::string(family.prefix) + *name;
    }
  }
  if (const auto name = rewrite(canonical, kHead, family.head)) return *name;
  ZEROTH_CHECK(false, "no {} checkpoint holds a parameter {}", spec.family, canonical);
  return {};
}

std::optional<std::string> canonical_name(const ModelSpec& spec, const std::string& stored) {
  const Family& family = family_of(spec);
  if (const auto name = rewrite(stored, family.head, kHead)) return name;
  std::string_view name = stored;
  if (name.starts_with(family.prefix)) name.remove_prefix(family.prefix.size());
  for (const std::span<const NamePair> names : {own_names(family, spec), llama_names()}) {
    for (const NamePair& pair : names) {
      const auto canonical = rewrite(name, pair.stored, pair.canonical);
      if (canonical) return canonical;
    }
  }
  return std::nullopt;
}

bool is_ignored_buffer(const ModelSpec& spec, const std::string& stored) {
  return std::ranges::any_of(family_of(spec).buffers,
                             [&](std::string_view end) { return stored.ends_with(end); });
}

}  // namespace zeroth::model
