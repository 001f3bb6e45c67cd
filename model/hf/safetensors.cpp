#include "model/hf/safetensors.h"

#include <algorithm>
#include <cstring>
#include <optional>

#include "base/error.h"
#include "base/json.h"
#include "base/json_view.h"
#include "base/printable.h"

namespace zeroth::model {
namespace {

using nlohmann::json;

constexpr size_t kMaxHeader = 100'000'000;

json read_header(const std::filesystem::path& path, std::span<const std::byte> bytes) {
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
  const auto* text = reinterpret_cast<const char*>(bytes.data()) + 8;
  JsonSource source{.name = name + " (header)", .repeated = Repeated::kRefused};
  source.limits.bytes = kMaxHeader;
  json header = parse_json({text, length}, source);
  if (!header.is_object()) throw Error("{} is not a safetensors file: no object as header", name);
  return header;
}

StoredTensor parse_entry(const JsonView& entry, size_t data_begin) {
  constexpr int64_t kMost = INT64_MAX / 2;  // a sum of two is none too large
  StoredTensor tensor;
  tensor.dtype = entry.at("dtype").text();
  const JsonView shape = entry.at("shape");
  for (size_t i = 0; i < shape.size(); ++i) tensor.shape.push_back(shape.at(i).integer(0, kMost));
  const JsonView offsets = entry.at("data_offsets");
  if (offsets.size() != 2) offsets.refuse("two offsets");
  tensor.begin = data_begin + static_cast<size_t>(offsets.at(0).integer(0, kMost));
  tensor.end = data_begin + static_cast<size_t>(offsets.at(1).integer(0, kMost));
  return tensor;
}

// Nothing when it is beyond any file.
std::optional<size_t> bytes_of(const StoredTensor& tensor) {
  size_t bytes = stored_element_size(tensor.dtype);
  for (const int64_t extent : tensor.shape) {
    if (__builtin_mul_overflow(bytes, static_cast<size_t>(extent), &bytes)) return std::nullopt;
  }
  return bytes;
}

}  // namespace

size_t stored_element_size(const std::string& dtype) {
  static const std::map<std::string, size_t> kSizes = {
      {"F64", 8},  {"I64", 8}, {"U64", 8},     {"F32", 4},     {"I32", 4},
      {"U32", 4},  {"F16", 2}, {"I16", 2},     {"U16", 2},     {"BF16", 2},
      {"BOOL", 1}, {"I8", 1},  {"F8_E4M3", 1}, {"F8_E5M2", 1}, {"U8", 1}};
  const auto it = kSizes.find(dtype);
  return it == kSizes.end() ? 0 : it->second;
}

SafetensorsFile::SafetensorsFile(const std::filesystem::path& path) : path_(path), file_(path) {
  const json header = read_header(path, file_.bytes());
  uint64_t length = 0;
  std::memcpy(&length, file_.bytes().data(), 8);
  for (const auto& [name, entry] : header.items()) {
    if (name == "__metadata__") continue;
    try {
      tensors_[name] = parse_entry(JsonView(entry), 8 + length);
    } catch (const Error& error) {
      throw Error("{}: the header's entry for tensor {} is malformed: {}", path.string(),
                  shortened(name), error.what());
    }
  }
  check_ranges(8 + length);
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
    if (stored_element_size(tensor->dtype) == 0) continue;
    const auto bytes = bytes_of(*tensor);
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

}  // namespace zeroth::model
