#include "launcher/backends/hostfile.h"

#include <algorithm>
#include <boost/asio/ip/address_v6.hpp>
#include <charconv>
#include <map>

#include "base/error.h"
#include "base/files/regular_file.h"
#include "base/text/diagnostics.h"
#include "base/text/printable.h"
#include "base/usage_error.h"

namespace zeroth::launcher {
namespace {

constexpr std::string_view kBlanks = " \t\r\v\f";
constexpr std::string_view kForm = "expected 'HOST slots=N'";
constexpr size_t kMaxNameBytes = 253, kMaxLabelBytes = 63, kMaxUserBytes = 64;

bool is_letter_or_digit(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
}

// Returns whether `text` consists of letters, digits and `others`, and begins with a letter, a
// digit or '_'.
bool is_plain(std::string_view text, std::string_view others) {
  const auto fits = [&](char c) {
    return is_letter_or_digit(c) || others.find(c) != std::string_view::npos;
  };
  return !text.empty() && (is_letter_or_digit(text.front()) || text.front() == '_') &&
         std::all_of(text.begin(), text.end(), fits);
}

std::string_view strip_brackets(std::string_view address) {
  const bool both = address.size() > 2 && address.front() == '[' && address.back() == ']';
  return both ? address.substr(1, address.size() - 2) : address;
}

std::string_view host_address(std::string_view host) {
  const size_t at = host.rfind('@');
  return strip_brackets(at == std::string_view::npos ? host : host.substr(at + 1));
}

// Accepts "fe80::1%eth0": the interface is not part of the address.
bool is_ipv6_address(std::string_view text) {
  const size_t percent = text.find('%');
  if (percent != std::string_view::npos && !is_plain(text.substr(percent + 1), "._-")) return false;
  boost::system::error_code error;
  boost::asio::ip::make_address_v6(std::string(text.substr(0, percent)), error);
  return !error;
}

bool is_name(std::string_view text) {
  if (!is_plain(text, "._-") || text.size() > kMaxNameBytes) return false;
  size_t label = 0;
  for (const char c : text) {
    if (c == '.' && label == 0) return false;
    label = c == '.' ? 0 : label + 1;
    if (label > kMaxLabelBytes) return false;
  }
  return true;
}

std::string_view next_word(std::string_view& text) {
  const size_t end = std::min(text.find_first_of(kBlanks), text.size());
  const std::string_view word = text.substr(0, end);
  text.remove_prefix(std::min(text.find_first_not_of(kBlanks, end), text.size()));
  return word;
}

std::string_view trim_line(std::string_view text) {
  text = text.substr(0, text.find('#'));
  text.remove_prefix(std::min(text.find_first_not_of(kBlanks), text.size()));
  return text.substr(0, text.find_last_not_of(kBlanks) + 1);
}

// Parses the text after the host; returns the error.
std::string parse_slots(std::string_view rest, int& slots) {
  constexpr std::string_view kKey = "slots=";
  const std::string_view word = next_word(rest);
  if (!word.starts_with(kKey))
    return word.empty() ? fmt::format("slots=N is missing; {}", kForm)
                        : fmt::format("'{}' instead of slots=N", shortened(word));
  const std::string_view digits = word.substr(kKey.size());
  const char* end = digits.data() + digits.size();
  const auto [stop, error] = std::from_chars(digits.data(), end, slots);
  const bool number = !digits.empty() && digits.front() != '-' && stop == end;
  if (!number) return fmt::format("slots={}: must be a whole number", shortened(digits));
  if (error != std::errc() || slots < 1 || slots > kMaxSlots)
    return fmt::format("slots={}: must be from 1 to {}", shortened(digits), kMaxSlots);
  if (!rest.empty())
    return fmt::format("unexpected '{}' after slots={}: only a comment (#) is allowed there",
                       shortened(rest), slots);
  return "";
}

}  // namespace

std::string host_error(std::string_view host) {
  const size_t at = host.rfind('@');
  if (at != std::string_view::npos) {
    const std::string_view user = host.substr(0, at);
    if (!is_plain(user, "._-") || user.size() > kMaxUserBytes)
      return fmt::format("invalid user '{}' in '{}'", shortened(user), shortened(host));
  }
  const std::string_view address = host_address(host);
  if (is_name(address) || is_ipv6_address(address)) return "";
  return fmt::format("'{}' is neither a host's name nor an address", shortened(host));
}

bool is_ipv6(std::string_view host) {
  return is_ipv6_address(host_address(host));
}

std::string host_key(std::string_view host) {
  std::string key(host_address(host));
  const size_t percent = key.find('%');
  boost::system::error_code error;
  const auto address = boost::asio::ip::make_address_v6(key.substr(0, percent), error);
  if (!error)
    return address.to_string() + (percent == std::string::npos ? "" : key.substr(percent));
  std::transform(key.begin(), key.end(), key.begin(), [](char c) {
    return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  });
  return key;
}

std::vector<HostEntry> parse_hostfile(std::string_view text, const std::string& name) {
  std::vector<HostEntry> hosts;
  std::vector<std::string> errors;
  std::map<std::string, int> lines;  // by host_key
  const auto add_error = [&](int line, const std::string& reason) {
    errors.push_back(fmt::format("{}: line {}: {}", shortened(name), line, reason));
  };
  for (int line = 1; !text.empty(); ++line) {
    const size_t end = std::min(text.find('\n'), text.size());
    std::string_view rest = trim_line(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
    if (rest.empty()) continue;
    HostEntry entry{.host = std::string(next_word(rest)), .line = line};
    const std::string bad_host = host_error(entry.host);
    const std::string bad_slots = parse_slots(rest, entry.slots);
    if (!bad_slots.empty()) {
      add_error(line, bad_slots);
    } else if (!bad_host.empty()) {
      add_error(line, bad_host);
    } else if (const auto [found, is_new] = lines.emplace(host_key(entry.host), line); !is_new) {
      add_error(line, fmt::format("duplicate host '{}': already in line {}", shortened(entry.host),
                                  found->second));
    }
    std::erase_if(entry.host, [](char c) { return c == '[' || c == ']'; });
    hosts.push_back(std::move(entry));
  }
  if (!errors.empty()) throw UsageError("{}", listed(errors));
  if (hosts.empty())
    throw UsageError("{}: contains no hosts; {} in each line", shortened(name), kForm);
  if (hosts.size() > kMaxHosts)
    throw UsageError("{}: {} hosts, at most {} are supported", shortened(name), hosts.size(),
                     kMaxHosts);
  return hosts;
}

std::vector<HostEntry> read_hostfile(const std::filesystem::path& path) {
  return parse_hostfile(rethrow_as_usage_error([&] { return read_file(path, kMaxHostfileBytes); }),
                        path.string());
}

}  // namespace zeroth::launcher
