#include "checkpoint/chunk_file.h"

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "base/error.h"
#include "base/files/crc32c.h"
#include "base/text/printable.h"
#include "checkpoint/write_behind.h"

namespace zeroth::checkpoint {
namespace {

// A WrittenRange is consecutive bytes that are written, with their CRC.
struct WrittenRange {
  int64_t begin = 0, end = 0;
  uint32_t crc = 0;
};

// Merges adjacent ranges. Returns them sorted by their start.
std::vector<WrittenRange> merge_ranges(std::vector<WrittenRange> parts) {
  std::sort(parts.begin(), parts.end(), [](const WrittenRange& a, const WrittenRange& b) {
    return std::pair(a.begin, a.end) < std::pair(b.begin, b.end);
  });
  std::vector<WrittenRange> whole;
  for (const WrittenRange& part : parts) {
    if (whole.empty() || whole.back().end != part.begin) {
      whole.push_back(part);
      continue;
    }
    WrittenRange& before = whole.back();
    const auto length = static_cast<uint64_t>(part.end - part.begin);
    before.crc = crc32c_combine(before.crc, part.crc, length);
    before.end = part.end;
  }
  return whole;
}

}  // namespace

struct ChunkFile::Impl {
  struct ChunkProgress {
    int64_t offset = 0;  // in the file
    int64_t bytes = 0;
    int64_t next = 0;  // position of write()
    std::vector<WrittenRange> parts;
  };

  std::filesystem::path path;
  std::vector<TensorChunk> chunks;
  std::vector<ChunkProgress> written;  // by index in chunks
  std::string header;
  int64_t size = 0;
  std::unique_ptr<WritableFile> file;
};

std::string safetensors_header(const std::vector<TensorChunk>& chunks) {
  nlohmann::ordered_json header = nlohmann::ordered_json::object();
  auto& members = header.get_ref<nlohmann::ordered_json::object_t&>();
  members.emplace_back("__metadata__", nlohmann::ordered_json{{"format", "zeroth pieces 1"}});
  std::set<std::string> keys;
  int64_t offset = 0;
  for (const TensorChunk& chunk : chunks) {
    const std::string key = chunk_key(chunk);
    const std::string message = validation_error(chunk);
    if (!message.empty()) throw Error("piece {}: {}", shortened(key), message);
    if (!keys.insert(key).second) throw Error("duplicate piece {}", shortened(key));
    int64_t end = 0;
    if (__builtin_add_overflow(offset, chunk.bytes(), &end)) {
      throw Error("piece {}: file size overflow", shortened(key));
    }
    members.emplace_back(key, nlohmann::ordered_json{{"dtype", chunk.dtype},
                                                     {"shape", {chunk.elements()}},
                                                     {"data_offsets", {offset, end}}});
    offset = end;
  }
  std::string text;
  try {
    text = header.dump();
  } catch (const nlohmann::json::exception&) {
    throw Error("pieces cannot be written: the name of a tensor or state is not UTF-8");
  }
  text.resize((text.size() + 7) / 8 * 8, ' ');
  const uint64_t length = text.size();
  std::string whole(8, '\0');
  for (size_t i = 0; i < 8; ++i) whole[i] = static_cast<char>((length >> (8 * i)) & 0xff);
  return whole + text;
}

ChunkFile::ChunkFile(FileSystem& file_system, std::string name, std::vector<TensorChunk> chunks)
    : impl_(std::make_unique<Impl>()) {
  impl_->path = file_system.path() / name;
  impl_->header = safetensors_header(chunks);
  impl_->chunks = std::move(chunks);
  auto offset = static_cast<int64_t>(impl_->header.size());
  for (const TensorChunk& chunk : impl_->chunks) {
    impl_->written.push_back({.offset = offset, .bytes = chunk.bytes(), .next = 0, .parts = {}});
    offset += chunk.bytes();
  }
  impl_->size = offset;
  impl_->file = write_behind(file_system.create(name, offset), offset);
  write_all(*impl_->file, std::as_bytes(std::span(impl_->header)), 0);
}

ChunkFile::~ChunkFile() = default;
ChunkFile::ChunkFile(ChunkFile&&) noexcept = default;

const std::vector<TensorChunk>& ChunkFile::chunks() const {
  return impl_->chunks;
}

int64_t ChunkFile::size() const {
  return impl_->size;
}

void ChunkFile::write(size_t index, std::span<const std::byte> bytes) {
  ZEROTH_CHECK(index < impl_->chunks.size(), "piece {} of {}", index, impl_->chunks.size());
  write_at(index, impl_->written[index].next, bytes);
}

void ChunkFile::write_at(size_t index, int64_t offset, std::span<const std::byte> bytes) {
  ZEROTH_CHECK(index < impl_->chunks.size(), "piece {} of {}", index, impl_->chunks.size());
  Impl::ChunkProgress& written = impl_->written[index];
  const int64_t end = offset + static_cast<int64_t>(bytes.size());
  ZEROTH_CHECK(offset >= 0 && end <= written.bytes, "bytes {} to {} of piece {}, which has {}",
               offset, end, chunk_key(impl_->chunks[index]), written.bytes);
  ZEROTH_CHECK(impl_->file != nullptr, "{} is finished", impl_->path.string());
  written.next = end;
  if (bytes.empty()) return;
  const uint32_t crc = write_all_with_crc(*impl_->file, bytes, written.offset + offset);
  std::vector<WrittenRange>& parts = written.parts;
  if (!parts.empty() && parts.back().end == offset) {
    parts.back().crc = crc32c_combine(parts.back().crc, crc, bytes.size());
    parts.back().end = end;
  } else {
    parts.push_back({offset, end, crc});
  }
}

StoredFile ChunkFile::finish(std::string name) {
  ZEROTH_CHECK(impl_->file != nullptr, "{} is finished", impl_->path.string());
  StoredFile stored{
      .name = std::move(name), .size = impl_->size, .crc = crc32c(impl_->header), .chunks = {}};
  for (size_t i = 0; i < impl_->chunks.size(); ++i) {
    Impl::ChunkProgress& written = impl_->written[i];
    const std::vector<WrittenRange> parts = merge_ranges(std::exchange(written.parts, {}));
    const bool all = written.bytes == 0 ? parts.empty()
                                        : parts.size() == 1 && parts[0].begin == 0 &&
                                              parts[0].end == written.bytes;
    ZEROTH_CHECK(all, "{}: piece {} was not written once as a whole: {} parts",
                 impl_->path.string(), chunk_key(impl_->chunks[i]), parts.size());
    const uint32_t crc = parts.empty() ? 0 : parts[0].crc;
    stored.crc = crc32c_combine(stored.crc, crc, static_cast<uint64_t>(written.bytes));
    stored.chunks.push_back({impl_->chunks[i], written.offset, crc});
  }
  const auto file = std::move(impl_->file);
  file->sync();
  file->close();
  return stored;
}

}  // namespace zeroth::checkpoint
