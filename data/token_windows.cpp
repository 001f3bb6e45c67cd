#include "data/token_windows.h"

#include <algorithm>
#include <limits>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/regular_file.h"
#include "data/tokenizer.h"

namespace zeroth::data {
namespace {

constexpr int64_t kUint16Ids = 65536;

constexpr size_t kPiece = size_t{1} << 20;  // ids that are looked through at once

[[noreturn]] void refuse(const std::string& path, int64_t position, int64_t id,
                         int64_t vocab_size) {
  throw Error("{}: token {} is {}, but the vocabulary has {} ids", path, position, id, vocab_size);
}

// `done` is called with each piece that was looked through.
template <typename T, typename Done>
void require_known(const DatasetOptions& options, std::span<const T> ids, const Done& done) {
  using Unsigned = std::make_unsigned_t<T>;  // a negative id is a large one
  const auto limit = static_cast<uint64_t>(options.vocab_size);
  if (std::numeric_limits<Unsigned>::max() < limit) return;
  for (size_t begin = 0; begin < ids.size(); begin += kPiece) {
    const auto piece = ids.subspan(begin, std::min(kPiece, ids.size() - begin));
    Unsigned most = 0;
    for (const T id : piece) most = std::max(most, static_cast<Unsigned>(id));
    if (most >= limit) {
      const auto bad = std::find_if(piece.begin(), piece.end(),
                                    [=](T id) { return static_cast<Unsigned>(id) >= limit; });
      refuse(options.path.string(), static_cast<int64_t>(begin) + (bad - piece.begin()),
             static_cast<int64_t>(*bad), options.vocab_size);
    }
    done(piece);
  }
}

template <typename T>
TokenStream as_stream(const DatasetOptions& options, std::shared_ptr<const MappedFile> file) {
  const auto ids = file->as<T>();
  require_known(options, ids, [&](auto piece) { file->forget(std::as_bytes(piece)); });
  return {std::move(file), ids};
}

std::vector<int32_t> encode_file(const DatasetOptions& options) {
  const MappedFile file(options.path);
  try {
    return options.tokenizer->encode(file.text());
  } catch (const Error& e) {
    throw Error("{}: {}", options.path.string(), e.what());
  }
}

}  // namespace

TokenStream read_text_tokens(const DatasetOptions& options) {
  if (options.tokenizer == nullptr) {
    throw Error("{}: text needs a tokenizer.json", options.path.string());
  }
  auto ids = std::make_shared<std::vector<int32_t>>(encode_file(options));
  const std::span<const int32_t> view(*ids);
  require_known(options, view, [](auto) {});
  return {std::move(ids), view};
}

TokenStream map_binary_tokens(const DatasetOptions& options) {
  auto file = std::make_shared<const MappedFile>(options.path);
  const bool narrow = options.vocab_size <= kUint16Ids;
  const size_t width = narrow ? sizeof(uint16_t) : sizeof(uint32_t);
  if (file->size() % width != 0) {
    throw Error("{} has {} bytes, not a multiple of {} (uint{} ids for a vocabulary of {})",
                options.path.string(), file->size(), width, 8 * width, options.vocab_size);
  }
  return narrow ? as_stream<uint16_t>(options, std::move(file))
                : as_stream<uint32_t>(options, std::move(file));
}

TokenStream joined_tokens(std::vector<int32_t> ids) {
  auto owner = std::make_shared<std::vector<int32_t>>(std::move(ids));
  const std::span<const int32_t> view(*owner);
  return {std::move(owner), view, true};
}

TokenWindows::TokenWindows(const DatasetOptions& options, TokenStream stream)
    : path_(options.path.string()),
      stream_(std::move(stream)),
      seq_len_(options.seq_len),
      vocab_size_(options.vocab_size) {
  const auto count =
      std::visit([](const auto& ids) { return static_cast<int64_t>(ids.size()); }, stream_.ids);
  size_ = std::max<int64_t>(count - 1, 0) / seq_len_;
  if (size_ == 0) {
    throw Error("{} has {} tokens, one sample of seq_len {} needs {}{}", path_, count, seq_len_,
                seq_len_ + 1,
                stream_.joined ? "; --long-text cut takes each text alone, however short" : "");
  }
}

void TokenWindows::fill(int64_t index, std::span<int64_t> tokens,
                        std::span<int64_t> targets) const {
  ZEROTH_CHECK(index >= 0 && index < size_, "sample {} of {}", index, size_);
  ZEROTH_CHECK(std::ssize(tokens) >= seq_len_ && tokens.size() == targets.size(),
               "{} tokens, {} targets, seq_len {}", tokens.size(), targets.size(), seq_len_);
  std::fill(tokens.begin() + seq_len_, tokens.end(), 0);
  std::fill(targets.begin() + seq_len_, targets.end(), kUntrained);
  const auto read = [&](const auto& ids) {
    const int64_t first = index * seq_len_;
    for (int64_t i = 0; i <= seq_len_; ++i) {
      const auto id = static_cast<int64_t>(ids[first + i]);
      // Seen when it was opened; the file may have changed since.
      if (id < 0 || id >= vocab_size_) refuse(path_, first + i, id, vocab_size_);
      if (i < seq_len_) tokens[i] = id;
      if (i > 0) targets[i - 1] = id;
    }
  };
  std::visit(read, stream_.ids);
}

std::string TokenWindows::name_of(int64_t index) const {
  return fmt::format("{} sample {}", path_, index);
}

DatasetStats TokenWindows::stats() const {
  return {.samples = size_,
          .tokens = size_ * seq_len_,
          .trained_tokens = size_ * seq_len_,
          .joined = stream_.joined};
}

}  // namespace zeroth::data
