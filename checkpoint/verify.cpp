#include "checkpoint/verify.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <utility>

#include "base/files/crc32c.h"
#include "base/hash.h"
#include "base/machine/random_bytes.h"
#include "base/text/diagnostics.h"
#include "base/text/printable.h"
#include "checkpoint/buffered_file.h"

namespace zeroth::checkpoint {
namespace {

struct PlacedChunk {
  const TensorChunk* chunk;
  const std::string* file;
};

using Name = std::pair<std::string, std::string>;  // tensor, state

std::string to_string(const PlacedChunk& placed) {
  return fmt::format("{} in {}", checkpoint::to_string(placed.chunk->slice, placed.chunk->range),
                     *placed.file);
}

// CoverageHash is a random measure on the elements of a tensor. The measure of a slice is the
// product, over its dimensions, of differences of random numbers that belong to its begin and end.
// Chunks that cover the same elements equally often have the same sum of measures. Others differ
// except with a probability of about 2^-55, because the writer of the chunks does not know the
// random numbers. So n chunks take n steps and no memory, whatever their slices.
class CoverageHash {
 public:
  CoverageHash() {
    for (uint64_t& word : seed_) word = random_word();
  }

  uint64_t of(const TensorSlice& slice, const ElementRange& range) const {
    return minus(of_first(slice, range.end), of_first(slice, range.begin));
  }
  static uint64_t plus(uint64_t a, uint64_t b) { return reduced(a + b); }

 private:
  static constexpr uint64_t kPrime = (uint64_t{1} << 61) - 1;  // all values are below it

  static uint64_t reduced(uint64_t number) { return number >= kPrime ? number - kPrime : number; }
  static uint64_t minus(uint64_t a, uint64_t b) { return reduced(a + kPrime - b); }
  static uint64_t times(uint64_t a, uint64_t b) {
    const auto product = static_cast<unsigned __int128>(a) * b;
    return reduced((static_cast<uint64_t>(product) & kPrime) +
                   static_cast<uint64_t>(product >> 61));
  }

  // Returns the random number of a position in a dimension: a keyed hash.
  uint64_t number(size_t dimension, int64_t at) const {
    uint64_t bits = seed_[0];
    for (const uint64_t word :
         {static_cast<uint64_t>(dimension), seed_[1], static_cast<uint64_t>(at)}) {
      bits = mix64((bits ^ word) + kGolden);
    }
    return bits % kPrime;
  }
  uint64_t between(size_t dimension, int64_t begin, int64_t end) const {
    return minus(number(dimension, end), number(dimension, begin));
  }

  // Returns the measure of the first `count` elements of a slice in row-major order.
  uint64_t of_first(const TensorSlice& slice, int64_t count) const {
    const size_t dimensions = slice.sizes.size();
    if (dimensions == 0) return static_cast<uint64_t>(count);
    std::array<uint64_t, kMaxDimensions + 1> inner{};  // of a whole row, from a dimension on
    inner[dimensions] = 1;
    for (size_t i = dimensions; i-- > 0;) {
      inner[i] = times(inner[i + 1], between(i, slice.offsets[i], slice.end(i)));
    }
    int64_t row = slice.elements();
    uint64_t sum = 0, outer = 1;
    for (size_t i = 0; i < dimensions && count > 0; ++i) {
      row /= slice.sizes[i];
      const int64_t at = slice.offsets[i] + count / row;
      sum = plus(sum, times(outer, times(between(i, slice.offsets[i], at), inner[i + 1])));
      outer = times(outer, between(i, at, at + 1));
      count %= row;
    }
    return sum;
  }

  std::array<uint64_t, 2> seed_{};
};

// Returns how many elements of a nonempty chunk are among the first `count` of its tensor in
// row-major order. A slice's elements are in the same order as the tensor's.
int64_t count_in_first(const TensorChunk& chunk, int64_t count) {
  const TensorSlice& slice = chunk.slice;
  int64_t row = slice.tensor_elements(), row_of_slice = slice.elements(), found = 0;
  if (count >= row) return chunk.elements();
  for (size_t i = 0; i < slice.shape.size(); ++i) {
    const int64_t begin = slice.offsets[i], end = slice.end(i);
    row /= slice.shape[i];
    row_of_slice /= slice.sizes[i];
    const int64_t at = count / row;
    count %= row;
    found += (std::clamp(at, begin, end) - begin) * row_of_slice;
    if (at < begin || at >= end) break;
  }
  return std::clamp(found, chunk.range.begin, chunk.range.end) - chunk.range.begin;
}

// Returns whether each of the first `count` elements is in exactly one chunk.
bool is_covered_once(const CoverageHash& measure, const Shape& shape,
                     const std::vector<PlacedChunk>& chunks, int64_t count) {
  uint64_t sum = 0;
  for (const PlacedChunk& placed : chunks) {
    const TensorChunk& chunk = *placed.chunk;
    const int64_t begin = chunk.range.begin;
    sum = CoverageHash::plus(
        sum, measure.of(chunk.slice, {begin, begin + count_in_first(chunk, count)}));
  }
  return sum == measure.of(TensorSlice::full(shape), {0, count});
}

// Returns the first element, in row-major order, that no chunk or more than one covers.
int64_t first_fault(const CoverageHash& measure, const Shape& shape,
                    const std::vector<PlacedChunk>& chunks, int64_t all) {
  int64_t good = 0, bad = all;  // counts of leading elements
  while (bad - good > 1) {
    const int64_t middle = good + (bad - good) / 2;
    (is_covered_once(measure, shape, chunks, middle) ? good : bad) = middle;
  }
  return good;
}

// Returns the error of one state, or an empty text. `chunks` are its chunks that have elements.
std::string coverage_error(const Shape& shape, const std::vector<PlacedChunk>& chunks) {
  const int64_t all = TensorSlice::full(shape).elements();
  if (all == 0) return "";
  const CoverageHash measure;
  if (!chunks.empty() && is_covered_once(measure, shape, chunks, all)) return "";
  const int64_t fault = first_fault(measure, shape, chunks, all);
  int64_t held = 0;
  const PlacedChunk* first = nullptr;
  for (const PlacedChunk& placed : chunks) {
    if (__builtin_add_overflow(held, placed.chunk->elements(), &held)) held = INT64_MAX;
    if (count_in_first(*placed.chunk, fault) == count_in_first(*placed.chunk, fault + 1)) continue;
    if (first != nullptr) {
      return fmt::format("{} and {} have elements in common", to_string(*first), to_string(placed));
    }
    first = &placed;
  }
  return fmt::format("its pieces hold {} of {} elements of [{}]; the first missing one is {}", held,
                     all, fmt::join(shape, ", "), fault);
}

std::string state_error(std::vector<PlacedChunk> chunks) {
  const TensorChunk& first = *chunks.front().chunk;
  for (const PlacedChunk& placed : chunks) {
    const TensorChunk& chunk = *placed.chunk;
    if (chunk.slice.shape == first.slice.shape && chunk.dtype == first.dtype) continue;
    return fmt::format("{} [{}] in {}, {} [{}] in {}", first.dtype,
                       fmt::join(first.slice.shape, ", "), *chunks.front().file, chunk.dtype,
                       fmt::join(chunk.slice.shape, ", "), *placed.file);
  }
  std::erase_if(chunks, [](const PlacedChunk& placed) { return placed.chunk->elements() == 0; });
  return coverage_error(first.slice.shape, chunks);
}

std::string kind_error(const StoredState& expected, const TensorChunk& found) {
  if (found.dtype == expected.dtype && found.slice.shape == expected.shape) return "";
  return fmt::format("{} [{}], expected {} [{}]", found.dtype, fmt::join(found.slice.shape, ", "),
                     expected.dtype, fmt::join(expected.shape, ", "));
}

constexpr size_t kBufferBytes = size_t{256} << 10;  // still cached when its CRC is computed

// A FileCheck computes the CRC of a file from those of its chunks and of the bytes between them, so
// that each byte is read once. No two chunks of a manifest share a byte.
struct FileCheck {
  std::vector<std::string> bad_chunks;
  uint32_t crc = 0;
};

FileCheck check_file(RandomAccessFile& file, const StoredFile& stored, std::span<std::byte> buffer,
                     const std::filesystem::path& path) {
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
      append(read_crc(file, at, chunk->offset, buffer, path), chunk->offset - at);
    const uint32_t crc = read_crc(file, chunk->offset, end, buffer, path);
    if (crc != chunk->crc) {
      check.bad_chunks.push_back(fmt::format(
          "{} of {} {}: crc32c {}, expected {}", shortened(chunk->chunk.state),
          shortened(chunk->chunk.tensor), to_string(chunk->chunk.slice, chunk->chunk.range),
          format_crc(crc), format_crc(chunk->crc)));
    }
    append(crc, end - chunk->offset);
  }
  if (at < stored.size) append(read_crc(file, at, stored.size, buffer, path), stored.size - at);
  return check;
}

}  // namespace

std::vector<std::string> coverage_errors(const std::vector<StoredFile>& files,
                                         const std::vector<StoredState>& expected) {
  std::map<Name, std::vector<PlacedChunk>> states;
  for (const StoredFile& file : files) {
    for (const StoredChunk& stored : file.chunks) {
      states[{stored.chunk.tensor, stored.chunk.state}].push_back({&stored.chunk, &file.name});
    }
  }
  std::vector<std::string> errors;
  std::map<Name, std::string> expected_errors;
  const auto add_error = [&](const Name& name, const std::string& message) {
    if (message.empty()) return;
    errors.push_back(
        fmt::format("{} of {}: {}", shortened(name.second), shortened(name.first), message));
  };
  for (const StoredState& state : expected) {
    const Name name{state.tensor, state.state};
    const auto found = states.find(name);
    const bool empty = element_count(state.shape) == 0;
    expected_errors[name] = found != states.end() ? kind_error(state, *found->second[0].chunk)
                            : empty               ? ""
                                                  : "no rank has a piece of it";
  }
  for (const auto& [name, message] : expected_errors) add_error(name, message);
  for (const auto& [name, chunks] : states) {
    if (!expected.empty() && !expected_errors.contains(name)) {
      add_error(name, fmt::format("{} is not part of the model", to_string(chunks.front())));
    }
    add_error(name, state_error(chunks));
  }
  return errors;
}

VerifyResult verify(FileSystem& file_system, const std::string& directory) {
  const Manifest manifest = read_manifest(file_system, directory).manifest;
  VerifyResult result;
  result.errors = coverage_errors(manifest.files);
  std::vector<std::byte> buffer(kBufferBytes);
  std::set<std::string> known = {std::string(kManifest)};
  for (const StoredFile& stored : manifest.files) {
    known.insert(stored.name);
    const std::string name = join_path(directory, stored.name);
    const std::filesystem::path path = full_path(file_system, name);
    try {
      const auto file = read_ahead(file_system.open(name));
      const FileCheck check = check_file(*file, stored, buffer, path);
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
  for (const DirectoryEntry& entry : list_tree(file_system, directory)) {
    if (entry.kind != DirectoryEntry::Kind::kDirectory && !known.contains(entry.name))
      result.unlisted.push_back(entry.name);
  }
  return result;
}

}  // namespace zeroth::checkpoint
