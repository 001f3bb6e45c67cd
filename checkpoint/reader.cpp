#include "checkpoint/reader.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <optional>
#include <utility>

#include "base/crc32c.h"
#include "base/element_size.h"
#include "base/printable.h"
#include "checkpoint/read_ahead.h"
#include "checkpoint/real_disk.h"

namespace zeroth::checkpoint {
namespace {

constexpr int64_t kChunk = int64_t{256} << 10;  // which its CRC finds in the cache
constexpr size_t kMostOpen = 8;                 // files, each with what it reads ahead

struct Source {
  const StoredFile* file;
  const StoredPiece* stored;
  bool used = false;
  bool checked = false;
};

std::string text_of(const Source& source) {
  const Piece& piece = source.stored->piece;
  return fmt::format("{} of {} {} in {}", shortened(piece.state), shortened(piece.tensor),
                     checkpoint::text_of(piece.box, piece.range), source.file->name);
}

// Elements of a run, and where they go. All in bytes.
struct Copy {
  int64_t from, to, size;
};

// Copies what of [begin, begin + bytes) is wanted; `next` is the first copy that is not done.
void copy_out(std::span<const std::byte> bytes, int64_t begin, const std::vector<Copy>& copies,
              size_t& next, std::span<std::byte> out) {
  const int64_t end = begin + std::ssize(bytes);
  for (; next < copies.size() && copies[next].from < end; ++next) {
    const Copy& copy = copies[next];
    const int64_t first = std::max(copy.from, begin);
    const int64_t last = std::min(copy.from + copy.size, end);
    if (first < last) {
      std::memcpy(out.data() + copy.to + (first - copy.from), bytes.data() + (first - begin),
                  static_cast<size_t>(last - first));
    }
    if (copy.from + copy.size > end) return;  // the rest comes with the next bytes
  }
}

std::vector<Copy> in_bytes(const std::vector<Run>& runs, int64_t element) {
  std::vector<Copy> copies;
  copies.reserve(runs.size());
  for (const Run& run : runs) {
    copies.push_back({run.stored * element, run.wanted * element, run.count * element});
  }
  return copies;
}

// Whether runs cover `count` elements, each once. Returns the first that they do not; -1: a run
// begins before the one before it ends.
std::optional<int64_t> first_fault(std::vector<Run> runs, int64_t count) {
  std::sort(runs.begin(), runs.end(),
            [](const Run& a, const Run& b) { return a.wanted < b.wanted; });
  int64_t covered = 0;
  for (const Run& run : runs) {
    if (run.wanted < covered) return -1;
    if (run.wanted > covered) return covered;
    covered += run.count;
  }
  return covered == count ? std::nullopt : std::optional(covered);
}

}  // namespace

struct Reader::State {
  std::shared_ptr<Disk> disk;
  std::string folder;
  std::filesystem::path path;
  ManifestFile file;

  struct Stored {
    StoredState state;
    std::vector<size_t> sources;
  };
  std::map<std::pair<std::string, std::string>, Stored> states;
  std::vector<Source> sources;
  // The last one used comes last.
  std::vector<std::pair<const StoredFile*, std::unique_ptr<OldFile>>> open;
  std::vector<std::byte> buffer;

  void index();
  OldFile& open_file(const Source& source);
  std::filesystem::path path_of(const Source& source) const { return path / source.file->name; }
  void read_bytes(const Source& source, int64_t offset, std::span<std::byte> bytes);
  void read_source(Source& source, const std::vector<Run>& runs, std::span<std::byte> out);
  uint32_t stream(const Source& source, int64_t begin, int64_t end, const std::vector<Copy>& copies,
                  std::span<std::byte> out);
};

void Reader::State::index() {
  for (const StoredFile& stored_file : file.manifest.files) {
    for (const StoredPiece& stored : stored_file.pieces) {
      const Piece& piece = stored.piece;
      auto [found, added] = states.try_emplace({piece.tensor, piece.state});
      Stored& entry = found->second;
      if (added) entry.state = {piece.tensor, piece.state, piece.dtype, piece.shape};
      if (entry.state.dtype != piece.dtype || entry.state.shape != piece.shape) {
        throw Damaged("{}: {} of {} is {} [{}] in one piece and {} [{}] in another",
                      (path / kManifest).string(), shortened(piece.state), shortened(piece.tensor),
                      entry.state.dtype, fmt::join(entry.state.shape, ", "), piece.dtype,
                      fmt::join(piece.shape, ", "));
      }
      entry.sources.push_back(sources.size());
      sources.push_back({&stored_file, &stored});
    }
  }
}

OldFile& Reader::State::open_file(const Source& source) {
  auto found = std::find_if(open.begin(), open.end(),
                            [&](const auto& one) { return one.first == source.file; });
  if (found == open.end()) {
    if (open.size() == kMostOpen) open.erase(open.begin());
    open.emplace_back(source.file, read_ahead(disk->open(joined(folder, source.file->name))));
  } else {
    std::rotate(found, found + 1, open.end());
  }
  return *open.back().second;
}

void Reader::State::read_bytes(const Source& source, int64_t offset, std::span<std::byte> bytes) {
  try {
    read_all(open_file(source), bytes, source.stored->offset + offset, path_of(source));
  } catch (const Damaged&) {
    throw;
  } catch (const Error& error) {
    throw Damaged("{}; it holds {}", error.what(), text_of(source));
  }
}

// Returns the CRC of what it has read.
uint32_t Reader::State::stream(const Source& source, int64_t begin, int64_t end,
                               const std::vector<Copy>& copies, std::span<std::byte> out) {
  const bool direct =
      copies.size() == 1 && copies[0].from == begin && copies[0].size == end - begin;
  if (!direct) buffer.resize(static_cast<size_t>(std::min(kChunk, end - begin)));
  uint32_t crc = 0;
  size_t next = 0;
  for (int64_t at = begin; at < end; at += kChunk) {
    const auto size = static_cast<size_t>(std::min(kChunk, end - at));
    const std::span<std::byte> chunk =
        direct ? out.subspan(static_cast<size_t>(copies[0].to + at - begin), size)
               : std::span(buffer).first(size);
    read_bytes(source, at, chunk);
    crc = crc32c(chunk, crc);
    if (!direct) copy_out(chunk, at, copies, next, out);
  }
  return crc;
}

void Reader::State::read_source(Source& source, const std::vector<Run>& runs,
                                std::span<std::byte> out) {
  const Piece& piece = source.stored->piece;
  const std::vector<Copy> copies = in_bytes(runs, *element_size(piece.dtype));
  source.used = true;
  if (source.checked) {
    (void)stream(source, copies.front().from, copies.back().from + copies.back().size, copies, out);
    return;
  }
  const uint32_t crc = stream(source, 0, piece.bytes(), copies, out);
  if (crc != source.stored->crc) {
    throw Damaged("{} is damaged: crc32c {}, written was {}: {}", path_of(source).string(),
                  crc_text(crc), crc_text(source.stored->crc), text_of(source));
  }
  source.checked = true;
}

Reader::Reader(std::shared_ptr<Disk> disk, std::string folder) : state_(std::make_unique<State>()) {
  state_->disk = std::move(disk);
  state_->folder = std::move(folder);
  state_->path = path_to(*state_->disk, state_->folder);
  state_->file = read_manifest(*state_->disk, state_->folder);
  state_->index();
}

Reader Reader::open(const std::filesystem::path& path) {
  auto disk = RealDisk::find(path);
  if (!disk) throw Damaged("{}: there is no such folder", path.string());
  return Reader(std::move(disk), "");
}

Reader::~Reader() = default;
Reader::Reader(Reader&&) noexcept = default;

const std::filesystem::path& Reader::path() const {
  return state_->path;
}

const Manifest& Reader::manifest() const {
  return state_->file.manifest;
}

uint32_t Reader::manifest_crc() const {
  return state_->file.crc;
}

std::vector<StoredState> Reader::states() const {
  std::vector<StoredState> states;
  for (const auto& [name, entry] : state_->states) states.push_back(entry.state);
  return states;
}

const StoredState* Reader::find(const std::string& tensor, const std::string& state) const {
  const auto found = state_->states.find({tensor, state});
  return found == state_->states.end() ? nullptr : &found->second.state;
}

void Reader::read(const std::string& tensor, const std::string& state, const Box& box,
                  const Range& range, std::span<std::byte> out) {
  const auto found = state_->states.find({tensor, state});
  const auto where = [&] {
    return fmt::format("{}: {} of {} {}", path().string(), shortened(state), shortened(tensor),
                       text_of(box, range));
  };
  if (found == state_->states.end()) throw Error("{} is not stored", where());
  const State::Stored& entry = found->second;
  const Piece wanted{tensor, state, entry.state.dtype, entry.state.shape, box, range};
  const std::string complaint = complaint_about(wanted);
  if (!complaint.empty()) throw Error("{} cannot be read: {}", where(), complaint);
  ZEROTH_CHECK(std::ssize(out) == wanted.bytes(), "{} bytes for {}, which has {}", out.size(),
               where(), wanted.bytes());
  std::vector<Run> all;
  for (const size_t index : entry.sources) {
    Source& source = state_->sources[index];
    const Piece& piece = source.stored->piece;
    const std::vector<Run> runs = common_runs(box, range, piece.box, piece.range);
    if (runs.empty()) continue;
    state_->read_source(source, runs, out);
    all.insert(all.end(), runs.begin(), runs.end());
  }
  if (const auto fault = first_fault(std::move(all), range.elements())) {
    throw Damaged("{}: {}", where(),
                  *fault < 0 ? "an element stands in two pieces"
                             : fmt::format("element {} stands in no piece", range.begin + *fault));
  }
}

std::vector<std::byte> Reader::read_whole(const std::string& tensor, const std::string& state) {
  const StoredState* found = find(tensor, state);
  if (found == nullptr) {
    throw Error("{}: {} of {} is not stored", path().string(), shortened(state), shortened(tensor));
  }
  const Piece whole = Piece::whole(tensor, state, found->dtype, found->shape);
  std::vector<std::byte> bytes(static_cast<size_t>(whole.bytes()));
  read(tensor, state, whole.box, whole.range, bytes);
  return bytes;
}

std::string Reader::read_text(const std::string& name, int64_t most_bytes) {
  for (const StoredFile& file : manifest().files) {
    if (file.name != name) continue;
    const std::string text =
        checkpoint::read_text(*state_->disk, joined(state_->folder, name), most_bytes);
    const uint32_t crc = crc32c(text);
    if (crc == file.crc) return text;
    throw Damaged("{} is damaged: crc32c {}, written was {}", (path() / name).string(),
                  crc_text(crc), crc_text(file.crc));
  }
  throw Error("{}: {} is not stored", path().string(), name);
}

std::vector<std::string> Reader::unused() const {
  std::vector<std::string> unused;
  for (const Source& source : state_->sources) {
    if (!source.used && source.stored->piece.elements() > 0) unused.push_back(text_of(source));
  }
  return unused;
}

}  // namespace zeroth::checkpoint
