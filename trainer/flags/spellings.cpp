#include "trainer/flags/spellings.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>

namespace zeroth::trainer {
namespace {

bool in_name(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '-' || c == '_';
}

}  // namespace

std::string Spellings::lookup(std::string_view ours) const {
  const auto found = typed_.find(ours);
  return found == typed_.end() ? std::string(ours) : found->second;
}

bool Spellings::is_typed_as(std::string_view ours, std::string_view name) const {
  std::string typed = lookup(ours);
  std::replace(typed.begin(), typed.end(), '-', '_');
  return typed == fmt::format("__{}", name);
}

std::string Spellings::as_typed(std::string text) const {
  for (size_t at = 0; (at = text.find("--", at)) != std::string::npos;) {
    size_t end = at;
    while (end < text.size() && in_name(text[end])) ++end;
    const bool whole = at == 0 || !in_name(text[at - 1]);
    const std::string typed = lookup(std::string_view(text).substr(at, end - at));
    if (whole) text.replace(at, end - at, typed);
    at = whole ? at + typed.size() : end;
  }
  return text;
}

}  // namespace zeroth::trainer
