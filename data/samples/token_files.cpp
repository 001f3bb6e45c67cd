// Files of token ids that users name: writing them.
#include <fcntl.h>

#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/files/replace_file.h"
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
  TemporaryFile ids(named(".bin")), index(named(".idx"));
  std::optional<TemporaryFile> mask;
  if (records) mask.emplace(named(".mask"));
  const auto copy = [](const TemporaryFile& file) {
    return FileDescriptor(::fcntl(file.descriptor().get(), F_DUPFD_CLOEXEC, 0));
  };
  const auto scratch = [] { return FileDescriptor(::open("/dev/null", O_WRONLY | O_CLOEXEC)); };
  TokenStoreWriter writer(token_type_for(files.front().vocab_size), prefix.string(),
                          {.ids = copy(ids),
                           .index = copy(index),
                           .mask = mask ? copy(*mask) : scratch(),
                           .lines = scratch()});
  for (const DatasetOptions& file : files) read_tokens(file, writer);
  writer.finish();
  for (const char* const extension : {".idx", ".mask"}) fs::remove(named(extension), unknown);
  ids.commit();
  index.commit();
  if (mask) mask->commit();
  const TokenStore store(token_store_paths(named(".bin")));
  return {.sequences = store.num_sequences(),
          .ids = store.num_ids(),
          .trained = store.count_trained(0, store.num_ids())};
}

}  // namespace zeroth::data
