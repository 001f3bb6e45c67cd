// Variables that go from the launcher's environment, and from .deepspeed_env, to the ranks on other
// hosts. They travel over the agents' connection, never on a command line.
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

// Of `own` those that are carried over: names that begin with MLFLOW, PYTHON, MV2, UCX or NCCL, as
// DeepSpeed has it, or with DS_, DEEPSPEED_, ZEROTH_, GLOO_, OMP_, KMP_ or MKL_, by which this
// machine's ranks are steered. Not a launcher's own (ZEROTH_MEETING, ...), nor secrets:
// ZEROTH_SECRET and what sounds like one in any case and anywhere in the name (PASSWD, apiKey,
// AUTH, CREDENTIALS, TOKEN; not TOKENIZERS, MAX_TOKENS, AUTHOR, KEYBOARD), for the connection is
// signed but not encrypted. Where AISC_JOB_NAME is set, NCCL_IB_HCA and UCX_NET_DEVICES belong to
// each host alone.
Variables select_forwarded(const Variables& own);

// The names that would be carried over, did they not sound like a secret; not those of Zeroth's own
// secrets. A user may put them into .deepspeed_env.
std::vector<std::string> withheld_secrets(const Variables& own);

// Lines NAME=VALUE; the value is what stands behind the first '=', byte for byte. Blank lines and
// lines that begin with # are skipped. Throws one UsageError for all bad lines, each with its
// number: without '=' or with a name that is none, with a byte of 0 or a carriage return, with a
// name that stands twice or that the launcher itself sets for each rank, or a secret of the run.
// `name` is the file's, for messages.
Variables parse_environment_file(std::string_view text, const std::string& name);

// Later ones win; each name once, in the order of its first mention.
Variables merge_variables(const Variables& first, const Variables& later);

// The variables that reach all hosts: those chosen of `own`, then those of the file in `home`, then
// of the one in `here`. The file's name is .deepspeed_env or, where it is set, DS_ENV_FILE in
// `own`, which may be a path. Throws a UsageError where DS_ENV_FILE names a file that is in neither
// folder, or where others than this user and root may have written it.
Variables forwarded_environment(const Variables& own,
                                const std::optional<std::filesystem::path>& home,
                                const std::filesystem::path& here);

// This process's variables in their order; what is no NAME=VALUE is left out.
Variables process_environment();

}  // namespace zeroth::launcher
