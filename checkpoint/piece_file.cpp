#include "checkpoint/piece_file.h"

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "base/crc32c.h"
#include "base/error.h"
#include "base/printable.h"
#include "checkpoint/write_behind.h"

namespace zeroth::checkpoint {
namespace {

// Consecutive bytes that are written, with their CRC.
struct Part {
  int64_t begin = 0, end = 0;
  uint32_t crc = 0;
};

// Parts that follow each other become one. Sorted by where they begin.
std::vector<Part> merged(std::vector<Part> parts) {
  std::sort(parts.begin(), parts.end(), [](const Part& a, const Part& b) {
    return std::pair(a.begin, a.end) < std::pair(b.begin, b.end);
  });
  std::vector<Part> whole;
  for (const Part& part : parts) {
    if (whole.empty() || whole.back().end != part.begin) {
      whole.push_back(part);
      continue;
    }
    Part& before = whole.back();
    const auto length = static_cast<uint64_t>(part.end - part.begin);
    before.crc = crc32c_of_both(before.crc, part.crc, length);
    before.end = part.end;
  }
  return whole;
}

}  // namespace

struct PieceFile::State {
  struct Written {
    int64_t offset = 0;  // in the file
    int64_t bytes = 0;
    int64_t next = 0;  // of write()
    std::vector<Part> parts;
  };

  std::filesystem::path path;
  std::vector<Piece> pieces;
  std::vector<Written> written;  // by piece
  std::string header;
  int64_t size = 0;
  std::unique_ptr<NewFile> file;
};

std::string header_of(const std::vector<Piece>& pieces) {
  nlohmann::ordered_json header = nlohmann::ordered_json::object();
  auto& members = header.get_ref<nlohmann::ordered_json::object_t&>();
  members.emplace_back("__metadata__", nlohmann::ordered_json{{"format", "zeroth pieces 1"}});
  std::set<std::string> keys;
  int64_t offset = 0;
  for (const Piece& piece : pieces) {
    const std::string key = key_of(piece);
    const std::string complaint = complaint_about(piece);
    if (!complaint.empty()) throw Error("piece {}: {}", shortened(key), complaint);
    if (!keys.insert(key).second) throw Error("piece {} is planned twice", shortened(key));
    int64_t end = 0;
    if (__builtin_add_overflow(offset, piece.bytes(), &end)) {
      throw Error("piece {}: the file would be larger than any", shortened(key));
    }
    members.emplace_back(key, nlohmann::ordered_json{{"dtype", piece.dtype},
                                                     {"shape", {piece.elements()}},
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

PieceFile::PieceFile(Disk& disk, std::string name, std::vector<Piece> pieces)
    : state_(std::make_unique<State>()) {
  state_->path = disk.path() / name;
  state_->header = header_of(pieces);
  state_->pieces = std::move(pieces);
  auto offset = static_cast<int64_t>(state_->header.size());
  for (const Piece& piece : state_->pieces) {
    state_->written.push_back({.offset = offset, .bytes = piece.bytes(), .next = 0, .parts = {}});
    offset += piece.bytes();
  }
  state_->size = offset;
  state_->file = write_behind(disk.create(name, offset), offset);
  write_all(*state_->file, std::as_bytes(std::span(state_->header)), 0);
}

PieceFile::~PieceFile() = default;
PieceFile::PieceFile(PieceFile&&) noexcept = default;

const std::vector<Piece>& PieceFile::pieces() const {
  return state_->pieces;
}

int64_t PieceFile::size() const {
  return state_->size;
}

void PieceFile::write(size_t index, std::span<const std::byte> bytes) {
  ZEROTH_CHECK(index < state_->pieces.size(), "piece {} of {}", index, state_->pieces.size());
  write_at(index, state_->written[index].next, bytes);
}

void PieceFile::write_at(size_t index, int64_t offset, std::span<const std::byte> bytes) {
  ZEROTH_CHECK(index < state_->pieces.size(), "piece {} of {}", index, state_->pieces.size());
  State::Written& written = state_->written[index];
  const int64_t end = offset + static_cast<int64_t>(bytes.size());
  ZEROTH_CHECK(offset >= 0 && end <= written.bytes, "bytes {} to {} of piece {}, which has {}",
               offset, end, key_of(state_->pieces[index]), written.bytes);
  ZEROTH_CHECK(state_->file != nullptr, "{} is finished", state_->path.string());
  written.next = end;
  if (bytes.empty()) return;
  const uint32_t crc = write_and_sum_all(*state_->file, bytes, written.offset + offset);
  std::vector<Part>& parts = written.parts;
  if (!parts.empty() && parts.back().end == offset) {
    parts.back().crc = crc32c_of_both(parts.back().crc, crc, bytes.size());
    parts.back().end = end;
  } else {
    parts.push_back({offset, end, crc});
  }
}

StoredFile PieceFile::finish(std::string name) {
  ZEROTH_CHECK(state_->file != nullptr, "{} is finished", state_->path.string());
  StoredFile stored{
      .name = std::move(name), .size = state_->size, .crc = crc32c(state_->header), .pieces = {}};
  for (size_t i = 0; i < state_->pieces.size(); ++i) {
    State::Written& written = state_->written[i];
    const std::vector<Part> parts = merged(std::exchange(written.parts, {}));
    const bool all = written.bytes == 0 ? parts.empty()
                                        : parts.size() == 1 && parts[0].begin == 0 &&
                                              parts[0].end == written.bytes;
    ZEROTH_CHECK(all, "{}: piece {} was not written once as a whole: {} parts",
                 state_->path.string(), key_of(state_->pieces[i]), parts.size());
    const uint32_t crc = parts.empty() ? 0 : parts[0].crc;
    stored.crc = crc32c_of_both(stored.crc, crc, static_cast<uint64_t>(written.bytes));
    stored.pieces.push_back({state_->pieces[i], written.offset, crc});
  }
  const auto file = std::move(state_->file);
  file->sync();
  file->close();
  return stored;
}

}  // namespace zeroth::checkpoint
