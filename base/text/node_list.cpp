#include "base/text/node_list.h"

#include <cstdint>
#include <utility>

#include "base/error.h"
#include "base/text/printable.h"
#include "base/text/units.h"

namespace zeroth {
namespace {

constexpr size_t kMaxEntries = 65'536;  // same as Slurm's own
constexpr size_t kMaxNameBytes = 255;

[[noreturn]] void refuse(std::string_view list, const std::string& why) {
  throw Error("'{}' is not a valid node list: {}", shortened(list), why);
}

bool is_name_character(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
         c == '_' || c == '.' || c == ':';
}

// Splits a list at the commas outside of brackets.
std::vector<std::string_view> split_entries(std::string_view list) {
  std::vector<std::string_view> entries;
  size_t begin = 0;
  int depth = 0;
  for (size_t i = 0; i <= list.size(); ++i) {
    const char c = i < list.size() ? list[i] : ',';
    if (c == '[' && ++depth > 1) refuse(list, "'[' within '['");
    if (c == ']' && --depth < 0) refuse(list, "']' without '['");
    if (c != ',' || (depth > 0 && i < list.size())) continue;
    if (depth > 0) refuse(list, "'[' without ']'");
    entries.push_back(list.substr(begin, i - begin));
    begin = i + 1;
  }
  return entries;
}

uint32_t parse_node_number(std::string_view list, std::string_view digits) {
  const auto number = parse_number<uint32_t>(digits);
  if (!number) refuse(list, fmt::format("'{}' is not a number", shortened(digits)));
  return *number;
}

// Expands "1-3,07" to 1, 2, 3, 07.
std::vector<std::string> expand_ranges(std::string_view list, std::string_view ranges) {
  std::vector<std::string> numbers;
  for (const std::string_view range : split_entries(ranges)) {
    const size_t dash = range.find('-');
    const std::string_view low = range.substr(0, dash);
    const std::string_view high = dash == std::string_view::npos ? low : range.substr(dash + 1);
    const uint32_t first = parse_node_number(list, low), last = parse_node_number(list, high);
    if (last < first) refuse(list, fmt::format("'{}' is a descending range", shortened(range)));
    if (low.size() > kMaxNameBytes) refuse(list, "a number is too long");
    for (uint64_t number = first; number <= last; ++number) {
      if (numbers.size() == kMaxEntries)
        refuse(list, fmt::format("more than {} names", kMaxEntries));
      numbers.push_back(fmt::format("{:0{}}", number, low.size()));
    }
  }
  return numbers;
}

std::vector<std::string> expand_entry(std::string_view list, std::string_view entry) {
  std::vector<std::string> names = {""};
  for (size_t i = 0; i < entry.size();) {
    std::vector<std::string> tails;
    if (entry[i] == '[') {
      const size_t end = entry.find(']', i);
      tails = expand_ranges(list, entry.substr(i + 1, end - i - 1));
      i = end + 1;
    } else {
      size_t end = i;
      while (end < entry.size() && is_name_character(entry[end])) ++end;
      if (end == i)
        refuse(list,
               fmt::format("invalid character '{}' in a name", printable(entry.substr(i, 1))));
      tails.emplace_back(entry.substr(i, end - i));
      i = end;
    }
    if (names.size() * tails.size() > kMaxEntries)
      refuse(list, fmt::format("more than {} names", kMaxEntries));
    std::vector<std::string> longer;
    for (const std::string& name : names) {
      for (const std::string& tail : tails) longer.push_back(name + tail);
    }
    names = std::move(longer);
    if (names.front().size() > kMaxNameBytes) refuse(list, "a name is too long");
  }
  if (names.front().empty()) refuse(list, "a name is empty");
  return names;
}

}  // namespace

std::vector<std::string> expand_node_list(std::string_view list) {
  std::vector<std::string> all;
  for (const std::string_view entry : split_entries(list)) {
    std::vector<std::string> names = expand_entry(list, entry);
    if (all.size() + names.size() > kMaxEntries)
      refuse(list, fmt::format("more than {} names", kMaxEntries));
    for (std::string& name : names) all.push_back(std::move(name));
  }
  return all;
}

std::vector<int> expand_counts(std::string_view list) {
  std::vector<int> counts;
  for (std::string_view entry : split_entries(list)) {
    int times = 1;
    if (const size_t times_at = entry.find("(x");
        times_at != std::string_view::npos && entry.back() == ')') {
      const auto digits = entry.substr(times_at + 2, entry.size() - times_at - 3);
      times = parse_number<int>(digits).value_or(0);
      entry = entry.substr(0, times_at);
    }
    const int count = parse_number<int>(entry).value_or(-1);
    if (count < 0 || times < 1 || counts.size() + static_cast<size_t>(times) > kMaxEntries)
      throw Error("'{}' is not a valid list of counts, such as 2(x3),1", shortened(list));
    counts.insert(counts.end(), static_cast<size_t>(times), count);
  }
  return counts;
}

}  // namespace zeroth
