#include "model/hf/checkpoint_source.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <set>
#include <utility>

#include "base/error.h"
#include "base/text/printable.h"
#include "model/blocks/build_blocks.h"
#include "model/hf/checkpoint_map.h"
#include "model/hf/model_layout.h"
#include "model/hf/nf4_source.h"
#include "model/weight_source.h"

namespace zeroth::model {
namespace {

// Elements converted and checked at once: they stay in the cache.
constexpr int64_t kChunk = 1 << 18;

std::string describe_shape(const std::vector<int64_t>& shape) {
  return shortened(fmt::format("{}", fmt::join(shape, ", ")));
}

bool is_finite(const torch::Tensor& values) {
  const auto [low, high] = at::aminmax(values);
  return std::isfinite(low.item<double>()) && std::isfinite(high.item<double>());
}

// Drops the pages of what was read, including the gaps between its rows.
void drop_pages(const SafetensorsFile& file, std::span<const std::byte> tensor,
                const ParamSlice& part, int64_t count, size_t width) {
  if (count == 0) return;
  const auto byte_offset = [&](int64_t element) {
    return slice_rows(part.box, element, 1, 1).front().offset * width;
  };
  const size_t begin = byte_offset(part.first);
  file.drop_pages(tensor.subspan(begin, byte_offset(part.first + count - 1) + width - begin));
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

// Returns the parameter to which a stored tensor belongs: bitsandbytes stores scales and formats
// of a weight under names that begin with the weight's.
std::string parameter_of(const ModelSpec& spec, const std::string& name) {
  constexpr std::string_view kWeight = ".weight.";
  const size_t at = spec.quantization ? name.find(kWeight) : std::string::npos;
  return at == std::string::npos ? name : name.substr(0, at + kWeight.size() - 1);
}

}  // namespace

void StoredParameter::check(const std::vector<int64_t>& shape, std::string_view requirement,
                            std::string_view advice) const {
  const std::string path = entry.file->path().string();
  if (!parse_dtype(entry.tensor->dtype)) {
    throw UsageError("{}: tensor {} is {}; supported are F32, F16, BF16", path, stored_name,
                     shortened(entry.tensor->dtype));
  }
  if (entry.tensor->shape != shape) {
    throw UsageError("{}: tensor {} is [{}], but {} [{}]{}", path, stored_name,
                     describe_shape(entry.tensor->shape), requirement, describe_shape(shape),
                     advice);
  }
}

void StoredParameter::read(const ParamSlice& part, torch::Tensor out) const {
  const SafetensorsFile& file = *entry.file;
  const auto dtype = parse_dtype(entry.tensor->dtype);
  ZEROTH_CHECK(dtype && entry.tensor->shape == part.box.shape, "{} was not checked", part.name);
  const size_t width = c10::elementSize(*dtype);
  const std::span<const std::byte> all = file.bytes(*entry.tensor);
  const torch::Tensor stored = torch::empty({std::min(kChunk, out.numel())}, *dtype);
  auto* const to = static_cast<std::byte*>(stored.data_ptr());  // a file's data may be unaligned
  int64_t done = 0;
  for (const SliceRows& rows : slice_rows(part.box, part.first, out.numel(), kChunk)) {
    rows.for_each_run(0, rows.elements(), [&](int64_t at, int64_t whole, int64_t size) {
      std::memcpy(to + at * width, all.data() + whole * width, size * width);
    });
    torch::Tensor values = out.narrow(0, done, rows.elements());
    values.copy_(stored.narrow(0, 0, rows.elements()));
    if (!is_finite(values)) {
      throw Error("{}: tensor {} has a value that is NaN, infinite or too large for {}",
                  file.path().string(), stored_name, c10::toString(out.scalar_type()));
    }
    done += rows.elements();
  }
  drop_pages(file, all, part, out.numel(), width);
}

CheckpointSource::CheckpointSource(const std::filesystem::path& directory, const ModelSpec& spec)
    : spec_(spec), files_(directory) {
  const std::set<std::string> parameters = parameter_names(spec);
  for (const auto& [stored, entry] : files_.entries()) {
    if (is_ignored_buffer(spec, stored)) continue;
    const auto name = canonical_name(spec, stored);
    if (!name || !parameters.contains(parameter_of(spec, *name))) {
      throw Error("{} holds tensor {}, which a {} model of this config.json does not have",
                  entry.file->path().string(), shortened(stored), spec.family);
    }
    const auto [it, added] = found_.try_emplace(*name, StoredParameter{stored, entry});
    if (!added) {
      throw Error("{} holds {} and {}, which are the same parameter", directory.string(),
                  shortened(it->second.stored_name), shortened(stored));
    }
  }
  if (!spec.tie_word_embeddings) return;
  // A tied pair may be stored under either name or both.
  const auto head = found_.find("head.weight");
  if (head != found_.end()) found_.try_emplace("embedding.weight", head->second);
}

const StoredParameter& CheckpointSource::find(const std::string& name) const {
  const auto it = found_.find(name);
  if (it == found_.end()) {
    throw UsageError("{} is missing tensor {}", files_.directory().string(),
                     stored_name(spec_, name));
  }
  return it->second;
}

void CheckpointSource::check(const std::string& name, const std::vector<int64_t>& shape) {
  find(name).check(shape, "config.json requires");
}

void CheckpointSource::read(const ParamSlice& part, torch::Tensor out) {
  find(part.name).read(part, std::move(out));
}

std::unique_ptr<WeightSource> open_weights(const std::filesystem::path& directory,
                                           const ModelSpec& spec, uint64_t seed,
                                           torch::Dtype dtype) {
  if (spec.quantization && spec.quantization->is_stored) return open_nf4_source(directory, spec);
  ModelSpec plain = spec;
  plain.quantization.reset();
  std::unique_ptr<WeightSource> weights;
  if (has_weights(directory)) {
    weights = std::make_unique<CheckpointSource>(directory, plain);
  } else {
    weights = std::make_unique<RandomSource>(plain, seed);
  }
  return spec.quantization ? make_nf4_source(spec, std::move(weights), dtype) : std::move(weights);
}

}  // namespace zeroth::model
