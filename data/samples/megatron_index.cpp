#include "data/samples/megatron_index.h"

#include <fmt/format.h>

#include <cstring>
#include <optional>
#include <string>

#include "base/error.h"
#include "base/files/file_appender.h"

namespace zeroth::data {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kMagic("MMIDIDX\0\0", 9);
constexpr uint64_t kVersion = 1;
// Layout after the magic bytes: version (8 bytes), type of ids (1), number of sequences and of
// documents (8 each). The sequences' lengths (4 bytes each) and first bytes (8 bytes each) follow,
// then the first sequence of each document and their number (8 bytes each).
constexpr size_t kTypeOffset = 17, kNumSequencesOffset = 18, kHeaderBytes = 34;

struct IndexTokenType {
  uint8_t code;
  int64_t bytes;
  const char* name;
  std::optional<TokenType> type;
};
constexpr IndexTokenType kIndexTokenTypes[] = {
    {1, 1, "uint8", {}},   {2, 1, "int8", {}},
    {3, 2, "int16", {}},   {4, 4, "int32", TokenType::kUint32},
    {5, 8, "int64", {}},   {6, 8, "float64", {}},
    {7, 4, "float32", {}}, {8, 2, "uint16", TokenType::kUint16}};

const IndexTokenType& find_type(const fs::path& path, uint8_t code) {
  for (const IndexTokenType& kind : kIndexTokenTypes) {
    if (kind.code == code) return kind;
  }
  throw Error("{}: unknown dtype code {}", path.string(), code);
}

// The numbers of an index are not aligned.
template <typename T>
T read_number_at(std::string_view text, size_t at) {
  T value{};
  std::memcpy(&value, text.data() + at, sizeof(T));
  return value;
}

template <typename T>
void append_number(FileAppender& file, T value) {
  file.append({reinterpret_cast<const char*>(&value), sizeof(T)});
}

}  // namespace

const char* to_string(TokenType type) {
  return type == TokenType::kUint16 ? "uint16" : "uint32";
}

size_t id_bytes(TokenType type) {
  return type == TokenType::kUint16 ? sizeof(uint16_t) : sizeof(uint32_t);
}

TokenType token_type_for(int64_t vocab_size) {
  constexpr int64_t kUint16Ids = 65536;
  return vocab_size <= kUint16Ids ? TokenType::kUint16 : TokenType::kUint32;
}

MegatronIndex::MegatronIndex(const fs::path& path, const fs::path& tokens, int64_t bytes)
    : file_(std::make_shared<MappedFile>(path)) {
  const std::string_view index = text();
  if (!index.starts_with(kMagic)) {
    throw Error("{} is not Megatron's index of {}: rename or remove it to use {} without an index",
                path.string(), tokens.string(), tokens.filename().string());
  }
  if (index.size() < kHeaderBytes)
    throw Error("{} is truncated: {} bytes", path.string(), index.size());
  const IndexTokenType& kind = find_type(path, read_number_at<uint8_t>(index, kTypeOffset));
  if (!kind.type) {
    throw Error("{} says that the ids are {}; supported are uint16 and int32", path.string(),
                kind.name);
  }
  const auto sequences = read_number_at<uint64_t>(index, kNumSequencesOffset);
  const auto throw_of_another = [&](const std::string& index_bytes) {
    throw Error("{} is not the index of {}: that has {} bytes, and the index says {}",
                path.string(), tokens.string(), bytes, index_bytes);
  };
  if (sequences > (index.size() - kHeaderBytes) / 12) throw_of_another("an invalid size");
  size_ = static_cast<int64_t>(sequences);
  int64_t end = 0;
  for (int64_t i = 0; i < size_; ++i) {
    const auto length = read_number_at<int32_t>(index, kHeaderBytes + 4 * i);
    const int64_t begin = begin_byte(i);
    if (length < 0 || begin < 0 || begin > int64_t{1} << 60 || begin % kind.bytes != 0)
      throw_of_another("an invalid size");
    end = begin + length * kind.bytes;
    if (end > bytes) break;
  }
  if (end != bytes) throw_of_another(fmt::format("{}", end));
  type_ = *kind.type;
}

int64_t MegatronIndex::begin_byte(int64_t index) const {
  return read_number_at<int64_t>(text(), kHeaderBytes + 4 * size_ + 8 * index);
}

TokenSequence MegatronIndex::at(int64_t index) const {
  return {.begin = begin_byte(index) / static_cast<int64_t>(id_bytes(type_)),
          .length = read_number_at<int32_t>(text(), kHeaderBytes + 4 * index)};
}

void write_megatron_index(int fd, TokenType type, std::span<const int32_t> lengths) {
  FileAppender file(fd, "a token index");
  file.append(kMagic);
  append_number(file, kVersion);
  for (const IndexTokenType& kind : kIndexTokenTypes) {
    if (kind.type == type) append_number(file, kind.code);
  }
  append_number(file, uint64_t{lengths.size()});
  append_number(file, uint64_t{lengths.size() + 1});
  for (const int32_t length : lengths) append_number(file, length);
  int64_t begin = 0;
  for (const int32_t length : lengths) {
    append_number(file, begin);
    begin += length * static_cast<int64_t>(id_bytes(type));
  }
  for (size_t i = 0; i <= lengths.size(); ++i) append_number(file, static_cast<int64_t>(i));
  file.flush();
}

}  // namespace zeroth::data
