#include "data/samples/token_store.h"

#include <fmt/format.h>
#include <unistd.h>

#include <bit>
#include <cerrno>
#include <limits>
#include <utility>

#include "base/error.h"
#include "base/machine/process_limits.h"

namespace zeroth::data {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMaxSequence = std::numeric_limits<int32_t>::max();  // of Megatron's index

TokenIds view_ids(const MappedFile& file, TokenType type) {
  if (type == TokenType::kUint16) return file.as<uint16_t>();
  return file.as<uint32_t>();
}

// Maps one of the files beside the ids. Throws an Error if it has another size.
std::unique_ptr<const MappedFile> map_companion(const std::optional<fs::path>& path, int64_t bytes,
                                                const fs::path& ids) {
  if (!path) return nullptr;
  auto file = std::make_unique<const MappedFile>(*path);
  if (static_cast<int64_t>(file->size()) != bytes) {
    throw Error("{} has {} bytes, but for {} it needs {}", path->string(), file->size(),
                ids.string(), bytes);
  }
  return file;
}

template <typename T>
void append_numbers(std::span<const int32_t> ids, std::string& bytes) {
  for (const int32_t id : ids) {
    const T number = static_cast<T>(id);
    bytes.append(reinterpret_cast<const char*>(&number), sizeof(T));
  }
}

}  // namespace

TokenStore::TokenStore(const TokenStoreFiles<std::optional<fs::path>>& paths)
    : file_(paths.ids.value()) {
  index_.emplace(paths.index.value(), *paths.ids, static_cast<int64_t>(file_.size()));
  ids_ = view_ids(file_, index_->type());
  mask_ = map_companion(paths.mask, (num_ids() + 7) / 8, *paths.ids);
  lines_ = map_companion(paths.lines, 8 * num_sequences(), *paths.ids);
}

int64_t TokenStore::num_ids() const {
  return std::visit([](const auto& ids) { return std::ssize(ids); }, ids_);
}

int64_t TokenStore::count_trained(int64_t begin, int64_t end) const {
  if (!mask_) return end - begin;
  int64_t count = 0;
  while (begin < end && begin % 8 != 0) count += is_trained(begin++) ? 1 : 0;
  for (; begin + 8 <= end; begin += 8)
    count += std::popcount(std::to_integer<uint8_t>(mask_->bytes()[begin >> 3]));
  while (begin < end) count += is_trained(begin++) ? 1 : 0;
  return count;
}

void TokenStore::drop_pages() const {
  file_.drop_pages(file_.bytes());
  if (mask_) mask_->drop_pages(mask_->bytes());
  if (lines_) lines_->drop_pages(lines_->bytes());
}

TokenStoreFiles<std::optional<fs::path>> token_store_paths(const fs::path& ids) {
  const auto beside = [&](const char* extension) {
    const fs::path path = fs::path(ids).replace_extension(extension);
    std::error_code unknown;
    return fs::is_regular_file(path, unknown) ? std::optional(path) : std::nullopt;
  };
  return {.ids = ids, .index = beside(".idx"), .mask = beside(".mask"), .lines = beside(".lines")};
}

TokenStoreWriter::TokenStoreWriter(TokenType type, const std::string& name, Files files)
    : type_(type),
      files_(std::move(files)),
      ids_(files_.ids.get(), name + ".bin"),
      mask_(files_.mask.get(), name + ".mask"),
      lines_(files_.lines.get(), name + ".lines") {}

void TokenStoreWriter::add(std::span<const int32_t> ids, const std::vector<bool>& trained,
                           int64_t line) {
  if (ids.size() > kMaxSequence) throw Error("{} tokens in one sequence are too many", ids.size());
  append(ids, trained);
  lines_.append({reinterpret_cast<const char*>(&line), sizeof(line)});
  lengths_.push_back(static_cast<int32_t>(ids.size()));
}

void TokenStoreWriter::extend(std::span<const int32_t> ids) {
  const std::vector<bool> trained(ids.size(), true);
  if (lengths_.empty() || static_cast<size_t>(lengths_.back()) + ids.size() > kMaxSequence)
    return add(ids, trained, /*line=*/0);
  append(ids, trained);
  lengths_.back() += static_cast<int32_t>(ids.size());
}

void TokenStoreWriter::append(std::span<const int32_t> ids, const std::vector<bool>& trained) {
  ZEROTH_CHECK(trained.size() == ids.size(), "{} ids, {} trained", ids.size(), trained.size());
  id_bytes_.clear();
  if (type_ == TokenType::kUint16) {
    append_numbers<uint16_t>(ids, id_bytes_);
  } else {
    append_numbers<uint32_t>(ids, id_bytes_);
  }
  ids_.append(id_bytes_);
  append_mask(trained);
  num_ids_ += std::ssize(ids);
}

void TokenStoreWriter::append_mask(const std::vector<bool>& trained) {
  int64_t bit = num_ids_ % 8;
  for (const bool is_trained : trained) {
    mask_byte_ = static_cast<uint8_t>(mask_byte_ | (is_trained ? 1 << bit : 0));
    if (++bit < 8) continue;
    mask_.append({reinterpret_cast<const char*>(&mask_byte_), 1});
    mask_byte_ = 0;
    bit = 0;
  }
}

void TokenStoreWriter::finish() {
  if (num_ids_ % 8 > 0) mask_.append({reinterpret_cast<const char*>(&mask_byte_), 1});
  for (FileAppender* const file : {&ids_, &mask_, &lines_}) file->flush();
  write_megatron_index(files_.index.get(), type_, lengths_);
  for (const FileDescriptor* const file :
       {&files_.ids, &files_.index, &files_.mask, &files_.lines}) {
    if (::fsync(file->get()) != 0 && errno != EINVAL)
      throw WriteError("the tokens cannot be written: {}", system_reason(errno));
  }
}

}  // namespace zeroth::data
