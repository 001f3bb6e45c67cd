// Variables forwarded from the launcher's environment, and from .deepspeed_env, to the ranks on
// other nodes. They travel over the agents' connection, never on a command line.
#pragma once

#include <cstddef>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace zeroth::launcher {

using Variables = std::vector<std::pair<std::string, std::string>>;

inline constexpr const char* kEnvironmentFile = ".deepspeed_env";
inline constexpr size_t kMaxEnvironmentFileBytes = size_t{1} << 20;

// Selects the variables of `own` that are forwarded: names that begin with MLFLOW, PYTHON, MV2, UCX
// or NCCL, as DeepSpeed has it, or with DS_, DEEPSPEED_, ZEROTH_, GLOO_, OMP_, KMP_ or MKL_, which
// control this machine's ranks. Excludes a launcher's own variables (ZEROTH_MEETING, ...) and
// secrets, because the connection is authenticated but not encrypted: ZEROTH_SECRET, and names that
// sound like a secret in any case and anywhere in the name (PASSWD, apiKey, AUTH, CREDENTIALS,
// TOKEN; not TOKENIZERS, MAX_TOKENS, AUTHOR, KEYBOARD). Excludes NCCL_IB_HCA and UCX_NET_DEVICES,
// which are specific to each node, if AISC_JOB_NAME is set.
Variables select_forwarded(const Variables& own);

// Returns the names that would be forwarded if they did not sound like a secret, without Zeroth's
// own secrets. A user may put them into .deepspeed_env.
std::vector<std::string> withheld_secrets(const Variables& own);

// Parses lines NAME=VALUE; the value is the text after the first '=', byte for byte. Skips blank
// lines and lines that begin with #. Throws one UsageError for all bad lines, each with its line
// number: a missing '=' or invalid name, a zero byte or carriage return, a duplicate name, a name
// that the launcher itself sets for each rank, or a secret of the run. `name` is the file's, for
// messages.
Variables parse_environment_file(std::string_view text, const std::string& name);

// Merges both lists: later values win, and each name appears once, in the order of its first
// mention.
Variables merge_variables(const Variables& first, const Variables& later);

// Returns the variables that reach all nodes: those selected from `own`, then those of the file in
// `home`, then those of the file in `here`. The file's name is .deepspeed_env or, if set,
// DS_ENV_FILE in `own`, which may be a path. Throws a UsageError if DS_ENV_FILE names a file that
// is in neither directory, or if users other than this one and root can write the file.
Variables forwarded_environment(const Variables& own,
                                const std::optional<std::filesystem::path>& home,
                                const std::filesystem::path& here);

// Returns the value of a variable; null if it is missing.
const std::string* find_variable(const Variables& variables, std::string_view name);

// Returns this process's variables in their order, without entries that are not NAME=VALUE.
Variables process_environment();

}  // namespace zeroth::launcher
