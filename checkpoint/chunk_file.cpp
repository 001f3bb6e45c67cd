#include "checkpoint/chunk_file.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "base/error.h"
#include "base/files/crc32c.h"
#include "base/text/printable.h"
#include "checkpoint/buffered_file.h"

namespace zeroth::checkpoint {

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
    : path_(file_system.path() / name),
      chunks_(std::move(chunks)),
      header_(safetensors_header(chunks_)),
      size_(std::ssize(header_)) {
  for (const TensorChunk& chunk : chunks_) {
    written_.push_back({.offset = size_, .bytes = chunk.bytes()});
    size_ += chunk.bytes();
  }
  file_ = write_behind(file_system.create(name, size_), size_);
  write_all(*file_, std::as_bytes(std::span(header_)), 0);
}

void ChunkFile::write(size_t index, std::span<const std::byte> bytes) {
  ZEROTH_CHECK(index < chunks_.size(), "piece {} of {}", index, chunks_.size());
  write_at(index, written_[index].next, bytes);
}

void ChunkFile::write_at(size_t index, int64_t offset, std::span<const std::byte> bytes) {
  ZEROTH_CHECK(index < chunks_.size(), "piece {} of {}", index, chunks_.size());
  ChunkProgress& written = written_[index];
  const int64_t end = offset + static_cast<int64_t>(bytes.size());
  ZEROTH_CHECK(offset >= 0 && end <= written.bytes, "bytes {} to {} of piece {}, which has {}",
               offset, end, chunk_key(chunks_[index]), written.bytes);
  ZEROTH_CHECK(file_ != nullptr, "{} is finished", path_.string());
  written.next = end;
  if (bytes.empty()) return;
  const uint32_t crc = write_all_with_crc(*file_, bytes, written.offset + offset);
  std::vector<WrittenRange>& parts = written.parts;
  if (!parts.empty() && parts.back().end == offset) {
    parts.back().crc = crc32c_combine(parts.back().crc, crc, bytes.size());
    parts.back().end = end;
  } else {
    parts.push_back({offset, end, crc});
  }
}

// Merges adjacent ranges. Returns them sorted by their start.
std::vector<ChunkFile::WrittenRange> ChunkFile::merge_ranges(std::vector<WrittenRange> parts) {
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

StoredFile ChunkFile::finish(std::string name) {
  ZEROTH_CHECK(file_ != nullptr, "{} is finished", path_.string());
  StoredFile stored{.name = std::move(name), .size = size_, .crc = crc32c(header_), .chunks = {}};
  for (size_t i = 0; i < chunks_.size(); ++i) {
    ChunkProgress& written = written_[i];
    const std::vector<WrittenRange> parts = merge_ranges(std::exchange(written.parts, {}));
    const bool all = written.bytes == 0 ? parts.empty()
                                        : parts.size() == 1 && parts[0].begin == 0 &&
                                              parts[0].end == written.bytes;
    ZEROTH_CHECK(all, "{}: piece {} was not written once as a whole: {} parts", path_.string(),
                 chunk_key(chunks_[i]), parts.size());
    const uint32_t crc = parts.empty() ? 0 : parts[0].crc;
    stored.crc = crc32c_combine(stored.crc, crc, static_cast<uint64_t>(written.bytes));
    stored.chunks.push_back({chunks_[i], written.offset, crc});
  }
  const auto file = std::move(file_);
  file->sync();
  file->close();
  return stored;
}

}  // namespace zeroth::checkpoint
