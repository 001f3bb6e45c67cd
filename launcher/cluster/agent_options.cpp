#include "launcher/cluster/agent_options.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdlib>

#include "base/error.h"
#include "base/machine/file_descriptor.h"
#include "base/machine/process_limits.h"
#include "base/text/printable.h"
#include "base/text/units.h"
#include "base/usage_error.h"

namespace zeroth::launcher {
namespace {

constexpr size_t kMinSecretBytes = 16, kMaxSecretBytes = 4096;
// OpenMPI's own variable is first: some builds also set PMI's, and a job of Slurm sets Slurm's.
constexpr std::array<const char*, 4> kTaskRankVariables = {"OMPI_COMM_WORLD_RANK", "PMI_RANK",
                                                           "PMIX_RANK", "SLURM_PROCID"};

int parse_node(const std::string& text, const std::string& name) {
  const auto number = parse_number<int>(text);
  if (!number || *number < 0)
    throw UsageError("agent: {} is '{}', not the index of a host", name, shortened(text));
  return *number;
}

int task_rank(const Lookup& lookup) {
  for (const char* name : kTaskRankVariables)
    if (const auto text = lookup(name)) return parse_node(*text, name);
  throw UsageError(
      "agent: --node is not given, and neither OMPI_COMM_WORLD_RANK, PMI_RANK, PMIX_RANK nor "
      "SLURM_PROCID is set");
}

std::string read_line(int fd, const std::string& source) {
  std::string line;
  char byte = 0;
  while (line.size() <= kMaxSecretBytes) {  // read no more than the line: the following bytes
                                            // belong to another reader
    const ssize_t count = ::read(fd, &byte, 1);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0)
      throw Error("cannot read the run's secret from {}: {}", source, system_reason(errno));
    if (count == 0 || byte == '\n') break;
    line.push_back(byte);
  }
  return line;
}

std::string read_secret_file(const std::string& path) {
  const FileDescriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  if (file.get() < 0) throw Error("--secret-file {}: {}", path, system_reason(errno));
  struct stat status {};
  if (::fstat(file.get(), &status) != 0 || !S_ISREG(status.st_mode))
    throw Error("--secret-file {}: not a file", path);
  if (status.st_uid != ::geteuid())
    throw Error("--secret-file {}: it belongs to user {}, expected {}", path, status.st_uid,
                ::geteuid());
  if ((status.st_mode & 077) != 0)
    throw Error("--secret-file {}: accessible to other users (mode {:03o}), expected 600", path,
                status.st_mode & 0777);
  std::string secret = read_line(file.get(), path);
  if (::unlink(path.c_str()) != 0)
    throw Error("--secret-file {} cannot be removed: {}", path, system_reason(errno));
  return secret;
}

std::string read_secret_variable(const std::string& name) {
  const auto value = read_variable(name);
  if (!value) throw Error("--secret-env {}: it is not set", shortened(name));
  ::unsetenv(name.c_str());
  return *value;
}

}  // namespace

AgentOptions parse_agent_options(const std::vector<std::string>& arguments, const Lookup& lookup) {
  AgentOptions options;
  std::optional<int> node;
  int sources = 0;
  for (size_t i = 0; i < arguments.size(); ++i) {
    const std::string& flag = arguments[i];
    if (flag == "--secret-stdin") {
      options.secret_on_stdin = true;
      ++sources;
      continue;
    }
    const bool is_known = flag == "--launcher" || flag == "--node" || flag == "--secret-env" ||
                          flag == "--secret-file";
    if (!is_known) throw UsageError("agent: unknown flag '{}'", shortened(flag));
    if (i + 1 == arguments.size()) throw UsageError("agent: {} needs a value", flag);
    const std::string& value = arguments[++i];
    if (flag == "--launcher") options.launcher = value;
    if (flag == "--node") node = parse_node(value, flag);
    if (flag == "--secret-env") options.secret_variable = value;
    if (flag == "--secret-file") options.secret_file = value;
    if (flag.starts_with("--secret")) ++sources;
  }
  if (options.launcher.empty()) throw UsageError("agent: --launcher is missing");
  if (sources != 1)
    throw UsageError(
        "agent: exactly one of --secret-stdin, --secret-env and --secret-file is needed, not {}",
        sources);
  options.node = node ? *node : task_rank(lookup);
  return options;
}

std::optional<std::string> read_variable(const std::string& name) {
  const char* value = std::getenv(name.c_str());
  return value == nullptr ? std::nullopt : std::optional<std::string>(value);
}

std::string consume_secret(const AgentOptions& options) {
  if (!options.secret.empty()) return options.secret;
  const std::string secret = options.secret_on_stdin ? read_line(STDIN_FILENO, "standard input")
                             : !options.secret_file.empty()
                                 ? read_secret_file(options.secret_file)
                                 : read_secret_variable(options.secret_variable);
  if (secret.size() < kMinSecretBytes || secret.size() > kMaxSecretBytes)
    throw Error("the run's secret has {} characters, expected {} to {}", secret.size(),
                kMinSecretBytes, kMaxSecretBytes);
  return secret;
}

}  // namespace zeroth::launcher
