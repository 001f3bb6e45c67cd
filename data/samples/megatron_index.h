// MegatronIndex: NAME.idx beside a file of token ids, NAME.bin, which says where each sequence is
// (megatron/core/datasets/indexed_dataset.py).
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string_view>

#include "base/files/regular_file.h"

namespace zeroth::data {

// TokenType is the width of the ids of a .bin file, which are little-endian.
enum class TokenType { kUint16, kUint32 };

const char* to_string(TokenType type);  // "uint16"
size_t id_bytes(TokenType type);
TokenType token_type_for(int64_t vocab_size);  // the smallest one that has all ids

// A TokenSequence is a range of ids.
struct TokenSequence {
  int64_t begin = 0;
  int64_t length = 0;
};

class MegatronIndex {
 public:
  // Maps the index `path` of `tokens`, a file of `bytes` bytes. Throws an Error that names the
  // index if it is not valid, belongs to another file, or if the type of the ids is not supported.
  MegatronIndex(const std::filesystem::path& path, const std::filesystem::path& tokens,
                int64_t bytes);

  TokenType type() const { return type_; }
  int64_t size() const { return size_; }  // sequences
  TokenSequence at(int64_t index) const;

 private:
  std::string_view text() const { return file_->text(); }
  int64_t begin_byte(int64_t index) const;

  std::shared_ptr<const MappedFile> file_;
  TokenType type_ = TokenType::kUint16;
  int64_t size_ = 0;
};

// Writes an index of consecutive sequences, each a document, to an empty file.
void write_megatron_index(int fd, TokenType type, std::span<const int32_t> lengths);

}  // namespace zeroth::data
