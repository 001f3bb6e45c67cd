#include "model/hf/safetensors.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <set>

#include "base/error.h"
#include "base/json/json.h"
#include "base/json/json_view.h"
#include "base/tensor_slice.h"
#include "base/text/printable.h"

namespace zeroth::model {
namespace {

using nlohmann::json;

constexpr size_t kMaxHeader = 100'000'000;

// Returns the header, and in `data_begin` the offset at which the tensors' bytes begin.
json read_header(const std::filesystem::path& path, std::span<const std::byte> bytes,
                 size_t& data_begin) {
  const std::string name = path.string();
  if (bytes.size() < 8) throw Error("{} is cut short: {} bytes", name, bytes.size());
  uint64_t length = 0;
  std::memcpy(&length, bytes.data(), 8);
  if (length > kMaxHeader) {
    throw Error("{} is not a safetensors file: its header would have {} bytes", name, length);
  }
  if (length > bytes.size() - 8) {
    throw Error("{} is cut short: its header has {} bytes, the file {}", name, length,
                bytes.size());
  }
  data_begin = 8 + length;
  const auto* text = reinterpret_cast<const char*>(bytes.data()) + 8;
  JsonSource source{.name = name + " (header)", .duplicate_keys = DuplicateKeyPolicy::kReject};
  source.limits.bytes = kMaxHeader;
  json header = parse_json({text, length}, source);
  if (!header.is_object())
    throw Error("{} is not a safetensors file: its header is not an object", name);
  return header;
}

StoredTensor parse_entry(const JsonView& entry, size_t data_begin) {
  constexpr int64_t kMaxValue = INT64_MAX / 2;  // a sum of two does not overflow
  StoredTensor tensor;
  tensor.dtype = entry.at("dtype").text();
  const JsonView shape = entry.at("shape");
  for (size_t i = 0; i < shape.size(); ++i)
    tensor.shape.push_back(shape.at(i).integer(0, kMaxValue));
  const JsonView offsets = entry.at("data_offsets");
  if (offsets.size() != 2) offsets.refuse("two offsets");
  tensor.begin = data_begin + static_cast<size_t>(offsets.at(0).integer(0, kMaxValue));
  tensor.end = data_begin + static_cast<size_t>(offsets.at(1).integer(0, kMaxValue));
  return tensor;
}

// Returns nullopt if the size overflows.
std::optional<size_t> num_bytes(const StoredTensor& tensor, int64_t element) {
  auto bytes = static_cast<size_t>(element);
  for (const int64_t extent : tensor.shape) {
    if (__builtin_mul_overflow(bytes, static_cast<size_t>(extent), &bytes)) return std::nullopt;
  }
  return bytes;
}

constexpr const char* kSingle = "model.safetensors";
constexpr const char* kIndex = "model.safetensors.index.json";

bool is_file_name(const std::string& text) {
  return !text.empty() && text != "." && text != ".." && text.find_first_of("/\\") == text.npos &&
         text.find('\0') == text.npos;
}

// Returns the file of each tensor.
std::map<std::string, std::string> read_index(const std::filesystem::path& path) {
  const nlohmann::json index =
      read_json({.name = path.string(), .duplicate_keys = DuplicateKeyPolicy::kReject});
  try {
    std::map<std::string, std::string> files;
    const JsonView map = JsonView(index).at("weight_map");
    for (const auto& [tensor, file] : map.object().items()) {
      const JsonView view(file, "weight_map." + shortened(tensor));
      if (!is_file_name(view.text())) view.refuse("the name of a file in this folder");
      files.emplace(tensor, view.text());
    }
    return files;
  } catch (const Error& error) {
    throw Error("{} has no readable weight_map: {}", path.string(), error.what());
  }
}

}  // namespace

SafetensorsFile::SafetensorsFile(const std::filesystem::path& path) : path_(path), file_(path) {
  size_t data_begin = 0;
  const json header = read_header(path, file_.bytes(), data_begin);
  for (const auto& [name, entry] : header.items()) {
    if (name == "__metadata__") continue;
    try {
      tensors_[name] = parse_entry(JsonView(entry), data_begin);
    } catch (const Error& error) {
      throw Error("{}: the header's entry for tensor {} is malformed: {}", path.string(),
                  shortened(name), error.what());
    }
  }
  check_ranges(data_begin);
}

void SafetensorsFile::check_ranges(size_t data_begin) const {
  std::vector<std::pair<const std::string*, const StoredTensor*>> order;
  for (const auto& [name, tensor] : tensors_) order.emplace_back(&name, &tensor);
  std::sort(order.begin(), order.end(), [](const auto& a, const auto& b) {
    return std::pair(a.second->begin, a.second->end) < std::pair(b.second->begin, b.second->end);
  });
  size_t expected = data_begin;
  for (const auto& [name, tensor] : order) {
    if (tensor->end > file_.bytes().size()) {
      throw Error("{} is cut short: tensor {} ends at byte {}, the file has {}", path_.string(),
                  shortened(*name), tensor->end, file_.bytes().size());
    }
    if (tensor->begin != expected || tensor->end < tensor->begin) {
      throw Error("{}: tensor {} occupies bytes {} to {}, expected to begin at {}", path_.string(),
                  shortened(*name), tensor->begin, tensor->end, expected);
    }
    expected = tensor->end;
    const auto element = element_size(tensor->dtype);
    if (!element) continue;
    const auto bytes = num_bytes(*tensor, *element);
    if (bytes != tensor->end - tensor->begin) {
      throw Error("{}: tensor {} has {} bytes, its shape and dtype {} need {}", path_.string(),
                  shortened(*name), tensor->end - tensor->begin, tensor->dtype,
                  bytes ? fmt::format("{}", *bytes) : "more than any file has");
    }
  }
  if (expected != file_.bytes().size()) {
    throw Error("{} has {} bytes, its header describes {}", path_.string(), file_.bytes().size(),
                expected);
  }
}

std::span<const std::byte> SafetensorsFile::bytes(const StoredTensor& tensor) const {
  return file_.bytes().subspan(tensor.begin, tensor.end - tensor.begin);
}

SafetensorsDirectory::SafetensorsDirectory(const std::filesystem::path& directory)
    : directory_(directory) {
  if (std::filesystem::exists(directory / kSingle)) {
    open(directory / kSingle);
    return;
  }
  if (!std::filesystem::exists(directory / kIndex)) {
    throw Error("{} holds neither {} nor {}", directory.string(), kSingle, kIndex);
  }
  const auto weight_map = read_index(directory / kIndex);
  std::set<std::string> names;
  for (const auto& [tensor, file] : weight_map) names.insert(file);
  for (const std::string& name : names) open(directory / name);
  for (const auto& [tensor, file] : weight_map) {
    const auto it = entries_.find(tensor);
    if (it == entries_.end() || it->second.file->path().filename() != file) {
      throw Error("{} says that {} holds tensor {}, but it does not",
                  (directory_ / kIndex).string(), file, shortened(tensor));
    }
  }
}

void SafetensorsDirectory::open(const std::filesystem::path& path) {
  files_.push_back(std::make_unique<SafetensorsFile>(path));
  const SafetensorsFile& file = *files_.back();
  for (const auto& [name, tensor] : file.tensors()) {
    const auto [it, added] = entries_.try_emplace(name, FileTensor{&file, &tensor});
    if (!added) {
      throw Error("tensor {} is in {} and in {}", shortened(name), it->second.file->path().string(),
                  path.string());
    }
  }
}

bool has_weights(const std::filesystem::path& directory) {
  if (std::filesystem::exists(directory / kSingle) || std::filesystem::exists(directory / kIndex)) {
    return true;
  }
  for (const auto& entry : std::filesystem::directory_iterator(directory)) {
    const std::string name = entry.path().filename().string();
    const std::string kind = entry.path().extension().string();
    if (kind == ".safetensors" || kind == ".pt" || kind == ".pth" || kind == ".gguf" ||
        kind == ".h5" || kind == ".msgpack" || name.starts_with("pytorch_model")) {
      throw Error(
          "{} holds {} but no {} or {}: weights are read from these only; transformers writes "
          "them: AutoModelForCausalLM.from_pretrained(FOLDER).save_pretrained(CONVERTED)",
          directory.string(), shortened(name), kSingle, kIndex);
    }
  }
  return false;
}

}  // namespace zeroth::model
