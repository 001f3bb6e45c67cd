#include "data/samples/megatron_index.h"

#include <cstring>
#include <string_view>

#include "base/error.h"
#include "base/files/regular_file.h"

namespace zeroth::data {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kMagic("MMIDIDX\0\0", 9);
// Layout after the magic bytes: version (8 bytes), type of ids (1), number of sequences and of
// documents (8 each). The sequences' lengths (4 bytes each) and offsets (8 bytes each) follow.
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

template <typename T>
T read_number_at(std::string_view text, size_t at) {
  T value{};
  std::memcpy(&value, text.data() + at, sizeof(T));
  return value;
}

// Returns the bytes of the token file, computed from the end of its last sequence; -1 if the index
// is truncated.
int64_t token_file_bytes(std::string_view index, int64_t width) {
  const auto sequences = read_number_at<uint64_t>(index, kNumSequencesOffset);
  if (sequences == 0) return 0;
  if (sequences > (index.size() - kHeaderBytes) / 12) return -1;
  const size_t lengths = kHeaderBytes, begins = kHeaderBytes + 4 * sequences;
  const auto length = read_number_at<int32_t>(index, lengths + 4 * (sequences - 1));
  const auto begin = read_number_at<int64_t>(index, begins + 8 * (sequences - 1));
  const bool sane = length >= 0 && begin >= 0 && begin <= int64_t{1} << 60;
  return sane ? begin + length * width : -1;
}

}  // namespace

std::optional<TokenType> megatron_token_type(const fs::path& tokens, int64_t bytes) {
  const fs::path path = fs::path(tokens).replace_extension(".idx");
  std::error_code unknown;
  if (!fs::is_regular_file(path, unknown)) return std::nullopt;
  const MappedFile file(path);
  const std::string_view index = file.text();
  if (!index.starts_with(kMagic)) return std::nullopt;
  if (index.size() < kHeaderBytes)
    throw Error("{} is truncated: {} bytes", path.string(), index.size());
  const auto code = read_number_at<uint8_t>(index, kTypeOffset);
  for (const IndexTokenType& kind : kIndexTokenTypes) {
    if (kind.code != code) continue;
    const int64_t index_bytes = token_file_bytes(index, kind.bytes);
    if (index_bytes != bytes) {
      throw Error("{} is not the index of {}: that has {} bytes, and the index says {}",
                  path.string(), tokens.string(), bytes,
                  index_bytes < 0 ? "an invalid size" : fmt::format("{}", index_bytes));
    }
    if (kind.type) return kind.type;
    throw Error("{} says that the ids are {}; supported are uint16 and int32", path.string(),
                kind.name);
  }
  throw Error("{}: unknown dtype code {}", path.string(), code);
}

}  // namespace zeroth::data
