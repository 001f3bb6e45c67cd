#include "model/hf/checkpoint_source.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <set>

#include "base/error.h"
#include "base/printable.h"
#include "base/usage_error.h"
#include "model/blocks/build.h"
#include "model/hf/checkpoint_map.h"
#include "model/hf/dtype_word.h"
#include "model/random_source.h"

namespace zeroth::model {
namespace {

// Elements converted and checked at once: they stay in the cache.
constexpr int64_t kChunk = 1 << 18;

std::string shape_text(const std::vector<int64_t>& shape) {
  return shortened(fmt::format("{}", fmt::join(shape, ", ")));
}

bool is_finite(const torch::Tensor& values) {
  const auto [low, high] = at::aminmax(values);
  return std::isfinite(low.item<double>()) && std::isfinite(high.item<double>());
}

// Their bytes, one row behind the other; nothing in a file need be aligned.
void copy_rows(std::span<const std::byte> tensor, const BoxRows& rows, size_t width,
               std::byte* to) {
  rows.for_each_run(0, rows.elements(), [&](int64_t at, int64_t whole, int64_t size) {
    std::memcpy(to + at * width, tensor.data() + whole * width, size * width);
  });
}

// What was read, with what lies between its rows.
void forget(const SafetensorsFile& file, std::span<const std::byte> tensor, const Part& part,
            int64_t count, size_t width) {
  if (count == 0) return;
  const auto place_of = [&](int64_t element) {
    return rows_of_box(part.box, element, 1, 1).front().whole * width;
  };
  const size_t begin = place_of(part.first);
  file.forget(tensor.subspan(begin, place_of(part.first + count - 1) + width - begin));
}

std::set<std::string> parameter_names(const ModelSpec& spec) {
  std::set<std::string> names;
  for (const auto& block : build_blocks(spec)) {
    for (const auto& item : block->named_parameters()) {
      names.insert(block->label() + "." + item.key());
    }
  }
  return names;
}

}  // namespace

CheckpointSource::CheckpointSource(const std::filesystem::path& folder, const ModelSpec& spec)
    : spec_(spec), files_(folder) {
  const std::set<std::string> parameters = parameter_names(spec);
  for (const auto& [stored, entry] : files_.entries()) {
    if (is_ignored_buffer(spec, stored)) continue;
    const auto name = canonical_name(spec, stored);
    if (!name || !parameters.contains(*name)) {
      throw Error("{} holds tensor {}, which a {} model of this config.json does not have",
                  entry.file->path().string(), shortened(stored), spec.family);
    }
    const auto [it, added] = found_.try_emplace(*name, Found{stored, entry});
    if (!added) {
      throw Error("{} holds {} and {}, which are one parameter", folder.string(),
                  shortened(it->second.stored_name), shortened(stored));
    }
  }
  if (!spec.tied) return;
  // A tied pair may be stored under either name or both.
  const auto head = found_.find("head.weight");
  if (head != found_.end()) found_.try_emplace("embedding.weight", head->second);
}

const CheckpointSource::Found& CheckpointSource::find(const std::string& name) const {
  const auto it = found_.find(name);
  if (it == found_.end()) {
    throw UsageError("{} lacks tensor {}", files_.folder().string(), stored_name(spec_, name));
  }
  return it->second;
}

void CheckpointSource::check(const std::string& name, const std::vector<int64_t>& shape) {
  const Found& found = find(name);
  const StoredTensor& tensor = *found.entry.tensor;
  const std::string path = found.entry.file->path().string();
  if (!dtype_of_word(tensor.dtype)) {
    throw UsageError("{}: tensor {} is {}; supported are F32, F16, BF16", path, found.stored_name,
                     shortened(tensor.dtype));
  }
  if (tensor.shape != shape) {
    throw UsageError("{}: tensor {} is [{}], but config.json asks for [{}]", path,
                     found.stored_name, shape_text(tensor.shape), shape_text(shape));
  }
}

void CheckpointSource::read(const Part& part, torch::Tensor out) {
  const Found& found = find(part.name);
  const SafetensorsFile& file = *found.entry.file;
  const auto dtype = dtype_of_word(found.entry.tensor->dtype);
  ZEROTH_CHECK(dtype && found.entry.tensor->shape == part.box.shape, "{} was not checked",
               part.name);
  const size_t width = c10::elementSize(*dtype);
  const std::span<const std::byte> all = file.bytes(*found.entry.tensor);
  const torch::Tensor stored = torch::empty({std::min(kChunk, out.numel())}, *dtype);
  int64_t done = 0;
  for (const BoxRows& rows : rows_of_box(part.box, part.first, out.numel(), kChunk)) {
    copy_rows(all, rows, width, static_cast<std::byte*>(stored.data_ptr()));
    torch::Tensor values = out.narrow(0, done, rows.elements());
    values.copy_(stored.narrow(0, 0, rows.elements()));
    if (!is_finite(values)) {
      throw Error("{}: tensor {} has a value that is NaN, infinite or too large for {}",
                  file.path().string(), found.stored_name, c10::toString(out.scalar_type()));
    }
    done += rows.elements();
  }
  forget(file, all, part, out.numel(), width);
}

std::unique_ptr<WeightSource> open_weights(const std::filesystem::path& folder,
                                           const ModelSpec& spec, uint64_t seed) {
  if (has_weights(folder)) return std::make_unique<CheckpointSource>(folder, spec);
  return std::make_unique<RandomSource>(spec, seed);
}

}  // namespace zeroth::model
