// Reader of files of token ids, without text and without a header.
#include <algorithm>
#include <array>
#include <limits>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "base/files/regular_file.h"
#include "data/samples/token_windows.h"

namespace zeroth::data {
namespace {

constexpr size_t kIdsPerCheck = size_t{1} << 20;  // ids checked at once
constexpr size_t kProbeBytes = size_t{1} << 20;   // bytes that determine a file's format
constexpr size_t kMinIds = 4;                     // of a wider format, to exclude a coincidence

// An IdFormat is a format of bytes as ids.
struct IdFormat {
  size_t width;     // bytes
  bool big_endian;  // most significant byte first
  const char* numpy;
};
constexpr IdFormat kWiderFormats[] = {
    {8, false, "<i8"}, {8, true, ">i8"}, {4, false, "<u4"}, {4, true, ">u4"}};
constexpr IdFormat kSwapped16 = {2, true, ">u2"}, kSwapped32 = {4, true, ">u4"};
constexpr IdFormat kNarrower = {2, false, "<u2"};

uint64_t value_at(std::span<const uint8_t> bytes, size_t at, const IdFormat& id_format) {
  uint64_t value = 0;
  for (size_t i = 0; i < id_format.width; ++i) {
    const size_t byte = id_format.big_endian ? i : id_format.width - 1 - i;
    value = value << 8 | bytes[at + byte];
  }
  return value;
}

// Returns whether all ids would be in the vocabulary, and not all equal.
bool fits(std::span<const uint8_t> bytes, const IdFormat& id_format, int64_t vocab_size) {
  const size_t count = bytes.size() / id_format.width;
  if (count < kMinIds) return false;
  const uint64_t first = value_at(bytes, 0, id_format);
  bool differ = false;
  for (size_t i = 0; i < count; ++i) {
    const uint64_t id = value_at(bytes, i * id_format.width, id_format);
    if (id >= static_cast<uint64_t>(vocab_size)) return false;
    differ = differ || id != first;
  }
  return differ;
}

// Returns whether 16-bit ids are big-endian, judged by the frequency of bytes. A tokenizer's
// frequent ids are small: the more significant byte has few values, the less significant one all.
bool looks_swapped(std::span<const uint8_t> bytes) {
  constexpr size_t kEnough = 512;
  constexpr double kClear = 4;
  if (bytes.size() < 2 * kEnough) return false;
  std::array<std::array<double, 256>, 2> counts{};
  for (size_t i = 0; i + 1 < bytes.size(); i += 2) {
    ++counts[0][bytes[i]];
    ++counts[1][bytes[i + 1]];
  }
  const auto squares = [](const std::array<double, 256>& byte) {
    double sum = 0;
    for (const double count : byte) sum += count * count;
    return sum;
  };
  return squares(counts[0]) > kClear * squares(counts[1]);
}

bool looks_like_text(std::span<const uint8_t> bytes) {
  constexpr size_t kEnough = 64;
  return bytes.size() >= kEnough && std::all_of(bytes.begin(), bytes.end(), [](uint8_t byte) {
           return (byte >= 0x20 && byte < 0x7f) || byte == '\n' || byte == '\r' || byte == '\t';
         });
}

// Returns whether a file begins like llm.c's files: with 256 numbers of 32 bits, the first of which
// is one of these.
bool has_llm_c_header(std::span<const uint8_t> bytes) {
  constexpr size_t kHeader = 1024;
  if (bytes.size() < kHeader) return false;
  const uint64_t first = value_at(bytes, 0, {4, false, ""});
  return first == 20240520 || first == 20240801;
}

std::string conversion_command(const IdFormat& from, TokenType to) {
  return fmt::format(
      "python3 -c \"import numpy; numpy.fromfile(FILE, '{}').astype('{}').tofile(NEW)\" converts "
      "them",
      from.numpy, to_string(to));
}

std::string describe(const IdFormat& id_format) {
  return fmt::format("ids of {} bits{}", 8 * id_format.width,
                     id_format.big_endian ? ", most significant byte first" : "");
}

// Returns what other format the bytes appear to have, and what to do; empty if they have none.
std::string other_format(std::span<const uint8_t> bytes, TokenType type, int64_t vocab_size) {
  if (has_llm_c_header(bytes)) {
    return "has a header of llm.c: tail -c +1025 FILE > NEW removes it";
  }
  if (looks_like_text(bytes)) {
    return "looks like text: rename it to .txt, or to .jsonl or .json if it holds records";
  }
  for (const IdFormat& wider : kWiderFormats) {
    if (wider.width <= id_bytes(type) || !fits(bytes, wider, vocab_size)) continue;
    const bool readable = wider.width == 4 && !wider.big_endian;
    return fmt::format(
        "looks like {}: {}", describe(wider),
        readable ? "--token-dtype uint32 reads them" : conversion_command(wider, type));
  }
  if (type == TokenType::kUint16 && fits(bytes, kSwapped16, vocab_size) && looks_swapped(bytes)) {
    return fmt::format("looks like {}: {}", describe(kSwapped16),
                       conversion_command(kSwapped16, type));
  }
  return "";
}

// Returns how the file could be read instead, after an id outside the vocabulary.
std::string format_hint(std::span<const uint8_t> bytes, TokenType type, int64_t vocab_size) {
  const IdFormat& swapped = type == TokenType::kUint16 ? kSwapped16 : kSwapped32;
  if (type == TokenType::kUint32 && fits(bytes, kNarrower, vocab_size)) {
    return "; its first ids are valid as ids of 16 bits: --token-dtype uint16";
  }
  if (!fits(bytes, swapped, vocab_size)) return "";
  return fmt::format("; its first ids are valid as {}: {}", describe(swapped),
                     conversion_command(swapped, type));
}

class BinaryReader {
 public:
  explicit BinaryReader(const DatasetOptions& options)
      : options_(options),
        path_(options.path.string()),
        file_(std::make_shared<MappedFile>(options.path)) {}

  TokenStream read() {
    const TokenType type = choose_type();
    if (file_->size() % id_bytes(type) != 0) {
      throw Error("{} has {} bytes, not a multiple of {} ({} ids for a vocabulary of {})", path_,
                  file_->size(), id_bytes(type), to_string(type), options_.vocab_size);
    }
    return type == TokenType::kUint16 ? stream<uint16_t>(type) : stream<uint32_t>(type);
  }

 private:
  std::span<const uint8_t> probe_bytes() const {
    return file_->as<uint8_t>().first(std::min(kProbeBytes, file_->size()));
  }

  TokenType choose_type() const {
    if (const auto index = token_store_paths(options_.path).index) {
      const TokenType type =
          MegatronIndex(*index, options_.path, static_cast<int64_t>(file_->size())).type();
      if (options_.token_type && type != *options_.token_type) {
        throw Error("{}: --token-dtype {}, but its index (.idx) says {}", path_,
                    to_string(*options_.token_type), to_string(type));
      }
      return type;
    }
    if (options_.token_type) return *options_.token_type;
    const TokenType type = token_type_for(options_.vocab_size);
    if (const std::string kind = other_format(probe_bytes(), type, options_.vocab_size);
        !kind.empty()) {
      throw Error("{} {}; --token-dtype {} reads it as ids of {} bits anyway", path_, kind,
                  to_string(type), 8 * id_bytes(type));
    }
    return type;
  }

  template <typename T>
  TokenStream stream(TokenType type) {
    const auto ids = file_->as<T>();
    validate_ids(ids, type);
    return {std::move(file_), ids};
  }

  template <typename T>
  void validate_ids(std::span<const T> ids, TokenType type) const {
    const auto limit = static_cast<uint64_t>(options_.vocab_size);
    if (std::numeric_limits<T>::max() < limit) return;
    for (size_t begin = 0; begin < ids.size(); begin += kIdsPerCheck) {
      const auto chunk = ids.subspan(begin, std::min(kIdsPerCheck, ids.size() - begin));
      T largest = 0;
      for (const T id : chunk) largest = std::max(largest, id);
      if (largest >= limit) {
        const auto bad =
            std::find_if(chunk.begin(), chunk.end(), [=](T id) { return id >= limit; });
        throw_invalid_token_id(path_, static_cast<int64_t>(begin) + (bad - chunk.begin()),
                               static_cast<int64_t>(*bad), options_.vocab_size,
                               format_hint(probe_bytes(), type, options_.vocab_size));
      }
      file_->drop_pages(std::as_bytes(chunk));
      if (options_.on_read) {
        options_.on_read(static_cast<int64_t>((begin + chunk.size()) * sizeof(T)),
                         static_cast<int64_t>(file_->size()));
      }
    }
  }

  const DatasetOptions& options_;
  std::string path_;
  std::shared_ptr<const MappedFile> file_;
};

}  // namespace

TokenStream map_binary_tokens(const DatasetOptions& options) {
  return BinaryReader(options).read();
}

}  // namespace zeroth::data
