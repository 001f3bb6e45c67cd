#include "zero/sharded_optimizer.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "zero/element_numbers.h"
#include "zero/rest_plan.h"
#include "zero/whole_sums.h"

namespace zeroth::zero {

using offload::Access;

namespace {

int64_t aligned_tile(int64_t elements) {
  constexpr int64_t kAlignment = optim::UpdateRule::kTileAlignment;
  return std::max(elements / kAlignment, int64_t{1}) * kAlignment;
}

torch::Tensor part(const torch::Tensor& tensor, const Range& range) {
  return tensor.narrow(0, range.begin, range.size());
}

// `values` may be what is lent.
void give(const offload::TileLease& lease, const torch::Tensor& values) {
  const torch::Tensor lent = lease.tensor();
  if (lent.const_data_ptr() != values.const_data_ptr()) lent.copy_(values);
}

}  // namespace

static_assert(FlatLayout::kAlignment % optim::UpdateRule::kTileAlignment == 0);

std::vector<size_t> ShardedOptimizer::UnitShards::all() const {
  std::vector<size_t> shards = states;
  if (master) shards.push_back(*master);
  return shards;
}

ShardedOptimizer::ShardedOptimizer(const UnitPlan& plan, ParamStore& params, GradReducer& grads,
                                   std::vector<UpdatePlace> places, const Options& options)
    : plan_(plan),
      params_(params),
      grads_(grads),
      places_(std::move(places)),
      tile_elements_(aligned_tile(options.tile_elements)),
      staging_(options.staging),
      shards_(plan.units.size()),
      waiting_(plan.units.size(), false),
      updated_(plan.units.size()) {
  std::vector<std::vector<optim::NumberedPart>> numbers = element_numbers(plan);
  for (size_t unit = 0; unit < plan.units.size(); ++unit) {
    shards_[unit].numbers = std::move(numbers[unit]);
    if (!plan.units[unit].trainable) continue;
    add(unit);
    const Range own = grads.range(unit);
    const std::vector<optim::Stretch> whole = {{0, own.size(), /*decays=*/true}};
    shards_[unit].stretches =
        options.decay_vectors ? whole : plan.units[unit].layout.stretches(own);
    if (places_[unit].rule->norm_pass() == nullptr) continue;
    shards_[unit].stretches = plan.units[unit].layout.parameters(own);
    for (optim::Stretch& stretch : shards_[unit].stretches) {
      stretch.decays = stretch.decays || options.decay_vectors;
    }
  }
  for (size_t unit = 0; unit < plan.units.size(); ++unit) fill_states(unit);
  expect_leases();
}

ShardedOptimizer::~ShardedOptimizer() {
  if (staging_) staging_->drain();
}

// What an update brings to where it is made: parameters whole, gradients by tiles.
void ShardedOptimizer::expect_leases() {
  if (!staging_) return;
  const auto width = static_cast<int64_t>(c10::elementSize(params_.dtype()));
  for (size_t unit = 0; unit < plan_.units.size(); ++unit) {
    if (!plan_.units[unit].trainable) continue;
    const torch::Device where = places_[unit].device;
    const int64_t numel = params_.range(unit).size();
    if (where.is_cpu()) staging_->expect(where, numel * width);
    const torch::Tensor grad = grads_.grad(unit);
    if (!grad.defined() || where.is_cpu() || grad.device() == where) continue;
    staging_->expect(where,
                     std::min(numel, tile_elements_) * static_cast<int64_t>(grad.element_size()));
  }
}

void ShardedOptimizer::add(size_t unit) {
  ZEROTH_CHECK(grads_.range(unit) == params_.range(unit),
               "unit {}: gradient and parameter shards differ", plan_.units[unit].name);
  const auto& [store, rule, device] = places_[unit];
  const int64_t numel = params_.range(unit).size();
  const UpdateArrays arrays = update_arrays(*rule, params_.dtype());
  for (int64_t i = 0; i < arrays.states; ++i) {
    shards_[unit].states.push_back(store->add(numel, arrays.state));
  }
  if (arrays.master) shards_[unit].master = store->add(numel, *arrays.master);
}

// Stores hold zeros at first.
void ShardedOptimizer::fill_states(size_t unit) {
  if (shards_[unit].states.empty() || places_[unit].rule->initial_state() == 0) return;
  for_each_tile(unit, [&](const Range& tile) {
    for (const size_t shard : shards_[unit].states) {
      borrow(unit, shard, tile, Access::kWrite).tensor().fill_(places_[unit].rule->initial_state());
    }
  });
}

void ShardedOptimizer::for_each_tile(size_t unit,
                                     const std::function<void(const Range&)>& visit) const {
  const int64_t numel = params_.range(unit).size();
  for (int64_t begin = 0; begin < numel; begin += tile_elements_) {
    visit({begin, std::min(begin + tile_elements_, numel)});
  }
}

offload::TileLease ShardedOptimizer::borrow(size_t unit, size_t shard, const Range& tile,
                                            Access access) {
  if (updated_[unit]) staging_->order(std::exchange(updated_[unit], {}));
  return places_[unit].states->borrow({shard, tile.begin, tile.end}, places_[unit].device, access);
}

void ShardedOptimizer::set_master(size_t unit, const torch::Tensor& values) {
  offload::TileLease share = params_.share(unit, places_[unit].device, Access::kWrite);
  if (const auto shard = shards_[unit].master) {
    for_each_tile(unit, [&](const Range& tile) {
      const offload::TileLease master = borrow(unit, *shard, tile, Access::kWrite);
      give(master, part(values, tile));
      // Rounded where the update is made: LibTorch would round the host's values on the host, into
      // pageable memory, from which a GPU copies slowly.
      part(share.tensor(), tile).copy_(master.tensor());
    });
  } else {
    give(share, values);
  }
  share = {};
  params_.updated(unit);
}

void ShardedOptimizer::begin(const optim::UpdateStep& step) {
  step_ = step;
  if (staging_) idle_ = staging_->now();
  for (size_t unit = 0; unit < shards_.size(); ++unit) {
    if (!plan_.units[unit].trainable) continue;
    ZEROTH_CHECK(!waiting_[unit], "unit {}: nothing has used its last update",
                 plan_.units[unit].name);
    waiting_[unit] = true;
  }
}

std::vector<Update> ShardedOptimizer::updates() const {
  std::vector<Update> updates(shards_.size(), Update::kNone);
  for (size_t unit = 0; unit < shards_.size(); ++unit) {
    if (waiting_[unit])
      updates[unit] = shards_[unit].master ? Update::kOverwrites : Update::kChanges;
  }
  return updates;
}

Reads ShardedOptimizer::reads() const {
  Reads reads;
  for (size_t unit = 0; unit < shards_.size(); ++unit) {
    if (!waiting_[unit]) continue;
    const int passes = places_[unit].rule->norm_pass() == nullptr ? 1 : 2;
    for (int pass = 0; pass < passes; ++pass) {
      for_each_tile(unit, [&](const Range& tile) {
        for (const size_t shard : shards_[unit].all()) {
          reads[places_[unit].states].push_back({shard, tile.begin, tile.end});
        }
      });
    }
  }
  return reads;
}

void ShardedOptimizer::bring_up_to_date(size_t unit) {
  if (!waiting_[unit]) return;
  // Some of its tiles have the update, so it cannot be applied again.
  if (updating_) {
    throw Error("an error interrupted the update of {}: its values lie between two steps",
                plan_.units[*updating_].label());
  }
  updating_ = unit;
  const torch::NoGradGuard no_grad;
  const auto work = [&] {
    const Access access = shards_[unit].master ? Access::kWrite : Access::kReadWrite;
    const offload::TileLease working = params_.share(unit, places_[unit].device, access, idle_);
    update(unit, working.tensor());
  };
  device::Point written;
  if (staging_ && places_[unit].device == params_.device()) {
    written = staging_->beside({idle_}, work);  // tiles come and go beside the forward pass
  } else {
    work();
  }
  updating_.reset();
  waiting_[unit] = false;
  updated_[unit] = written;
  params_.updated(unit, written);
}

void ShardedOptimizer::update(size_t unit, const torch::Tensor& working) {
  const optim::UpdateRule& rule = *places_[unit].rule;
  Pass pass = {Access::kReadWrite, Access::kReadWrite, /*reads_gradient=*/true};
  torch::Tensor ratios;
  if (const optim::UpdateRule::NormPass* const norms = rule.norm_pass()) {
    ratios = norm_ratios(unit, *norms, working);
    pass = {Access::kRead, Access::kReadWrite, /*reads_gradient=*/false};
  }
  for_each_tile(unit, [&](const Range& tile) {
    Borrowed borrowed = borrow_tile(unit, tile, working, pass);
    borrowed.tile.ratios = ratios;
    rule.apply_stretches(borrowed.tile, step_, borrowed.stretches);
  });
}

torch::Tensor ShardedOptimizer::norm_ratios(size_t unit, const optim::UpdateRule::NormPass& norms,
                                            const torch::Tensor& working) {
  const FlatLayout& layout = plan_.units[unit].layout;
  const torch::Device where = places_[unit].device;
  const auto parameters = static_cast<int64_t>(layout.slots().size());
  torch::Tensor sums =
      at::zeros({parameters, 2}, torch::TensorOptions(where).dtype(torch::kDouble));
  for_each_tile(unit, [&](const Range& tile) {
    const Borrowed borrowed = borrow_tile(
        unit, tile, working, {Access::kReadWrite, Access::kRead, /*reads_gradient=*/true});
    norms.sum(borrowed.tile, step_, borrowed.stretches, sums);
  });
  const torch::Tensor own = sums.to(params_.device());
  return norms.ratios(sums_of_wholes(plan_.units[unit], own, params_.mesh()).to(where));
}

ShardedOptimizer::Borrowed ShardedOptimizer::borrow_tile(size_t unit, const Range& tile,
                                                         const torch::Tensor& working,
                                                         const Pass& pass) {
  const UnitShards& shards = shards_[unit];
  Borrowed borrowed;
  for (const size_t shard : shards.states) {
    borrowed.leases.push_back(borrow(unit, shard, tile, pass.states));
    borrowed.states.push_back(borrowed.leases.back().tensor());
  }
  const torch::Tensor weights = part(working, tile);
  borrowed.tile = {.master = weights,
                   .grad = torch::Tensor(),
                   .states = borrowed.states,
                   .first_element = tile.begin,
                   .numbers = shards.numbers};
  if (shards.master) {
    borrowed.leases.push_back(borrow(unit, *shards.master, tile, pass.master));
    borrowed.tile.master = borrowed.leases.back().tensor();
    borrowed.tile.copy = weights;
  }
  if (pass.reads_gradient) {
    borrowed.gradient = gradient(unit, tile);
    borrowed.tile.grad = borrowed.gradient.tensor();
  }
  for (const auto& [begin, end, decays, parameter] : shards.stretches) {
    const Range both = {std::max(begin, tile.begin), std::min(end, tile.end)};
    if (both.size() <= 0) continue;
    borrowed.stretches.push_back(
        {both.begin - tile.begin, both.end - tile.begin, decays, parameter});
  }
  if (watch_ != nullptr) {
    std::vector<torch::Tensor> arrays = {borrowed.tile.master};
    arrays.insert(arrays.end(), borrowed.states.begin(), borrowed.states.end());
    watch_->before_update(unit, tile, arrays);
  }
  return borrowed;
}

offload::TileLease ShardedOptimizer::gradient(size_t unit, const Range& tile) {
  const torch::Tensor grad = part(grads_.grad(unit), tile);
  if (!staging_) return offload::TileLease(grad);
  // It has landed; what rests on the device is updated there.
  return staging_->lease(grad, places_[unit].device, Access::kRead, /*idle=*/{});
}

std::set<offload::ShardStore*> ShardedOptimizer::stores() const {
  std::set<offload::ShardStore*> stores;
  for (size_t unit = 0; unit < shards_.size(); ++unit) {
    if (plan_.units[unit].trainable) stores.insert(places_[unit].states);
  }
  return stores;
}

offload::StoreBytes ShardedOptimizer::bytes() const {
  offload::StoreBytes sum;
  for (const offload::ShardStore* store : stores()) {
    const offload::StoreBytes bytes = store->bytes();
    sum.device += bytes.device;
    sum.host += bytes.host;
    sum.file += bytes.file;
  }
  return sum;
}

std::vector<ShardedOptimizer::Array> ShardedOptimizer::arrays(size_t unit) const {
  const optim::UpdateRule& rule = *places_[unit].rule;
  const UpdateArrays types = update_arrays(rule, params_.dtype());
  std::vector<Array> arrays = {{"master", types.master.value_or(params_.dtype())}};
  for (const std::string_view name : rule.state_names()) {
    arrays.push_back({std::string(name), types.state});
  }
  return arrays;
}

torch::Tensor ShardedOptimizer::array(size_t unit, size_t index) {
  const torch::Tensor values = index == 0 ? master(unit) : state(unit, index - 1);
  return values.to(torch::kCPU, arrays(unit).at(index).dtype);
}

void ShardedOptimizer::set_array(size_t unit, size_t index, const torch::Tensor& values) {
  bring_up_to_date(unit);
  const torch::NoGradGuard no_grad;
  if (index == 0) return set_master(unit, values);
  const size_t shard = shards_[unit].states.at(index - 1);
  for_each_tile(unit, [&](const Range& tile) {
    give(borrow(unit, shard, tile, Access::kWrite), part(values, tile));
  });
}

std::optional<size_t> ShardedOptimizer::shard_of(size_t unit, size_t index) const {
  return index == 0 ? shards_[unit].master : shards_[unit].states.at(index - 1);
}

torch::Tensor ShardedOptimizer::in_place(size_t unit, size_t index) {
  const auto shard = shard_of(unit, index);
  return shard ? places_[unit].states->in_place(*shard) : params_.in_place(unit);
}

offload::TileLease ShardedOptimizer::read(size_t unit, size_t index, const Range& tile) {
  if (const auto shard = shard_of(unit, index)) return borrow(unit, *shard, tile, Access::kRead);
  const auto share = std::make_shared<offload::TileLease>(
      params_.share(unit, places_[unit].device, Access::kRead));
  return offload::TileLease(part(share->tensor(), tile), [share] {});
}

std::vector<Range> ShardedOptimizer::tiles(size_t unit) const {
  std::vector<Range> tiles;
  for_each_tile(unit, [&](const Range& tile) { tiles.push_back(tile); });
  return tiles;
}

torch::Tensor ShardedOptimizer::copy_of(size_t unit, size_t shard) {
  const torch::Tensor copy =
      at::empty({params_.range(unit).size()}, torch::TensorOptions(places_[unit].device));
  for_each_tile(unit, [&](const Range& tile) {
    part(copy, tile).copy_(borrow(unit, shard, tile, Access::kRead).tensor());
  });
  return copy;
}

torch::Tensor ShardedOptimizer::state(size_t unit, size_t index) {
  bring_up_to_date(unit);
  return copy_of(unit, shards_[unit].states.at(index));
}

torch::Tensor ShardedOptimizer::master(size_t unit) {
  bring_up_to_date(unit);
  if (const auto shard = shards_[unit].master) return copy_of(unit, *shard);
  return params_.share(unit, places_[unit].device, Access::kRead)
      .tensor()
      .to(torch::kFloat, /*non_blocking=*/false, /*copy=*/true);
}

}  // namespace zeroth::zero
