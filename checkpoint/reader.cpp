#include "checkpoint/reader.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <optional>
#include <utility>

#include "base/files/crc32c.h"
#include "base/tensor_slice.h"
#include "base/text/printable.h"
#include "checkpoint/buffered_file.h"
#include "checkpoint/posix_file_system.h"

namespace zeroth::checkpoint {
namespace {

constexpr int64_t kChunk = int64_t{256} << 10;  // still cached when its CRC is computed
constexpr size_t kMaxOpenFiles = 8;             // open files, each with its read-ahead

struct ChunkSource {
  const StoredFile* file;
  const StoredChunk* stored;
  bool used = false;
  bool checked = false;
};

std::string to_string(const ChunkSource& source) {
  const TensorChunk& chunk = source.stored->chunk;
  return fmt::format("{} of {} {} in {}", shortened(chunk.state), shortened(chunk.tensor),
                     checkpoint::to_string(chunk.slice, chunk.range), source.file->name);
}

// Copies the wanted parts of [begin, begin + bytes) of a chunk. `copies` are runs in bytes, of
// which `next` is the first unfinished one.
void copy_out(std::span<const std::byte> bytes, int64_t begin,
              const std::vector<ElementRun>& copies, size_t& next, std::span<std::byte> out) {
  const int64_t end = begin + std::ssize(bytes);
  for (; next < copies.size() && copies[next].stored < end; ++next) {
    const ElementRun& copy = copies[next];
    const int64_t first = std::max(copy.stored, begin);
    const int64_t last = std::min(copy.stored + copy.count, end);
    if (first < last) {
      std::memcpy(out.data() + copy.wanted + (first - copy.stored), bytes.data() + (first - begin),
                  static_cast<size_t>(last - first));
    }
    if (copy.stored + copy.count > end) return;  // the next bytes complete it
  }
}

// Checks that runs cover each of `count` elements once. Returns the first missing element, or -1 if
// runs overlap.
std::optional<int64_t> first_gap(std::vector<ElementRun> runs, int64_t count) {
  std::sort(runs.begin(), runs.end(),
            [](const ElementRun& a, const ElementRun& b) { return a.wanted < b.wanted; });
  int64_t covered = 0;
  for (const ElementRun& run : runs) {
    if (run.wanted < covered) return -1;
    if (run.wanted > covered) return covered;
    covered += run.count;
  }
  return covered == count ? std::nullopt : std::optional(covered);
}

}  // namespace

struct CheckpointReader::Impl {
  std::shared_ptr<FileSystem> file_system;
  std::string directory;
  std::filesystem::path path;
  ManifestFile file;

  struct StoredEntry {
    StoredState state;
    std::vector<size_t> sources;
  };
  std::map<std::pair<std::string, std::string>, StoredEntry> states;
  std::vector<ChunkSource> sources;
  // Sorted by last use, the most recent at the end.
  std::vector<std::pair<const StoredFile*, std::unique_ptr<RandomAccessFile>>> open;
  std::vector<std::byte> buffer;

  void index();
  RandomAccessFile& open_file(const ChunkSource& source);
  std::filesystem::path path_of(const ChunkSource& source) const {
    return path / source.file->name;
  }
  void read_bytes(const ChunkSource& source, int64_t offset, std::span<std::byte> bytes);
  void read_source(ChunkSource& source, std::vector<ElementRun> copies, std::span<std::byte> out);
  uint32_t stream(const ChunkSource& source, int64_t begin, int64_t end,
                  const std::vector<ElementRun>& copies, std::span<std::byte> out);
};

void CheckpointReader::Impl::index() {
  for (const StoredFile& stored_file : file.manifest.files) {
    for (const StoredChunk& stored : stored_file.chunks) {
      const TensorChunk& chunk = stored.chunk;
      auto [found, added] = states.try_emplace({chunk.tensor, chunk.state});
      StoredEntry& entry = found->second;
      if (added) entry.state = {chunk.tensor, chunk.state, chunk.dtype, chunk.slice.shape};
      if (entry.state.dtype != chunk.dtype || entry.state.shape != chunk.slice.shape) {
        throw CorruptCheckpoint("{}: {} of {} is {} [{}] in one piece and {} [{}] in another",
                                (path / kManifest).string(), shortened(chunk.state),
                                shortened(chunk.tensor), entry.state.dtype,
                                fmt::join(entry.state.shape, ", "), chunk.dtype,
                                fmt::join(chunk.slice.shape, ", "));
      }
      entry.sources.push_back(sources.size());
      sources.push_back({&stored_file, &stored});
    }
  }
}

RandomAccessFile& CheckpointReader::Impl::open_file(const ChunkSource& source) {
  auto found = std::find_if(open.begin(), open.end(),
                            [&](const auto& one) { return one.first == source.file; });
  if (found == open.end()) {
    if (open.size() == kMaxOpenFiles) open.erase(open.begin());
    open.emplace_back(source.file,
                      read_ahead(file_system->open(join_path(directory, source.file->name))));
  } else {
    std::rotate(found, found + 1, open.end());
  }
  return *open.back().second;
}

void CheckpointReader::Impl::read_bytes(const ChunkSource& source, int64_t offset,
                                        std::span<std::byte> bytes) {
  try {
    read_all(open_file(source), bytes, source.stored->offset + offset, path_of(source));
  } catch (const CorruptCheckpoint&) {
    throw;
  } catch (const Error& error) {
    throw CorruptCheckpoint("{}; it holds {}", error.what(), to_string(source));
  }
}

// Returns the CRC of the bytes that it reads.
uint32_t CheckpointReader::Impl::stream(const ChunkSource& source, int64_t begin, int64_t end,
                                        const std::vector<ElementRun>& copies,
                                        std::span<std::byte> out) {
  const bool direct =
      copies.size() == 1 && copies[0].stored == begin && copies[0].count == end - begin;
  if (!direct) buffer.resize(static_cast<size_t>(std::min(kChunk, end - begin)));
  uint32_t crc = 0;
  size_t next = 0;
  for (int64_t at = begin; at < end; at += kChunk) {
    const auto size = static_cast<size_t>(std::min(kChunk, end - at));
    const std::span<std::byte> chunk =
        direct ? out.subspan(static_cast<size_t>(copies[0].wanted + at - begin), size)
               : std::span(buffer).first(size);
    read_bytes(source, at, chunk);
    crc = crc32c(chunk, crc);
    if (!direct) copy_out(chunk, at, copies, next, out);
  }
  return crc;
}

// `copies` are in elements here, and in bytes in stream().
void CheckpointReader::Impl::read_source(ChunkSource& source, std::vector<ElementRun> copies,
                                         std::span<std::byte> out) {
  const TensorChunk& chunk = source.stored->chunk;
  const int64_t element_bytes = *element_size(chunk.dtype);
  for (ElementRun& run : copies) {
    for (int64_t* part : {&run.wanted, &run.stored, &run.count}) *part *= element_bytes;
  }
  source.used = true;
  if (source.checked) {
    (void)stream(source, copies.front().stored, copies.back().stored + copies.back().count, copies,
                 out);
    return;
  }
  const uint32_t crc = stream(source, 0, chunk.bytes(), copies, out);
  if (crc != source.stored->crc) {
    throw CorruptCheckpoint("{} is damaged: crc32c {}, expected {}: {}", path_of(source).string(),
                            format_crc(crc), format_crc(source.stored->crc), to_string(source));
  }
  source.checked = true;
}

CheckpointReader::CheckpointReader(std::shared_ptr<FileSystem> file_system, std::string directory)
    : impl_(std::make_unique<Impl>()) {
  impl_->file_system = std::move(file_system);
  impl_->directory = std::move(directory);
  impl_->path = full_path(*impl_->file_system, impl_->directory);
  impl_->file = read_manifest(*impl_->file_system, impl_->directory);
  impl_->index();
}

CheckpointReader CheckpointReader::open(const std::filesystem::path& path) {
  auto file_system = PosixFileSystem::find(path);
  if (!file_system) throw CorruptCheckpoint("{}: there is no such folder", path.string());
  return CheckpointReader(std::move(file_system), "");
}

CheckpointReader::~CheckpointReader() = default;
CheckpointReader::CheckpointReader(CheckpointReader&&) noexcept = default;

const std::filesystem::path& CheckpointReader::path() const {
  return impl_->path;
}

const Manifest& CheckpointReader::manifest() const {
  return impl_->file.manifest;
}

uint32_t CheckpointReader::manifest_crc() const {
  return impl_->file.crc;
}

std::vector<StoredState> CheckpointReader::states() const {
  std::vector<StoredState> states;
  for (const auto& [name, entry] : impl_->states) states.push_back(entry.state);
  return states;
}

const StoredState* CheckpointReader::find(const std::string& tensor,
                                          const std::string& state) const {
  const auto found = impl_->states.find({tensor, state});
  return found == impl_->states.end() ? nullptr : &found->second.state;
}

void CheckpointReader::read(const std::string& tensor, const std::string& state,
                            const TensorSlice& slice, const ElementRange& range,
                            std::span<std::byte> out) {
  const auto found = impl_->states.find({tensor, state});
  const auto where = [&] {
    return fmt::format("{}: {} of {} {}", path().string(), shortened(state), shortened(tensor),
                       to_string(slice, range));
  };
  if (found == impl_->states.end()) throw Error("{} is not stored", where());
  const Impl::StoredEntry& entry = found->second;
  const TensorChunk wanted{
      tensor, state, entry.state.dtype, {entry.state.shape, slice.offsets, slice.sizes}, range};
  const std::string message = validation_error(wanted);
  if (!message.empty()) throw Error("{} cannot be read: {}", where(), message);
  ZEROTH_CHECK(std::ssize(out) == wanted.bytes(), "{} bytes for {}, which has {}", out.size(),
               where(), wanted.bytes());
  std::vector<ElementRun> all;
  for (const size_t index : entry.sources) {
    ChunkSource& source = impl_->sources[index];
    const TensorChunk& chunk = source.stored->chunk;
    const std::vector<ElementRun> runs =
        common_element_runs(slice, range, chunk.slice, chunk.range);
    if (runs.empty()) continue;
    impl_->read_source(source, runs, out);
    all.insert(all.end(), runs.begin(), runs.end());
  }
  if (const auto fault = first_gap(std::move(all), range.elements())) {
    throw CorruptCheckpoint("{}: {}", where(),
                            *fault < 0
                                ? "an element is in two pieces"
                                : fmt::format("element {} is in no piece", range.begin + *fault));
  }
}

std::string CheckpointReader::read_text(const std::string& name, int64_t max_bytes) {
  for (const StoredFile& file : manifest().files) {
    if (file.name != name) continue;
    const std::string text =
        checkpoint::read_text(*impl_->file_system, join_path(impl_->directory, name), max_bytes);
    const uint32_t crc = crc32c(text);
    if (crc == file.crc) return text;
    throw CorruptCheckpoint("{} is damaged: crc32c {}, expected {}", (path() / name).string(),
                            format_crc(crc), format_crc(file.crc));
  }
  throw Error("{}: {} is not stored", path().string(), name);
}

std::vector<std::string> CheckpointReader::unused() const {
  std::vector<std::string> unused;
  for (const ChunkSource& source : impl_->sources) {
    if (!source.used && source.stored->chunk.elements() > 0) unused.push_back(to_string(source));
  }
  return unused;
}

}  // namespace zeroth::checkpoint
