#include "checkpoint/manifest.h"

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <numeric>
#include <set>
#include <utility>

#include "base/crc32c.h"
#include "base/json.h"
#include "base/json_view.h"
#include "base/printable.h"
#include "checkpoint/counters.h"
#include "checkpoint/names.h"

namespace zeroth::checkpoint {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

constexpr std::string_view kFormat = "zeroth checkpoint";
constexpr int64_t kMaxTime = 253'402'300'799;    // the last second of the year 9999
constexpr int64_t kMaxBytes = int64_t{1} << 60;  // of all files of a checkpoint
constexpr JsonLimits kLimits = {.bytes = size_t{256} << 20, .values = 10'000'000};
// The end of every manifest, with the CRC of all that stands before it.
constexpr std::string_view kCrcKey = "  \"crc32c\": \"";
constexpr std::string_view kEnd = "\"\n}\n";
constexpr size_t kCrcDigits = 8;
constexpr size_t kTail = kCrcKey.size() + kCrcDigits + kEnd.size();

// Numbers that JSON lacks are objects.
ordered_json json_of(const Counter& counter) {
  if (const auto* number = std::get_if<double>(&counter)) {
    if (std::isfinite(*number)) return *number;
    const bool negative = std::signbit(*number);
    return {{"double", std::isnan(*number) ? (negative ? "-nan" : "nan")
                       : negative          ? "-inf"
                                           : "inf"}};
  }
  if (const auto* number = std::get_if<int64_t>(&counter)) return *number;
  return std::get<std::string>(counter);
}

Counter counter_of(const JsonView& view) {
  const json& value = view.json();
  if (value.is_string()) return view.text();
  if (value.is_number_float()) return value.get<double>();
  if (value.is_number()) {
    return view.integer(std::numeric_limits<int64_t>::min() + 1,
                        std::numeric_limits<int64_t>::max());
  }
  if (!value.is_object()) view.refuse("a number or a text");
  const JsonView name = view.at("double");
  using Limits = std::numeric_limits<double>;
  static const std::map<std::string, double> kNames = {{"inf", Limits::infinity()},
                                                       {"-inf", -Limits::infinity()},
                                                       {"nan", Limits::quiet_NaN()},
                                                       {"-nan", -Limits::quiet_NaN()}};
  const auto found = kNames.find(name.text());
  if (found == kNames.end()) name.refuse("inf, -inf, nan or -nan");
  return found->second;
}

ordered_json json_of(const StoredPiece& stored) {
  const Piece& piece = stored.piece;
  return {{"tensor", piece.tensor},
          {"state", piece.state},
          {"dtype", piece.dtype},
          {"shape", piece.shape},
          {"begin", piece.box.begin},
          {"end", piece.box.end},
          {"range", {piece.range.begin, piece.range.end}},
          {"offset", stored.offset},
          {"crc32c", crc_text(stored.crc)}};
}

// A file on a line of its own, and each of its pieces.
std::string text_of(const StoredFile& file) {
  std::string text =
      fmt::format("    {{\"name\": {}, \"size\": {}, \"crc32c\": \"{}\", \"pieces\": [",
                  json(file.name).dump(), file.size, crc_text(file.crc));
  const char* separator = "\n";
  for (const StoredPiece& piece : file.pieces) {
    text += std::exchange(separator, ",\n") + ("      " + json_of(piece).dump());
  }
  return text + (file.pieces.empty() ? "]}" : "\n    ]}");
}

template <typename Map>
ordered_json object_of(const Map& map) {
  ordered_json object = ordered_json::object();
  for (const auto& [key, value] : map) object[key] = value;
  return object;
}

std::string line_of(std::string_view key, const ordered_json& value) {
  return fmt::format("  \"{}\": {},\n", key, value.dump());
}

int64_t count_of(const JsonView& view) {
  return view.integer(0, kMaxCount);
}

// Bytes or elements.
int64_t size_of(const JsonView& view) {
  return view.integer(0, kMaxBytes);
}

uint32_t crc_of(const JsonView& view) {
  const auto crc = parse_crc(view.text());
  if (!crc) view.refuse("eight hexadecimal digits");
  return *crc;
}

Shape shape_of(const JsonView& view) {
  Shape shape;
  for (size_t i = 0; i < view.size(); ++i) shape.push_back(size_of(view.at(i)));
  return shape;
}

StoredPiece piece_of(const JsonView& view, int64_t file_size) {
  StoredPiece stored;
  Piece& piece = stored.piece;
  piece.tensor = view.at("tensor").text();
  piece.state = view.at("state").text();
  piece.dtype = view.at("dtype").text();
  piece.shape = shape_of(view.at("shape"));
  piece.box = {shape_of(view.at("begin")), shape_of(view.at("end"))};
  const JsonView range = view.at("range");
  if (range.size() != 2) range.refuse("two numbers");
  piece.range = {size_of(range.at(0)), size_of(range.at(1))};
  const std::string complaint = complaint_about(piece);
  if (!complaint.empty()) throw Error("{}: {}", view.path(), complaint);
  stored.offset = size_of(view.at("offset"));
  stored.crc = crc_of(view.at("crc32c"));
  if (piece.bytes() > file_size || stored.offset > file_size - piece.bytes()) {
    throw Error("{} has {} bytes from byte {} on, its file {}", view.path(), piece.bytes(),
                stored.offset, file_size);
  }
  return stored;
}

// Pieces that share bytes would be read as often as there are pieces.
void require_apart(const JsonView& view, const std::vector<StoredPiece>& pieces) {
  std::vector<size_t> order(pieces.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::erase_if(order, [&](size_t i) { return pieces[i].piece.elements() == 0; });
  std::sort(order.begin(), order.end(),
            [&](size_t a, size_t b) { return pieces[a].offset < pieces[b].offset; });
  for (size_t i = 1; i < order.size(); ++i) {
    const StoredPiece &one = pieces[order[i - 1]], &next = pieces[order[i]];
    if (one.offset + one.piece.bytes() <= next.offset) continue;
    throw Error("{} and {} have bytes in common", view.at(order[i - 1]).path(),
                view.at(order[i]).path());
  }
}

StoredFile file_of(const JsonView& view) {
  StoredFile file;
  const JsonView name = view.at("name");
  file.name = name.text();
  if (!is_plain_path(file.name) || file.name == kManifest || is_too_deep(file.name)) {
    name.refuse("the name of a file within the checkpoint");
  }
  file.size = size_of(view.at("size"));
  file.crc = crc_of(view.at("crc32c"));
  const JsonView pieces = view.at("pieces");
  for (size_t i = 0; i < pieces.size(); ++i) {
    file.pieces.push_back(piece_of(pieces.at(i), file.size));
  }
  require_apart(pieces, file.pieces);
  return file;
}

Texts texts_of(const JsonView& view) {
  Texts texts;
  for (const auto& [key, value] : view.object().items()) {
    texts.emplace(key, JsonView(value, view.path() + "." + shortened(key)).text());
  }
  return texts;
}

Manifest manifest_of(const JsonView& view) {
  if (view.at("format").text() != kFormat) {
    view.at("format").refuse(fmt::format("\"{}\"", kFormat));
  }
  const int64_t version = count_of(view.at("version"));
  if (version != kVersion) {
    throw Error("version is {}, this program reads {}", version, kVersion);
  }
  Manifest manifest;
  manifest.step = count_of(view.at("step"));
  manifest.run_id = view.at("run").text();
  manifest.attempt = view.at("attempt").text();
  manifest.written = view.at("written").integer(0, kMaxTime);
  if (const auto parent = view.find("parent")) {
    manifest.parent = Parent{count_of(parent->at("step")), crc_of(parent->at("crc32c"))};
  }
  manifest.must_equal = texts_of(view.at("must_equal"));
  manifest.may_change = texts_of(view.at("may_change"));
  const JsonView counters = view.at("counters");
  for (const auto& [key, value] : counters.object().items()) {
    manifest.counters.emplace(key, counter_of(JsonView(value, "counters." + shortened(key))));
  }
  const std::string complaint = complaint_about(manifest.counters, manifest.step);
  if (!complaint.empty()) throw Error("{}", complaint);
  manifest.layout = texts_of(view.at("layout"));
  const JsonView files = view.at("files");
  std::set<std::string> names;
  int64_t bytes = 0;
  for (size_t i = 0; i < files.size(); ++i) {
    manifest.files.push_back(file_of(files.at(i)));
    if (!names.insert(manifest.files.back().name).second) {
      throw Error("{}.name {} stands twice", files.at(i).path(),
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

// By folder: what is in it. Folders that are not there are empty.
class Listings {
 public:
  Listings(Disk& disk, std::string folder) : disk_(disk), folder_(std::move(folder)) {}

  const Entry* find(const std::string& name) {
    const size_t slash = name.rfind('/');
    const std::string folder = slash == name.npos ? "" : name.substr(0, slash);
    const auto [found, added] = listings_.try_emplace(folder);
    if (added) list(folder, found->second);
    const auto entry = found->second.find(slash == name.npos ? name : name.substr(slash + 1));
    return entry == found->second.end() ? nullptr : &entry->second;
  }

 private:
  void list(const std::string& folder, std::map<std::string, Entry>& entries) {
    if (!folder.empty()) {
      const Entry* there = find(folder);
      if (there == nullptr || there->kind != Entry::Kind::kFolder) return;
    }
    const std::string whole = folder.empty() ? folder_ : joined(folder_, folder);
    for (Entry& entry : disk_.list(whole)) entries.emplace(entry.name, entry);
  }

  Disk& disk_;
  std::string folder_;
  std::map<std::string, std::map<std::string, Entry>> listings_;
};

// A folder that the user has given another name is as good as before.
void require_step_of_name(const Disk& disk, const std::string& folder, int64_t step) {
  const std::filesystem::path path = path_to(disk, folder);
  const auto of_name = step_of_path(path.string());
  if (!of_name || *of_name == step) return;
  throw Damaged("{}: step is {}, the name of its folder says {}", (path / kManifest).string(), step,
                *of_name);
}

void check_sizes(Disk& disk, const std::string& folder, const Manifest& manifest) {
  Listings listings(disk, folder);
  for (const StoredFile& file : manifest.files) {
    const Entry* entry = listings.find(file.name);
    const std::string path = (disk.path() / joined(folder, file.name)).string();
    if (entry == nullptr) {
      throw Damaged("{} is missing, {} lists it with {} bytes", path, kManifest, file.size);
    }
    if (entry->kind != Entry::Kind::kFile) throw Damaged("{} is no regular file", path);
    if (entry->size != file.size) {
      throw Damaged("{} has {} bytes, {} lists it with {}", path, entry->size, kManifest,
                    file.size);
    }
  }
}

}  // namespace

std::string piece_file_name(int64_t rank) {
  return fmt::format("{}/pieces-{:05}.safetensors", kPieceFolder, rank);
}

namespace {

std::string composed(const Manifest& manifest) {
  std::string text = "{\n";
  text += line_of("format", kFormat);
  text += line_of("version", kVersion);
  text += line_of("step", manifest.step);
  text += line_of("run", manifest.run_id);
  text += line_of("attempt", manifest.attempt);
  text += line_of("written", manifest.written);
  text +=
      line_of("parent", manifest.parent ? ordered_json{{"step", manifest.parent->step},
                                                       {"crc32c", crc_text(manifest.parent->crc)}}
                                        : ordered_json(nullptr));
  text += line_of("must_equal", object_of(manifest.must_equal));
  text += line_of("may_change", object_of(manifest.may_change));
  ordered_json counters = ordered_json::object();
  for (const auto& [key, counter] : manifest.counters) counters[key] = json_of(counter);
  text += line_of("counters", counters);
  text += line_of("layout", object_of(manifest.layout));
  text += "  \"files\": [";
  const char* separator = "\n";
  for (const StoredFile& file : manifest.files) {
    text += std::exchange(separator, ",\n") + text_of(file);
  }
  text += manifest.files.empty() ? "],\n" : "\n  ],\n";
  const std::string crc = crc_text(crc32c(text));
  return text + fmt::format("{}{}{}", kCrcKey, crc, kEnd);
}

}  // namespace

std::string text_of(const Manifest& manifest) {
  std::string text;
  try {
    text = composed(manifest);
  } catch (const json::exception&) {
    throw Error("the manifest cannot be written: a name or value in it is not UTF-8");
  }
  (void)parse_manifest(text, "the manifest to be written");  // with its limits
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
  if (!crc) throw Damaged("{} does not end with the crc32c of a manifest: it is cut short", name);
  const uint32_t found = crc32c(text.substr(0, text.size() - kTail));
  if (found != *crc) {
    throw Damaged("{}: its crc32c is {}, its bytes have {}", name, crc_text(*crc), crc_text(found));
  }
  try {
    const json tree =
        parse_json(text, {.name = name, .limits = kLimits, .repeated = Repeated::kRefused});
    return manifest_of(JsonView(tree));
  } catch (const Error& error) {
    const std::string said = error.what();
    throw Damaged("{}", said.starts_with(name) ? said : name + ": " + said);
  }
}

ManifestFile read_manifest(Disk& disk, const std::string& folder) {
  const std::string name = joined(folder, std::string(kManifest));
  try {
    const std::string text = read_text(disk, name, static_cast<int64_t>(kLimits.bytes));
    ManifestFile file{.manifest = parse_manifest(text, (disk.path() / name).string()),
                      .crc = manifest_crc(text).value_or(0),
                      .size = static_cast<int64_t>(text.size())};
    require_step_of_name(disk, folder, file.manifest.step);
    check_sizes(disk, folder, file.manifest);
    return file;
  } catch (const Damaged&) {
    throw;
  } catch (const DiskError& error) {
    if (error.reason() != ENOENT) throw Damaged("{}", error.what());
    throw Damaged("{} is no complete checkpoint: it has no {}", path_to(disk, folder).string(),
                  kManifest);
  } catch (const Error& error) {
    throw Damaged("{}", error.what());
  }
}

std::vector<Difference> differences(const Texts& stored, const Texts& now) {
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
