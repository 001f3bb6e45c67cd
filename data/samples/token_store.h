// TokenStore: sequences of token ids in files, with the trained ones marked: Megatron's NAME.bin
// and NAME.idx, NAME.mask, and NAME.lines.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "base/files/file_appender.h"
#include "base/files/regular_file.h"
#include "base/machine/file_descriptor.h"
#include "data/samples/megatron_index.h"

namespace zeroth::data {

using TokenIds = std::variant<std::span<const uint16_t>, std::span<const uint32_t>>;

// One value per file of a store.
template <typename T>
struct TokenStoreFiles {
  T ids, index;
  T mask;   // bit i % 8 of byte i / 8: whether id i is trained
  T lines;  // of each sequence, the line of its record in the data file; 8 bytes, little-endian
};

class TokenStore {
 public:
  // Maps the files; without a mask every id is trained, and without lines they are 0. Throws an
  // Error that names a file that does not fit the others.
  explicit TokenStore(const TokenStoreFiles<std::optional<std::filesystem::path>>& paths);

  const TokenIds& ids() const { return ids_; }
  int64_t num_ids() const;
  int64_t num_sequences() const { return index_->size(); }
  TokenSequence sequence(int64_t index) const { return index_->at(index); }
  bool is_trained(int64_t id) const {
    return !mask_ || (std::to_integer<int>(mask_->bytes()[id >> 3]) >> (id & 7) & 1) != 0;
  }
  int64_t count_trained(int64_t begin, int64_t end) const;
  int64_t line(int64_t sequence) const { return lines_ ? lines_->as<int64_t>()[sequence] : 0; }

  // Drops the pages of all files from this process's memory.
  void drop_pages() const;

 private:
  MappedFile file_;
  TokenIds ids_;
  std::optional<MegatronIndex> index_;
  std::unique_ptr<const MappedFile> mask_, lines_;  // null: there is none
};

// Returns the files beside NAME.bin that exist.
TokenStoreFiles<std::optional<std::filesystem::path>> token_store_paths(
    const std::filesystem::path& ids);

// A TokenStoreWriter writes a store to files, without keeping the ids in memory.
class TokenStoreWriter {
 public:
  using Files = TokenStoreFiles<FileDescriptor>;

  // The files are empty and open for writing. `name` is that of the store in messages.
  TokenStoreWriter(TokenType type, const std::string& name, Files files);

  // Appends a sequence. `trained` has a value per id. Throws an Error if the files cannot be
  // written.
  void add(std::span<const int32_t> ids, const std::vector<bool>& trained, int64_t line);

  // Appends trained ids to the last sequence, if there is one that has room for them.
  void extend(std::span<const int32_t> ids);

  // Writes what is left, and waits until the files are on their disk.
  void finish();

  int64_t num_ids() const { return num_ids_; }
  const Files& files() const { return files_; }

 private:
  void append(std::span<const int32_t> ids, const std::vector<bool>& trained);
  void append_mask(const std::vector<bool>& trained);

  TokenType type_;
  Files files_;
  FileAppender ids_, mask_, lines_;
  std::vector<int32_t> lengths_;
  std::string id_bytes_;  // of a sequence
  int64_t num_ids_ = 0;
  uint8_t mask_byte_ = 0;  // of the last num_ids_ % 8 ids
};

}  // namespace zeroth::data
