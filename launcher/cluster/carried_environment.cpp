#include "launcher/cluster/carried_environment.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <map>

#include "base/complaints.h"
#include "base/error.h"
#include "base/printable.h"
#include "base/process_limits.h"
#include "base/regular_file.h"

namespace zeroth::launcher {
namespace {

constexpr std::string_view kPrefixes[] = {"MLFLOW",     "PYTHON",  "MV2",   "UCX",  "NCCL", "DS_",
                                          "DEEPSPEED_", "ZEROTH_", "GLOO_", "OMP_", "KMP_", "MKL_"};
// What a launcher sets for its own ranks.
constexpr std::string_view kOfLauncher[] = {
    "RANK",       "LOCAL_RANK",        "WORLD_SIZE",  "LOCAL_SIZE",     "CROSS_RANK",
    "CROSS_SIZE", "MASTER_ADDR",       "MASTER_PORT", "ZEROTH_MEETING", "ZEROTH_LAUNCH_TIME",
    "ZEROTH_JOB", "ZEROTH_SHARE_GPUS", "ZEROTH_TTY",  "ZEROTH_COLUMNS"};
constexpr std::string_view kOfOneHost = "ZEROTH_HOST_ID";
constexpr std::string_view kSecrets[] = {"PASSWORD", "TOKEN", "SECRET", "KEY"};

template <size_t N>
bool is_one_of(std::string_view name, const std::string_view (&list)[N]) {
  return std::find(std::begin(list), std::end(list), name) != std::end(list);
}

bool is_own_secret(std::string_view name) {
  return name == "ZEROTH_SECRET" || name == "ZEROTH_SECRET_FILE" || name == "ZEROTH_RUN_SECRET";
}

bool has_prefix(std::string_view name) {
  return std::any_of(std::begin(kPrefixes), std::end(kPrefixes),
                     [&](std::string_view prefix) { return name.starts_with(prefix); });
}

// By the words between its underscores.
bool sounds_secret(std::string_view name) {
  while (true) {
    const size_t end = std::min(name.find('_'), name.size());
    if (is_one_of(name.substr(0, end), kSecrets)) return true;
    if (end == name.size()) return false;
    name.remove_prefix(end + 1);
  }
}

bool is_name(std::string_view text) {
  const auto fits = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
  };
  return !text.empty() && !(text.front() >= '0' && text.front() <= '9') &&
         std::all_of(text.begin(), text.end(), fits);
}

const std::string* find(const Variables& variables, std::string_view name) {
  const auto found = std::find_if(variables.begin(), variables.end(),
                                  [&](const auto& pair) { return pair.first == name; });
  return found == variables.end() ? nullptr : &found->second;
}

std::string complaint_about(std::string_view line, std::string_view name) {
  if (name.size() == line.size())
    return fmt::format("'{}' has no '='; expected NAME=VALUE", shortened(line));
  if (!is_name(name)) return fmt::format("'{}' is no variable's name", shortened(name));
  if (line.find('\0') != std::string_view::npos) return "a byte of 0 can be in no variable";
  if (line.back() == '\r')
    return "it ends with a carriage return, which would be part of the value; save the file with "
           "Unix line ends";
  if (is_own_secret(name))
    return fmt::format("{} is a secret, which hosts get by a way of its own; leave it out", name);
  if (is_one_of(name, kOfLauncher))
    return fmt::format("{} is set for each rank by zeroth itself; leave it out", name);
  return "";
}

// Empty where there is none. What stands in it becomes the environment of ranks, so it has to be
// this user's or root's.
std::optional<Variables> read_file_in(const std::filesystem::path& folder,
                                      const std::string& name) {
  const std::filesystem::path path = folder / name;
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0) {
    if (errno == ENOENT || errno == ENOTDIR) return std::nullopt;
    throw Error("{}: {}", shortened(path.string()), system_reason(errno));
  }
  if (status.st_uid != ::geteuid() && status.st_uid != 0)
    throw Error("{}: it belongs to user {}, expected {} or root", path.string(), status.st_uid,
                ::geteuid());
  if ((status.st_mode & S_IWOTH) != 0)
    throw Error("{}: every user may write it (mode {:03o}); chmod o-w", path.string(),
                status.st_mode & 0777);
  return parse_environment_file(read_file(path, kMostEnvironmentFileBytes), path.string());
}

}  // namespace

Variables choose_carried(const Variables& own) {
  const bool hosts_differ = find(own, "AISC_JOB_NAME") != nullptr;
  Variables chosen;
  for (const auto& [name, value] : own) {
    if (!has_prefix(name) || is_one_of(name, kOfLauncher) || name == kOfOneHost) continue;
    if (sounds_secret(name)) continue;
    if (hosts_differ && (name == "NCCL_IB_HCA" || name == "UCX_NET_DEVICES")) continue;
    chosen.emplace_back(name, value);
  }
  return chosen;
}

std::vector<std::string> secrets_kept(const Variables& own) {
  std::vector<std::string> kept;
  for (const auto& [name, value] : own)
    if (has_prefix(name) && sounds_secret(name) && !is_own_secret(name)) kept.push_back(name);
  return kept;
}

Variables parse_environment_file(std::string_view text, const std::string& name) {
  Variables variables;
  std::vector<std::string> complaints;
  std::map<std::string, int, std::less<>> lines;
  for (int number = 1; !text.empty(); ++number) {
    const size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (line.find_first_not_of(" \t\r") == std::string_view::npos || line.front() == '#') continue;
    const std::string_view key = line.substr(0, line.find('='));
    std::string complaint = complaint_about(line, key);
    if (complaint.empty()) {
      const auto [found, is_new] = lines.emplace(key, number);
      if (!is_new) complaint = fmt::format("{} stands in line {} already", key, found->second);
    }
    if (!complaint.empty()) {
      complaints.push_back(fmt::format("{}: line {}: {}", shortened(name), number, complaint));
      continue;
    }
    variables.emplace_back(key, line.substr(key.size() + 1));
  }
  if (!complaints.empty()) throw Error("{}", listed(complaints));
  return variables;
}

Variables merged_variables(const Variables& first, const Variables& later) {
  Variables merged;
  std::map<std::string, size_t> places;
  for (const Variables* list : {&first, &later}) {
    for (const auto& [name, value] : *list) {
      const auto [found, is_new] = places.emplace(name, merged.size());
      if (is_new) {
        merged.emplace_back(name, value);
      } else {
        merged[found->second].second = value;
      }
    }
  }
  return merged;
}

Variables carried_environment(const Variables& own,
                              const std::optional<std::filesystem::path>& home,
                              const std::filesystem::path& here) {
  Variables carried = choose_carried(own);
  const std::string* given = find(own, "DS_ENV_FILE");
  const std::string name = given == nullptr || given->empty() ? kEnvironmentFile : *given;
  std::vector<std::filesystem::path> folders;
  if (home && !std::filesystem::path(name).is_absolute()) folders.push_back(*home);
  folders.push_back(here);
  bool found = false;
  for (const std::filesystem::path& folder : folders) {
    const auto variables = read_file_in(folder, name);
    if (!variables) continue;
    carried = merged_variables(carried, *variables);
    found = true;
  }
  if (!found && given != nullptr && !given->empty())
    throw Error("DS_ENV_FILE is '{}', but there is no such file in the home folder or here",
                shortened(name));
  return carried;
}

Variables own_variables() {
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
