#include "checkpoint/verify.h"

#include <algorithm>
#include <set>

#include "base/files/crc32c.h"
#include "base/text/diagnostics.h"
#include "base/text/printable.h"
#include "checkpoint/coverage.h"
#include "checkpoint/read_ahead.h"

namespace zeroth::checkpoint {
namespace {

constexpr int64_t kChunk = int64_t{256} << 10;  // still cached when its CRC is computed

uint32_t read_crc(RandomAccessFile& file, int64_t begin, int64_t end,
                  const std::filesystem::path& path, std::vector<std::byte>& buffer) {
  buffer.resize(static_cast<size_t>(kChunk));
  uint32_t crc = 0;
  for (int64_t at = begin; at < end; at += kChunk) {
    const auto chunk = std::span(buffer).first(static_cast<size_t>(std::min(kChunk, end - at)));
    read_all(file, chunk, at, path);
    crc = crc32c(chunk, crc);
  }
  return crc;
}

// A FileCheck computes the CRC of a file from those of its chunks and of the bytes between them, so
// that each byte is read once. No two chunks of a manifest share a byte.
struct FileCheck {
  std::vector<std::string> bad_chunks;
  uint32_t crc = 0;
};

FileCheck check_file(RandomAccessFile& file, const StoredFile& stored,
                     const std::filesystem::path& path, std::vector<std::byte>& buffer) {
  std::vector<const StoredChunk*> chunks;
  for (const StoredChunk& chunk : stored.chunks) chunks.push_back(&chunk);
  std::sort(chunks.begin(), chunks.end(),
            [](const StoredChunk* a, const StoredChunk* b) { return a->offset < b->offset; });
  FileCheck check;
  int64_t at = 0;
  const auto append = [&](uint32_t crc, int64_t bytes) {
    check.crc = crc32c_combine(check.crc, crc, static_cast<uint64_t>(bytes));
    at += bytes;
  };
  for (const StoredChunk* chunk : chunks) {
    const int64_t end = chunk->offset + chunk->chunk.bytes();
    if (chunk->offset > at)
      append(read_crc(file, at, chunk->offset, path, buffer), chunk->offset - at);
    const uint32_t crc = read_crc(file, chunk->offset, end, path, buffer);
    if (crc != chunk->crc) {
      check.bad_chunks.push_back(fmt::format(
          "{} of {} {}: crc32c {}, expected {}", shortened(chunk->chunk.state),
          shortened(chunk->chunk.tensor), to_string(chunk->chunk.box, chunk->chunk.range),
          format_crc(crc), format_crc(chunk->crc)));
    }
    append(crc, end - chunk->offset);
  }
  if (at < stored.size) append(read_crc(file, at, stored.size, path, buffer), stored.size - at);
  return check;
}

// Lists all files in a directory. Lists a directory nested deeper than `levels` instead of its
// contents.
void list_files(FileSystem& file_system, const std::string& directory, const std::string& below,
                size_t levels, std::vector<std::string>& files) {
  for (const DirectoryEntry& entry :
       file_system.list(below.empty() ? directory : join_path(directory, below))) {
    const std::string name = join_path(below, entry.name);
    if (entry.kind == DirectoryEntry::Kind::kDirectory && levels > 0) {
      list_files(file_system, directory, name, levels - 1, files);
    } else {
      files.push_back(name);
    }
  }
}

}  // namespace

VerifyResult verify(FileSystem& file_system, const std::string& directory) {
  const Manifest manifest = read_manifest(file_system, directory).manifest;
  VerifyResult result;
  result.errors = coverage_errors(manifest.files);
  std::vector<std::byte> buffer;
  std::set<std::string> known = {std::string(kManifest)};
  for (const StoredFile& stored : manifest.files) {
    known.insert(stored.name);
    const std::string name = join_path(directory, stored.name);
    const std::filesystem::path path = full_path(file_system, name);
    try {
      const auto file = read_ahead(file_system.open(name));
      const FileCheck check = check_file(*file, stored, path, buffer);
      result.bytes += stored.size;
      if (check.crc == stored.crc && check.bad_chunks.empty()) continue;
      result.errors.push_back(fmt::format(
          "{} is damaged: {}", path.string(),
          check.bad_chunks.empty()
              ? fmt::format("crc32c {}, expected {}", format_crc(check.crc), format_crc(stored.crc))
              : listed(check.bad_chunks)));
    } catch (const Error& error) {
      result.errors.push_back(error.what());
    }
  }
  list_files(file_system, directory, "", kMaxDepth, result.unlisted);
  std::erase_if(result.unlisted, [&](const std::string& name) { return known.contains(name); });
  return result;
}

}  // namespace zeroth::checkpoint
