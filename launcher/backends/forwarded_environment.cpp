#include "launcher/backends/forwarded_environment.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <map>

#include "base/env_reader.h"
#include "base/error.h"
#include "base/files/regular_file.h"
#include "base/machine/process_limits.h"
#include "base/text/diagnostics.h"
#include "base/text/printable.h"

namespace zeroth::launcher {
namespace {

constexpr std::string_view kPrefixes[] = {"MLFLOW",     "PYTHON",  "MV2",   "UCX",  "NCCL", "DS_",
                                          "DEEPSPEED_", "ZEROTH_", "GLOO_", "OMP_", "KMP_", "MKL_"};
// Variables that a launcher sets for its own ranks.
constexpr std::string_view kLauncherVariables[] = {
    "RANK",       "LOCAL_RANK",        "WORLD_SIZE",  "LOCAL_SIZE",     "CROSS_RANK",
    "CROSS_SIZE", "MASTER_ADDR",       "MASTER_PORT", "ZEROTH_MEETING", "ZEROTH_LAUNCH_TIME",
    "ZEROTH_JOB", "ZEROTH_SHARE_GPUS", "ZEROTH_TTY",  "ZEROTH_COLUMNS"};
constexpr std::string_view kHostIdVariable = "ZEROTH_HOST_ID";
// A name that contains one of these, in any case, sounds like a secret.
constexpr std::string_view kSecretParts[] = {"PASSW",  "PASSPHRASE", "PASSCODE", "PWD",
                                             "SECRET", "CREDENTIAL", "CREDS",    "TOKEN",
                                             "AUTH",   "BEARER",     "COOKIE",   "KEY"};
// A name with one of these as a word sounds like a secret, too.
constexpr std::string_view kSecretWords[] = {"PASS", "PW", "CRED", "JWT"};
// Words that contain such a part by accident.
constexpr std::string_view kHarmlessParts[] = {
    "TOKENIZ",  "AUTHOR", "KEYBOARD", "KEYWORD", "KEYPOINT", "KEYFRAME", "KEYRING", "KEYNOTE",
    "KEYSTROK", "MONKEY", "DONKEY",   "TURKEY",  "HOCKEY",   "JOCKEY",   "WHISKEY", "IB_PKEY"};
constexpr std::string_view kNotHarmless[] = {"AUTHORIZ",
                                             "AUTHORIS"};  // although they begin with AUTHOR
// TOKENS and KEYS beside one of these words are a count.
constexpr std::string_view kCountingWords[] = {
    "MAX", "MIN", "NUM", "N", "NEW", "COUNT", "TOTAL", "PER", "LIMIT", "LENGTH", "BUDGET", "BATCH"};

template <size_t N>
bool is_one_of(std::string_view name, const std::string_view (&list)[N]) {
  return std::ranges::find(list, name) != std::end(list);
}

bool is_own_secret(std::string_view name) {
  return name == "ZEROTH_SECRET" || name == "ZEROTH_SECRET_FILE" || name == "ZEROTH_RUN_SECRET";
}

bool has_prefix(std::string_view name) {
  return std::ranges::any_of(kPrefixes, [&](auto prefix) { return name.starts_with(prefix); });
}

std::vector<std::string> split_words(std::string_view name) {
  std::vector<std::string> words(1);
  for (const char c : name)
    if (std::isalnum(static_cast<unsigned char>(c)) != 0)
      words.back() += c;
    else if (!words.back().empty())
      words.emplace_back();
  return words;
}

bool is_count_of(std::string_view word, std::string_view things) {
  if (!word.ends_with(things)) return false;
  word.remove_suffix(things.size());
  return word == "MAX" || word == "MIN" || word == "NUM";
}

// Removes the words that say how many tokens or keys there are.
void remove_counts(std::string& name) {
  const std::vector<std::string> words = split_words(name);
  const bool has_counting_word =
      std::ranges::any_of(words, [](const auto& word) { return is_one_of(word, kCountingWords); });
  for (const std::string& word : words) {
    const bool is_count = (has_counting_word && (word == "TOKENS" || word == "KEYS")) ||
                          is_count_of(word, "TOKENS") || is_count_of(word, "KEYS");
    if (is_count) name.replace(name.find(word), word.size(), "#");
  }
}

// Returns `name`, which is in upper case, without words that sound like a secret only by a part of
// them.
std::string remove_harmless_words(std::string name) {
  remove_counts(name);
  for (const std::string_view part : kHarmlessParts) {
    for (size_t at = 0; (at = name.find(part, at)) != std::string::npos; ++at) {
      const std::string_view rest = std::string_view(name).substr(at);
      const bool is_other = std::ranges::any_of(
          kNotHarmless, [&](std::string_view other) { return rest.starts_with(other); });
      if (!is_other) name.replace(at, part.size(), "#");
    }
  }
  return name;
}

bool looks_like_secret(std::string_view name) {
  std::string upper(name);
  for (char& c : upper) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  const std::string rest = remove_harmless_words(upper);
  return std::ranges::any_of(kSecretParts,
                             [&](auto part) { return rest.find(part) != rest.npos; }) ||
         std::ranges::any_of(split_words(rest),
                             [](const auto& word) { return is_one_of(word, kSecretWords); });
}

bool is_name(std::string_view text) {
  const auto fits = [](unsigned char c) { return std::isalnum(c) != 0 || c == '_'; };
  return !text.empty() && !(text.front() >= '0' && text.front() <= '9') &&
         std::ranges::all_of(text, fits);
}

std::string line_error(std::string_view line, std::string_view name) {
  if (name.size() == line.size())
    return fmt::format("'{}' has no '='; expected NAME=VALUE", shortened(line));
  if (!is_name(name)) return fmt::format("'{}' is not a valid variable name", shortened(name));
  if (line.find('\0') != std::string_view::npos) return "a variable cannot contain a null byte";
  if (line.back() == '\r')
    return "it ends with a carriage return, which would be part of the value; save the file with "
           "Unix line endings";
  if (is_own_secret(name))
    return fmt::format("{} is a secret, which is sent to hosts separately; leave it out", name);
  if (is_one_of(name, kLauncherVariables))
    return fmt::format("{} is set for each rank by zeroth itself; leave it out", name);
  if (name.size() + 1 == line.size() && must_not_be_empty(name))
    return fmt::format("{} has no value", name);
  return "";
}

// Reads the file; empty if there is none. Its contents become the environment of ranks, so it must
// belong to this user or root.
std::optional<Variables> read_environment_file(const std::filesystem::path& directory,
                                               const std::string& name) {
  const std::filesystem::path path = directory / name;
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0) {
    if (errno == ENOENT || errno == ENOTDIR) return std::nullopt;
    throw UsageError("{}: {}", shortened(path.string()), system_reason(errno));
  }
  if (status.st_uid != ::geteuid() && status.st_uid != 0)
    throw UsageError("{}: it belongs to user {}, expected {} or root", shortened(path.string()),
                     status.st_uid, ::geteuid());
  if ((status.st_mode & S_IWOTH) != 0)
    throw UsageError("{}: writable by every user (mode {:03o}); chmod o-w",
                     shortened(path.string()), status.st_mode & 0777);
  return parse_environment_file(
      rethrow_as_usage_error([&] { return read_file(path, kMaxEnvironmentFileBytes); }),
      path.string());
}

}  // namespace

Variables select_forwarded(const Variables& own) {
  const bool hosts_differ = find_variable(own, "AISC_JOB_NAME") != nullptr;
  Variables chosen;
  for (const auto& [name, value] : own) {
    if (!has_prefix(name) || is_one_of(name, kLauncherVariables) || name == kHostIdVariable)
      continue;
    if (looks_like_secret(name)) continue;
    if (hosts_differ && (name == "NCCL_IB_HCA" || name == "UCX_NET_DEVICES")) continue;
    chosen.emplace_back(name, value);
  }
  return chosen;
}

std::vector<std::string> withheld_secrets(const Variables& own) {
  std::vector<std::string> kept;
  for (const auto& [name, value] : own)
    if (has_prefix(name) && looks_like_secret(name) && !is_own_secret(name)) kept.push_back(name);
  return kept;
}

Variables parse_environment_file(std::string_view text, const std::string& name) {
  Variables variables;
  std::vector<std::string> errors;
  std::map<std::string, int, std::less<>> lines;
  for (int line_number = 1; !text.empty(); ++line_number) {
    const std::string_view line = next_field(text, '\n');
    if (line.find_first_not_of(" \t\r") == std::string_view::npos || line.front() == '#') continue;
    const std::string_view key = line.substr(0, line.find('='));
    std::string error = line_error(line, key);
    if (error.empty()) {
      const auto [found, is_new] = lines.emplace(key, line_number);
      if (!is_new)
        error = fmt::format("duplicate variable {}: already in line {}", key, found->second);
    }
    if (!error.empty()) {
      errors.push_back(fmt::format("{}: line {}: {}", shortened(name), line_number, error));
      continue;
    }
    variables.emplace_back(key, line.substr(key.size() + 1));
  }
  if (!errors.empty()) throw UsageError("{}", listed(errors));
  return variables;
}

Variables merge_variables(const Variables& first, const Variables& later) {
  Variables merged;
  std::map<std::string, size_t> indices;
  for (const Variables* list : {&first, &later}) {
    for (const auto& [name, value] : *list) {
      const auto [found, is_new] = indices.emplace(name, merged.size());
      if (is_new) merged.emplace_back(name, value);
      merged[found->second].second = value;
    }
  }
  return merged;
}

Variables forwarded_environment(const Variables& own,
                                const std::optional<std::filesystem::path>& home,
                                const std::filesystem::path& here) {
  Variables forwarded = select_forwarded(own);
  const std::string* file_variable = find_variable(own, "DS_ENV_FILE");
  const bool is_named = file_variable != nullptr && !file_variable->empty();
  const std::string name = is_named ? *file_variable : kEnvironmentFile;
  std::vector<std::filesystem::path> directories;
  if (home && !std::filesystem::path(name).is_absolute()) directories.push_back(*home);
  directories.push_back(here);
  bool found = false;
  for (const std::filesystem::path& directory : directories) {
    const auto variables = read_environment_file(directory, name);
    if (!variables) continue;
    forwarded = merge_variables(forwarded, *variables);
    found = true;
  }
  if (!found && is_named)
    throw UsageError(
        "DS_ENV_FILE is '{}', but there is no such file in the home folder or the working folder",
        shortened(name));
  return forwarded;
}

const std::string* find_variable(const Variables& variables, std::string_view name) {
  const auto found = std::ranges::find(variables, name, &Variables::value_type::first);
  return found == variables.end() ? nullptr : &found->second;
}

Variables process_environment() {
  Variables variables;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view text = *entry;
    const size_t equals = text.find('=');
    if (equals == std::string_view::npos || equals == 0) continue;
    variables.emplace_back(text.substr(0, equals), text.substr(equals + 1));
  }
  return variables;
}

}  // namespace zeroth::launcher
