#include "model/hf/nf4_source.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/dynamic_map.h"
#include "base/error.h"
#include "base/json/json.h"
#include "base/text/printable.h"
#include "model/blocks/build_blocks.h"
#include "model/blocks/linear.h"
#include "model/hf/checkpoint_source.h"
#include "model/kernels/nf4.h"

namespace zeroth::model {
namespace {

using torch::Tensor;

constexpr std::string_view kAbsmaxSuffix = "_absmax", kNestedAbsmaxSuffix = "_nested_absmax";
// Weights that are quantized at once: they stay in the cache.
constexpr int64_t kTile = 1 << 16;

// A QuantizedPart is what a parameter of bytes holds of a weight.
struct QuantizedPart {
  enum class Kind { kCodes, kAbsmax, kNestedAbsmax };
  Kind kind = Kind::kCodes;
  std::string weight;  // "layers.0.attention.q.weight"
};

QuantizedPart parse_part(const std::string& name) {
  using Kind = QuantizedPart::Kind;
  const auto without = [&](std::string_view suffix) {
    return name.substr(0, name.size() - suffix.size());
  };
  if (name.ends_with(kNestedAbsmaxSuffix))
    return {Kind::kNestedAbsmax, without(kNestedAbsmaxSuffix)};
  if (name.ends_with(kAbsmaxSuffix)) return {Kind::kAbsmax, without(kAbsmaxSuffix)};
  return {Kind::kCodes, name};
}

// Products whose weights are in NF4, without memory, by the names of these.
using QuantizedLayers = std::map<std::string, std::shared_ptr<Linear>>;

QuantizedLayers quantized_layers(const ModelSpec& spec) {
  QuantizedLayers layers;
  for (const auto& block : build_blocks(spec)) {
    for (const auto& item : block->named_modules("", /*include_self=*/false)) {
      const auto layer = std::dynamic_pointer_cast<Linear>(item.value());
      if (layer && layer->quantized) layers[block->label() + "." + item.key() + ".weight"] = layer;
    }
  }
  return layers;
}

// Returns [out, in].
std::vector<int64_t> shape_of(const Linear& layer) {
  return {layer.out, layer.in};
}

// A WeightSlice is a slice of a weight [out, in], whose blocks follow each other row by row.
struct WeightSlice {
  std::string name;
  TensorSlice box;
  bool operator==(const WeightSlice&) const = default;

  int64_t num_blocks() const { return nf4_blocks(box.elements()); }
  bool is_full() const { return box.elements() == box.tensor_elements(); }
  BlockPlace place() const {
    if (is_full()) return {.first = 0, .per_row = num_blocks(), .row_step = num_blocks()};
    const int64_t row_step = box.shape[1] / kNf4Block;
    return {.first = box.offsets[0] * row_step + box.offsets[1] / kNf4Block,
            .per_row = box.sizes[1] / kNf4Block,
            .row_step = row_step};
  }
};

// Returns the slice of the weight whose codes or scales are a slice of bytes.
WeightSlice weight_slice(const std::string& name, const std::vector<int64_t>& shape,
                         const TensorSlice& bytes) {
  if (bytes.shape.size() == 1) return {name, TensorSlice::full(shape)};
  const int64_t in = shape[1], columns = bytes.shape[1];
  return {name,
          {shape,
           {bytes.offsets[0], bytes.offsets[1] * in / columns},
           {bytes.sizes[0], bytes.sizes[1] * in / columns}}};
}

// AbsmaxOf are the maxima of a slice's blocks, as far as they are known.
struct AbsmaxOf {
  WeightSlice slice;
  std::vector<float> values;
  std::vector<bool> known;

  explicit AbsmaxOf(WeightSlice own)
      : slice(std::move(own)), values(slice.num_blocks()), known(slice.num_blocks()) {}
};

class QuantizingSource final : public WeightSource {
 public:
  QuantizingSource(const ModelSpec& spec, std::unique_ptr<WeightSource> base, torch::Dtype dtype)
      : layers_(quantized_layers(spec)),
        is_double_(spec.quantization->double_quant),
        base_(std::move(base)),
        dtype_(dtype) {}

  void check(const std::string& name, const std::vector<int64_t>& shape) override {
    const auto layer = layers_.find(parse_part(name).weight);
    layer == layers_.end() ? base_->check(name, shape)
                           : base_->check(layer->first, shape_of(*layer->second));
  }

  void read(const ParamSlice& part, Tensor out) override {
    const auto [kind, name] = parse_part(part.name);
    const auto layer = layers_.find(name);
    if (layer == layers_.end()) return base_->read(part, std::move(out));
    if (kind == QuantizedPart::Kind::kNestedAbsmax) {
      const Tensor nested = nested_absmax(name).view(torch::kByte);
      out.copy_(nested.narrow(0, part.first, out.numel()));
      return;
    }
    const WeightSlice slice = weight_slice(name, shape_of(*layer->second), part.box);
    if (kind == QuantizedPart::Kind::kCodes) {
      quantize(slice, part.first * 2 / kNf4Block, nf4_blocks(2 * (part.first + out.numel())),
               &part.first, &out);
    } else if (is_double_) {
      copy_absmax_codes(slice, part.first, out);
    } else {
      copy_absmax(slice, part.first, out);
    }
  }

 private:
  AbsmaxOf& absmax_of(const WeightSlice& slice) {
    if (!absmax_ || absmax_->slice != slice) absmax_.emplace(slice);
    return *absmax_;
  }

  // Computes the maxima of blocks [begin, end) of the slice, and with `codes` the bytes of codes
  // from `*first` on.
  void quantize(const WeightSlice& slice, int64_t begin, int64_t end,
                const int64_t* first = nullptr, Tensor* codes = nullptr) {
    AbsmaxOf& absmax = absmax_of(slice);
    end = std::min(end, slice.num_blocks());
    constexpr int64_t kBlocks = kTile / kNf4Block;
    for (int64_t block = begin; block < end; block += kBlocks) {
      const int64_t last = std::min(block + kBlocks, end), at = block * kNf4Block;
      const int64_t numel = std::min(last * kNf4Block, slice.box.elements()) - at;
      const Tensor values = torch::empty({numel}, dtype_);
      base_->read({slice.name, slice.box, at}, values);
      const Tensor own = torch::empty({(numel + 1) / 2}, torch::kByte);
      quantize_nf4(values.to(torch::kFloat), own,
                   torch::from_blob(absmax.values.data() + block, {last - block}, torch::kFloat));
      std::fill(absmax.known.begin() + block, absmax.known.begin() + last, true);
      if (codes == nullptr) continue;
      const int64_t from = std::max(at / 2, *first);
      const int64_t to = std::min(at / 2 + own.numel(), *first + codes->numel());
      codes->narrow(0, from - *first, to - from).copy_(own.narrow(0, from - at / 2, to - from));
    }
  }

  // Completes the maxima of blocks [begin, end).
  const AbsmaxOf& known_absmax(const WeightSlice& slice, int64_t begin, int64_t end) {
    AbsmaxOf& absmax = absmax_of(slice);
    while (begin < end) {
      const auto first = std::find(absmax.known.begin() + begin, absmax.known.begin() + end, false);
      const auto last = std::find(first, absmax.known.begin() + end, true);
      if (first == last) break;
      quantize(slice, first - absmax.known.begin(), last - absmax.known.begin());
      begin = last - absmax.known.begin();
    }
    return absmax;
  }

  void copy_absmax(const WeightSlice& slice, int64_t first, const Tensor& out) {
    constexpr int64_t kWidth = sizeof(float);
    const AbsmaxOf& absmax =
        known_absmax(slice, first / kWidth, (first + out.numel() + kWidth - 1) / kWidth);
    const auto* const bytes = reinterpret_cast<const std::byte*>(absmax.values.data());
    std::memcpy(out.data_ptr(), bytes + first, static_cast<size_t>(out.numel()));
  }

  void copy_absmax_codes(const WeightSlice& slice, int64_t first, const Tensor& out) {
    (void)nested_absmax(slice.name);
    if (absmax_codes_.first != slice.name) quantize_scales(slice.name);
    const BlockPlace place = slice.place();
    const auto* const codes = absmax_codes_.second.const_data_ptr<uint8_t>();
    auto* const to = out.data_ptr<uint8_t>();
    for (int64_t i = 0; i < out.numel(); ++i) to[i] = codes[place.in_full(first + i)];
  }

  // Returns fp32, NestedAbsmax::nested.
  const Tensor& nested_absmax(const std::string& name) {
    if (!nested_.contains(name)) quantize_scales(name);
    return nested_[name];
  }

  void quantize_scales(const std::string& name) {
    const WeightSlice whole{name, TensorSlice::full(shape_of(*layers_.at(name)))};
    const AbsmaxOf& absmax = known_absmax(whole, 0, whole.num_blocks());
    const NestedAbsmax scales = quantize_absmax(torch::from_blob(
        const_cast<float*>(absmax.values.data()), {whole.num_blocks()}, torch::kFloat));
    nested_[name] = scales.nested;
    absmax_codes_ = {name, scales.codes};
  }

  QuantizedLayers layers_;
  bool is_double_;
  std::unique_ptr<WeightSource> base_;
  torch::Dtype dtype_;
  // Of the last slice: its scales are mostly read after its codes, which compute them.
  std::optional<AbsmaxOf> absmax_;
  std::map<std::string, Tensor> nested_;         // by weight; one number for 16,384 weights
  std::pair<std::string, Tensor> absmax_codes_;  // of the last weight
};

// Returns the name of a tensor that bitsandbytes stores beside a weight's codes.
std::string stored_part(const std::string& weight, std::string_view suffix) {
  return weight + "." + std::string(suffix);
}

class StoredNf4Source final : public CheckpointSource {
 public:
  StoredNf4Source(const std::filesystem::path& directory, const ModelSpec& spec)
      : CheckpointSource(directory, spec),
        layers_(quantized_layers(spec)),
        quantization_(*spec.quantization) {}

  void check(const std::string& name, const std::vector<int64_t>& shape) override {
    const std::string weight = parse_part(name).weight;
    if (!layers_.contains(weight)) return CheckpointSource::check(name, shape);
    if (checked_.contains(weight)) return;
    checked_[weight] = check_weight(weight, shape_of(*layers_.at(weight)));
  }

  void read(const ParamSlice& part, Tensor out) override {
    const auto [kind, name] = parse_part(part.name);
    if (!layers_.contains(name)) return CheckpointSource::read(part, std::move(out));
    if (kind == QuantizedPart::Kind::kNestedAbsmax) {
      std::string bytes = contents(find(stored_part(name, "nested_absmax")));
      const auto mean = static_cast<float>(checked_.at(name));
      bytes.append(reinterpret_cast<const char*>(&mean), sizeof(mean));
      std::memcpy(out.data_ptr(), bytes.data() + part.first, static_cast<size_t>(out.numel()));
      return;
    }
    const bool codes = kind == QuantizedPart::Kind::kCodes;
    const StoredParameter& stored = find(codes ? name : stored_part(name, "absmax"));
    const auto all = stored.entry.file->bytes(*stored.entry.tensor);
    auto* to = static_cast<std::byte*>(out.data_ptr());
    for (const SliceRows& rows : slice_rows(part.box, part.first, out.numel(), out.numel())) {
      rows.for_each_run(0, rows.elements(), [&](int64_t at, int64_t whole, int64_t size) {
        std::memcpy(to + at, all.data() + whole, static_cast<size_t>(size));
      });
      to += rows.elements();
    }
    stored.entry.file->drop_pages(all);
  }

 private:
  static std::string contents(const StoredParameter& stored) {
    const auto bytes = stored.entry.file->bytes(*stored.entry.tensor);
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
  }

  // Throws if a tensor of the weight has another dtype or size. Returns its bytes.
  const StoredParameter& require(const std::string& name, std::string_view dtype,
                                 int64_t elements) {
    const StoredParameter& stored = find(name);
    const StoredTensor& tensor = *stored.entry.tensor;
    const auto width = static_cast<size_t>(element_size(dtype).value());
    if (tensor.dtype == dtype && tensor.end - tensor.begin == elements * width) return stored;
    throw UsageError("{}: tensor {} is {} of {} bytes, but config.json requires {} {}",
                     stored.entry.file->path().string(), shortened(stored.stored_name),
                     shortened(tensor.dtype), tensor.end - tensor.begin, elements, dtype);
  }

  // Throws if the tensor does not hold these numbers.
  template <size_t kSize>
  void require_map(const std::string& name, const std::array<float, kSize>& values) {
    const StoredParameter& stored = require(name, "F32", kSize);
    if (std::memcmp(contents(stored).data(), values.data(), sizeof(values)) == 0) return;
    throw UsageError("{}: tensor {} holds other numbers than those of NF4 in bitsandbytes",
                     stored.entry.file->path().string(), shortened(stored.stored_name));
  }

  // Returns the mean of the maxima; 0 without double quantization.
  double check_weight(const std::string& name, const std::vector<int64_t>& shape) {
    const int64_t numel = shape[0] * shape[1], blocks = nf4_blocks(numel);
    require(name, "U8", (numel + 1) / 2);
    require(stored_part(name, "absmax"), quantization_.double_quant ? "U8" : "F32", blocks);
    require_map(stored_part(name, "quant_map"), std::to_array(kNf4Values));
    if (quantization_.double_quant) {
      require(stored_part(name, "nested_absmax"), "F32", nested_groups(blocks));
      require_map(stored_part(name, "nested_quant_map"), dynamic_map(/*is_signed=*/true));
    }
    return check_state(find(stored_part(name, "quant_state.bitsandbytes__nf4")), shape);
  }

  double check_state(const StoredParameter& stored, const std::vector<int64_t>& shape) const {
    const std::string origin =
        stored.entry.file->path().string() + ": tensor " + shortened(stored.stored_name);
    const nlohmann::json state =
        parse_json(contents(stored), {.name = origin, .limits = kConfigLimits});
    const auto require = [&](const char* key, const nlohmann::json& expected) {
      const nlohmann::json found = state.is_object() && state.contains(key) ? state[key] : nullptr;
      if (found == expected) return;
      throw UsageError("{}: {} is {}, but {} is required", origin, key, shortened(found.dump()),
                       expected.dump());
    };
    require("quant_type", "nf4");
    require("blocksize", kNf4Block);
    require("dtype", quantization_.dtype);
    require("shape", shape);
    if (!quantization_.double_quant) return 0;
    require("nested_blocksize", kNestedBlock);
    require("nested_dtype", "float32");
    const nlohmann::json mean =
        state.contains("nested_offset") ? state["nested_offset"] : nlohmann::json();
    if (!mean.is_number()) throw UsageError("{}: nested_offset is no number", origin);
    return mean.get<double>();
  }

  QuantizedLayers layers_;
  QuantizationSpec quantization_;
  std::map<std::string, double> checked_;  // mean of the maxima, by weight
};

class DequantizedSource final : public WeightSource {
 public:
  DequantizedSource(const ModelSpec& spec, std::unique_ptr<WeightSource> source, torch::Dtype dtype)
      : layers_(quantized_layers(spec)), source_(std::move(source)), dtype_(dtype) {}

  void check(const std::string& name, const std::vector<int64_t>& shape) override {
    const auto layer = layers_.find(name);
    if (layer == layers_.end()) return source_->check(name, shape);
    source_->check(name, layer->second->weight.sizes().vec());
  }

  void read(const ParamSlice& part, Tensor out) override {
    const auto found = layers_.find(part.name);
    if (found == layers_.end()) return source_->read(part, std::move(out));
    const Linear& layer = *found->second;
    ZEROTH_CHECK(out.numel() == layer.out * layer.in, "{} is read in parts", part.name);
    const auto bytes = [&](const std::string& suffix, const Tensor& like) {
      const Tensor values = torch::empty({like.numel()}, torch::kByte);
      source_->read({part.name + suffix, TensorSlice::full(like.sizes().vec())}, values);
      return values;
    };
    const Nf4Scales& stored = layer.quantized->scales;
    Nf4Scales scales{bytes(std::string(kAbsmaxSuffix), stored.absmax), {}, stored.place};
    if (stored.is_double())
      scales.nested_absmax = bytes(std::string(kNestedAbsmaxSuffix), stored.nested_absmax);
    const Tensor values = torch::empty({out.numel()}, dtype_);
    dequantize_nf4(bytes("", layer.weight), scales, values);
    out.copy_(values);
  }

 private:
  QuantizedLayers layers_;
  std::unique_ptr<WeightSource> source_;
  torch::Dtype dtype_;
};

}  // namespace

std::unique_ptr<WeightSource> make_dequantized_source(const ModelSpec& spec,
                                                      std::unique_ptr<WeightSource> source,
                                                      torch::Dtype dtype) {
  return std::make_unique<DequantizedSource>(spec, std::move(source), dtype);
}

std::unique_ptr<WeightSource> make_nf4_source(const ModelSpec& spec,
                                              std::unique_ptr<WeightSource> base,
                                              torch::Dtype dtype) {
  return std::make_unique<QuantizingSource>(spec, std::move(base), dtype);
}

std::unique_ptr<WeightSource> open_nf4_source(const std::filesystem::path& directory,
                                              const ModelSpec& spec) {
  return std::make_unique<StoredNf4Source>(directory, spec);
}

}  // namespace zeroth::model
