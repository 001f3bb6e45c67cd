// Files of token ids that users name: writing them.
#include <fcntl.h>
#include <fmt/format.h>

#include <cerrno>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/machine/process_limits.h"
#include "data/samples/record_reader.h"
#include "data/samples/token_cache.h"

namespace zeroth::data {

namespace fs = std::filesystem;

TokenCounts write_token_files(const std::vector<DatasetOptions>& files, const fs::path& prefix,
                              bool overwrite) {
  const bool records = has_records(files.front().path);
  for (const DatasetOptions& file : files) {
    if (has_records(file.path) == records) continue;
    throw Error("{} has records and {} has none: write one file of tokens for each kind",
                (records ? files.front() : file).path.string(),
                (records ? file : files.front()).path.string());
  }
  const auto named = [&](const char* extension) { return fs::path(prefix.string() + extension); };
  std::error_code unknown;
  if (!overwrite && fs::exists(named(".bin"), unknown))
    throw Error("{} exists: --overwrite replaces it", named(".bin").string());
  std::vector<std::string> extensions = {".bin", ".idx"};
  if (records) extensions.push_back(".mask");
  const auto create = [&](const std::string& extension) {
    const std::string part = prefix.string() + extension + ".part";
    FileDescriptor file(
        ::open(part.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0644));
    if (file.get() < 0) throw Error("{} cannot be written: {}", part, system_reason(errno));
    return file;
  };
  const auto scratch = [] { return FileDescriptor(::open("/dev/null", O_WRONLY | O_CLOEXEC)); };
  TokenStoreWriter writer(token_type_for(files.front().vocab_size), prefix.string(),
                          {.ids = create(".bin"),
                           .index = create(".idx"),
                           .mask = records ? create(".mask") : scratch(),
                           .lines = scratch()});
  for (const DatasetOptions& file : files) read_tokens(file, writer);
  writer.finish();
  for (const char* const extension : {".idx", ".mask"}) fs::remove(named(extension), unknown);
  for (const std::string& extension : extensions)
    fs::rename(prefix.string() + extension + ".part", prefix.string() + extension);
  const TokenStore store(token_store_paths(named(".bin")));
  return {.sequences = store.num_sequences(),
          .ids = store.num_ids(),
          .trained = store.count_trained(0, store.num_ids())};
}

}  // namespace zeroth::data
