#include "model/safetensors.h"

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>

#include "base/error.h"

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
  json header = json::parse(text, text + length, nullptr, /*allow_exceptions=*/false);
  if (!header.is_object()) throw Error("{} is not a safetensors file: no JSON header", name);
  return header;
}

StoredTensor parse_entry(const json& entry, size_t data_begin) {
  StoredTensor tensor;
  tensor.dtype = entry.at("dtype").get<std::string>();
  tensor.shape = entry.at("shape").get<std::vector<int64_t>>();
  const auto offsets = entry.at("data_offsets").get<std::vector<uint64_t>>();
  const bool negative =
      std::any_of(tensor.shape.begin(), tensor.shape.end(), [](int64_t n) { return n < 0; });
  if (offsets.size() != 2 || negative) throw json::other_error::create(0, "malformed", nullptr);
  tensor.begin = data_begin + offsets[0];
  tensor.end = data_begin + offsets[1];
  return tensor;
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
      tensors_[name] = parse_entry(entry, 8 + length);
    } catch (const json::exception&) {
      throw Error("{}: the header's entry for tensor {} is malformed: {}", path.string(), name,
                  entry.dump());
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
                  *name, tensor->end, file_.bytes().size());
    }
    if (tensor->begin != expected || tensor->end < tensor->begin) {
      throw Error("{}: tensor {} occupies bytes {} to {}, expected to begin at {}", path_.string(),
                  *name, tensor->begin, tensor->end, expected);
    }
    expected = tensor->end;
    size_t bytes = stored_element_size(tensor->dtype);
    if (bytes == 0) continue;
    for (const int64_t extent : tensor->shape) bytes *= static_cast<size_t>(extent);
    if (bytes != tensor->end - tensor->begin) {
      throw Error("{}: tensor {} has {} bytes, its shape and dtype {} need {}", path_.string(),
                  *name, tensor->end - tensor->begin, tensor->dtype, bytes);
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
