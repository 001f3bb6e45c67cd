#include "checkpoint/verify.h"

#include <algorithm>
#include <set>

#include "base/complaints.h"
#include "base/crc32c.h"
#include "base/printable.h"
#include "checkpoint/coverage.h"
#include "checkpoint/read_ahead.h"

namespace zeroth::checkpoint {
namespace {

constexpr int64_t kChunk = int64_t{256} << 10;  // which its CRC finds in the cache

uint32_t crc_of(OldFile& file, int64_t begin, int64_t end, const std::filesystem::path& path,
                std::vector<std::byte>& buffer) {
  buffer.resize(static_cast<size_t>(kChunk));
  uint32_t crc = 0;
  for (int64_t at = begin; at < end; at += kChunk) {
    const auto chunk = std::span(buffer).first(static_cast<size_t>(std::min(kChunk, end - at)));
    read_all(file, chunk, at, path);
    crc = crc32c(chunk, crc);
  }
  return crc;
}

// The CRC of the file comes from those of its pieces and of what lies between them, so that each
// byte is read once. No two pieces of a manifest share a byte.
struct FileCheck {
  std::vector<std::string> bad_pieces;
  uint32_t crc = 0;
};

FileCheck check_file(OldFile& file, const StoredFile& stored, const std::filesystem::path& path,
                     std::vector<std::byte>& buffer) {
  std::vector<const StoredPiece*> pieces;
  for (const StoredPiece& piece : stored.pieces) pieces.push_back(&piece);
  std::sort(pieces.begin(), pieces.end(),
            [](const StoredPiece* a, const StoredPiece* b) { return a->offset < b->offset; });
  FileCheck check;
  int64_t at = 0;
  const auto append = [&](uint32_t crc, int64_t bytes) {
    check.crc = crc32c_of_both(check.crc, crc, static_cast<uint64_t>(bytes));
    at += bytes;
  };
  for (const StoredPiece* piece : pieces) {
    const int64_t end = piece->offset + piece->piece.bytes();
    if (piece->offset > at)
      append(crc_of(file, at, piece->offset, path, buffer), piece->offset - at);
    const uint32_t crc = crc_of(file, piece->offset, end, path, buffer);
    if (crc != piece->crc) {
      check.bad_pieces.push_back(
          fmt::format("{} of {} {}: crc32c {}, written was {}", shortened(piece->piece.state),
                      shortened(piece->piece.tensor), text_of(piece->piece.box, piece->piece.range),
                      crc_text(crc), crc_text(piece->crc)));
    }
    append(crc, end - piece->offset);
  }
  if (at < stored.size) append(crc_of(file, at, stored.size, path, buffer), stored.size - at);
  return check;
}

// A folder `levels` below the first one is listed in place of all that is in it.
void list_files(Disk& disk, const std::string& folder, const std::string& below, size_t levels,
                std::vector<std::string>& files) {
  for (const Entry& entry : disk.list(below.empty() ? folder : joined(folder, below))) {
    const std::string name = joined(below, entry.name);
    if (entry.kind == Entry::Kind::kFolder && levels > 0) {
      list_files(disk, folder, name, levels - 1, files);
    } else {
      files.push_back(name);
    }
  }
}

}  // namespace

Verdict verify(Disk& disk, const std::string& folder) {
  const Manifest manifest = read_manifest(disk, folder).manifest;
  Verdict verdict;
  verdict.complaints = coverage_complaints(manifest.files);
  std::vector<std::byte> buffer;
  std::set<std::string> known = {std::string(kManifest)};
  for (const StoredFile& stored : manifest.files) {
    known.insert(stored.name);
    const std::string name = joined(folder, stored.name);
    const std::filesystem::path path = path_to(disk, name);
    try {
      const auto file = read_ahead(disk.open(name));
      const FileCheck check = check_file(*file, stored, path, buffer);
      verdict.bytes += stored.size;
      if (check.crc == stored.crc && check.bad_pieces.empty()) continue;
      verdict.complaints.push_back(fmt::format(
          "{} is damaged: {}", path.string(),
          check.bad_pieces.empty()
              ? fmt::format("crc32c {}, written was {}", crc_text(check.crc), crc_text(stored.crc))
              : listed(check.bad_pieces)));
    } catch (const Error& error) {
      verdict.complaints.push_back(error.what());
    }
  }
  list_files(disk, folder, "", kMaxDepth, verdict.unlisted);
  std::erase_if(verdict.unlisted, [&](const std::string& name) { return known.contains(name); });
  return verdict;
}

}  // namespace zeroth::checkpoint
