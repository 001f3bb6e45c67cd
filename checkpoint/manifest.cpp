#include "checkpoint/manifest.h"

#include <algorithm>
#include <cerrno>
#include <nlohmann/json.hpp>
#include <numeric>
#include <set>
#include <utility>

#include "base/files/crc32c.h"
#include "base/json/json.h"
#include "base/json/json_view.h"
#include "base/text/printable.h"
#include "checkpoint/names.h"

namespace zeroth::checkpoint {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

constexpr std::string_view kFormat = "zeroth checkpoint";
constexpr int64_t kMaxTime = 253'402'300'799;    // the last second of the year 9999
constexpr int64_t kMaxBytes = int64_t{1} << 60;  // of all files of a checkpoint
constexpr JsonLimits kLimits = {.bytes = size_t{256} << 20, .values = 10'000'000};
// End of every manifest, with the CRC of all bytes before it.
constexpr std::string_view kCrcKey = "  \"crc32c\": \"";
constexpr std::string_view kEnd = "\"\n}\n";
constexpr size_t kCrcDigits = 8;
constexpr size_t kTail = kCrcKey.size() + kCrcDigits + kEnd.size();

ordered_json to_json(const StoredChunk& stored) {
  const TensorChunk& chunk = stored.chunk;
  Shape end;
  for (size_t i = 0; i < chunk.slice.sizes.size(); ++i) end.push_back(chunk.slice.end(i));
  return {{"tensor", chunk.tensor},
          {"state", chunk.state},
          {"dtype", chunk.dtype},
          {"shape", chunk.slice.shape},
          {"begin", chunk.slice.offsets},
          {"end", end},
          {"range", {chunk.range.begin, chunk.range.end}},
          {"offset", stored.offset},
          {"crc32c", format_crc(stored.crc)}};
}

// Returns one line for the file and one for each of its chunks.
std::string to_string(const StoredFile& file) {
  std::string text =
      fmt::format("    {{\"name\": {}, \"size\": {}, \"crc32c\": \"{}\", \"pieces\": [",
                  json(file.name).dump(), file.size, format_crc(file.crc));
  const char* separator = "\n";
  for (const StoredChunk& chunk : file.chunks) {
    text += std::exchange(separator, ",\n") + ("      " + to_json(chunk).dump());
  }
  return text + (file.chunks.empty() ? "]}" : "\n    ]}");
}

std::string json_line(std::string_view key, const ordered_json& value) {
  return fmt::format("  \"{}\": {},\n", key, value.dump());
}

int64_t parse_count(const JsonView& view) {
  return view.integer(0, kMaxCount);
}

int64_t parse_size(const JsonView& view) {
  return view.integer(0, kMaxBytes);  // bytes or elements
}

uint32_t parse_crc_field(const JsonView& view) {
  const auto crc = parse_crc(view.text());
  if (!crc) view.refuse("eight hexadecimal digits");
  return *crc;
}

Shape parse_shape(const JsonView& view) {
  Shape shape;
  for (size_t i = 0; i < view.size(); ++i) shape.push_back(parse_size(view.at(i)));
  return shape;
}

StoredChunk parse_chunk(const JsonView& view, int64_t file_size) {
  StoredChunk stored;
  TensorChunk& chunk = stored.chunk;
  chunk.tensor = view.at("tensor").text();
  chunk.state = view.at("state").text();
  chunk.dtype = view.at("dtype").text();
  Shape shape = parse_shape(view.at("shape")), begin = parse_shape(view.at("begin"));
  chunk.slice =
      TensorSlice::between(std::move(shape), std::move(begin), parse_shape(view.at("end")));
  const JsonView range = view.at("range");
  if (range.size() != 2) range.refuse("two numbers");
  chunk.range = {parse_size(range.at(0)), parse_size(range.at(1))};
  const std::string message = validation_error(chunk);
  if (!message.empty()) throw Error("{}: {}", view.path(), message);
  stored.offset = parse_size(view.at("offset"));
  stored.crc = parse_crc_field(view.at("crc32c"));
  if (chunk.bytes() > file_size || stored.offset > file_size - chunk.bytes()) {
    throw Error("{} has {} bytes at offset {}, but its file has {}", view.path(), chunk.bytes(),
                stored.offset, file_size);
  }
  return stored;
}

// Throws if chunks share bytes, which would be read once for each chunk.
void require_disjoint(const JsonView& view, const std::vector<StoredChunk>& chunks) {
  std::vector<size_t> order(chunks.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::erase_if(order, [&](size_t i) { return chunks[i].chunk.elements() == 0; });
  std::sort(order.begin(), order.end(),
            [&](size_t a, size_t b) { return chunks[a].offset < chunks[b].offset; });
  for (size_t i = 1; i < order.size(); ++i) {
    const StoredChunk &one = chunks[order[i - 1]], &next = chunks[order[i]];
    if (one.offset + one.chunk.bytes() <= next.offset) continue;
    throw Error("{} and {} have bytes in common", view.at(order[i - 1]).path(),
                view.at(order[i]).path());
  }
}

StoredFile parse_file(const JsonView& view) {
  StoredFile file;
  const JsonView name = view.at("name");
  file.name = name.text();
  if (!is_safe_path(file.name) || file.name == kManifest || is_too_deep(file.name)) {
    name.refuse("the name of a file within the checkpoint");
  }
  file.size = parse_size(view.at("size"));
  file.crc = parse_crc_field(view.at("crc32c"));
  const JsonView chunks = view.at("pieces");
  for (size_t i = 0; i < chunks.size(); ++i) {
    file.chunks.push_back(parse_chunk(chunks.at(i), file.size));
  }
  require_disjoint(chunks, file.chunks);
  return file;
}

StringMap parse_string_map(const JsonView& view) {
  StringMap texts;
  for (const auto& [key, value] : view.object().items()) {
    texts.emplace(key, JsonView(value, view.path() + "." + shortened(key)).text());
  }
  return texts;
}

Manifest parse_fields(const JsonView& view) {
  if (view.at("format").text() != kFormat) {
    view.at("format").refuse(fmt::format("\"{}\"", kFormat));
  }
  const int64_t version = parse_count(view.at("version"));
  if (version != kVersion) {
    throw Error("version is {}, this program reads {}", version, kVersion);
  }
  Manifest manifest;
  manifest.step = parse_count(view.at("step"));
  manifest.run_id = view.at("run").text();
  manifest.attempt = view.at("attempt").text();
  manifest.written = view.at("written").integer(0, kMaxTime);
  if (const auto parent = view.find("parent")) {
    manifest.parent =
        Parent{parse_count(parent->at("step")), parse_crc_field(parent->at("crc32c"))};
  }
  manifest.must_equal = parse_string_map(view.at("must_equal"));
  manifest.may_change = parse_string_map(view.at("may_change"));
  const JsonView counters = view.at("counters");
  for (const auto& [key, value] : counters.object().items()) {
    manifest.counters.emplace(key, parse_counter(JsonView(value, "counters." + shortened(key))));
  }
  const std::string message = validation_error(manifest.counters, manifest.step);
  if (!message.empty()) throw Error("{}", message);
  manifest.layout = parse_string_map(view.at("layout"));
  const JsonView files = view.at("files");
  std::set<std::string> names;
  int64_t bytes = 0;
  for (size_t i = 0; i < files.size(); ++i) {
    manifest.files.push_back(parse_file(files.at(i)));
    if (!names.insert(manifest.files.back().name).second) {
      throw Error("{}.name: duplicate file {}", files.at(i).path(),
                  shortened(manifest.files.back().name));
    }
    bytes += manifest.files.back().size;
    if (bytes > kMaxBytes) {
      throw Error("{}.size: the files have more than {} bytes together", files.at(i).path(),
                  kMaxBytes);
    }
  }
  return manifest;
}

// DirectoryListings caches the entries of each directory. A missing directory is empty.
class DirectoryListings {
 public:
  DirectoryListings(FileSystem& file_system, std::string directory)
      : file_system_(file_system), directory_(std::move(directory)) {}

  const DirectoryEntry* find(const std::string& name) {
    const auto [directory, last] = split_path(name);
    const auto [found, added] = listings_.try_emplace(directory);
    if (added) list(directory, found->second);
    const auto entry = found->second.find(last);
    return entry == found->second.end() ? nullptr : &entry->second;
  }

 private:
  void list(const std::string& directory, std::map<std::string, DirectoryEntry>& entries) {
    if (!directory.empty()) {
      const DirectoryEntry* there = find(directory);
      if (there == nullptr || there->kind != DirectoryEntry::Kind::kDirectory) return;
    }
    const std::string whole = directory.empty() ? directory_ : join_path(directory_, directory);
    for (DirectoryEntry& entry : file_system_.list(whole)) entries.emplace(entry.name, entry);
  }

  FileSystem& file_system_;
  std::string directory_;
  std::map<std::string, std::map<std::string, DirectoryEntry>> listings_;
};

// Throws if the directory's name has another step. A user may rename it to any other name.
void require_matching_step(const FileSystem& file_system, const std::string& directory,
                           int64_t step) {
  const std::filesystem::path path = full_path(file_system, directory);
  const auto of_name = step_from_path(path.string());
  if (!of_name || *of_name == step) return;
  throw CorruptCheckpoint("{}: step is {}, the name of its folder says {}",
                          (path / kManifest).string(), step, *of_name);
}

void check_sizes(FileSystem& file_system, const std::string& directory, const Manifest& manifest) {
  DirectoryListings listings(file_system, directory);
  for (const StoredFile& file : manifest.files) {
    const DirectoryEntry* entry = listings.find(file.name);
    const std::string path = (file_system.path() / join_path(directory, file.name)).string();
    if (entry == nullptr) {
      throw CorruptCheckpoint("{} is missing, {} lists it with {} bytes", path, kManifest,
                              file.size);
    }
    if (entry->kind != DirectoryEntry::Kind::kFile)
      throw CorruptCheckpoint("{} is not a regular file", path);
    if (entry->size != file.size) {
      throw CorruptCheckpoint("{} has {} bytes, {} lists it with {}", path, entry->size, kManifest,
                              file.size);
    }
  }
}

std::string compose(const Manifest& manifest) {
  std::string text = "{\n";
  text += json_line("format", kFormat);
  text += json_line("version", kVersion);
  text += json_line("step", manifest.step);
  text += json_line("run", manifest.run_id);
  text += json_line("attempt", manifest.attempt);
  text += json_line("written", manifest.written);
  text += json_line("parent", manifest.parent
                                  ? ordered_json{{"step", manifest.parent->step},
                                                 {"crc32c", format_crc(manifest.parent->crc)}}
                                  : ordered_json(nullptr));
  text += json_line("must_equal", manifest.must_equal);
  text += json_line("may_change", manifest.may_change);
  ordered_json counters = ordered_json::object();
  for (const auto& [key, counter] : manifest.counters) counters[key] = checkpoint::to_json(counter);
  text += json_line("counters", counters);
  text += json_line("layout", manifest.layout);
  text += "  \"files\": [";
  const char* separator = "\n";
  for (const StoredFile& file : manifest.files) {
    text += std::exchange(separator, ",\n") + to_string(file);
  }
  text += manifest.files.empty() ? "],\n" : "\n  ],\n";
  const std::string crc = format_crc(crc32c(text));
  return text + fmt::format("{}{}{}", kCrcKey, crc, kEnd);
}

}  // namespace

std::string chunk_file_name(int64_t rank) {
  return fmt::format("{}/pieces-{:05}.safetensors", kChunkDirectory, rank);
}

std::string to_string(const Manifest& manifest) {
  std::string text;
  try {
    text = compose(manifest);
  } catch (const json::exception&) {
    throw Error("the manifest cannot be written: a name or value in it is not UTF-8");
  }
  (void)parse_manifest(text, "the manifest to be written");  // verifies its limits
  return text;
}

std::optional<uint32_t> manifest_crc(std::string_view text) {
  if (text.size() < kTail) return std::nullopt;
  const std::string_view tail = text.substr(text.size() - kTail);
  if (!tail.starts_with(kCrcKey) || !tail.ends_with(kEnd)) return std::nullopt;
  return parse_crc(tail.substr(kCrcKey.size(), kCrcDigits));
}

Manifest parse_manifest(std::string_view text, const std::string& name) {
  const auto crc = manifest_crc(text);
  if (!crc)
    throw CorruptCheckpoint("{} does not end with the crc32c of a manifest: it is cut short", name);
  const uint32_t found = crc32c(text.substr(0, text.size() - kTail));
  if (found != *crc) {
    throw CorruptCheckpoint("{}: crc32c mismatch: stored {}, computed {}", name, format_crc(*crc),
                            format_crc(found));
  }
  try {
    const json tree = parse_json(
        text, {.name = name, .limits = kLimits, .duplicate_keys = DuplicateKeyPolicy::kReject});
    return parse_fields(JsonView(tree));
  } catch (const Error& error) {
    const std::string message = error.what();
    throw CorruptCheckpoint("{}", message.starts_with(name) ? message : name + ": " + message);
  }
}

ManifestFile read_manifest(FileSystem& file_system, const std::string& directory) {
  const std::string name = join_path(directory, std::string(kManifest));
  try {
    const std::string text = read_text(file_system, name, static_cast<int64_t>(kLimits.bytes));
    ManifestFile file{.manifest = parse_manifest(text, (file_system.path() / name).string()),
                      .crc = manifest_crc(text).value_or(0),
                      .size = static_cast<int64_t>(text.size())};
    require_matching_step(file_system, directory, file.manifest.step);
    check_sizes(file_system, directory, file.manifest);
    return file;
  } catch (const CorruptCheckpoint&) {
    throw;
  } catch (const FileSystemError& error) {
    if (error.reason() != ENOENT) throw CorruptCheckpoint("{}", error.what());
    throw CorruptCheckpoint("{} is not a complete checkpoint: it has no {}",
                            full_path(file_system, directory).string(), kManifest);
  } catch (const Error& error) {
    throw CorruptCheckpoint("{}", error.what());
  }
}

std::vector<Difference> differences(const StringMap& stored, const StringMap& now) {
  std::vector<Difference> found;
  for (const auto& [key, value] : stored) {
    const auto other = now.find(key);
    if (other == now.end()) {
      found.push_back({key, value, std::nullopt});
    } else if (other->second != value) {
      found.push_back({key, value, other->second});
    }
  }
  for (const auto& [key, value] : now) {
    if (!stored.contains(key)) found.push_back({key, std::nullopt, value});
  }
  return found;
}

}  // namespace zeroth::checkpoint
