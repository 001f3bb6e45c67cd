#include "zero/unit.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "base/error.h"

namespace zeroth::zero {
namespace {

// A parameter, by tensor identity, with every block that registers it.
struct Parameter {
  std::string name;
  torch::Tensor tensor;
  std::vector<size_t> blocks;
};

std::vector<Parameter> collect(const model::Blocks& blocks) {
  std::vector<Parameter> parameters;
  std::map<const void*, size_t> known;
  std::set<std::string> names;
  for (size_t b = 0; b < blocks.size(); ++b) {
    for (const auto& item : blocks[b]->named_parameters()) {
      const torch::Tensor& tensor = item.value();
      const auto [at, is_new] = known.try_emplace(tensor.unsafeGetTensorImpl(), parameters.size());
      if (!is_new) {
        auto& users = parameters[at->second].blocks;
        if (users.back() != b) users.push_back(b);
        continue;
      }
      std::string name = blocks[b]->label() + "." + item.key();
      if (!names.insert(name).second) throw Error("two parameters are named {}", name);
      if (!tensor.is_floating_point()) {
        throw Error("parameter {} has dtype {}, only floating point can be trained", name,
                    c10::toString(tensor.scalar_type()));
      }
      parameters.push_back({std::move(name), tensor, {b}});
    }
  }
  return parameters;
}

bool delivered_by_all(const model::Blocks& blocks, const std::vector<size_t>& users) {
  return std::all_of(users.begin(), users.end(),
                     [&](size_t b) { return blocks[b]->delivers_gradients(); });
}

}  // namespace

Range Unit::share(int rank) const {
  return retention == Retention::kWhole ? Range{0, layout.numel()} : layout.shard(rank);
}

std::string Unit::label() const {
  return fmt::format("block {} ({})", blocks.front(), name);
}

size_t first_trained_block(const UnitPlan& plan) {
  size_t first = plan.block_units.size();
  for (const Unit& unit : plan.units) {
    if (unit.trainable) first = std::min(first, unit.blocks.front());
  }
  return first;
}

bool UnitPlan::trains() const {
  return std::any_of(units.begin(), units.end(), [](const Unit& unit) { return unit.trainable; });
}

UnitPlan plan_units(const model::Blocks& blocks, int num_shards, bool trains) {
  UnitPlan plan;
  plan.block_units.resize(blocks.size());
  std::set<std::string> labels;
  for (const auto& block : blocks) {
    if (!labels.insert(block->label()).second)
      throw Error("two blocks are labelled {}", block->label());
    plan.block_labels.push_back(block->label());
  }
  std::map<std::pair<std::string, bool>, size_t> unit_of;  // (name, trainable)
  for (Parameter& parameter : collect(blocks)) {
    const bool tied = parameter.blocks.size() > 1;
    const bool trainable = trains && parameter.tensor.requires_grad();
    const std::string owner = tied ? parameter.name : blocks[parameter.blocks.front()]->label();
    const auto [at, is_new] = unit_of.try_emplace({owner, trainable}, plan.units.size());
    if (is_new) {
      plan.units.push_back({.name = trainable || !trains ? owner : owner + " (frozen)",
                            .trainable = trainable,
                            .layout = FlatLayout(num_shards),
                            .params = {},
                            .blocks = parameter.blocks,
                            .begins_gradients = delivered_by_all(blocks, parameter.blocks)});
      for (const size_t b : parameter.blocks) plan.block_units[b].push_back(at->second);
    }
    Unit& unit = plan.units[at->second];
    unit.layout.add(parameter.name, parameter.tensor.sizes().vec());
    unit.params.push_back(parameter.tensor);
  }
  return plan;
}

}  // namespace zeroth::zero
