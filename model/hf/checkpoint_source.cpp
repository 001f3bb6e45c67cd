#include "model/hf/checkpoint_source.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <set>
#include <utility>

#include "base/error.h"
#include "base/text/printable.h"
#include "base/text/units.h"
#include "model/blocks/build_blocks.h"
#include "model/hf/checkpoint_map.h"
#include "model/hf/model_layout.h"
#include "model/hf/multimodal.h"
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

// Returns the elements of the box in one of `parts` equal parts of an entry, as a slice of the
// part.
TensorSlice slice_of_piece(const TensorSlice& box, int64_t part, int64_t parts) {
  const auto entry = [](const std::vector<int64_t>& sizes) {
    return std::vector<int64_t>(sizes.begin() + 1, sizes.end());
  };
  TensorSlice slice{entry(box.shape), entry(box.offsets), entry(box.sizes)};
  if (parts == 1) return slice;
  const int64_t rows = slice.shape[0] / parts, first = part * rows;
  const int64_t end = std::clamp<int64_t>(slice.end(0) - first, 0, rows);
  slice.shape[0] = rows;
  slice.offsets[0] = std::clamp<int64_t>(slice.offsets[0] - first, 0, rows);
  slice.sizes[0] = end - slice.offsets[0];
  return slice;
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
    : CheckpointSource(directory, spec, family_in_files(spec), parameter_names(spec)) {}

CheckpointSource::CheckpointSource(const std::filesystem::path& directory, const ModelSpec& spec,
                                   const Family& family, const std::set<std::string>& parameters)
    : spec_(spec), family_(family), files_(directory) {
  for (const auto& [stored, entry] : files_.entries()) add(stored, entry, parameters);
  if (!spec.tie_word_embeddings) return;
  // A tied pair may be stored under either name or both.
  const auto head = found_.find("head.weight");
  if (head != found_.end()) found_.try_emplace("embedding.weight", head->second);
}

void CheckpointSource::add(const std::string& stored, const SafetensorsDirectory::FileTensor& entry,
                           const std::set<std::string>& parameters) {
  if (is_other_tensor(spec_, stored) || is_ignored_buffer(family_, stored)) return;
  if (skipped_prefix(family_, spec_, stored)) return;
  const auto piece = stored_piece(family_, stored);
  const auto name = piece ? piece->canonical : canonical_name(family_, stored);
  if (!name || !parameters.contains(parameter_of(spec_, *name))) refuse({stored, entry});
  Pieces& own = found_[*name];
  const int64_t index = piece ? piece->index : kFull;
  // A tensor with the same values: a full parameter beside a piece of it, or the same name with and
  // without the family's prefix.
  auto same = own.find(index);
  if (index == kFull || own.contains(kFull)) same = own.begin();
  if (same != own.end()) {
    throw Error("{} holds {} and {}, which are the same parameter", files_.directory().string(),
                shortened(same->second.stored_name), shortened(stored));
  }
  own.emplace(index, StoredParameter{stored, entry});
}

void CheckpointSource::refuse(const StoredParameter& stored) const {
  throw Error("{} holds tensor {}, which a {} model of this config.json does not have",
              stored.entry.file->path().string(), shortened(stored.stored_name), spec_.family);
}

void CheckpointSource::throw_missing(const std::string& stored) const {
  throw UsageError("{} is missing tensor {}", files_.directory().string(), stored);
}

const CheckpointSource::Pieces& CheckpointSource::pieces(const std::string& name) const {
  static const Pieces kNone;
  const auto it = found_.find(name);
  return it == found_.end() ? kNone : it->second;
}

const StoredParameter& CheckpointSource::find(const std::string& name) const {
  const Pieces& own = pieces(name);
  const auto full = own.find(kFull);
  if (full == own.end()) throw_missing(stored_name(family_, name));
  return full->second;
}

void CheckpointSource::check(const std::string& name, const std::vector<int64_t>& shape) {
  constexpr std::string_view kRequirement = "config.json requires";
  const Pieces& own = pieces(name);
  if (own.contains(kFull)) return own.at(kFull).check(shape, kRequirement);
  const std::vector<PlannedTensor> required = stored_tensors(family_, {name, shape});
  for (size_t i = 0; i < required.size(); ++i) {
    const auto piece = own.find(static_cast<int64_t>(i));
    if (piece == own.end()) throw_missing(required[i].name);
    piece->second.check(required[i].shape, kRequirement);
  }
  if (own.size() > required.size()) refuse(own.rbegin()->second);
}

void CheckpointSource::read(const ParamSlice& part, torch::Tensor out) {
  const Pieces& own = pieces(part.name);
  if (own.empty() || own.contains(kFull)) return find(part.name).read(part, std::move(out));
  const int64_t parts = std::ssize(own) / part.box.shape[0];
  int64_t end = 0;  // of the elements of the box in this piece and those before it
  for (const auto& [index, stored] : own) {
    const int64_t entry = index / parts;
    if (entry < part.box.offsets[0] || entry >= part.box.end(0)) continue;
    const TensorSlice slice = slice_of_piece(part.box, index % parts, parts);
    const int64_t begin = end;
    end += slice.elements();
    const int64_t from = std::max(begin, part.first), to = std::min(end, part.first + out.numel());
    if (from >= to) continue;
    stored.read({part.name, slice, from - begin}, out.narrow(0, from - part.first, to - from));
  }
}

std::vector<std::string> untrained_tensors(const std::filesystem::path& directory,
                                           const ModelSpec& spec, const Family& family) {
  std::vector<std::string> lines;
  if (spec.multimodal && !spec.multimodal->others.empty()) {
    lines.push_back(
        fmt::format("not trained, and copied to a saved model: {} beside the language model",
                    pluralize(std::ssize(spec.multimodal->others), "tensor")));
  }
  const bool shares_kv = std::ranges::any_of(
      spec.layers, [](const LayerSpec& layer) { return layer.kv_layer.has_value(); });
  const bool skips = family.skips_later_layers || !family.skipped_prefixes.empty() || shares_kv;
  if (!skips || !has_weights(directory)) return lines;
  std::map<std::string, int64_t> skipped;  // by prefix
  const SafetensorsDirectory files(directory);
  for (const auto& [stored, entry] : files.entries()) {
    const auto prefix = skipped_prefix(family, spec, stored);
    if (prefix && !is_other_tensor(spec, stored)) ++skipped[*prefix];
  }
  std::vector<std::string> counts;
  for (const auto& [prefix, count] : skipped)
    counts.push_back(fmt::format("{} {}*", pluralize(count, "tensor"), prefix));
  if (!counts.empty()) {
    lines.push_back(fmt::format("skipped, as in transformers, and neither trained nor saved: {}",
                                fmt::join(counts, ", ")));
  }
  return lines;
}

std::vector<std::string> untrained_tensors(const std::filesystem::path& directory,
                                           const ModelSpec& spec) {
  return untrained_tensors(directory, spec, family_in_files(spec));
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
