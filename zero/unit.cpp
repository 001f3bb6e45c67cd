#include "zero/unit.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <map>
#include <set>
#include <tuple>
#include <utility>

#include "base/error.h"
#include "comm/groups/members.h"
#include "optim/coded_states.h"

namespace zeroth::zero {
namespace {

// A parameter, by tensor identity, with every block that registers it.
struct UnitParameter {
  Slot slot;
  torch::Tensor tensor;
  std::vector<size_t> blocks;
  int num_replicas;
  std::optional<torch::Dtype> own_dtype = {};  // Unit::own_dtype
};

std::vector<int> pp_ranks_of(const std::vector<size_t>& blocks, const UnitPlan& plan) {
  if (plan.block_pp_ranks.empty()) return {plan.pp_rank};
  std::vector<int> ranks;
  for (const size_t block : blocks) {
    const int rank = plan.block_pp_ranks[block];
    if (std::ranges::count(ranks, rank) == 0) ranks.push_back(rank);
  }
  return ranks;
}

// Returns the part of the full tensor that `own` is, which its block's split describes.
TensorSlice slice_of_split(const std::string& name, const torch::Tensor& own,
                           const model::Split& split) {
  const TensorSlice slice = {split.shape, split.begin, own.sizes().vec()};
  const size_t dimensions = slice.sizes.size();
  bool fits = slice.shape.size() == dimensions && slice.offsets.size() == dimensions;
  for (size_t d = 0; d < dimensions && fits; ++d) {
    fits = slice.offsets[d] >= 0 && slice.offsets[d] + slice.sizes[d] <= slice.shape[d];
  }
  if (fits) return slice;
  throw Error("{} of shape [{}] at offset [{}] is not a slice of [{}] (Block::splits)", name,
              fmt::join(slice.sizes, ", "), fmt::join(slice.offsets, ", "),
              fmt::join(slice.shape, ", "));
}

// Locates the rank's tensor in the global parameter; `splits` are those of its block.
UnitParameter make_parameter(const model::Block& block, const std::string& key,
                             const torch::Tensor& tensor, const model::Splits& splits,
                             int tensor_size) {
  const std::string name = block.label() + "." + key;
  const auto found = splits.find(key);
  if (found == splits.end()) {
    return {{name, {name, TensorSlice::full(tensor.sizes().vec())}}, tensor, {}, tensor_size};
  }
  const model::Split& split = found->second;
  const TensorSlice slice = slice_of_split(name, tensor, split);
  return {{name, {block.label() + "." + split.full_name, slice, split.max_numel}},
          tensor,
          {},
          split.num_replicas};
}

model::Splits splits_of(const model::Block& block, int tensor_size) {
  if (tensor_size == 1) return {};
  const auto splits = block.splits();
  if (splits) return *splits;
  throw Error(
      "block {} does not define how {} ranks of a tensor-parallel group split it (Block::splits). "
      "Set tensor_parallel.autotp_size to 1 to train it",
      block.label(), tensor_size);
}

// Checks names: a split under a wrong name would leave its parameter unsplit on every rank.
void check_splits(const model::Block& block, const model::Splits& splits) {
  const auto parameters = block.named_parameters(), buffers = block.named_buffers();
  for (const auto& [key, split] : splits) {
    if (parameters.contains(key)) continue;
    if (const torch::Tensor* const buffer = buffers.find(key)) {
      (void)slice_of_split(block.label() + "." + key, *buffer, split);
      continue;
    }
    throw Error(
        "block {} defines a split of {} (Block::splits), but has no such parameter or buffer",
        block.label(), key);
  }
}

// Returns Unit::own_dtype of a parameter.
std::optional<torch::Dtype> own_dtype(const std::string& name, const torch::Tensor& tensor,
                                      bool keeps_fp32) {
  if (tensor.scalar_type() == torch::kByte && !tensor.requires_grad()) return torch::kByte;
  if (!tensor.is_floating_point()) {
    throw Error("parameter {} has dtype {}, only floating point can be trained", name,
                c10::toString(tensor.scalar_type()));
  }
  if (!keeps_fp32) return std::nullopt;
  if (tensor.requires_grad())
    throw Error("parameter {} is trainable; only frozen ones are kept in fp32", name);
  return torch::kFloat;
}

std::vector<UnitParameter> collect(const model::Blocks& blocks, int tensor_size) {
  std::vector<UnitParameter> parameters;
  std::map<const void*, size_t> known;
  std::set<std::string> names;
  for (size_t b = 0; b < blocks.size(); ++b) {
    const model::Splits splits = splits_of(*blocks[b], tensor_size);
    check_splits(*blocks[b], splits);
    const std::vector<std::string> in_fp32 = blocks[b]->keep_in_fp32();
    for (const auto& item : blocks[b]->named_parameters()) {
      const torch::Tensor& tensor = item.value();
      const auto [at, is_new] = known.try_emplace(tensor.unsafeGetTensorImpl(), parameters.size());
      if (!is_new) {
        auto& users = parameters[at->second].blocks;
        if (users.back() != b) users.push_back(b);
        continue;
      }
      UnitParameter parameter = make_parameter(*blocks[b], item.key(), tensor, splits, tensor_size);
      const std::string& name = parameter.slot.name;
      if (!names.insert(name).second) throw Error("duplicate parameter name {}", name);
      parameter.own_dtype = own_dtype(name, tensor, std::ranges::count(in_fp32, item.key()) > 0);
      parameter.blocks = {b};
      parameters.push_back(std::move(parameter));
    }
  }
  return parameters;
}

// Returns a unit's name. Units of one owner differ in the suffix.
std::string unit_name(const std::string& owner, const Unit& unit, const UnitPlanOptions& options) {
  std::string name = owner;
  if (unit.num_replicas > 1) name += fmt::format(" (on {} ranks)", unit.num_replicas);
  if (unit.own_dtype) return name + (unit.is_quantized() ? " (quantized)" : " (fp32)");
  if (options.trains && !unit.trainable) name += " (frozen)";
  if (options.min_coded_elements && unit.trainable && !unit.coded) name += " (small)";
  return name;
}

}  // namespace

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

UnitPlan plan_units(const model::Blocks& blocks, const comm::MeshLayout& grid, int rank,
                    const UnitPlanOptions& options) {
  UnitPlan plan;
  plan.shape = grid.shape();
  plan.block_pp_ranks = options.block_pp_ranks;
  plan.pp_rank = grid.coordinate(rank, comm::MeshDim::kPp);
  plan.block_units.resize(blocks.size());
  std::set<std::string> labels;
  for (const auto& block : blocks) {
    if (!labels.insert(block->label()).second)
      throw Error("duplicate block label {}", block->label());
    plan.block_labels.push_back(block->label());
  }
  const int tensor_size = grid.shape()[comm::MeshDim::kTp];
  const auto accumulates = [&](size_t b) { return blocks[b]->accumulates_grads(); };
  // (owner, trainable, own_dtype, coded, replicas)
  std::map<std::tuple<std::string, bool, std::optional<torch::Dtype>, bool, int>, size_t> unit_of;
  for (UnitParameter& parameter : collect(blocks, tensor_size)) {
    const bool tied = parameter.blocks.size() > 1;
    const bool trainable = options.trains && parameter.tensor.requires_grad();
    const std::string owner =
        tied ? parameter.slot.name : blocks[parameter.blocks.front()]->label();
    const bool coded = options.min_coded_elements && trainable &&
                       parameter.slot.global.slice.tensor_elements() >= *options.min_coded_elements;
    const auto [at, is_new] = unit_of.try_emplace(
        {owner, trainable, parameter.own_dtype, coded, parameter.num_replicas}, plan.units.size());
    if (is_new) {
      const comm::GroupMember place =
          comm::group_member(grid.shard_group(parameter.num_replicas), rank);
      std::vector<int> pp_ranks = pp_ranks_of(parameter.blocks, plan);
      const bool is_held = std::ranges::count(pp_ranks, plan.pp_rank) > 0;
      const bool is_counted = pp_ranks.front() == plan.pp_rank;
      plan.units.push_back(
          {.name = {},
           .trainable = trainable,
           .is_saved = trainable || (options.saves_frozen && parameter.own_dtype != torch::kByte),
           .own_dtype = parameter.own_dtype,
           .coded = coded,
           .pp_ranks = std::move(pp_ranks),
           .is_held = is_held,
           .is_counted = is_counted,
           .num_replicas = parameter.num_replicas,
           .shard_index = place.rank,
           .layout =
               FlatLayout(place.size, coded ? optim::kernel::kCodeBlock : FlatLayout::kAlignment),
           .params = {},
           .blocks = parameter.blocks,
           .begins_gradients = std::ranges::all_of(parameter.blocks, accumulates)});
      plan.units.back().name = unit_name(owner, plan.units.back(), options);
      for (const size_t b : parameter.blocks) plan.block_units[b].push_back(at->second);
    }
    Unit& unit = plan.units[at->second];
    plan.parameter_order.push_back({at->second, unit.params.size()});
    unit.layout.add(std::move(parameter.slot));
    unit.params.push_back(parameter.tensor);
  }
  return plan;
}

UnitPlan plan_units(const model::Blocks& blocks, const comm::DeviceMesh& mesh,
                    const UnitPlanOptions& options) {
  return plan_units(blocks, mesh.layout(), mesh.rank(), options);
}

UnitPlan plan_units(const model::Blocks& blocks, int data_ranks, const UnitPlanOptions& options) {
  return plan_units(blocks, comm::MeshLayout(comm::MeshShape::data_parallel(data_ranks)), 0,
                    options);
}

}  // namespace zeroth::zero
