// The token ids of a data file: from the cache of an earlier run or of another rank, or read now.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "data/samples/dataset.h"
#include "data/samples/token_store.h"

namespace zeroth::data {

struct StoredTokens {
  std::shared_ptr<const TokenStore> store;
  DatasetStats stats = {};  // what is known of the records
};

// Returns the ids of a file of records or of a text, before anything is cut.
//
// With a cache they are in the folder KEY of its directory. The key is the SHA-256 of all that the
// ids depend on: the bytes of the data, of the tokenizer's files and of the chat template, what is
// trained, and the version of these rules. One process of a machine writes an entry, with a lock on
// KEY.lock, into a folder of another name, which gets the name KEY at the end; the others wait for
// it. Only entries of this user or of the data's owner are used. If the cache cannot be used, and
// its directory was not named by the user, the ids stay in memory.
//
// Throws an Error as read_records() and read_text_file(), for a named directory that cannot be
// used, and for a process that writes an entry and makes no progress for ten minutes.
StoredTokens open_tokens(const DatasetOptions& options);

// Returns the key, as hexadecimal digits.
std::string token_cache_key(const DatasetOptions& options);

struct TokenCounts {
  int64_t sequences = 0;
  int64_t ids = 0;
  int64_t trained = 0;
};

// Writes the ids of files, before anything is cut, to PREFIX.bin with Megatron's PREFIX.idx and, if
// they have records, PREFIX.mask with the trained ones; open_dataset() reads them as it reads the
// files. Throws an Error as open_tokens(), if PREFIX.bin exists and must not be replaced, and for
// files with and without records together.
TokenCounts write_token_files(const std::vector<DatasetOptions>& files,
                              const std::filesystem::path& prefix, bool overwrite);

}  // namespace zeroth::data
