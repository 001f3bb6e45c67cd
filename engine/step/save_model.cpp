#include "engine/step/save_model.h"

#include <algorithm>
#include <functional>
#include <map>
#include <sstream>
#include <string>

#include "base/error.h"
#include "comm/cpu_collectives.h"

namespace zeroth::engine {
namespace {

RankSlices local_slices(const zero::UnitPlan& plan,
                        const std::vector<zero::GlobalParameter>& parameters) {
  RankSlices slices;
  for (const zero::GlobalParameter& parameter : parameters) {
    auto& own = slices.emplace_back();
    for (const zero::SlotIndex& place : parameter.slices) {
      own.push_back(plan.units[place.unit].layout.slots()[place.slot].global.slice);
    }
  }
  return slices;
}

// Calls `visit` for the begins and extents of slices; names and shapes are the same on all ranks.
template <typename Slices, typename Visit>
void for_each_bound(Slices& slices, const Visit& visit) {
  for (auto& of_parameter : slices) {
    for (auto& box : of_parameter) {
      std::for_each(box.offsets.begin(), box.offsets.end(), visit);
      std::for_each(box.sizes.begin(), box.sizes.end(), visit);
    }
  }
}

std::string to_string(const RankSlices& slices) {
  std::string text;
  for_each_bound(slices, [&](int64_t bound) { text += std::to_string(bound) + " "; });
  return text;
}

// Parses to_string()'s result. `slices` is this rank's own, which provide all but the bounds.
RankSlices parse(const std::string& text, RankSlices slices) {
  std::istringstream words(text);
  for_each_bound(slices, [&](int64_t& bound) { words >> bound; });
  std::string rest;
  if (!words || words >> rest) {
    throw Error("saving: ranks that share layers hold slices of different parameters");
  }
  return slices;
}

void copy_slice(const torch::Tensor& values, const TensorSlice& box, torch::Tensor whole) {
  for (size_t i = 0; i < box.offsets.size(); ++i) {
    whole = whole.narrow(static_cast<int64_t>(i), box.offsets[i], box.sizes[i]);
  }
  whole.copy_(values);
}

// Returns the unit's full buffer of masters. Collective over its shard group.
torch::Tensor full_master(zero::ShardedOptimizer& masters, const zero::UnitPlan& plan, size_t unit,
                          comm::DeviceMesh& mesh) {
  const zero::Unit& owner = plan.units[unit];
  masters.apply_pending_update(unit);
  const torch::Tensor own =
      at::empty({owner.owned_range().size()}, torch::device(mesh.device()).dtype(torch::kFloat));
  for (const zero::Range& tile : masters.states().tiles(unit)) {
    const offload::ChunkLease master = masters.states().read(unit, 0, tile);
    own.narrow(0, tile.begin, tile.size()).copy_(master.tensor());
  }
  if (own.numel() == owner.layout.numel()) return own;
  const torch::Tensor full = at::empty({owner.layout.numel()}, own.options());
  mesh.shard_group(owner.num_replicas).all_gather(full, own, "masters of " + owner.label()).wait();
  return full;
}

// Returns the part of the unit's full buffer of masters that holds its parameter `index`.
torch::Tensor slice_of(const torch::Tensor& full, const zero::Unit& unit, size_t index) {
  const zero::Slot& slot = unit.layout.slots()[index];
  return full.narrow(0, slot.offset, slot.numel).view(slot.shape());
}

// A ParameterWriter gathers parameters from their slices and writes them on rank 0.
class ParameterWriter {
 public:
  ParameterWriter(const zero::UnitPlan& plan, const std::vector<zero::GlobalParameter>& parameters,
                  torch::Dtype dtype, const comm::DeviceMesh& mesh, ModelSink& sink)
      : plan_(plan),
        parameters_(parameters),
        dtype_(dtype),
        mesh_(mesh),
        gatherer_(plan, parameters, mesh),
        sink_(sink) {
    std::vector<model::PlannedTensor> planned;
    for (const auto& parameter : parameters)
      planned.push_back({parameter.name, parameter.shape, parameter.keep_in_fp32});
    if (mesh.rank() == 0) sink.begin(planned, dtype);
    if (mesh.layout().shape()[comm::MeshDim::kPp] > 1) join(planned);
  }

  torch::Dtype dtype(size_t index) const {
    return parameters_[index].keep_in_fp32 ? torch::kFloat : dtype_;
  }

  // Writes a parameter of which `slices` returns this rank's, in its dtype(). It is called
  // if this rank holds the parameter and is the first of dimension dp: one gathers for all of them.
  void write(size_t index, const std::function<std::vector<torch::Tensor>()>& slices) {
    if (mesh_.coordinate(comm::MeshDim::kDp) > 0) return;
    const int holder = plan_.units[parameters_[index].slices.front().unit].pp_ranks.front();
    torch::Tensor full;
    if (holder == plan_.pp_rank) full = gatherer_.gather(index, slices());
    if (mesh_.coordinate(comm::MeshDim::kTp) > 0) return;
    const bool passes = holder > 0 && !has_joined_[static_cast<size_t>(holder)];
    if (passes) {
      full = full.defined() ? full.contiguous()
                            : at::empty(parameters_[index].shape,
                                        torch::device(mesh_.device()).dtype(dtype(index)));
      mesh_.group({comm::MeshDim::kPp}).broadcast(full, holder, parameters_[index].name).wait();
    }
    if (plan_.pp_rank == (passes ? 0 : holder)) sink_.write(parameters_[index].name, full);
  }

 private:
  // Lets the first ranks of the later pipeline stages write what they hold.
  void join(const std::vector<model::PlannedTensor>& planned) {
    mesh_.group({comm::MeshDim::kPp});  // collective creation of the group
    const std::string directory =
        comm::all_gather_strings(mesh_.rank() == 0 ? sink_.directory() : "",
                                 "where the model is saved", mesh_.cpu_group())
            .front();
    const bool is_first = mesh_.coordinate(comm::MeshDim::kDp) == 0 &&
                          mesh_.coordinate(comm::MeshDim::kTp) == 0 && plan_.pp_rank > 0;
    const bool joined = is_first && !directory.empty() && sink_.join(directory, planned, dtype_);
    const auto answers =
        comm::all_gather_strings(joined ? "joined" : "", "which ranks save", mesh_.cpu_group());
    const size_t pp_size = static_cast<size_t>(mesh_.layout().shape()[comm::MeshDim::kPp]);
    for (size_t pp_rank = 0; pp_rank < pp_size; ++pp_rank)
      has_joined_.push_back(!answers[pp_rank * answers.size() / pp_size].empty());
  }

  const zero::UnitPlan& plan_;
  const std::vector<zero::GlobalParameter>& parameters_;
  torch::Dtype dtype_;
  const comm::DeviceMesh& mesh_;
  SliceGatherer gatherer_;
  ModelSink& sink_;
  // [coordinate in mesh dim pp]: whether the first rank there writes what it holds itself.
  std::vector<bool> has_joined_ = {};
};

}  // namespace

void save_model(BlockRunner& runner, const zero::UnitPlan& plan, zero::ShardedOptimizer* masters,
                torch::Dtype working, comm::DeviceMesh& mesh, ModelSink& sink) {
  const torch::Dtype dtype = masters != nullptr ? torch::kFloat : working;
  const std::vector<zero::GlobalParameter> parameters = zero::global_parameters(plan);
  ParameterWriter writer(plan, parameters, dtype, mesh, sink);
  size_t next = 0;
  runner.for_each_gathered("saving", [&](size_t block) {
    std::map<size_t, torch::Tensor> full_masters;  // by unit
    for (const size_t unit : plan.block_units[block]) {
      const zero::Unit& own = plan.units[unit];
      // Without a master of its own the gathered weights are the master.
      const bool has_master =
          masters != nullptr && own.is_counted && masters->states().shards(unit).master;
      if (has_master && own.blocks.front() == block)
        full_masters[unit] = full_master(*masters, plan, unit, mesh);
    }
    for (; next < parameters.size() && parameters[next].block == block; ++next) {
      writer.write(next, [&] {
        std::vector<torch::Tensor> slices;
        for (const auto& [unit, i] : parameters[next].slices) {
          const auto master = full_masters.find(unit);
          slices.push_back(master == full_masters.end()
                               ? plan.units[unit].params[i].detach().to(writer.dtype(next))
                               : slice_of(master->second, plan.units[unit], i));
        }
        return slices;
      });
    }
  });
}

void save_trained(const zero::UnitPlan& plan, zero::ShardedOptimizer& masters, torch::Dtype dtype,
                  comm::DeviceMesh& mesh, ModelSink& sink) {
  std::vector<zero::GlobalParameter> parameters = zero::global_parameters(plan);
  std::erase_if(parameters, [](const auto& parameter) { return !parameter.is_saved; });
  ParameterWriter writer(plan, parameters, dtype, mesh, sink);
  size_t block = 0;
  std::map<size_t, torch::Tensor> full;  // by unit, of one block
  for (size_t i = 0; i < parameters.size(); ++i) {
    if (parameters[i].block != block) full.clear();
    block = parameters[i].block;
    for (const auto& [unit, index] : parameters[i].slices) {
      if (plan.units[unit].is_counted && !full.contains(unit))
        full[unit] = full_master(masters, plan, unit, mesh);
    }
    writer.write(i, [&] {
      std::vector<torch::Tensor> slices;
      for (const auto& [unit, index] : parameters[i].slices)
        slices.push_back(slice_of(full[unit], plan.units[unit], index).to(writer.dtype(i)));
      return slices;
    });
  }
}

SliceGatherer::SliceGatherer(const zero::UnitPlan& plan,
                             const std::vector<zero::GlobalParameter>& parameters,
                             const comm::DeviceMesh& mesh)
    : parameters_(parameters), mesh_(mesh) {
  if (mesh.layout().shape()[comm::MeshDim::kTp] == 1) return;
  const RankSlices own = local_slices(plan, parameters);
  const auto texts =
      comm::all_gather_strings(to_string(own), "boxes of parameters", mesh.cpu_group());
  const comm::Partition along = mesh.layout().along({comm::MeshDim::kTp});
  for (const int rank : along.part_of(mesh.rank())) {
    group_slices_.push_back(parse(texts[static_cast<size_t>(rank)], own));
  }
  mesh.group({comm::MeshDim::kTp});  // collective creation of the group
}

torch::Tensor SliceGatherer::gather(size_t index, const std::vector<torch::Tensor>& own) const {
  const zero::GlobalParameter& parameter = parameters_[index];
  const TensorSlice all = TensorSlice::full(parameter.shape);
  const auto has_all = [&](const RankSlices& slices) { return slices[index].front() == all; };
  if (std::all_of(group_slices_.begin(), group_slices_.end(), has_all)) return own.front();
  comm::Group& group = mesh_.group({comm::MeshDim::kTp});
  const torch::Tensor whole = at::empty(parameter.shape, own.front().options());
  for (size_t b = 0; b < own.size(); ++b) {
    for (size_t rank = 0; rank < group_slices_.size(); ++rank) {
      const TensorSlice& box = group_slices_[rank][index][b];
      if (rank > 0 && box == group_slices_[rank - 1][index][b]) continue;  // replicas are neighbors
      const bool mine = static_cast<int>(rank) == group.rank();
      const torch::Tensor values =
          mine ? own[b].contiguous() : at::empty(box.sizes, own[b].options());
      group.broadcast(values, static_cast<int>(rank), "boxes of " + parameter.name).wait();
      copy_slice(values, box, whole);
    }
  }
  return whole;
}

}  // namespace zeroth::engine
