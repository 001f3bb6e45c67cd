#include "model/hf/lora_model.h"

#include <cmath>
#include <map>
#include <string>
#include <utility>

#include "base/error.h"
#include "model/blocks/embedding.h"
#include "model/blocks/head.h"
#include "model/blocks/linear.h"

namespace zeroth::model {
namespace {

using Init = configs::LoraConfig::Init;

constexpr char kEmbedding[] = "embedding.weight";
constexpr char kHead[] = "head.weight";

class LoraSource final : public WeightSource {
 public:
  LoraSource(const LoraPlan& plan, std::unique_ptr<WeightSource> base,
             std::unique_ptr<WeightSource> adapter, uint64_t seed)
      : plan_(plan), base_(std::move(base)), adapter_(std::move(adapter)), seed_(seed) {}

  void check(const std::string& name, const std::vector<int64_t>& shape) override {
    if (is_factor(name) && !adapter_) return;
    source_of(name).check(stored(name), shape);
  }

  void read(const ParamSlice& part, torch::Tensor out) override {
    if (is_factor(part.name) && !adapter_) return draw(part, std::move(out));
    source_of(part.name).read({stored(part.name), part.box, part.first}, std::move(out));
  }

 private:
  static bool is_factor(const std::string& name) {
    return name.ends_with(".lora_A") || name.ends_with(".lora_B");
  }

  bool is_of_adapter(const std::string& name) const {
    return adapter_ && (is_factor(name) || plan_.trained.contains(name));
  }

  WeightSource& source_of(const std::string& name) const {
    return is_of_adapter(name) ? *adapter_ : *base_;
  }

  // Returns the parameter whose values it has: a head that is no longer tied starts as the
  // embedding.
  std::string stored(const std::string& name) const {
    return name == kHead && plan_.unties_head && !is_of_adapter(name) ? kEmbedding : name;
  }

  void draw(const ParamSlice& part, torch::Tensor out) const {
    const bool is_a = part.name.ends_with(".lora_A");
    const bool is_of_embedding = is_embedding(module_of(part.name));
    if (is_a == is_of_embedding && plan_.init != Init::kRandom) {
      out.zero_();
      return;
    }
    // torch's nn.Embedding, where that of a product is its nn.Linear.
    if (is_of_embedding) return draw_normal(part, seed_, 1, std::move(out));
    const std::vector<int64_t>& shape = part.box.shape;
    if (plan_.init == Init::kGaussian) {
      return draw_normal(part, seed_, 1 / static_cast<double>(shape[0]), std::move(out));
    }
    // torch's kaiming_uniform_(a=sqrt(5)).
    draw_uniform(part, seed_, 1 / std::sqrt(static_cast<double>(shape[1])), std::move(out));
  }

  LoraPlan plan_;
  std::unique_ptr<WeightSource> base_, adapter_;
  uint64_t seed_;
};

}  // namespace

void add_adapters(const Blocks& blocks, const LoraPlan& plan) {
  for (const auto& block : blocks) {
    const Splits splits = block->splits().value_or(Splits());
    for (const auto& item : block->named_parameters()) {
      const auto split = splits.find(item.key());
      const std::string name =
          block->label() + "." + (split == splits.end() ? item.key() : split->second.full_name);
      const bool trains = plan.trained.contains(name);
      if (trains && !item.value().is_floating_point()) {
        throw Error(
            "lora.modules_to_save: {} is in NF4, and cannot be trained in full: give it an "
            "adapter, "
            "or leave quantization out",
            name);
      }
      item.value().requires_grad_(trains);
    }
    const auto adapter = [&](const std::string& path) {
      const auto found = plan.modules.find(path);
      return found == plan.modules.end() ? std::nullopt : std::optional(found->second);
    };
    const auto site = [&](const std::string& path) {
      return make_dropout_site(plan.dropout, path + ".lora");
    };
    if (auto* const embedding = block->as<Embedding>()) {
      if (const auto module = adapter("embedding"))
        embedding->add_adapter(module->r, module->scale);
      if (const auto module = adapter("embedding.positions"))
        embedding->add_positions_adapter(module->r, module->scale);
    }
    if (auto* const head = block->as<Head>()) {
      if (const auto module = adapter("head"))
        head->add_adapter(module->r, module->scale, site("head"));
    }
    std::map<std::string, torch::Tensor> shared;  // A of products of which ranks have several parts
    for (const auto& item : block->named_modules("", /*include_self=*/false)) {
      auto* const layer = item.value()->as<Linear>();
      if (layer == nullptr) continue;
      const std::string own = block->label() + "." + item.key(), &product = layer->shard.product;
      const std::string path = product.empty() ? own : own.substr(0, own.rfind('.') + 1) + product;
      const auto module = adapter(path);
      if (!module) continue;
      layer->add_adapter(module->r, module->scale, site(path), shared[path]);
      shared[path] = layer->adapter->factors.a;
    }
  }
}

ModelSpec lora_spec(const ModelSpec& spec, const LoraPlan& plan) {
  ModelSpec own = spec;
  if (plan.unties_head) own.tie_word_embeddings = false;
  return own;
}

std::unique_ptr<WeightSource> make_lora_source(const LoraPlan& plan,
                                               std::unique_ptr<WeightSource> base,
                                               std::unique_ptr<WeightSource> adapter,
                                               uint64_t seed) {
  return std::make_unique<LoraSource>(plan, std::move(base), std::move(adapter), seed);
}

}  // namespace zeroth::model
